tessera_test(onnx_import_test SOURCES onnx_control_flow_test.cpp onnx_function_subgraph_test.cpp onnx_import_test.cpp
  LINKS test_support WHOLE)
tessera_test(onnx_export_test SOURCES onnx_export_test.cpp random_graph.cpp LINKS test_support WHOLE)
