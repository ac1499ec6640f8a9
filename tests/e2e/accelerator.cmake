# Accelerators that a file describes.
add_test(NAME e2e.accelerator COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/accelerator_test.py $<TARGET_FILE:tessera>)
set_tests_properties(e2e.accelerator PROPERTIES LABELS "e2e;slow" TIMEOUT 600 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
