// Scaled dot product attention, in the forms that PyTorch gives it.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

// Rows that see no column, [..., S, 1]: PyTorch gives zeros for them.
ValueId blind_rows(AtenContext& c, ValueId mask) {
  const int64_t columns = c.rank(mask) - 1;
  if (c.dtype(mask) == DType::kBool)
    return c.op("logical_not", {c.cast(c.reduce("max", c.cast(mask, DType::kU8), {columns}, true), DType::kBool)});
  const ValueId nothing = c.scalar_like(mask, -std::numeric_limits<double>::infinity());
  return c.op("eq", {c.reduce("max", mask, {columns}, true), nothing});
}

void import_attention(AtenContext& c) {
  const ValueId q = c.tensor("query"), k = c.tensor("key"), v = c.tensor("value");
  if (c.number("dropout_p", 0) != 0) c.unsupported("dropout while training");
  if (c.rank(q) < 3) c.unsupported("operands without batch");
  const auto depth = as_int(c.shape(q).back());
  if (!c.has("scale") && !depth) c.unsupported("a depth that is open");
  const double scale = c.has("scale") ? c.number("scale") : 1 / std::sqrt(static_cast<double>(*depth));
  std::vector<ValueId> operands = {q, k, v};
  if (const auto mask = c.maybe_tensor("attn_mask")) {
    operands.push_back(c.dtype(*mask) == DType::kBool ? *mask : c.cast(*mask, c.dtype(q)));
  } else if (c.truth("is_causal", false)) {
    // Each row sees the columns up to its own.
    const Shape rows = c.shape(q), columns = c.shape(k);
    operands.push_back(
        c.op("ge", {c.iota({rows[rows.size() - 2], 1}, 0), c.iota({1, columns[columns.size() - 2]}, 1)}));
  }
  if (!c.has("attn_mask") || c.rank(operands[3]) == 0)
    return c.out(c.composite("attention", operands, {{"scale", scale}}));
  // Before that they see everything, so that gradients are no NaN.
  const ValueId blind = blind_rows(c, operands[3]), mask = operands[3];
  operands[3] = c.dtype(mask) == DType::kBool ? c.op("logical_or", {mask, blind})
                                              : c.op("select", {blind, c.scalar_like(mask, 0), mask});
  const ValueId y = c.composite("attention", operands, {{"scale", scale}});
  c.out(c.op("select", {blind, c.scalar_like(y, 0), y}));
}

}  // namespace

std::span<const AtenOperator> attention_operators() {
  static constexpr AtenOperator table[] = {
      {"_scaled_dot_product_attention_math", import_attention},
      {"_scaled_dot_product_flash_attention_for_cpu", import_attention},
      {"scaled_dot_product_attention", import_attention},
  };
  return table;
}

}  // namespace tessera::inline aten
