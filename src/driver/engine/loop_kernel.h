// One loop program as compiled code: for comparing and timing schedules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/common/object_code.h"
#include "driver/engine/model.h"
#include "loop/stmt.h"
#include "program/program.h"
#include "target/target.h"

namespace tessera::inline driver {

// The loop passes of the level, then object code. `options` says whether the text of IR or assembly is wanted.
// UserError TSR-3421 for a program that cannot be compiled alone: symbols, or an allocation that code generation has no
// place for.
ObjectCode compile_loops(const LoopProgram& program, const Target& target, const CodegenOptions& options);

// The module of one kernel whose inputs and outputs are the program's parameters, loaded. REQUIRES: a target that runs
// on this machine. `remarks` (may be null) receives what code generation did not do, and why.
std::unique_ptr<Model> load_loops(const LoopProgram& program, const Target& target, int num_threads,
                                  std::vector<std::string>* remarks = nullptr);

// A planned program as a module, loaded.
std::unique_ptr<Model> load_program(Program planned, const Target& target, int num_threads,
                                    std::vector<std::string>* remarks = nullptr);

// One tensor for each input, the same for the same seed: floats in [-1, 1), small integers, random bools.
std::vector<Tensor> random_loop_inputs(const LoopProgram& program, uint64_t seed);
// By the interpreter.
std::vector<Tensor> interpret_loops(const LoopProgram& program, const std::vector<Tensor>& inputs);

// Floating-point operations that the program's stores do, multiply and add counted separately; what conditions leave
// out counts, an extent that is not constant counts with its upper bound, or as 1 when it has none.
double loop_flops(const LoopProgram& program);
// Executions of stores, counted the same way: what the interpreter's time goes by.
double loop_stores(const LoopProgram& program);

}  // namespace tessera::inline driver
