# Training that several processes share: skipped, with the reason, where there is no MPI.
if(TARGET tessera AND TARGET tessera_native)
  add_test(NAME e2e.data_parallel COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/data_parallel.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.data_parallel PROPERTIES LABELS "e2e;slow" TIMEOUT 900
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
endif()
if(TARGET tessera AND TARGET tessera_native)
  add_test(NAME e2e.parallelize COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/parallelize.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.parallelize PROPERTIES LABELS "e2e;slow" TIMEOUT 600
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
endif()
if(TARGET tessera AND TARGET tessera_native)
  add_test(NAME e2e.pipeline COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/pipeline.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.pipeline PROPERTIES LABELS "e2e;slow" TIMEOUT 900
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
endif()
if(TARGET tessera AND TARGET tessera_native)
  add_test(NAME e2e.elastic COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/elastic.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.elastic PROPERTIES LABELS "e2e;slow" TIMEOUT 900
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
endif()
