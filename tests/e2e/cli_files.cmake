# What the command line writes over, sizes that inputs decide, what modules refuse, how tensors are written, and help.
if(TARGET tessera)
  foreach(suite Outputs Sizes Modules Forms Help)
    add_test(NAME e2e.cli_files.${suite}
      COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_files_test.py $<TARGET_FILE:tessera> ${suite})
    set_tests_properties(e2e.cli_files.${suite} PROPERTIES LABELS "e2e" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endforeach()
endif()
