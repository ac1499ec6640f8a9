# Code generation: every program also runs in the interpreter, on each instruction set that this machine has.
add_library(codegen_harness STATIC codegen_harness.cpp)
target_compile_definitions(codegen_harness PRIVATE TESSERA_C_COMPILER="${CMAKE_C_COMPILER}")
target_link_libraries(codegen_harness PUBLIC tessera_codegen_llvm tessera_codegen_c tessera_package tessera_interp tessera_loop_passes GTest::gmock ${CMAKE_DL_LIBS})
target_include_directories(codegen_harness PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
tessera_test(codegen_loops_test SOURCES codegen_loops_test.cpp LINKS codegen_harness LABELS slow WHOLE)
tessera_test(codegen_ops_test SOURCES codegen_ops_test.cpp LINKS codegen_harness LABELS slow WHOLE)
tessera_test(codegen_random_test SOURCES codegen_random_test.cpp LINKS codegen_harness LABELS slow WHOLE)
tessera_test(codegen_module_test SOURCES codegen_module_test.cpp LINKS codegen_harness WHOLE)
tessera_test(codegen_steps_test SOURCES codegen_steps_test.cpp random_steps.cpp LINKS codegen_harness LABELS slow WHOLE)
tessera_test(procedures_test SOURCES procedures_test.cpp LINKS codegen_harness tessera_ops LABELS slow WHOLE)
tessera_test(codegen_small_types_test SOURCES codegen_small_types_test.cpp LINKS codegen_harness LABELS slow WHOLE)
tessera_test(codegen_target_test SOURCES codegen_target_test.cpp LINKS codegen_harness WHOLE)
tessera_test(device_module_test SOURCES device_module_test.cpp random_steps.cpp
  LINKS tessera_interp tessera_program tessera_loop_passes tessera_codegen_llvm tessera_package tessera_runtime
    tessera_test_modules WHOLE)
set_target_properties(device_module_test PROPERTIES BUILD_RPATH "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
add_dependencies(device_module_test tessera_null_shared)
