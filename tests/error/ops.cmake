tessera_test(op_errors_test WHOLE SOURCES op_errors_test.cpp LINKS tessera_ops)
