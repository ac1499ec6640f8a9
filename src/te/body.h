// What an operator computes, written down once. From its body come the reference evaluator, the loop program, the
// fusion class and (later) layout and sharding rules.
//
// An expression body says, for every index of the output:
//   injective:  out[axes] = value
//   reduction:  out[axes] = combine over reduce_axes of value, starting from the combiner's identity
// `value` loads from `inputs` by logical indices. Sums of floats narrower than f64 may be accumulated in any order and
// in a wider type; the interpreter accumulates f32 and narrower in f64, integers in their own type (wrapping). Sums and
// products of f16 and bf16 are accumulated in f32 at least, and factors that are summed are multiplied in it (see
// with_wide_accumulation): rounded after each step, a sum of thousands would have no digit right.
// Scans, scatters and orders are procedures instead (graph/op_def.h).
#pragma once

#include <vector>

#include "arith/expr.h"
#include "arith/tensor_type.h"

namespace tessera::inline tensor_programs {

enum class Combiner : uint8_t { kNone, kSum, kProd, kMin, kMax };

const char* combiner_name(Combiner combiner);  // "sum"
// The value that leaves every other unchanged: 0, 1, +inf or the largest integer, -inf or the smallest integer.
Expr combiner_identity(Combiner combiner, DType dtype);
Expr combine(Combiner combiner, Expr a, Expr b);

struct Axis {
  Var var;
  Expr extent;  // iterates 0 .. extent - 1
};

struct Body {
  std::vector<BufferPtr> inputs;  // one per operand, logical shapes
  std::vector<Axis> axes;         // one per output dimension
  std::vector<Axis> reduce_axes;  // empty for an injective body
  Combiner combiner = Combiner::kNone;
  Expr value;

  bool is_reduction() const { return combiner != Combiner::kNone; }
  std::vector<Expr> axis_vars() const;
};

// Axes named prefix0, prefix1, ... over `shape`.
std::vector<Axis> make_axes(const std::string& prefix, const Shape& shape);

// The body with its axis variables replaced by fresh ones, so that one body can appear twice in a program.
Body with_fresh_axes(const Body& body);

// A sum or product of 16-bit floats with a value in f32, to be rounded when it is complete; any other body as it is.
Body with_wide_accumulation(const Body& body);

std::string to_string(const Body& body);

}  // namespace tessera::inline tensor_programs
