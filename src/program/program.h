// The program IR: what one call of a module does. Buffers with their place in memory, kernels, and the steps that call
// them.
//
// Semantics: steps run in order. A kernel call runs the named loop program with the given buffers as its parameters.
//
// A *branch* reads one bool and runs its first block when it is true, else the second. What only one of the blocks
// writes has unspecified contents afterwards, and is not read.
//
// A *loop* runs its block again and again, in iterations that are numbered from 0. Before each iteration, number i, it
// reads the condition buffer (one bool), if it has one, and ends when that is false; it ends when i has reached the
// count, which is read once, before the first iteration; and it ends when i has reached `index.hi` + 1, so that views
// which move with the index stay inside their buffers whatever a run's count is. In the block, the index is a symbol:
// kernels take it as one of theirs, and offsets of views that are used there may be formulas of it. At the end of each
// iteration, the contents of every carried value's `next` become those of its `current`, of all at the same time; the
// contents of `next` are unspecified then. What the block needs before its first iteration, it finds in `current`,
// which the steps before the loop have written; what is left there is for the steps behind it. Every other buffer that
// the block writes has in the next iteration, and behind the loop, the contents that were written last; what no
// iteration wrote is unspecified. No buffer carries twice.
//
// A *bind* gives a data symbol of the program (SymbolRange::bound) its value: the i64 in a buffer, kept within 0 and
// the bound. Before it, and where the memory of buffers is laid out, the symbol has the value of its bound; whatever
// has it as a size is written and read behind the bind alone. Outputs have the shapes that the symbols' last values
// give them, from the first byte of their memory on.
//
// Devices: device 0 is the host; each other one has memory of its own, which only its kernels and copies touch, and a
// queue, which does what it is given in order. A kernel runs on its device, and all its buffers lie there; some devices
// (communicators) work in the host's memory and have none of their own: buffers of their kernels are the host's. A
// *start* gives its block, calls and copies, to the queue of its device and ends at once. A *copy* writes the contents
// of one buffer to another one of the same type; one lies on the device of the start around it, the other on the host,
// or, to be read, on a device of the same kind. A *wait* ends when its start's block is done; it stands behind the
// start, in the same block. From a start to its wait, buffers elsewhere that it writes are not touched, and those that
// it reads are not written, but by later starts of the same device. Branches, loops and binds read buffers of the host.
//
// A step that fails ends the run: what the outputs hold is unspecified then.
//
// Memory: arena buffers whose lifetimes do not overlap may share bytes; a buffer's contents are unspecified before its
// first write. A buffer with `alias_of` is a view: it names `bytes` bytes of another buffer, from `view_offset` on.
// Views of a buffer may overlap; a kernel may write one view while it reads another that it does not overlap. A buffer
// with `over` takes the bytes of another one of the same size at the call that writes it first, which is the last that
// reads the other: the kernel writes each element after it has read that element (program/in_place.h). Offsets are in
// bytes: multiples of 64, those of views multiples of the element.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "graph/runtime_check.h"
#include "loop/stmt.h"
#include "te/joined_program.h"
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
  int32_t device = 0;        // whose memory it lies in; inputs and outputs are the host's
  TensorType type;           // with layout
  int64_t bytes = 0;         // of the physical shape
  int64_t offset = -1;       // kArena: in the arena; kWeight: in the weights region; -1 before planning
  int32_t index = -1;        // kInput, kOutput: number in the module's signature
  BufferId alias_of = -1;    // another buffer of which this one is a view
  int64_t view_offset = 0;   // where the view begins, from the begin of `alias_of`; with an index: the least of all
  Expr view_offset_formula;  // of the program's symbols and of loops' indices; null when it depends on neither
  int64_t view_travel = 0;   // how far the begin moves in all iterations: at most view_offset + view_travel
  BufferId over = -1;        // kArena, no view: the buffer, no view either, whose bytes it takes when that one dies
  TensorPtr data;            // kWeight: physical bytes (u8 or the element type); dims = physical shape
};

struct Kernel {
  LoopProgram program;
  // What the program computes, for the schedule rules; null when the program was read from text or is a procedure's.
  std::shared_ptr<const TensorProgram> definition;
  // The same of a kernel that does the work of several (schedule/fusion), which has no definition of its own.
  std::shared_ptr<const JoinedProgram> joined;
  std::string rule = "naive";        // the schedule rule that wrote `program`
  std::vector<std::string> refused;  // "rule: reason" of those that were asked and declined
  std::string refused_tuning;        // why the schedule of a tuning record is not taken
  std::string loc;                   // the model's node names it stands for
  int32_t device = 0;                // where it runs
  int64_t flops = -1;                // per call
  int64_t bytes = -1;                // distinct bytes read and written per call
};

