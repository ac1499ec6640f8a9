tessera_test(loop_text_test SOURCES loop_text_test.cpp LINKS tessera_loop WHOLE)
tessera_test(loop_interp_test SOURCES loop_interp_test.cpp LINKS tessera_interp WHOLE)
tessera_test(loop_verify_test SOURCES loop_verify_test.cpp LINKS tessera_loop WHOLE)
tessera_test(loop_passes_test SOURCES loop_passes_test.cpp LINKS tessera_loop_passes tessera_interp WHOLE)
