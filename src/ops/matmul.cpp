// matmul: matrix products of the last two dimensions, the others broadcast.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

// The batch dimensions and the matrix of one operand; `rows` and `columns` after the optional transposition.
struct Matrix {
  Shape batch;
  Expr rows, columns;
  bool transposed;
};

Matrix matrix_of(const OpContext& ctx, size_t operand) {
  const Shape& shape = ctx.inputs[operand].shape;
  Matrix m{Shape(shape.begin(), shape.end() - 2), shape[shape.size() - 2], shape[shape.size() - 1],
           ctx.attrs.get_or<bool>(operand == 0 ? "transpose_a" : "transpose_b", false)};
  if (m.transposed) std::swap(m.rows, m.columns);
  return m;
}

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_same_dtype(ctx);
  for (size_t i = 0; i < 2; ++i) require_rank(ctx, i, 2, std::numeric_limits<int>::max());
  const Matrix a = matrix_of(ctx, 0);
  const Matrix b = matrix_of(ctx, 1);
  if (!equal_extents(a.columns, b.rows))
    ctx.fail("TSR-2024",
             fmt::format("{}{} and {}{}", describe_operand(ctx, 0), a.transposed ? " (transposed)" : "",
                         describe_operand(ctx, 1), b.transposed ? " (transposed)" : ""),
             fmt::format("as many columns in the first matrix as rows in the second: found {} and {}",
                         to_string(a.columns), to_string(b.rows)));
  Shape shape = broadcast_shapes(ctx, a.batch, b.batch);
  shape.push_back(a.rows);
  shape.push_back(b.columns);
  return {TensorType{ctx.inputs[0].dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Matrix a = matrix_of(ctx, 0);
  const Matrix b = matrix_of(ctx, 1);
  const Axis k{make_var("k"), a.columns};
  std::vector<Expr> out = body.axis_vars();
  const Expr row = out[out.size() - 2];
  const Expr column = out[out.size() - 1];
  out.resize(out.size() - 2);
  Shape batch;
  for (size_t i = 0; i < out.size(); ++i) batch.push_back(body.axes[i].extent);
  const auto read = [&](size_t operand, const Matrix& m, Expr first, Expr second) {
    std::vector<Expr> index = broadcast_index(m.batch, batch, out);
    if (m.transposed) std::swap(first, second);
    index.push_back(first);
    index.push_back(second);
    return load(body.inputs[operand], index);
  };
  body.reduce_axes = {k};
  body.combiner = Combiner::kSum;
  body.value = read(0, a, row, k.var) * read(1, b, k.var, column);
  return body;
}

// Of matrices that lie one behind the other and are multiplied by one: their rows as those of one matrix.
ValueId all_rows(Adjoint& a, ValueId matrices) {
  const Shape shape = a.type(matrices).shape;
  Expr rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) rows = rows * shape[d];
  return a.reshape(matrices, {simplify(rows), shape.back()});
}

// With A and B as they are multiplied, transposed or not: A gets G B^T, and B gets A^T G.
std::vector<ValueId> gradient(Adjoint& a) {
  const bool ta = a.attrs().get_or<bool>("transpose_a", false), tb = a.attrs().get_or<bool>("transpose_b", false);
  const ValueId g = a.gradient();
  const auto product = [&](ValueId left, bool transpose_left, ValueId right, bool transpose_right, size_t operand) {
    const ValueId whole =
        a.op("matmul", {left, right}, {{"transpose_a", transpose_left}, {"transpose_b", transpose_right}});
    return a.sum_to(whole, a.in(operand));
  };
  std::vector<ValueId> gradients(2, Adjoint::kNone);
  if (a.wants(0)) gradients[0] = ta ? product(a.in(1), tb, g, true, 0) : product(g, false, a.in(1), !tb, 0);
  // One product over all rows, instead of the sum of one for each matrix.
  if (const bool many = a.type(a.in(0)).rank() > 2; many && !ta && a.type(a.in(1)).rank() == 2 && a.wants(1)) {
    const ValueId rows = all_rows(a, a.in(0)), columns = all_rows(a, g);
    gradients[1] = tb ? product(columns, true, rows, false, 1) : product(rows, true, columns, false, 1);
  } else if (a.wants(1)) gradients[1] = tb ? product(g, true, a.in(0), ta, 1) : product(a.in(0), !ta, g, false, 1);
  return gradients;
}

}  // namespace

const OpDef& matmul_op() {
  static const OpDef op{
      .name = "matmul",
      .doc = "Matrix products over the last two dimensions; the dimensions before them broadcast.",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {{"transpose_a", AttrKind::kBool, false, "swap the last two dimensions of a first; default false"},
                {"transpose_b", AttrKind::kBool, false, "swap the last two dimensions of b first; default false"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%a: f32[2,3], %b: f32[2,3]) -> (%y: f32[2,2]) {
  %y = matmul(%a, %b) {transpose_b = true} : f32[2,2]
}
run a = 1 2 3 4 5 6 ; b = 1 0 0 0 1 1 -> y = 1 5 4 11
)",
  };
  return op;
}

}  // namespace tessera::inline ops
