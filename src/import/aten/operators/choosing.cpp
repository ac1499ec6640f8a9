// Elements chosen by conditions and bounds.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

void import_where(AtenContext& c) {
  if (!c.has("self")) c.unsupported("the places where a condition holds: how many there are depends on data");
  const ValueId condition = c.cast(c.tensor("condition"), DType::kBool);
  const DType dtype = c.result_dtype(AtenContext::promoted({c.operand("self"), c.operand("other")}));
  c.out(c.op("select", {condition, c.as("self", dtype), c.as("other", dtype)}));
}

void import_masked_fill(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.op("select", {c.cast(c.tensor("mask"), DType::kBool), c.as("value", c.dtype(x)), x}));
}

// Bounds are numbers or tensors; either may be left out.
void bounded(AtenContext& c, const char* low, const char* high) {
  const ValueId given = c.tensor("self");
  const DType dtype = c.result_dtype(c.dtype(given));
  ValueId x = c.cast(given, dtype);
  if (low && high && c.has(low) && c.has(high) && is_float(dtype))
    return c.out(c.composite("clip", {x, c.as(low, dtype), c.as(high, dtype)}));
  const DType compared = dtype == DType::kBool ? DType::kU8 : dtype;
  x = c.cast(x, compared);
  if (low && c.has(low)) x = c.op("max", {x, c.cast(c.as(low, dtype), compared)});
  if (high && c.has(high)) x = c.op("min", {x, c.cast(c.as(high, dtype), compared)});
  c.out(c.cast(x, dtype));
}
void import_clamp(AtenContext& c) { bounded(c, "min", "max"); }
void import_clamp_min(AtenContext& c) { bounded(c, "min", nullptr); }
void import_clamp_max(AtenContext& c) { bounded(c, nullptr, "max"); }

// The triangle of the last two dimensions in which column - row is on the right side of the diagonal.
void triangle(AtenContext& c, const char* comparison) {
  const ValueId x = c.tensor("self");
  const Shape sizes = c.shape(x);
  if (sizes.size() < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "matrices");
  const Expr rows = sizes[sizes.size() - 2], columns = sizes.back();
  const ValueId row = c.add(c.iota({rows, 1}, 0), c.integer(c.whole("diagonal", 0)));
  const ValueId keep = c.op(comparison, {c.iota({1, columns}, 1), row});
  c.out(c.op("select", {keep, x, c.scalar_like(x, 0)}));
}
void import_tril(AtenContext& c) { triangle(c, "le"); }
void import_triu(AtenContext& c) { triangle(c, "ge"); }

// The number of boundaries below each element, or not above it when `right`.
void import_bucketize(AtenContext& c) {
  const bool is_number = c.argument("self")->kind != ArgumentKind::kTensor;
  const ValueId bounds = c.tensor("boundaries");
  const DType dtype = AtenContext::promoted({c.operand("self"), c.operand("boundaries")});
  const ValueId x = c.as("self", dtype);
  Shape sizes = c.shape(x);
  sizes.push_back(1);
  const ValueId below = c.op(c.truth("right", false) ? "le" : "lt", {c.cast(bounds, dtype), c.reshape(x, sizes)});
  const ValueId count = c.reduce("sum", c.cast(below, DType::kI64), {is_number ? 0 : c.rank(x)}, false);
  c.out(c.cast(count, c.result_dtype(DType::kI64)));
}

}  // namespace

std::span<const AtenOperator> choosing_operators() {
  static constexpr AtenOperator table[] = {
      {"bucketize", import_bucketize},
      {"clamp", import_clamp},
      {"clamp_max", import_clamp_max},
      {"clamp_min", import_clamp_min},
      {"masked_fill", import_masked_fill},
      {"tril", import_tril},
      {"triu", import_triu},
      {"where", import_where},
  };
  return table;
}

}  // namespace tessera::inline aten
