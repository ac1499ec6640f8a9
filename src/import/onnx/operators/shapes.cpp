// Operators that give the same elements another shape or order, and those that ask for a shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

int64_t product(Ints::const_iterator begin, Ints::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
}

// The shape that two shapes broadcast to.
Ints broadcast_dims(NodeContext& c, const Ints& a, const Ints& b) {
  const size_t rank = std::max(a.size(), b.size());
  Ints result(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t da = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const int64_t db = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (da != db && da != 1 && db != 1)
      c.malformed(fmt::format("a tensor of shape [{}] for the shape [{}]", fmt::join(a, ","), fmt::join(b, ",")),
                  "extents that are equal or 1, aligned at the last dimension");
    result[i] = da == 1 ? db : da;
  }
  return result;
}

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
  if (c.type(values).num_elements() != std::ssize(shape))
    c.unsupported(fmt::format("{} has {} elements, and the declared shape of '{}' is {}", c.input_name(1, "shape"),
                              c.type(values).num_elements(), c.output_name(0), dims_text(shape)));
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
  const int64_t count = c.type(c.in(1)).num_elements();
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

// 0 copies the operand's extent (unless allowzero), -1 takes what is left.
void import_reshape(NodeContext& c) {
  const int operands = c.version() < 5 ? 1 : 2;  // the shape was an attribute
  c.require_inputs(operands, operands);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const bool allow_zero = c.attrs.get_int("allowzero", 0) != 0;
  const Ints wanted = c.version() < 5   ? c.attrs.require_ints("shape")
                      : c.is_runtime(1) ? declared_reshape(c, dims, allow_zero)
                                        : c.const_ints(1, "shape");
  const auto fail = [&](const std::string& legal) {
    c.malformed(fmt::format("the shape [{}] for an operand of type {}", fmt::join(wanted, ","), c.type(x).to_string()),
                legal);
  };
  Ints shape = wanted;
  std::optional<size_t> open;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && !allow_zero) {
      if (d >= dims.size()) fail("a 0 only where the operand has a dimension to copy");
      shape[d] = dims[d];
    } else if (shape[d] == -1) {
      if (open) fail("at most one -1");
      open = d;
      shape[d] = 1;
    } else if (shape[d] < -1) {
      fail("extents of 0 or more, and at most one -1");
    }
  }
  const auto known = checked_num_elements(shape);
  const int64_t total = c.type(x).num_elements();
  if (!known) fail("at most 2^40 elements");
  if (open) {
    if (*known == 0 || total % *known != 0) fail(fmt::format("a shape of {} elements", total));
    shape[*open] = total / *known;
  } else if (*known != total) {
    fail(fmt::format("a shape of {} elements", total));
  }
  c.out(0, c.reshape(x, shape));
}

void import_flatten(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int rank = c.rank(x);
  const int64_t given = c.attrs.get_int("axis", 1);
  const int axis = given == rank ? rank : c.axis(given, rank);
  c.out(0, c.reshape(x, {product(dims.begin(), dims.begin() + axis), product(dims.begin() + axis, dims.end())}));
}

