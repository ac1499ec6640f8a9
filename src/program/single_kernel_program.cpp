#include "program/single_kernel_program.h"

#include <algorithm>

namespace tessera::inline program {

Program program_of(const LoopProgram& loops) {
  Program program;
  program.name = loops.name;
  KernelCall call;
  const size_t num_inputs = loops.params.size() - static_cast<size_t>(loops.num_outputs);
  for (size_t i = 0; i < loops.params.size(); ++i) {
    const Buffer& param = *loops.params[i];
    ProgramBuffer buffer;
    buffer.name = param.name;
    buffer.kind = i < num_inputs ? BufferKind::kInput : BufferKind::kOutput;
    buffer.index = static_cast<int32_t>(i < num_inputs ? i : i - num_inputs);
    buffer.type.dtype = param.dtype;
    buffer.type.shape = param.shape;
    const bool is_static =
        std::all_of(param.shape.begin(), param.shape.end(), [](const Expr& extent) { return as_int(extent); });
    if (is_static) buffer.bytes = dtype_bytes(buffer.type.dtype, buffer.type.num_elements());
    program.buffers.push_back(buffer);
    const auto id = static_cast<BufferId>(i);
    (i < num_inputs ? program.inputs : program.outputs).push_back(id);
    call.args.push_back(id);
  }
  for (const Var& symbol : loops.symbols) program.symbols.push_back({symbol, 0, 1 << 20, 1});
  Kernel kernel;
  kernel.program = loops;
  kernel.loc = loops.name;
  program.kernels.push_back(std::move(kernel));
  program.calls.push_back(std::move(call));
  return program;
}

}  // namespace tessera::inline program
