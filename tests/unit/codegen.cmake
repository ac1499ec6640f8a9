# Code generation: every program also runs in the interpreter, on each instruction set that this machine has.
add_library(codegen_harness STATIC codegen_harness.cpp)
target_link_libraries(codegen_harness PUBLIC tessera_codegen_llvm tessera_package tessera_interp tessera_loop_passes GTest::gmock ${CMAKE_DL_LIBS})
target_include_directories(codegen_harness PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
tessera_test(codegen_loops_test SOURCES codegen_loops_test.cpp LINKS codegen_harness WHOLE)
tessera_test(codegen_ops_test SOURCES codegen_ops_test.cpp LINKS codegen_harness WHOLE)
tessera_test(codegen_random_test SOURCES codegen_random_test.cpp LINKS codegen_harness WHOLE)
tessera_test(codegen_module_test SOURCES codegen_module_test.cpp LINKS codegen_harness WHOLE)
tessera_test(codegen_target_test SOURCES codegen_target_test.cpp LINKS codegen_harness WHOLE)