void import_squeeze(NodeContext& c) {
  c.require_inputs(1, c.version() < 13 ? 1 : 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  if (c.version() >= 13 && c.is_runtime(1)) {
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
  const auto given = c.ints_attr_or_input("axes", 13, 1);
  std::vector<bool> drop(dims.size(), false);
  if (given) {
    for (const int64_t axis : c.axes(*given, c.rank(x))) {
      if (dims[static_cast<size_t>(axis)] != 1)
        c.malformed(fmt::format("dimension {} of {} is to be removed", axis, c.type(x).to_string()),
                    "dimensions of extent 1");
      drop[static_cast<size_t>(axis)] = true;
    }
  } else {
    for (size_t d = 0; d < dims.size(); ++d) drop[d] = dims[d] == 1;
  }
  Ints shape;
  for (size_t d = 0; d < dims.size(); ++d)
    if (!drop[d]) shape.push_back(dims[d]);
  c.out(0, c.reshape(x, shape));
}

void import_unsqueeze(NodeContext& c) {
  c.require_inputs(c.version() < 13 ? 1 : 2, c.version() < 13 ? 1 : 2);
  const ValueId x = c.in(0);
  if (c.version() >= 13 && c.is_runtime(1)) {
    const Ints dims = c.dims(x);
    AxisChoice choice{
        c.rank(x) + static_cast<int>(c.type(c.in(1)).num_elements()), c.require_declared(1, "axes"), {}, {}, {}};
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
  Ints shape(static_cast<size_t>(rank), 0);
  for (const int64_t axis : c.axes(given, rank)) shape[static_cast<size_t>(axis)] = 1;
  size_t next = 0;
  const Ints dims = c.dims(x);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 0) shape[d] = dims[next++];
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
  if (c.is_runtime(1)) return c.out(0, c.broadcast(x, declared_expand(c, c.dims(x))));
  const Ints shape = c.const_ints(1, "shape");
  if (!checked_num_elements(shape))
    c.malformed(fmt::format("the shape [{}]", fmt::join(shape, ",")), "extents of 0 or more");
  c.out(0, c.broadcast(x, broadcast_dims(c, c.dims(x), shape)));
}

// [a, b] repeated (r, s) times: [1, a, 1, b] broadcast to [r, a, s, b], then taken as [r * a, s * b].
void import_tile(NodeContext& c) {
  const bool one_axis = c.version() < 6;  // then a number of tiles, and the axis that they follow one another on
  c.require_inputs(one_axis ? 3 : 2, one_axis ? 3 : 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  Ints repeats(dims.size(), 1);
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
    repeats = ints_or_expected(c, 1, "repeats", [&] { return declared_repeats(c, dims); });
  }
  if (repeats.size() != dims.size() || !checked_num_elements(repeats))
    c.malformed(fmt::format("repeats = [{}] for an operand of type {}", fmt::join(repeats, ","), c.type(x).to_string()),
                "one number of 0 or more for each dimension");
  Ints split, tiled, shape;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (repeats[d] != 1) {
      split.push_back(1);
      tiled.push_back(repeats[d]);
    }
    split.push_back(dims[d]);
    tiled.push_back(dims[d]);
    int64_t extent = 0;
    if (__builtin_mul_overflow(dims[d], repeats[d], &extent)) extent = kMaxTensorElements + 1;
    shape.push_back(extent);
  }
  c.out(0, c.reshape(c.broadcast(c.reshape(x, split), tiled), shape));
}

void import_shape(NodeContext& c) {
  c.require_inputs(1, 1);
  const Ints dims = c.dims(c.in(0));
  const auto rank = static_cast<int64_t>(dims.size());
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = clamped(c.attrs.get_int("start", 0));
  const int64_t end = std::max(start, clamped(c.attrs.get_int("end", rank)));
  c.out(0, c.ints(Ints(dims.begin() + start, dims.begin() + end)));
}

void import_size(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.reshape(c.ints({c.type(c.in(0)).num_elements()}), {}));
}

// Blocks of channels become blocks of pixels. DCR: channel = (block row, block column, depth); CRD: the depth first.
void import_depth_to_space(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int64_t block = c.attrs.require_int("blocksize");
  const std::string mode = c.attrs.get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") c.malformed(fmt::format("mode is '{}'", mode), "DCR or CRD");
  if (dims.size() != 4 || block < 1 || block > 65535 || dims[1] % (block * block) != 0)
    c.malformed(fmt::format("blocksize {} for an operand of type {}", block, c.type(x).to_string()),
                "[N,C,H,W] with C divisible by the square of the blocksize");
  const int64_t depth = dims[1] / (block * block);
  const bool depth_last = mode == "DCR";
  const ValueId split = depth_last ? c.reshape(x, {dims[0], block, block, depth, dims[2], dims[3]})
                                   : c.reshape(x, {dims[0], depth, block, block, dims[2], dims[3]});
  const ValueId mixed = c.transpose(split, depth_last ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  c.out(0, c.reshape(mixed, {dims[0], depth, dims[2] * block, dims[3] * block}));
}

void import_space_to_depth(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int64_t block = c.attrs.require_int("blocksize");
  const std::string mode = c.attrs.get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") c.malformed(fmt::format("mode is '{}'", mode), "DCR or CRD");
  if (dims.size() != 4 || block < 1 || block > 65535 || dims[2] % block != 0 || dims[3] % block != 0)
    c.malformed(fmt::format("blocksize {} for an operand of type {}", block, c.type(x).to_string()),
                "[N,C,H,W] with H and W divisible by the blocksize");
  const ValueId split = c.reshape(x, {dims[0], dims[1], dims[2] / block, block, dims[3] / block, block});
  const ValueId mixed = c.transpose(split, mode == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
  c.out(0, c.reshape(mixed, {dims[0], dims[1] * block * block, dims[2] / block, dims[3] / block}));
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
