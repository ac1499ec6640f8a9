# What is exported runs in ONNX Runtime.
add_executable(export_cases export_cases.cpp ../unit/random_control_flow.cpp)
target_include_directories(export_cases PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/.. ${CMAKE_CURRENT_SOURCE_DIR}/../unit)
target_link_libraries(export_cases PRIVATE tessera_flags tessera_import_onnx tessera_interp)
add_test(NAME e2e.exported_graphs COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/exported_graphs.py
  $<TARGET_FILE:export_cases>)
set_tests_properties(e2e.exported_graphs PROPERTIES LABELS e2e TIMEOUT 600 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
