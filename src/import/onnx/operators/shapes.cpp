// Operators that give the same elements another shape or order, and those that ask for a shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// The shape that two shapes broadcast to.
Shape broadcast_dims(NodeContext& c, const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t i = 0; i < rank; ++i) {
    const Expr da = i + a.size() < rank ? Expr(1) : a[i + a.size() - rank];
    const Expr db = i + b.size() < rank ? Expr(1) : b[i + b.size() - rank];
    if (!is_const_int(da, 1) && !is_const_int(db, 1) && !equal_sizes(da, db))
      c.malformed(fmt::format("a tensor of shape {} for the shape {}", to_string(a), to_string(b)),
                  "extents that are equal or 1, aligned at the last dimension");
    result[i] = is_const_int(da, 1) ? db : da;
  }
  return result;
}

// Its elements, each at least 0 and together at most 2^40, as far as that is known.
bool is_shape(const Shape& shape) {
  Ints least;
  for (const Expr& extent : shape) least.push_back(as_int(extent).value_or(size_range(extent).lo.value_or(-1)));
  return checked_num_elements(least).has_value();
}

bool divides(int64_t divisor, const Expr& size) { return equal_sizes(floormod(size, divisor), 0); }

// The shape for a Reshape whose operand says it when the model runs.
Ints declared_reshape(NodeContext& c, const Ints& dims, bool allow_zero) {
  const Ints shape = c.require_declared(1, "shape");
  std::vector<Ints> legal;
  for (size_t d = 0; d < shape.size(); ++d) {
    legal.push_back({shape[d]});
    if (!allow_zero && d < dims.size() && dims[d] == shape[d]) legal.back().push_back(0);
    if (!allow_zero && shape[d] == 0) legal.back() = {d < dims.size() && dims[d] == 0 ? Ints{0} : Ints{-1}};
    // What is left for -1 is known unless there are no elements.
    if (std::count(shape.begin(), shape.end(), 0) == (shape[d] == 0 ? 1 : 0)) legal.back().push_back(-1);
  }
  const ValueId values = runtime_ints(c, 1, "shape");
  if (c.num_elements(values) != std::ssize(shape))
    c.unsupported(fmt::format("{} has {} elements, and the declared shape of '{}' is {}", c.input_name(1, "shape"),
                              c.num_elements(values), c.output_name(0), dims_text(shape)));
  const ValueId minus_one = c.integer(-1);
  const ValueId open = c.reduce("sum", c.cast(c.op("eq", {values, minus_one}), DType::kI64), {0}, false);
  const ValueId one_open = c.op("le", {open, c.integer(1)});
  c.check_when_run(1, "shape", c.op("logical_and", {all_among(c, values, legal), one_open}), values,
                   fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(0)));
  return shape;
}

// The shape for an Expand whose operand says it when the model runs.
Ints declared_expand(NodeContext& c, const Ints& dims) {
  const Ints shape = c.require_declared(1, "shape");
  const int64_t count = c.num_elements(c.in(1));
  const auto rank = std::ssize(shape);
  const auto contradicted = [&] {
    c.unsupported(fmt::format("no value of {} expands {} to {}, the declared shape of '{}'", c.input_name(1, "shape"),
                              dims_text(dims), dims_text(shape), c.output_name(0)));
  };
  if (rank != std::max(std::ssize(dims), count)) contradicted();
  std::vector<Ints> legal;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t own = d - (rank - std::ssize(dims));
    const int64_t from = own < 0 ? 1 : dims[static_cast<size_t>(own)], to = shape[static_cast<size_t>(d)];
    if (from != to && (from != 1 || d < rank - count)) contradicted();
    if (d < rank - count) continue;
    legal.push_back({to});
    if (from == to) legal.back().push_back(1);
  }
  require_among(c, 1, "shape", legal, fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(0)));
  return shape;
}

Ints declared_repeats(NodeContext& c, const Ints& dims) {
  const Ints shape = c.require_declared(1, "repeats");
  Ints repeats;
  for (size_t d = 0; d < shape.size() && shape.size() == dims.size(); ++d)
    if (dims[d] > 0 && shape[d] % dims[d] == 0) repeats.push_back(shape[d] / dims[d]);
  if (repeats.size() != dims.size() || repeats.empty())
    c.unsupported(fmt::format("{} depends on the model's inputs, and {} is no multiple of {}, the operand's shape",
                              c.input_name(1, "repeats"), dims_text(shape), dims_text(dims)));
  return repeats;
}

