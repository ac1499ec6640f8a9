// bind_size: gives a data symbol its value. Behind the node, shapes may have the symbol (graph/data_sizes.h).
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& count = ctx.inputs[0];
  if (count.dtype != DType::kI64) ctx.fail("TSR-2020", describe_operand(ctx, 0), "i64");
  require_rank(ctx, 0, 0, 0);
  const Shape size = require_sizes(ctx, "size", 1, 0, kMaxExtent);
  const SymbolRange* symbol = size[0]->kind == ExprKind::kVar ? KnownSymbols::find(size[0].get()) : nullptr;
  if (!symbol || !symbol->is_data())
    ctx.fail("TSR-2036", fmt::format("size = {}", join(size)), "one symbol that the graph declares with `upto`");
  return {TensorType{DType::kI64, {}, {}}};
}

}  // namespace

const OpDef& bind_size_op() {
  static const OpDef op{
      .name = "bind_size",
      .doc = "Gives a symbol declared with `upto` the value of a count, kept within 0 and the symbol's bound.",
      .kind = OpKind::kBindSize,
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"size", AttrKind::kSizes, true, "the symbol, as a list of one"}},
      .infer = infer,
      .body = {},
      .gradient = no_gradient("its operands are integers"),
      .example = R"(
graph @main[c upto 4](%n: i64[], %x: f32[4]) -> (%size: i64[], %y: f32[]) {
  %size = bind_size(%n) {size = [c]} : i64[]
  %first = slice(%x) {sizes = [c], starts = [0], steps = [1]} : f32[c]
  %y = reduce(%first) {axes = [0], keepdims = false, kind = "sum"} : f32[]
}
run n = 2 ; x = 1 2 3 4 -> size = 2 ; y = 3
run n = 0 ; x = 1 2 3 4 -> size = 0 ; y = 0
run n = 9 ; x = 1 2 3 4 -> size = 4 ; y = 10
run n = -1 ; x = 1 2 3 4 -> size = 0 ; y = 0
)",
  };
  return op;
}

}  // namespace tessera::inline ops
