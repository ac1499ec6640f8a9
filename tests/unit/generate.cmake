tessera_test(sampler_test SOURCES sampler_test.cpp LINKS tessera_generate WHOLE)
tessera_test(byte_pairs_test SOURCES byte_pairs_test.cpp LINKS tessera_generate WHOLE)
