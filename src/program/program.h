// The program IR: what one call of a module does. Buffers with their place in memory, kernels, and the order of calls.
//
// Semantics: steps run in order; a kernel call runs the named loop program with the given buffers as its parameters.
// Arena buffers whose lifetimes do not overlap may share bytes; a buffer's contents are unspecified before its first
// write. `alias_of` buffers are other views of the same bytes (same size in bytes).
// Offsets are in bytes, multiples of 64.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "expr/tensor_program.h"
#include "loop/stmt.h"
#include "types/tensor.h"

namespace tessera {

using BufferId = int32_t;

enum class BufferKind : uint8_t { kInput, kOutput, kWeight, kArena };
const char* buffer_kind_name(BufferKind kind);

struct ProgramBuffer {
  std::string name;
  BufferKind kind = BufferKind::kArena;
  TensorType type;         // with layout
  int64_t bytes = 0;       // of the physical shape
  int64_t offset = -1;     // kArena: in the arena; kWeight: in the weights region; -1 before planning
  int32_t index = -1;      // kInput, kOutput: number in the module's signature
  BufferId alias_of = -1;  // another buffer whose bytes this one shares
  TensorPtr data;          // kWeight: physical bytes (u8 or the element type); dims = physical shape
};

struct Kernel {
  LoopProgram program;
  // What the program computes, for the schedule rules; null when the program was read from text.
  std::shared_ptr<const TensorProgram> definition;
  std::string rule = "naive";        // the schedule rule that wrote `program`
  std::vector<std::string> refused;  // "rule: reason" of those that were asked and declined
  std::string loc;                   // the model's node names it stands for
  int64_t flops = -1;                // per call
  int64_t bytes = -1;                // distinct bytes read and written per call
};

struct KernelCall {
  int32_t kernel = 0;
  std::vector<BufferId> args;
  std::string loc;
};

struct Program {
  std::string name = "main";
  std::vector<ProgramBuffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<KernelCall> calls;
  std::vector<BufferId> inputs, outputs;
  // The model's names of the outputs where they differ from their buffers' (a value that is an input and an output, or
  // two outputs); empty: the buffers' names.
  std::vector<std::string> output_names;
  int64_t arena_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // per worker; set by code generation for kLocal allocations that do not fit the stack
};

}  // namespace tessera
