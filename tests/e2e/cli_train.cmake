# Training: digits are learnt, by models built with the Python package and from ONNX.
if(TARGET tessera AND TARGET tessera_native)
  add_test(NAME e2e.cli_train COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_train_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_train PROPERTIES LABELS "e2e;slow"
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_BINARY_DIR}/python")
endif()
