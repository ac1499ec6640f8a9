tessera_test(math_test SOURCES math_test.cpp LINKS codegen_harness WHOLE LABELS slow)
