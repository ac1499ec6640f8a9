tessera_test(program_test SOURCES program_test.cpp LINKS tessera_interp tessera_program WHOLE)