// The data symbols, where each has an element.
std::vector<SymbolRange> at_least_one(const std::vector<SymbolRange>& symbols) {
  std::vector<SymbolRange> result;
  for (const SymbolRange& symbol : symbols)
    if (symbol.is_data()) result.emplace_back(symbol).lo = 1;
  return result;
}

// 0 copies the operand's extent (unless allowzero), -1 takes what is left.
void import_reshape(NodeContext& c) {
  const int operands = c.version() < 5 ? 1 : 2;  // the shape was an attribute
  c.require_inputs(operands, operands);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const bool allow_zero = c.attrs.get_int("allowzero", 0) != 0;
  const Shape wanted = c.version() < 5   ? make_shape(c.attrs.require_ints("shape"))
                       : c.is_runtime(1) ? make_shape(declared_reshape(c, c.dims(x), allow_zero))
                                         : c.const_sizes(1, "shape");
  const auto fail = [&](const std::string& legal) {
    c.malformed(fmt::format("the shape {} for an operand of type {}", to_string(wanted), c.type(x).to_string()), legal);
  };
  Shape shape = wanted;
  std::optional<size_t> open;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (is_const_int(shape[d], 0) && !allow_zero) {
      if (d >= dims.size()) fail("a 0 only where the operand has a dimension to copy");
      shape[d] = dims[d];
    } else if (is_const_int(shape[d], -1)) {
      if (open) fail("at most one -1");
      open = d;
      shape[d] = 1;
    } else if (as_int(shape[d]) && *as_int(shape[d]) < -1) {
      fail("extents of 0 or more, and at most one -1");
    } else if (!as_int(shape[d])) {
      // A symbol must not mean something else where it is 0 or -1.
      // What data decide may be 0: there are no elements then, and another shape of none is all that it could mean.
      const bool copies = !allow_zero && d < dims.size() && equal_sizes(shape[d], dims[d]);
      const bool may_be_none = allow_zero || copies || uses_data_symbols(shape[d], c.state().graph.symbols);
      if (size_range(shape[d]).lo.value_or(-1) < (may_be_none ? 0 : 1))
        fail(fmt::format("extents of 1 or more; {} may be less", to_string(shape[d])));
    }
  }
  if (!is_shape(shape)) fail("at most 2^40 elements");
  const Expr known = c.count(shape), total = c.count(x);
  const auto fail_count = [&] { fail(fmt::format("a shape of {} elements", to_string(total))); };
  if (open) {
    const KnownSymbols some(at_least_one(c.state().graph.symbols));  // of no elements, nothing is left for -1
    if (as_int(known) ? *as_int(known) == 0 : size_range(known).lo.value_or(0) < 1) fail_count();
    shape[*open] = normalize_size(floordiv(total, known));
    if (!equal_sizes(shape[*open] * known, total)) fail_count();
  } else if (!equal_sizes(known, total)) {
    fail_count();
  }
  c.out(0, c.reshape(x, shape));
}

void import_flatten(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const int rank = c.rank(x);
  const int64_t given = c.attrs.get_int("axis", 1);
  const int axis = given == rank ? rank : c.axis(given, rank);
  c.out(0, c.reshape(x, {c.count(Shape(dims.begin(), dims.begin() + axis)),
                         c.count(Shape(dims.begin() + axis, dims.end()))}));
}

void import_squeeze(NodeContext& c) {
  c.require_inputs(1, c.version() < 13 ? 1 : 2);
  const ValueId x = c.in(0);
  if (c.version() >= 13 && c.is_runtime(1)) {
    const Ints dims = c.dims(x);
    AxisChoice choice{c.rank(x), c.require_declared(1, "axes"), {}, {}, {}};
    choice.shape_of = [&](const Ints& axes) -> std::optional<Ints> {
      Ints shape;
      for (int64_t d = 0; d < std::ssize(dims); ++d) {
        const int64_t extent = dims[static_cast<size_t>(d)];
        if (std::find(axes.begin(), axes.end(), d) == axes.end()) shape.push_back(extent);
        else if (extent != 1) return std::nullopt;
      }
      return shape;
    };
    choice.key = [](const Ints&) { return Ints(); };
    choice.compute = [&](const Ints&) { return c.reshape(x, choice.shape); };
    return c.out(0, choose_axes(c, 1, "axes", choice));
  }
  const Shape& dims = c.shape(x);
  const auto given = c.ints_attr_or_input("axes", 13, 1);
  std::vector<bool> drop(dims.size(), false);
  if (given) {
    for (const int64_t axis : c.axes(*given, c.rank(x))) {
      if (!is_const_int(dims[static_cast<size_t>(axis)], 1))
        c.malformed(fmt::format("dimension {} of {} is to be removed", axis, c.type(x).to_string()),
                    "dimensions of extent 1");
      drop[static_cast<size_t>(axis)] = true;
    }
  } else {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!as_int(dims[d]) && !sizes_differ(dims[d], 1))
        c.unsupported(fmt::format("dimension {} of {} may be 1, and then would be removed", d, c.type(x).to_string()));
      drop[d] = is_const_int(dims[d], 1);
    }
  }
  Shape shape;
  for (size_t d = 0; d < dims.size(); ++d)
    if (!drop[d]) shape.push_back(dims[d]);
  c.out(0, c.reshape(x, shape));
}

