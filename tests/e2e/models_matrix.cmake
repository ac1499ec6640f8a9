add_test(NAME e2e.models_matrix COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/models_matrix.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.models_matrix PROPERTIES LABELS "e2e;slow" TIMEOUT 1500)
