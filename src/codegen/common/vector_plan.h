// Whether and how a vectorized loop can be emitted with vectors. Independent of the instruction set.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "arith/simplify.h"
#include "loop/stmt.h"
#include "target/target.h"
#include "te/body.h"

namespace tessera::inline codegen {

// acc[i] = combine(acc[i], f(l)) with i independent of the vector variable: every lane keeps a partial result, which
// starts from the combiner's identity, and the lanes are combined after the loop.
struct VectorReduction {
  const StmtNode* store = nullptr;
  Combiner combiner = Combiner::kNone;
  bool may_not_run = false;  // for no iteration: then its element may lie outside the buffer
};

struct VectorPlan {
  std::string refused;  // why the loop cannot be vectorized; empty when it can. Then it runs one iteration at a time
  // Allocated inside the loop, so every lane has its own; indices do not depend on the vector variable.
  std::unordered_set<const Buffer*> private_buffers;
  std::vector<VectorReduction> reductions;
  int element_bits = 32;           // of the widest element computed with
  bool indexes_registers = false;  // by the vector variable: every chunk needs constant indices
  bool has_inner_loop = false;
};

VectorPlan plan_vector_loop(const StmtNode& loop);

// Iterations are cut into chunks of `lanes` and a tail of smaller powers of two: 29 = 16 + 8 + 4 + 1.
struct Chunk {
  int64_t begin;
  int lanes;
};
std::vector<Chunk> chunks_of(int64_t extent, int lanes);

// Elements of `bits` that a vector register of the target holds, at most 64.
int native_lanes(const Target& target, int bits);

// Bits an element of the type takes while computed with: f16 and bf16 are computed as f32, bool as bytes.
int compute_bits(DType dtype);

}  // namespace tessera::inline codegen
