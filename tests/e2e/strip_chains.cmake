add_test(NAME e2e.strip_chains COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/strip_chains.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.strip_chains PROPERTIES LABELS e2e TIMEOUT 600)
