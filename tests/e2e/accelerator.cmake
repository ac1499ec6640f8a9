# Accelerators that files describe. What needs Verilator or yosys says so and skips where there is none.
set(accel_networks ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accel_networks.py $<TARGET_FILE:tessera>)
set(accel_units ${PROJECT_SOURCE_DIR}/examples/accel)
add_test(NAME e2e.accelerator COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accelerator_test.py $<TARGET_FILE:tessera>)
# All layers, whole where TESSERA_TEST_FULL is set; other designs, and bytes without a sign.
add_test(NAME e2e.accel_networks COMMAND ${accel_networks} --threads --pictures)
add_test(NAME e2e.accel_networks.designs COMMAND ${accel_networks} --unit ${accel_units}/tile8.json --unit ${accel_units}/systolic.json)
add_test(NAME e2e.accel_networks.unsigned COMMAND ${accel_networks} --size tiny --unsigned --layers C1,C2,C5,C10)
add_test(NAME e2e.accel_tune COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accel_tune_test.py $<TARGET_FILE:tessera>)
# The hardware: all layers' mixes of instructions at tiny sizes in the fast tests, larger layers and other designs in the slow ones.
add_test(NAME e2e.accel_hardware COMMAND ${accel_networks} --size tiny --rtl)
add_test(NAME e2e.accel_hardware.layers COMMAND ${accel_networks} --rtl)
add_test(NAME e2e.accel_hardware.designs COMMAND ${accel_networks} --rtl --size tiny --unit ${accel_units}/tile8.json
  --unit ${accel_units}/systolic.json)
add_test(NAME e2e.accel_lint COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accel_lint_test.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.accel_hardware PROPERTIES LABELS e2e TIMEOUT 600 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
set_tests_properties(e2e.accelerator e2e.accel_networks e2e.accel_networks.designs e2e.accel_networks.unsigned e2e.accel_tune e2e.accel_hardware.layers
  e2e.accel_hardware.designs e2e.accel_lint PROPERTIES LABELS "e2e;slow" TIMEOUT 1800 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
