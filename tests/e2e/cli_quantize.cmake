# Post-training quantisation: what a model of bytes finds, what is refused.
if(TARGET tessera)
  add_test(NAME e2e.cli_quantize COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_quantize_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_quantize PROPERTIES LABELS "e2e;slow" ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
if(TARGET tessera)
  add_test(NAME e2e.cli_quantize_schemes COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_quantize_schemes_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_quantize_schemes PROPERTIES LABELS "e2e" ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
