add_test(NAME e2e.opencl COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/opencl.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.opencl PROPERTIES LABELS "e2e;slow" TIMEOUT 1200 SKIP_RETURN_CODE 77)
add_test(NAME e2e.opencl_operators COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/opencl_operators.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.opencl_operators PROPERTIES LABELS "e2e" TIMEOUT 300 SKIP_RETURN_CODE 77)
add_test(NAME e2e.cuda_text COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cuda_text.py $<TARGET_FILE:tessera>
  $<TARGET_FILE:fake_cuda>)
set_tests_properties(e2e.cuda_text PROPERTIES LABELS "e2e;slow" TIMEOUT 1200)
add_test(NAME e2e.opencl_races COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/opencl_races.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.opencl_races PROPERTIES LABELS "e2e" TIMEOUT 300 SKIP_RETURN_CODE 77)
