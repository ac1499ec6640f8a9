# Whole networks, compiled and interpreted, beside ONNX Runtime. TESSERA_TEST_FULL=1: all of them in every configuration.
function(models_test name script)
  add_test(NAME e2e.${name} COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${script}.py $<TARGET_FILE:tessera> ${ARGN})
  set_tests_properties(e2e.${name} PROPERTIES LABELS "e2e;slow" TIMEOUT 3600 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;TESSERA_SANITIZE=${TESSERA_SANITIZE}"
    SKIP_RETURN_CODE 77)
endfunction()

models_test(models_matrix models_matrix)
models_test(suite_models suite_models)
models_test(light_models light_models)
models_test(real_models real_models)
models_test(reduced_models reduced_models)
models_test(intermediates intermediates)
