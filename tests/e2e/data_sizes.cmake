# Sizes that data decide.
if(TARGET tessera)
  add_test(NAME e2e.data_sizes
    COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/data_sizes.py $<TARGET_FILE:tessera> --rotate 3)
  set_tests_properties(e2e.data_sizes PROPERTIES LABELS "e2e;slow" TIMEOUT 900 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
