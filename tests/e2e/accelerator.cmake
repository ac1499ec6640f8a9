# Accelerators that a file describes.
add_test(NAME e2e.accelerator COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accelerator_test.py $<TARGET_FILE:tessera>)
add_test(NAME e2e.accel_networks COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accel_networks.py $<TARGET_FILE:tessera>
  --layers C1,C2,C4,C5,C8,C12,D2)
add_test(NAME e2e.accel_hardware COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accel_networks.py $<TARGET_FILE:tessera>
  --layers C6,C7,C8,C9,C12 --rtl)
set_tests_properties(e2e.accelerator e2e.accel_networks e2e.accel_hardware PROPERTIES LABELS "e2e;slow" TIMEOUT 600 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
