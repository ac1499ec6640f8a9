add_test(NAME e2e.row_chains COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/row_chains.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.row_chains PROPERTIES LABELS e2e TIMEOUT 600)
