tessera_test(loop_text_test SOURCES loop_text_test.cpp LINKS tessera_loop WHOLE)
