# What the command line says to mistakes, and the list of error ids.
add_test(NAME error.ids COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/error_ids.py)
set_tests_properties(error.ids PROPERTIES LABELS error)
if(TARGET tessera)
  add_test(NAME error.cli
    COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_errors_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(error.cli PROPERTIES LABELS error
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;TESSERA_SANITIZE=${TESSERA_SANITIZE}")
endif()