struct KernelCall {
  int32_t kernel = 0;
  std::vector<BufferId> args;
  std::string loc;
};

enum class StepKind : uint8_t { kCalls, kBranch, kLoop, kBind, kCopy, kStart, kWait };

struct CarriedValue {
  BufferId current = -1, next = -1;  // of the same type and size
  // Instead of copying, the two change places after each iteration: both are whole arena buffers, and both are alive
  // all through the loop.
  bool swap = false;
};

struct ProgramStep;
using StepBlock = std::vector<ProgramStep>;

// One step, or, of calls, a run of steps one after the other without branches and loops between them. Passes that know
// nothing of blocks work within such a run (program/steps.h).
struct ProgramStep {
  StepKind kind = StepKind::kCalls;
  size_t first_call = 0, num_calls = 0;  // kCalls: numbers in Program::calls
  BufferId condition = -1;               // kBranch, kLoop: one bool; a loop may have none (-1)
  Expr count = {};                       // kLoop: of the program's symbols; null: none
  // kLoop: one i64 instead; a loop has a count, a condition, or both. kBind: the value of the symbol.
  BufferId count_buffer = -1;
  Var symbol = {};         // kBind: a data symbol of the program
  SymbolRange index = {};  // kLoop: from 0 to the last iteration that may happen
  std::vector<CarriedValue> carried = {};
  // kBranch: where the bool is true, where it is false; kLoop, kStart: its block.
  std::vector<StepBlock> blocks = {};
  BufferId from = -1, to = -1;  // kCopy
  int32_t device = 0;           // kStart
  int32_t token = -1;           // kStart: a number of its own; kWait: that of its start
  std::string loc = {};
};

// What one of a flow's pieces has become: calls one after another, and numbers of the program's inputs and outputs.
struct ProgramPiece {
  size_t first_call = 0, num_calls = 0;
  size_t num_inputs = 0, num_outputs = 0, num_checks = 0;  // the pieces' own stand one behind the other, in order
  size_t num_symbols = 0;                                  // so do these; a piece with symbols has an arena of its own
  size_t first_step = 0, num_steps = 0;                    // of a program with steps
};

// A value that lives from call to call (graph.h, State). Its input holds what it was before the call, its output what
// it is after it; the session that runs the module keeps the memory of both, or of one where the output may be written
// over the input (donation.h).
struct ProgramState {
  std::string name;
  BufferId initial = -1;  // kWeight, of the input's type and row-major: the value before the first call; -1: zeros

  bool operator==(const ProgramState&) const = default;
};

// A device beside the host.
struct ProgramDevice {
  std::string name;  // of its own
  std::string kind;  // the back end whose code it runs: "null"
  int64_t arena_bytes = 0, weight_bytes = 0;
  bool in_host_memory = false;  // it has no memory of its own

  bool operator==(const ProgramDevice&) const = default;
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
  std::vector<KernelCall> calls;  // in the order in which the steps name them
  StepBlock steps;                // name each call once; empty: all calls, one after the other
  // The module's own inputs, then one for each state; its own outputs, then one for each state, then one for each
  // check.
  std::vector<BufferId> inputs, outputs;
  std::vector<ProgramState> states;
  // Named dimensions, which the inputs of a run give values; then the data symbols, each once in a step that binds it.
  std::vector<SymbolRange> symbols;
  // The model's names of the outputs where they differ from their buffers' (a value that is an input and an output, or
  // two outputs); empty: the buffers' names.
  std::vector<std::string> output_names;
  std::vector<RuntimeCheck> checks;    // of the last checks.size() outputs
  std::shared_ptr<const Flow> flow;    // null: the calls are everything
  std::vector<ProgramPiece> pieces;    // of the flow
  std::vector<ProgramDevice> devices;  // beside the host: device 1, 2, ...
  // Of the host.
  int64_t arena_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // per worker; set by code generation for kLocal allocations that do not fit the stack

  size_t num_own_inputs() const { return inputs.size() - states.size(); }
  size_t num_own_outputs() const { return outputs.size() - states.size() - checks.size(); }
};

}  // namespace tessera::inline program
