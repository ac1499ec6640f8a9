# Training that several processes share: skipped, with the reason, where there is no MPI.
if(TARGET tessera AND TARGET tessera_native)
  foreach(name training_meshes data_parallel parallelize simulate pipeline elastic)
    add_test(NAME e2e.${name} COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.py $<TARGET_FILE:tessera>)
    set_tests_properties(e2e.${name} PROPERTIES LABELS "e2e;slow" TIMEOUT 900
      ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
  endforeach()
endif()
