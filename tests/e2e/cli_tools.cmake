# The verbs that look: explain, inspect, doctor, profiles and rooflines, limits of a compile.
if(TARGET tessera)
  foreach(suite Explain Inspect Doctor Profile Roofline Against AgainstSeveral Limits)
    add_test(NAME e2e.cli_tools.${suite}
      COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_tools_test.py $<TARGET_FILE:tessera> ${suite})
    set_tests_properties(e2e.cli_tools.${suite} PROPERTIES LABELS "e2e" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
  set_tests_properties(e2e.cli_tools.Doctor e2e.cli_tools.Roofline e2e.cli_tools.AgainstSeveral PROPERTIES LABELS "e2e;slow")
endif()
