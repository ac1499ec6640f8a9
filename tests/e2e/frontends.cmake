# What is written for others to read: MLIR and the page about a model. Parts that need mlir-opt-19, clang-19 or Chromium
# say so where these are missing.
if(TARGET tessera)
  add_test(NAME e2e.linalg COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/linalg_test.py $<TARGET_FILE:tessera>)
  add_test(NAME e2e.report COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/report_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.linalg e2e.report PROPERTIES LABELS e2e TIMEOUT 600 SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
