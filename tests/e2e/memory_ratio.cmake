add_test(NAME e2e.memory_ratio COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/memory_ratio.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.memory_ratio PROPERTIES LABELS "e2e;slow" TIMEOUT 900)
