tessera_test(loop_text_test SOURCES loop_text_test.cpp LINKS tessera_loop WHOLE)
tessera_test(loop_interp_test SOURCES loop_interp_test.cpp LINKS tessera_interp WHOLE)
