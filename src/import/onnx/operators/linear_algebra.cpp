// Det: Gaussian elimination, written out column by column.
#include <fmt/format.h>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kLargestMatrix = 64;

// In each step the row with the largest first element becomes the first one; the determinant takes in that element, and
// what remains is the matrix without the first row and column.
void import_det(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  Ints batch = c.dims(x);
  if (batch.size() < 2 || batch[batch.size() - 1] != batch[batch.size() - 2])
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "square matrices");
  int64_t n = batch.back();
  if (n > kLargestMatrix) c.unsupported(fmt::format("matrices of more than {} rows", kLargestMatrix));
  batch.resize(batch.size() - 2);
  int64_t count = 1;
  for (const int64_t d : batch) count *= d;
  const DType dtype = c.dtype(x) == DType::kF64 ? DType::kF64 : DType::kF32;
  const ValueId one = c.scalar(dtype, 1);
  ValueId determinant = c.broadcast(one, {count, 1, 1});
  ValueId matrix = c.reshape(c.cast(x, dtype), {count, n, n});
  const auto part = [&](ValueId m, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    return c.slice(m, {0, row, column}, {count, rows, columns}, {1, 1, 1});
  };
  for (; n > 0 && count > 0; --n) {
    if (n == 1) {
      determinant = c.mul(determinant, matrix);
      break;
    }
    const ValueId column = c.op("abs", {part(matrix, 0, n, 0, 1)});
    const ValueId largest = c.op("eq", {column, c.reduce("max", column, {1}, true)});
    const ValueId number = c.iota({1, n, 1}, 1);
    const ValueId last = c.integer(n - 1);
    const ValueId pivot = c.reduce("min", c.op("select", {largest, number, last}), {1}, true);
    const ValueId top = part(matrix, 0, 1, 0, n);
    const ValueId row = c.op("gather_elements", {matrix, c.broadcast(pivot, {count, 1, n})}, {{"axis", int64_t{1}}});
    // The old first row takes the place of the one that was chosen.
    const ValueId others = c.op("select", {c.op("eq", {c.add(c.iota({1, n - 1, 1}, 1), c.integer(1)), pivot}), top,
                                           part(matrix, 1, n - 1, 0, n)});
    const ValueId head = part(row, 0, 1, 0, 1);
    const ValueId moved = c.op("gt", {pivot, c.integer(0)});
    determinant = c.mul(determinant, c.op("select", {moved, c.op("neg", {head}), head}));
    // A first column of zeros makes the determinant 0 whatever follows.
    const ValueId divisor = c.op("select", {c.op("eq", {head, c.scalar(dtype, 0)}), one, head});
    const ValueId factors = c.div(part(others, 0, n - 1, 0, 1), divisor);
    matrix = c.sub(part(others, 0, n - 1, 1, n - 1), c.mul(factors, part(row, 0, 1, 1, n - 1)));
  }
  c.out(0, c.reshape(c.cast(determinant, c.dtype(x)), batch));
}

}  // namespace

OperatorFamily linear_algebra_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Det", 11, import_det},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
