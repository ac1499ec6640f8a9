add_test(NAME e2e.recognized_operators COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/recognized_operators.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.recognized_operators PROPERTIES LABELS e2e TIMEOUT 900)
