add_test(NAME e2e.control_flow COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/control_flow.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.control_flow PROPERTIES LABELS e2e TIMEOUT 600)
