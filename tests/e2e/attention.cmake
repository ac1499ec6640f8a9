add_test(NAME e2e.attention COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/attention.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.attention PROPERTIES LABELS "e2e;slow" TIMEOUT 600)