void import_unsqueeze(NodeContext& c) {
  c.require_inputs(c.version() < 13 ? 1 : 2, c.version() < 13 ? 1 : 2);
  const ValueId x = c.in(0);
  if (c.version() >= 13 && c.is_runtime(1)) {
    const Ints dims = c.dims(x);
    AxisChoice choice{c.rank(x) + static_cast<int>(c.num_elements(c.in(1))), c.require_declared(1, "axes"), {}, {}, {}};
    choice.shape_of = [&](const Ints& axes) {
      Ints shape = dims;
      for (const int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
      return std::make_optional(shape);
    };
    choice.key = [](const Ints&) { return Ints(); };
    choice.compute = [&](const Ints&) { return c.reshape(x, choice.shape); };
    return c.out(0, choose_axes(c, 1, "axes", choice));
  }
  const Ints given = c.version() < 13 ? c.attrs.require_ints("axes") : c.const_ints(1, "axes");
  const int rank = c.rank(x) + static_cast<int>(given.size());
  Shape shape(static_cast<size_t>(rank));
  for (const int64_t axis : c.axes(given, rank)) shape[static_cast<size_t>(axis)] = 1;
  size_t next = 0;
  for (Expr& extent : shape)
    if (!extent) extent = c.shape(x)[next++];
  c.out(0, c.reshape(x, shape));
}

void import_transpose(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const int rank = c.rank(x);
  Ints perm;
  for (int d = rank - 1; d >= 0; --d) perm.push_back(d);
  perm = c.axes(c.attrs.get_ints("perm", perm), rank);
  if (static_cast<int>(perm.size()) != rank)
    c.malformed(fmt::format("perm = [{}] for rank {}", fmt::join(perm, ","), rank), "each dimension once");
  c.out(0, c.transpose(x, perm));
}

void import_expand(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const bool decides = c.is_runtime(1) && may_bind_sizes(c) && !c.declared_dims(0);
  if (c.is_runtime(1) && !decides) return c.out(0, c.broadcast(x, declared_expand(c, c.dims(x))));
  const Shape shape = decides ? bound_sizes(c, 1, "shape") : c.const_sizes(1, "shape");
  if (!is_shape(shape)) c.malformed(fmt::format("the shape {}", to_string(shape)), "extents of 0 or more");
  c.out(0, c.broadcast(x, broadcast_dims(c, c.shape(x), shape)));
}

// [a, b] repeated (r, s) times: [1, a, 1, b] broadcast to [r, a, s, b], then taken as [r * a, s * b].
void import_tile(NodeContext& c) {
  const bool one_axis = c.version() < 6;  // then a number of tiles, and the axis that they follow one another on
  c.require_inputs(one_axis ? 3 : 2, one_axis ? 3 : 2);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  Shape repeats(dims.size(), 1);
  if (one_axis) {
    // Both have the operand's type.
    const auto number = [&](int i, const std::string& name) {
      const double value = c.const_float(i, name);
      if (!(std::abs(value) <= static_cast<double>(kMaxTensorElements)) || value != std::floor(value))
        c.malformed(fmt::format("{} = {}", name, value), "an integer");
      return static_cast<int64_t>(value);
    };
    const int64_t tiles = number(1, "tiles"), axis = number(2, "axis");
    repeats[static_cast<size_t>(c.axis(axis, c.rank(x)))] = tiles;
  } else {
    const bool decides = c.is_runtime(1) && may_bind_sizes(c) && !c.declared_dims(0);
    repeats = decides ? bound_sizes(c, 1, "repeats")
                      : sizes_or_expected(c, 1, "repeats", [&] { return declared_repeats(c, c.dims(x)); });
  }
  if (repeats.size() != dims.size() || !is_shape(repeats))
    c.malformed(fmt::format("repeats = {} for an operand of type {}", to_string(repeats), c.type(x).to_string()),
                "one number of 0 or more for each dimension");
  Shape split, tiled, shape;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!is_const_int(repeats[d], 1)) {
      split.push_back(1);
      tiled.push_back(repeats[d]);
    }
    split.push_back(dims[d]);
    tiled.push_back(dims[d]);
    const auto extent = as_int(dims[d]), count = as_int(repeats[d]);
    int64_t known = 0;
    if (extent && count)
      shape.push_back(__builtin_mul_overflow(*extent, *count, &known) ? kMaxTensorElements + 1 : known);
    else shape.push_back(dims[d] * repeats[d]);
  }
  c.out(0, c.reshape(c.broadcast(c.reshape(x, split), tiled), shape));
}

