// Operators whose elements are chosen by indices, and those that compare indices.
#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

Expr stride_of(const Shape& dims, size_t axis) {
  return Emitter::count(Shape(dims.begin() + static_cast<ptrdiff_t>(axis) + 1, dims.end()));
}

ValueId times(NodeContext& c, ValueId v, const Expr& factor) {
  return is_const_int(factor, 1) ? v : c.mul(v, c.integer(factor));
}

// `op` is gather or gather_elements.
ValueId gather(NodeContext& c, ValueId x, ValueId indices, int64_t axis, std::string_view op = "gather") {
  const DType dtype = c.dtype(indices);
  if (dtype != DType::kI32 && dtype != DType::kI64)
    c.malformed(fmt::format("indices of type {}", c.type(indices).to_string()), "i32 or i64");
  // Indices that are known can be checked here; others are clamped when the model runs.
  const Expr extent = c.shape(x)[static_cast<size_t>(axis)];
  const int64_t least = as_int(extent).value_or(size_range(extent).lo.value_or(0));
  if (const auto known = c.constant(indices))
    for (int64_t i = 0; i < known->num_elements(); ++i)
      if (const int64_t index = known->get_int(i); index < -least || index >= least)
        c.malformed(fmt::format("index {} for dimension {} of {}", index, axis, c.type(x).to_string()),
                    fmt::format("{} to {}", -least, least - 1));
  return c.op(op, {x, indices}, {{"axis", axis}});
}

void import_gather(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  c.out(0, gather(c, x, c.in(1), c.axis(c.attrs.get_int("axis", 0), c.rank(x))));
}

void import_gather_elements(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  c.out(0, gather(c, x, c.in(1), c.axis(c.attrs.get_int("axis", 0), c.rank(x)), "gather_elements"));
}

// The last dimension of the indices addresses the first dimensions of x after `batch_dims` shared ones.
void import_gather_nd(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0), indices = c.in(1);
  const Shape dims = c.shape(x), shape = c.shape(indices);
  const int64_t given = c.attrs.get_int("batch_dims", 0);
  const auto rank = static_cast<int64_t>(dims.size()), index_rank = static_cast<int64_t>(shape.size());
  const int64_t addressing = shape.empty() ? 0 : as_int(shape.back()).value_or(0);
  if (given < 0 || given >= std::min(rank, index_rank) || addressing < 1 || addressing > rank - given ||
      !std::equal(dims.begin(), dims.begin() + given, shape.begin(), equal_sizes))
    c.malformed(fmt::format("indices of type {} with batch_dims = {} for an operand of type {}",
                            c.type(indices).to_string(), given, c.type(x).to_string()),
                "the same first batch_dims dimensions, and a last dimension that counts some of the others");
  const auto batch = static_cast<size_t>(given);
  const auto depth = static_cast<size_t>(addressing);
  // x as [addressed elements, the rest]
  const Expr inner = stride_of(dims, batch + depth - 1);
  const Shape outer(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(batch + depth));
  const Expr addressed = Emitter::count(outer);

  const Shape lookups(shape.begin(), shape.end() - 1);
  std::optional<ValueId> place;
  const auto add_term = [&](ValueId term) { place = place ? c.add(*place, term) : term; };
  for (size_t k = 0; k < depth; ++k) {
    Shape starts(shape.size(), 0), sizes = shape;
    const Ints steps(shape.size(), 1);
    starts.back() = static_cast<int64_t>(k);
    sizes.back() = 1;
    const ValueId column = c.reshape(c.slice(indices, starts, sizes, steps), lookups);
    add_term(times(c, counted_from_front(c, column, dims[batch + k]), stride_of(outer, batch + k)));
  }
  for (size_t d = 0; d < batch; ++d) add_term(times(c, c.iota(lookups, static_cast<int64_t>(d)), stride_of(outer, d)));
  Shape result = lookups;
  result.insert(result.end(), dims.begin() + static_cast<ptrdiff_t>(batch + depth), dims.end());
  c.out(0, c.reshape(gather(c, c.reshape(x, {addressed, inner}), *place, 0), result));
}

// The upper (or lower) triangle of the last two dimensions: column - row >= k (or <= k).
void import_trilu(NodeContext& c) {
  c.require_inputs(1, 2);
  const ValueId x = c.in(0);
  const Shape& dims = c.shape(x);
  if (dims.size() < 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "rank 2 or more");
  const bool upper = c.attrs.get_int("upper", 1) != 0;
  const Shape matrix(dims.end() - 2, dims.end());
  ValueId row = c.iota(matrix, 0);
  if (c.has(1)) {
    const ValueId k = c.in(1);
    if (!c.has_one_element(k)) c.malformed(fmt::format("k of type {}", c.type(k).to_string()), "one element");
    row = c.add(row, c.reshape(k, {}));
  }
  const ValueId keep = c.op(upper ? "ge" : "le", {c.iota(matrix, 1), row});
  c.out(0, c.op("select", {keep, x, c.scalar_like(x, 0)}));
}

// values = [off, on]; a new dimension of extent `depth` in which the place that the index names is on.
void import_one_hot(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId indices = c.in(0), values = c.in(2);
  const int rank = c.rank(indices) + 1;
  const int axis = c.axis(c.attrs.get_int("axis", -1), rank);
  Expr depth = 0;
  if (c.is_runtime(1)) {
    const Ints shape = c.require_declared(1, "depth");
    if (std::ssize(shape) != rank)
      c.unsupported(fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(0)));
    depth = shape[static_cast<size_t>(axis)];
    require_ints(c, 1, "depth", {shape[static_cast<size_t>(axis)]});
  } else if (const auto sizes = c.known_sizes(c.in(1)); sizes && sizes->size() == 1 && !as_int((*sizes)[0])) {
    depth = (*sizes)[0];
  } else {
    const Tensor depth_tensor = c.const_tensor(1, "depth");
    if (depth_tensor.num_elements() != 1) c.malformed("depth does not have one element", "one element");
    depth = depth_tensor.get_int(0);
  }
  if (!size_at_most(0, depth) || !size_at_most(depth, int64_t{1} << 40))
    c.malformed(fmt::format("depth = {}", to_string(depth)), "0 to 2^40");
  if (c.dims(values) != Ints{2})
    c.malformed(fmt::format("values of type {}", c.type(values).to_string()), "two elements");
  Shape with_axis = c.shape(indices);
  with_axis.insert(with_axis.begin() + axis, 1);
  const ValueId wanted = c.reshape(counted_from_front(c, indices, depth), with_axis);
  Shape counting(static_cast<size_t>(rank), 1);
  counting[static_cast<size_t>(axis)] = depth;
  const ValueId hot = c.op("eq", {wanted, c.iota(counting, axis)});
  const auto value = [&](int64_t i) { return c.reshape(c.slice(values, {i}, {1}, {1}), {}); };
  c.out(0, c.op("select", {hot, value(1), value(0)}));
}

}  // namespace

OperatorFamily indexing_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Gather", 1, import_gather},
      OperatorImporter{"GatherElements", 11, import_gather_elements},
      OperatorImporter{"GatherND", 11, import_gather_nd},
      OperatorImporter{"OneHot", 9, import_one_hot},
      OperatorImporter{"Trilu", 14, import_trilu},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
