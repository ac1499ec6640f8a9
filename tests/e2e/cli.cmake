# The command line, as a user sees it.
if(TARGET tessera)
  set(cli_suites Compile Run Cache Verify Bench Terminal Opt)
  foreach(suite ${cli_suites})
    add_test(NAME e2e.cli.${suite}
      COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_test.py $<TARGET_FILE:tessera> ${suite})
    set_tests_properties(e2e.cli.${suite} PROPERTIES LABELS "e2e" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
  add_test(NAME e2e.cli_docs
    COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_docs.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_docs PROPERTIES LABELS "e2e" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
