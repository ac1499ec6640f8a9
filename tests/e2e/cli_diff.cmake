# The verbs that look for what went wrong.
if(TARGET tessera)
  foreach(suite Diff Bisect Reduce)
    add_test(NAME e2e.cli_diff.${suite}
      COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_diff_test.py $<TARGET_FILE:tessera> ${suite})
    set_tests_properties(e2e.cli_diff.${suite} PROPERTIES LABELS "e2e"
      ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
  set_tests_properties(e2e.cli_diff.Reduce PROPERTIES LABELS "e2e;slow")
endif()
