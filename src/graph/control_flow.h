// Control flow in a graph: the nodes `if`, `loop` and `call`, whose regions run zero, one or many times.
//
// A region is a graph that sees nothing but its own inputs; the node passes what it needs as operands. All values that
// enter or leave a region are row-major. A region has neither states nor checks.
//
// if(condition, captured...) {} ({then}, {else})
//   condition: one bool. Both regions have an input for each captured operand, in order, and results of the same types,
//   which are the node's. Only the region that is taken is evaluated.
//
// loop([count], [condition], carried..., scanned..., invariants...) {...} ({body})
//   Attributes (absent: false, 0, none):
//     num_carried     values that each iteration receives from the one before
//     num_scanned     operands of which each iteration receives one slice along dimension 0
//     counted         operand 0 is the count, one i64; a negative one counts as 0
//     has_condition   the next operand is the condition, one bool; without it the loop does not end early
//     max_trip        at most so many iterations: a list of one size
//     scan_reversed   for each scanned operand 0 or 1; 1: iteration i receives slice extent - 1 - i
//     stack_reversed  for each stacked result 0 or 1; 1: iteration i gives row extent - 1 - i
//   The body's inputs are the iteration's number (i64[], from 0), the carried values, the slices (without dimension 0)
//   and the invariants; its results are the next condition (with has_condition), the carried values, and what is
//   stacked. The node's results are the carried values behind the last iteration, then the stacked ones, with a new
//   dimension 0 of extent `trip`.
//   `trip` is the extent of the scanned operands' dimension 0, which must agree, or else max_trip. The loop takes
//   `trip` iterations (where there is one), or as many as the count says if those are fewer, and ends before an
//   iteration whose condition is false. Rows of stacked results that no iteration gives are zeros. Without iterations
//   the carried values are the operands. So a counted loop has `max_trip` or `counted`, a while loop `has_condition`, a
//   scan `num_scanned`, and any of them may come together; one of them must be there.
//
// call(operands...) {name = "f"} ({region})
//   Evaluates the region. Calls of one function share it: it is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "arith/expr.h"
#include "graph/op_def.h"

namespace tessera::inline graph {

inline bool is_control_flow(const Node& node) {
  return node.op->kind == OpKind::kIf || node.op->kind == OpKind::kLoop || node.op->kind == OpKind::kCall;
}
// The first operand that is an input of the region(s) of a node with regions, for `if`, `call`, composites and groups.
inline size_t first_captured(const OpDef& op) { return op.kind == OpKind::kIf ? 1 : 0; }

// How many of a loop's operands, inputs and results are what. The numbers of operands and results are checked by
// `infer` of the loop (ops/loop.cpp).
struct LoopParts {
  bool counted = false, has_condition = false;
  size_t carried = 0, scanned = 0, invariants = 0, stacked = 0;
  std::optional<Expr> max_trip;
  std::vector<int64_t> scan_reversed, stack_reversed;  // as many entries as scanned operands and stacked results

  // Places among the operands.
  size_t condition() const { return counted ? 1 : 0; }  // REQUIRES: has_condition
  size_t first_carried() const { return condition() + (has_condition ? 1 : 0); }
  size_t first_scanned() const { return first_carried() + carried; }
  size_t first_invariant() const { return first_scanned() + scanned; }
  // Places among the inputs of the body, behind the number of the iteration.
  static constexpr size_t kFirstCarriedInput = 1;
  size_t first_slice() const { return kFirstCarriedInput + carried; }
  size_t first_invariant_input() const { return first_slice() + scanned; }
  // Places among the results of the body, behind the condition.
  size_t first_carried_result() const { return has_condition ? 1 : 0; }
  size_t first_stacked_result() const { return first_carried_result() + carried; }
};

// REQUIRES: a loop whose attributes, operands and region fit (infer_types accepted them).
LoopParts loop_parts(const Attrs& attrs, size_t num_operands, const Graph& body);
inline LoopParts loop_parts(const Node& node) { return loop_parts(node.attrs, node.inputs.size(), *node.regions[0]); }

}  // namespace tessera::inline graph
