tessera_test(graph_test SOURCES graph_test.cpp random_graph.cpp LINKS tessera_graph tessera_ops WHOLE)
tessera_test(graph_passes_test SOURCES graph_passes_test.cpp random_graph.cpp
  LINKS tessera_graph_passes tessera_ops tessera_interp LABELS slow WHOLE)
tessera_test(algebra_rules_test SOURCES algebra_rules_test.cpp LINKS tessera_graph_passes tessera_ops tessera_interp WHOLE)
tessera_test(raise_to_composites_test SOURCES raise_to_composites_test.cpp LINKS tessera_graph_passes tessera_ops tessera_interp WHOLE)
tessera_test(passes_doc_test SOURCES passes_doc_test.cpp LINKS tessera_graph_passes tessera_loop_passes tessera_program tessera_schedule tessera_ops)
tessera_test(control_flow_test SOURCES control_flow_test.cpp random_control_flow.cpp ../support/test_data.cpp
  LINKS tessera_graph_passes tessera_ops tessera_interp tessera_lower tessera_program WHOLE)
target_include_directories(control_flow_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/..)
tessera_test(subgraph_test SOURCES subgraph_test.cpp random_graph.cpp random_control_flow.cpp ../support/test_data.cpp
  LINKS tessera_diagnose tessera_ops tessera_interp WHOLE)
target_include_directories(subgraph_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/..)
tessera_test(gradients_test SOURCES gradients_test.cpp LINKS tessera_autodiff tessera_interp WHOLE)
tessera_test(gradient_check_test SOURCES gradient_check_test.cpp LINKS tessera_diagnose tessera_interp WHOLE)
tessera_test(second_order_test SOURCES second_order_test.cpp LINKS tessera_autodiff tessera_interp WHOLE)
tessera_test(training_step_test SOURCES training_step_test.cpp LINKS tessera_train tessera_interp WHOLE)
tessera_test(quantize_test SOURCES quantize_test.cpp LINKS tessera_quantize tessera_interp WHOLE)
tessera_test(sharding_test SOURCES sharding_test.cpp random_graph.cpp LINKS tessera_dist tessera_interp WHOLE)
