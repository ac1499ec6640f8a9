add_test(NAME e2e.narrow_outputs COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/narrow_outputs.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.narrow_outputs PROPERTIES LABELS e2e TIMEOUT 600)
