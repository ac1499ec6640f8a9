# The measuring scripts in bench/.
if(TARGET tessera)
  add_test(NAME e2e.bench_scripts COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/bench_scripts_test.py
    $<TARGET_FILE:tessera> $<TARGET_FILE:tessera_runtime_shared>)
  set_tests_properties(e2e.bench_scripts PROPERTIES LABELS "e2e;slow" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
