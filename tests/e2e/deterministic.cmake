add_test(NAME e2e.deterministic
  COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/deterministic.py $<TARGET_FILE:tessera> --random 3)
set_tests_properties(e2e.deterministic PROPERTIES LABELS "e2e;slow" TIMEOUT 300)
add_test(NAME e2e.deterministic_machines
  COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/deterministic.py $<TARGET_FILE:tessera> --cross --random 20 --networks)
set_tests_properties(e2e.deterministic_machines PROPERTIES LABELS "e2e;cross;slow" TIMEOUT 3600
  ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
