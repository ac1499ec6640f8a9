// Scaled dot product attention, in the forms that PyTorch gives it.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

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
  c.out(c.composite("attention", operands, {{"scale", scale}}));
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
