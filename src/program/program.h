// The program IR: what one call of a module does. Buffers with their place in memory, kernels, and the order of calls.
//
// Semantics: steps run in order; a kernel call runs the named loop program with the given buffers as its parameters. A
// call with conditions takes place when all of them hold; otherwise the contents of what it writes are unspecified.
// Arena buffers whose lifetimes do not overlap may share bytes; a buffer's contents are unspecified before its first
// write. A buffer with `alias_of` is a view: it names `bytes` bytes of another buffer, from `view_offset` on. Views of
// a buffer may overlap; a kernel may write one view while it reads another that it does not overlap.
// A buffer with `over` takes the bytes of another one of the same size at the call that writes it first, which is the
// last that reads the other: the kernel writes each element after it has read that element (program/in_place.h).
// Offsets are in bytes: multiples of 64, those of views multiples of the element.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "graph/runtime_check.h"
#include "loop/stmt.h"
#include "te/tensor_program.h"
#include "types/tensor.h"

namespace tessera::inline graph {
struct Flow;  // graph/flow.h
}

namespace tessera::inline program {

using BufferId = int32_t;

enum class BufferKind : uint8_t { kInput, kOutput, kWeight, kArena };
const char* buffer_kind_name(BufferKind kind);

struct ProgramBuffer {
  std::string name;
  BufferKind kind = BufferKind::kArena;
  TensorType type;           // with layout
  int64_t bytes = 0;         // of the physical shape
  int64_t offset = -1;       // kArena: in the arena; kWeight: in the weights region; -1 before planning
  int32_t index = -1;        // kInput, kOutput: number in the module's signature
  BufferId alias_of = -1;    // another buffer of which this one is a view
  int64_t view_offset = 0;   // where the view begins, from the begin of `alias_of`
  Expr view_offset_formula;  // of the program's symbols; null when it does not depend on them
  BufferId over = -1;        // kArena, no view: the buffer, no view either, whose bytes it takes when that one dies
  TensorPtr data;            // kWeight: physical bytes (u8 or the element type); dims = physical shape
};

struct Kernel {
  LoopProgram program;
  // What the program computes, for the schedule rules; null when the program was read from text or is a procedure's.
  std::shared_ptr<const TensorProgram> definition;
  std::string rule = "naive";        // the schedule rule that wrote `program`
  std::vector<std::string> refused;  // "rule: reason" of those that were asked and declined
  std::string loc;                   // the model's node names it stands for
  int64_t flops = -1;                // per call
  int64_t bytes = -1;                // distinct bytes read and written per call
};

// A buffer of one bool, and what it must be.
struct CallCondition {
  BufferId buffer = -1;
  bool value = true;
};

struct KernelCall {
  int32_t kernel = 0;
  std::vector<BufferId> args;
  std::string loc;
  std::vector<CallCondition> only_if = {};  // all must hold; empty: the call always takes place
};

// Calls `visit` with each buffer that the call reads or writes, and with its place among the arguments: those that only
// decide whether it takes place have none (-1).
template <typename Visit>
void for_each_buffer(const KernelCall& call, const Visit& visit) {
  for (size_t i = 0; i < call.args.size(); ++i) visit(call.args[i], static_cast<int>(i));
  for (const CallCondition& condition : call.only_if) visit(condition.buffer, -1);
}

// What one of a flow's pieces has become: calls one after another, and numbers of the program's inputs and outputs.
struct ProgramPiece {
  size_t first_call = 0, num_calls = 0;
  size_t num_inputs = 0, num_outputs = 0, num_checks = 0;  // the pieces' own stand one behind the other, in order
  size_t num_symbols = 0;                                  // so do these; a piece with symbols has an arena of its own
};

// Of a program with symbols, sizes are expressions of those in the types; the numbers (bytes, offsets, the arena's
// size) are those of the largest sizes.
//
// With a flow, a call of the module does its steps; inputs, outputs, checks and symbols are those of the pieces, and
// the arena is that of the pieces without symbols.
struct Program {
  std::string name = "main";
  std::vector<ProgramBuffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<KernelCall> calls;
  std::vector<BufferId> inputs, outputs;
  std::vector<SymbolRange> symbols;  // named dimensions, which the inputs of a run give values
  // The model's names of the outputs where they differ from their buffers' (a value that is an input and an output, or
  // two outputs); empty: the buffers' names.
  std::vector<std::string> output_names;
  std::vector<RuntimeCheck> checks;  // of the last checks.size() outputs
  std::shared_ptr<const Flow> flow;  // null: the calls are everything
  std::vector<ProgramPiece> pieces;  // of the flow
  int64_t arena_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // per worker; set by code generation for kLocal allocations that do not fit the stack
};

}  // namespace tessera::inline program
