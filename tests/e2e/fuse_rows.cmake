add_test(NAME e2e.fuse_rows COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/fuse_rows.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.fuse_rows PROPERTIES LABELS e2e TIMEOUT 600)
