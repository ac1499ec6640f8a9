add_test(NAME e2e.overlapped_tiles COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/overlapped_tiles.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.overlapped_tiles PROPERTIES LABELS "e2e;slow" TIMEOUT 600)
