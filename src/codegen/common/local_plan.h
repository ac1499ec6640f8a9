// Where the kLocal (and shared kGlobal) allocations of a kernel live: small ones on the stack of the function that
// makes them, the others in the worker's scratch memory. Nested allocations get disjoint bytes, siblings share.
#pragma once

#include <unordered_map>

#include "loop/stmt.h"

namespace tessera::inline codegen {

struct LocalPlace {
  bool on_stack = true;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the worker's scratch when not on the stack; a multiple of 64
};

struct LocalPlan {
  std::unordered_map<const Buffer*, LocalPlace> places;  // passes may rebuild the alloc statement, not its buffer
  int64_t scratch_bytes = 0;                             // per worker; a multiple of 64
};

inline constexpr int64_t kMaxStackBytes = 16 << 10;  // of all stack allocations of one kernel

// Register allocations are not in the plan. An allocation whose size is not constant is an InternalError.
LocalPlan plan_locals(const LoopProgram& program);

// Whether two allocations that are never there at the same time use the same bytes.
bool share_scratch(const LocalPlace& a, const LocalPlace& b);

// Elements of a buffer with constant extents; empty when an extent is not constant, or 64 bits cannot count them.
std::optional<int64_t> constant_elements(const Buffer& buffer);

}  // namespace tessera::inline codegen
