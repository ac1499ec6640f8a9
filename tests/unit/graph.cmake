tessera_test(graph_test SOURCES graph_test.cpp random_graph.cpp LINKS tessera_graph tessera_ops WHOLE)
tessera_test(graph_passes_test SOURCES graph_passes_test.cpp random_graph.cpp
  LINKS tessera_graph_passes tessera_ops tessera_interp WHOLE)
tessera_test(algebra_rules_test SOURCES algebra_rules_test.cpp LINKS tessera_graph_passes tessera_ops tessera_interp WHOLE)