void import_shape(NodeContext& c) {
  c.require_inputs(1, 1);
  const Shape& dims = c.shape(c.in(0));
  const auto rank = static_cast<int64_t>(dims.size());
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = clamped(c.attrs.get_int("start", 0));
  const int64_t end = std::max(start, clamped(c.attrs.get_int("end", rank)));
  c.out(0, c.size_values(Shape(dims.begin() + start, dims.begin() + end)));
}

void import_size(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.reshape(c.size_values({c.count(c.in(0))}), {}));
}

// Blocks of channels become blocks of pixels. DCR: channel = (block row, block column, depth); CRD: the depth first.
void import_depth_to_space(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const int64_t block = c.attrs.require_int("blocksize");
  const std::string mode = c.attrs.get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") c.malformed(fmt::format("mode is '{}'", mode), "DCR or CRD");
  if (dims.size() != 4 || block < 1 || block > 65535 || !divides(block * block, dims[1]))
    c.malformed(fmt::format("blocksize {} for an operand of type {}", block, c.type(x).to_string()),
                "[N,C,H,W] with C divisible by the square of the blocksize");
  const Expr depth = floordiv(dims[1], block * block);
  const bool depth_last = mode == "DCR";
  const ValueId split = depth_last ? c.reshape(x, {dims[0], block, block, depth, dims[2], dims[3]})
                                   : c.reshape(x, {dims[0], depth, block, block, dims[2], dims[3]});
  const ValueId mixed = c.transpose(split, depth_last ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  c.out(0, c.reshape(mixed, {dims[0], depth, dims[2] * Expr(block), dims[3] * Expr(block)}));
}

void import_space_to_depth(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const int64_t block = c.attrs.require_int("blocksize");
  const std::string mode = c.attrs.get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") c.malformed(fmt::format("mode is '{}'", mode), "DCR or CRD");
  if (dims.size() != 4 || block < 1 || block > 65535 || !divides(block, dims[2]) || !divides(block, dims[3]))
    c.malformed(fmt::format("blocksize {} for an operand of type {}", block, c.type(x).to_string()),
                "[N,C,H,W] with H and W divisible by the blocksize");
  const Expr rows = floordiv(dims[2], block), columns = floordiv(dims[3], block);
  const ValueId split = c.reshape(x, {dims[0], dims[1], rows, block, columns, block});
  const ValueId mixed = c.transpose(split, mode == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
  c.out(0, c.reshape(mixed, {dims[0], dims[1] * Expr(block * block), rows, columns}));
}

}  // namespace

OperatorFamily shapes_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"DepthToSpace", 1, import_depth_to_space},
      OperatorImporter{"Expand", 8, import_expand},
      OperatorImporter{"Flatten", 1, import_flatten},
      OperatorImporter{"Reshape", 1, import_reshape},
      OperatorImporter{"Shape", 1, import_shape},
      OperatorImporter{"Size", 1, import_size},
      OperatorImporter{"SpaceToDepth", 1, import_space_to_depth},
      OperatorImporter{"Squeeze", 1, import_squeeze},
      OperatorImporter{"Tile", 1, import_tile},
      OperatorImporter{"Transpose", 1, import_transpose},
      OperatorImporter{"Unsqueeze", 1, import_unsqueeze},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
