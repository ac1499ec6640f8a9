// Comparisons: two operands of one element type, numpy's broadcasting, a bool result. With a NaN only `ne` holds.
#include <fmt/format.h>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

struct Row {
  const char* name;
  BinaryOp op;
  bool equality;  // also on bool
  const char* doc;
  const char* y;  // 1 2 nan 3 compared with 2
};

constexpr Row kRows[] = {
    {"eq", BinaryOp::kEq, true, "a = b.", "0 1 0 0"},
    {"ne", BinaryOp::kNe, true, "Whether a and b differ.", "1 0 1 1"},
    {"lt", BinaryOp::kLt, false, "a < b.", "1 0 0 0"},
    {"le", BinaryOp::kLe, false, "a <= b.", "1 1 0 0"},
    {"gt", BinaryOp::kGt, false, "a > b.", "0 0 0 1"},
    {"ge", BinaryOp::kGe, false, "a >= b.", "0 1 0 1"},
};

bool is_comparable(DType dtype) { return is_arithmetic(dtype) || dtype == DType::kBool; }

OpDef make_op(const Row& row) {
  return OpDef{
      .name = row.name,
      .doc = row.doc,
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {},
      .infer = [&row](const OpContext& ctx) -> std::vector<TensorType> {
        if (row.equality) {
          require_dtype(ctx, 0, is_comparable, "f64, f32, f16, bf16, i8 to i64, u8 to u64, bool");
        } else {
          require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
        }
        require_same_dtype(ctx);
        return {TensorType{DType::kBool, broadcast_shapes(ctx, ctx.inputs[0].shape, ctx.inputs[1].shape), {}}};
      },
      .body =
          [&row](const OpContext& ctx) {
            return elementwise_body(ctx, [&](const std::vector<Expr>& x) { return binary(row.op, x[0], x[1]); });
          },
      .gradient = no_gradient("its results are bools"),
      .example =
          fmt::format("\ngraph @main(%a: f32[4], %b: f32[]) -> (%y: bool[4]) {{\n  %y = {}(%a, %b) : bool[4]\n}}\n"
                      "run a = 1 2 nan 3 ; b = 2 -> y = {}\n",
                      row.name, row.y),
  };
}

}  // namespace

const std::vector<OpDef>& compare_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> result;
    for (const Row& row : kRows) result.push_back(make_op(row));
    return result;
  }();
  return ops;
}

}  // namespace tessera::inline ops
