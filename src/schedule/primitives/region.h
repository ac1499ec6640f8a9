// Boxes of elements that statements touch, and where a stage stands: what moving a computation asks.
#pragma once

#include <optional>
#include <vector>

#include "arith/simplify.h"
#include "loop/stmt.h"
#include "schedule/primitives/loop_tree.h"

namespace tessera::inline schedule {

// Elements [begin, begin + extent) of a dimension; `begin` in terms of variables outside of the statement asked about.
struct Side {
  Expr begin;
  int64_t extent = 1;
  bool whole = false;  // of the buffer
};
using Box = std::vector<Side>;  // a side per dimension

// A box around all elements of `buffer` that `s` loads or stores (as asked). A dimension whose index is not affine in
// the loops of `s`, or for which accesses differ by more than constants, is taken whole. Empty when `s` touches
// nothing, or a dimension would be whole and has no constant extent. `bounds`: of the variables outside.
std::optional<Box> touched_box(const Stmt& s, const Buffer& buffer, bool loads, bool stores, const Bounds& bounds);

// The program's text around a stage: `parent` ends at a sequence (or at the only statement), of whose children some
// store to the buffer.
struct StagePlace {
  StmtPath parent;                // to the sequence, or to the statement when it is alone
  std::vector<Stmt> children;     // of the sequence
  std::vector<size_t> producers;  // children that store to it
  std::vector<size_t> consumers;  // children that only load from it
  size_t loops_inside = 0;        // loops between the buffer's allocation and the sequence
};

// Where the buffer is computed: the outermost sequence (inside its allocation, if it has one) that has its producers
// and consumers in different children. Refuses when a nest both computes and uses it for something else than its own
// updates. With `beside` (may be null) the place is inside of every nest that holds that statement as well.
StagePlace stage_place(const LoopProgram& program, const BufferPtr& buffer, const char* primitive,
                       const Stmt& beside = {});

// The loop of `path` that alone chooses index `d` of the access, which is its variable plus a constant.
struct IndexLoop {
  Stmt loop;
  int64_t offset = 0;
};
std::optional<IndexLoop> index_loop(const Expr& index, const std::vector<Stmt>& loops);

// Whether the store, over all iterations of the loops in `path` from node number `from` on, reaches every element of
// its buffer: indices are dense sums of loops that choose one dimension each, and conditions only keep them inside.
bool covers_buffer(const StmtPath& path, size_t from);

}  // namespace tessera::inline schedule
