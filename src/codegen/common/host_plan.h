// The host's part of a program as data: what every back end that writes it, and whatever starts kernels elsewhere,
// needs to know of the program and would otherwise find out for itself. Where each buffer lies, which arguments of a
// kernel may share bytes, which sizes stand where, and which calls make one function.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "program/program.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline codegen {

// How the host finds the first byte of a buffer: it takes the memory that `base` names, at `offset`, and goes on by the
// sum of `way`, whose terms are expressions of symbols and of the indices of loops.
struct BufferAddress {
  enum class Base : uint8_t {
    kArena,    // of `device`
    kWeights,  // of `device`
    kInput,    // number `index`
    kOutput,   // number `index`
    kPart,     // of the host's arena, from where slot `index` of the sizes says; a device's is for the largest sizes
    kPlace,    // slot `index` of the frame has the address: what a loop carries changes places
  };
  Base base = Base::kArena;
  int32_t device = 0;
  int64_t index = 0, offset = 0;
  bool moves = false;  // there is a way, if only of length 0
  std::vector<Expr> way = {};
};

// Calls from `begin` to before `end`.
struct CallRange {
  size_t begin = 0, end = 0;
};

// Of a planned program, which outlives it.
//
// The sizes of a call are numbers one behind the other: a value for each symbol, the derived dimensions, where each
// part of the arena begins, the dimensions that data decide. The frame of a run with steps has the index of each loop
// and the address of each value that changes places.
class HostPlan {
 public:
  explicit HostPlan(const Program& program);

  const Program& program;

  // For each kernel and parameter a number: parameters that share bytes in some call of the kernel have the same.
  std::vector<std::vector<int>> alias_classes;
  // For each kernel, the slots of its arguments: a pointer for each parameter, one to scratch, the symbols' values.
  std::vector<int64_t> argument_slots;
  std::vector<int32_t> operations;             // for each kernel, its row in the module's table; -1: the host's own
  std::map<int32_t, int32_t> device_of_token;  // by the token that its queue reports

  // Of a program with symbols.
  std::vector<ArenaPart> parts;
  std::vector<Expr> derived;
  std::vector<DecidedDim> decided;

  std::map<BufferId, int> place_slots;  // of the frame
  int num_frame_slots = 0;

  // The slot of the frame that has the index of a loop; empty for other variables.
  std::optional<int> index_slot(const Expr& variable) const;
  // The slots of the sizes: of a symbol, of the first part of the arena, of the first decided dimension.
  size_t size_slot(const Var& symbol) const;
  int64_t first_part_slot() const { return static_cast<int64_t>(program.symbols.size() + derived.size()); }
  int64_t first_decided_slot() const { return first_part_slot() + static_cast<int64_t>(parts.size()); }

  // Where a buffer lies now, and where the memory plan puts it. `open`: its sizes come with a call.
  BufferAddress address(BufferId id, bool open) const;
  BufferAddress home(BufferId id, bool open) const;

  // Whether the step is calls of a device, which a start gives to its queue.
  bool is_of_device(const ProgramStep& step) const;
  // The calls of a range in functions of a few each: the time that a compiler takes for a function grows faster than
  // its length.
  static std::vector<CallRange> functions_of(size_t first, size_t end);
  int64_t argument_slots_of(const CallRange& calls) const;  // of the call that has the most

 private:
  std::unordered_map<const ExprNode*, int> index_slots_;
};

}  // namespace tessera::inline codegen
