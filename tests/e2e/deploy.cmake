# Programs and C source that `compile` writes.
if(TARGET tessera)
  foreach(name executables c_sources)
    add_test(NAME e2e.${name} COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${name}_test.py $<TARGET_FILE:tessera>)
    set_tests_properties(e2e.${name} PROPERTIES LABELS "e2e" SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
endif()
