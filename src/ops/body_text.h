// Bodies as text: what a node of the operator `compute` computes.
//
//   out[i0<s0, i1<4] = sum[k0<64] (x0[i0, k0] * x1[k0, i1])
//
// Operands are x0, x1, ...; sizes that are not numbers are s0, s1, ..., whose meaning (expressions of a graph's
// symbols) stands beside the text. The axes of the result come first, each with its extent; then, of a reduction, the
// combiner (sum, prod, min, max) with the axes that it runs over; then the value, an expression (arith/expr_parser.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/attr.h"
#include "te/body.h"

namespace tessera::inline ops {

struct BodyText {
  std::string text;
  Shape sizes;  // s0, s1, ...
};

// With names that depend on what is computed alone: axes i0, i1, ..., reduced ones k0, k1, ...
BodyText body_text(const Body& body);

// The attributes of a `compute` node with this body, whose operands are those of the body's inputs.
Attrs compute_attrs(const Body& body);

// The body over these operands. UserError TSR-3001, TSR-3140 or another TSR-31xx, at a place in `text`, for text that is no
// body.
Body parse_body(std::string_view text, const std::vector<BufferPtr>& operands, const Shape& sizes);

// Empty where every load provably stays inside its operand, for all sizes of the symbols; else the first that may not,
// as text. A condition of `select` counts for its arms.
std::string load_that_may_be_outside(const Body& body);

}  // namespace tessera::inline ops
