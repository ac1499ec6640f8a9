tessera_test(index_map_test SOURCES index_map_test.cpp LINKS tessera_te WHOLE)
