#include "ops/index_gradients.h"

#include "arith/simplify.h"

namespace tessera::inline ops {

Expr elements_of(const Shape& shape, size_t first, size_t end) {
  Expr count = 1;
  for (size_t d = first; d < end; ++d) count = count * shape[d];
  return normalize_size(count);
}

ValueId places_in_range(Adjoint& a, ValueId indices, const Expr& extent) {
  const ValueId i = a.cast(indices, DType::kI64), zero = a.integer(0);
  const ValueId counted = a.select(a.op("lt", {i, zero}), a.add(i, a.integer(extent)), i);
  return a.op("max", {a.op("min", {counted, a.integer(normalize_size(extent - Expr(1)))}), zero});
}

ValueId added_at(Adjoint& a, ValueId g, ValueId places, const Shape& shape, size_t axis) {
  const Shape named = a.type(places).shape;
  const DType dtype = a.type(g).dtype;
  const Expr batch = elements_of(shape, 0, axis), count = elements_of(named, 0, named.size()),
             inner = elements_of(shape, axis + 1, shape.size());
  const ValueId of_batch = a.broadcast(a.reshape(places, {1, count}), {batch, count});
  const ValueId zeros = a.filled(0, dtype, {batch, shape[axis], inner});
  return a.reshape(
      a.op("scatter", {zeros, of_batch, a.reshape(g, {batch, count, inner})}, {{"join", std::string("add")}}), shape);
}

ValueId numbers_along(Adjoint& a, const Expr& extent) {
  return a.op("iota", {}, {{"shape", Shape{extent}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
}

std::vector<int64_t> moved_axis(size_t rank, size_t from, size_t to) {
  std::vector<int64_t> perm;
  for (size_t d = 0; d < rank; ++d)
    if (d != from) perm.push_back(static_cast<int64_t>(d));
  perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(to), static_cast<int64_t>(from));
  return perm;
}

std::vector<int64_t> inverse_of(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return inverse;
}

}  // namespace tessera::inline ops
