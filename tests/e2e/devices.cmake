add_test(NAME e2e.devices COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/devices.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.devices PROPERTIES LABELS "e2e;slow" TIMEOUT 1200)
