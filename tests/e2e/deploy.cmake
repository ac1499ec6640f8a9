# Programs and C source that `compile` writes.
if(TARGET tessera)
  set(here ${CMAKE_CURRENT_SOURCE_DIR})
  add_test(NAME e2e.executables COMMAND ${TESSERA_PYTHON} ${here}/executables_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.executables PROPERTIES LABELS "e2e"
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;TESSERA_SANITIZE=${TESSERA_SANITIZE};TESSERA_OPTIMISED=$<NOT:$<CONFIG:Debug>>")
  foreach(suite CSources Operators Large)
    add_test(NAME e2e.c_sources.${suite} COMMAND ${TESSERA_PYTHON} ${here}/c_sources_test.py $<TARGET_FILE:tessera> ${suite})
    set_tests_properties(e2e.c_sources.${suite} PROPERTIES LABELS "e2e" SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
  set_property(TEST e2e.c_sources.Operators e2e.c_sources.Large PROPERTY LABELS "e2e;slow")
endif()
