tessera_test(import_e2e_test SOURCES import_e2e_test.cpp LINKS test_support)
tessera_test(import_e2e_slow_test SOURCES import_e2e_slow_test.cpp LINKS test_support LABELS slow WHOLE)
