tessera_test(tflite_fixed_point_test SOURCES tflite_fixed_point_test.cpp LINKS tessera_import_tflite WHOLE)
tessera_test(onnx_import_test SOURCES onnx_control_flow_test.cpp onnx_function_subgraph_test.cpp onnx_import_test.cpp
  LINKS test_support WHOLE)
tessera_test(onnx_export_test SOURCES onnx_export_test.cpp onnx_export_regions_test.cpp random_control_flow.cpp
  random_graph.cpp ../support/test_data.cpp LINKS tessera_import_onnx tessera_graph_passes tessera_interp WHOLE)
target_include_directories(onnx_export_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/..)
tessera_test(onnx_regions_test SOURCES onnx_regions_test.cpp ../support/onnx_model.cpp ../support/test_data.cpp
  LINKS tessera_import_onnx tessera_graph_passes tessera_lower tessera_interp WHOLE)
target_include_directories(onnx_regions_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/..)
# Without the rest of the compiler, which the sources of test_support need not.
tessera_test(symbolic_import_test SOURCES symbolic_import_test.cpp symbolic_loops_test.cpp symbolic_models_test.cpp known_sizes_test.cpp
  ../support/onnx_model.cpp ../support/symbolic_import.cpp ../support/test_data.cpp
  LINKS tessera_import_onnx tessera_interp tessera_graph_passes tessera_lower WHOLE)
target_include_directories(symbolic_import_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/..)
