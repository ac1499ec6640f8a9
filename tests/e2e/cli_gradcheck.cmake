# Gradients of models against differences.
if(TARGET tessera)
  add_test(NAME e2e.cli_gradcheck COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_gradcheck_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_gradcheck PROPERTIES LABELS "e2e" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
