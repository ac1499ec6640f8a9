tessera_test(arith_simplify_test SOURCES arith_simplify_test.cpp LINKS tessera_arith WHOLE)
tessera_test(arith_sizes_test SOURCES arith_sizes_test.cpp LINKS tessera_arith WHOLE)
