// The same elements under other shapes, in another order, or taken from several values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/common/limits.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// An operand as a value of its own: what an operator of another name passes on.
ValueId passed_on(OperatorContext& c, ValueId x, const Ints& dims) { return c.op("reshape", {x}, {{"shape", dims}}); }
ValueId passed_on(OperatorContext& c, ValueId x, const Shape& shape) {
  return c.op("reshape", {x}, {{"shape", shape}});
}

void import_reshape(OperatorContext& c) {
  c.require_inputs(1, 2);
  const ValueId x = c.in(0);
  Ints dims;
  const auto* written = c.options<tflite::ReshapeOptions>().new_shape();
  if (c.has(1)) {
    // A shape that a run computes is the one that the model declares for the result.
    if (const auto known = c.const_tensor(1)) {
      for (int64_t i = 0; i < known->num_elements(); ++i) dims.push_back(known->get_int(i));
    } else if (c.output(0).open.empty()) {
      dims = c.output(0).dims;
    } else {
      c.unsupported("the shape depends on the model's inputs");
    }
  } else if (written) {
    dims.assign(written->begin(), written->end());
  } else {
    c.malformed("no shape", "one, as an operand or an option");
  }
  // In old models a shape of one 0 is that of a number.
  if (dims == Ints{0} && c.num_elements(x) == 1) dims.clear();
  int64_t known = 1;
  auto open = dims.end();
  bool fits = true;
  for (auto d = dims.begin(); d != dims.end(); ++d) {
    if (*d == -1 && open == dims.end()) open = d;
    else fits = fits && *d >= 0 && !__builtin_mul_overflow(known, *d, &known);
  }
  const int64_t elements = c.num_elements(x);
  const Ints asked = dims;
  if (fits && open != dims.end()) {
    fits = known > 0 && elements % known == 0;
    if (fits) *open = elements / known;
  } else {
    fits = fits && known == elements;
  }
  if (!fits)
    c.malformed(fmt::format("the shape [{}] for {}", fmt::join(asked, ","), c.type(x).to_string()),
                fmt::format("{} elements, and -1 at most once", elements));
  c.out(0, passed_on(c, x, dims));
}

void import_squeeze(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const auto* written = c.options<tflite::SqueezeOptions>().squeeze_dims();
  std::vector<bool> gone(dims.size(), false);
  if (!written || written->size() == 0) {
    for (size_t d = 0; d < dims.size(); ++d) gone[d] = is_const_int(dims[d], 1);
  } else {
    for (const int64_t axis : *written) gone[static_cast<size_t>(c.axis(axis, c.rank(x)))] = true;
  }
  Shape kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!gone[d]) kept.push_back(dims[d]);
    else if (!is_const_int(dims[d], 1))
      c.malformed(fmt::format("dimension {} of {}", d, c.type(x).to_string()), "a dimension of 1");
  }
  c.out(0, passed_on(c, x, kept));
}

void import_expand_dims(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  Ints dims = c.dims(x);
  dims.insert(dims.begin() + c.axis(c.const_int(1, "the axis"), c.rank(x) + 1), 1);
  c.out(0, passed_on(c, x, dims));
}

void import_transpose(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  const Ints perm = c.const_ints(1, "the order of dimensions");
  if (static_cast<int>(perm.size()) != c.rank(x))
    c.malformed(fmt::format("an order of {} dimensions for {}", perm.size(), c.type(x).to_string()),
                fmt::format("{} dimensions", c.rank(x)));
  c.out(0, c.op("transpose", {x}, {{"perm", c.axes(perm, c.rank(x))}}));
}

void import_shape(OperatorContext& c) {
  c.require_inputs(1, 1);
  Tensor dims(c.output(0).dtype, {c.rank(c.in(0))});
  const Ints extents = c.dims(c.in(0));
  for (size_t d = 0; d < extents.size(); ++d) dims.set_int(static_cast<int64_t>(d), extents[d]);
  c.out(0, c.constant_value(std::move(dims)));
}

void import_rank(OperatorContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.scalar(c.output(0).dtype, c.rank(c.in(0))));
}

// Parts with other scales than the result's are brought to it, as LiteRT does it for u8.
ValueId of_result(OperatorContext& c, int i, int8_t activation) {
  const TfliteTensor &x = c.tensor(i), &y = c.output(0);
  const ValueId value = c.in(i);
  if (!c.is_quantized(x) || x.quantization.empty()) return activated(c, value, activation);
  if (activation != 0) c.unsupported("an activation of quantised values");
  if (c.scale(x) == c.scale(y) && c.zero_point(x) == c.zero_point(y)) return value;
  if (x.dtype != DType::kU8) require_same_quantization(c, x, y);
  const float scale = c.scale(x) * (1.0F / c.scale(y));
  const float offset = -static_cast<float>(c.zero_point(x)) * scale;
  const int64_t zero = c.zero_point(y);
  return of_each_byte(c, value, y.dtype, [=](int64_t stored) {
    const float moved = std::round(static_cast<float>(stored) * scale + offset);
    return std::clamp<int64_t>(static_cast<int64_t>(moved) + zero, 0, 255);
  });
}

void import_concatenation(OperatorContext& c) {
  c.require_inputs(1, -1);
  const auto& options = c.options<tflite::ConcatenationOptions>();
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_inputs(); ++i) parts.push_back(of_result(c, i, options.fused_activation_function()));
  const int64_t axis = c.axis(options.axis(), c.rank(parts[0]));
  c.out(0, c.op("concat", parts, {{"axis", axis}}));
}

void import_pack(OperatorContext& c) {
  c.require_inputs(1, -1);
  const int axis = c.axis(c.options<tflite::PackOptions>().axis(), c.rank(c.in(0)) + 1);
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    Ints dims = c.dims(c.in(i));
    if (static_cast<size_t>(axis) > dims.size()) c.malformed("operands of several ranks", "one shape");
    dims.insert(dims.begin() + axis, 1);
    parts.push_back(passed_on(c, c.in(i), dims));
  }
  c.out(0, c.op("concat", parts, {{"axis", int64_t{axis}}}));
}

void import_unpack(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const int axis = c.axis(c.options<tflite::UnpackOptions>().axis(), c.rank(x));
  Ints dims = c.dims(x), rest = dims, starts(dims.size(), 0);
  const auto a = static_cast<size_t>(axis);
  if (dims[a] != c.num_outputs())
    c.malformed(fmt::format("{} outputs for {}", c.num_outputs(), c.type(x).to_string()), fmt::format("{}", dims[a]));
  dims[a] = 1;
  rest.erase(rest.begin() + axis);
  for (int i = 0; i < c.num_outputs(); ++i) {
    starts[a] = i;
    c.out(i, passed_on(c, c.slice(x, starts, dims, Ints(dims.size(), 1)), rest));
  }
}

// Parts along a dimension, of one size or of those of a list.
void import_split(OperatorContext& c) {
  const bool sizes_given = c.code() == tflite::BuiltinOperator::SPLIT_V;
  c.require_inputs(sizes_given ? 3 : 2, sizes_given ? 3 : 2);
  const ValueId x = c.in(sizes_given ? 0 : 1);
  const int axis = c.axis(c.const_int(sizes_given ? 2 : 0, "the axis"), c.rank(x));
  const auto a = static_cast<size_t>(axis);
  Ints dims = c.dims(x), sizes;
  const int64_t whole = dims[a], count = c.num_outputs();
  if (sizes_given) {
    sizes = c.const_ints(1, "the list of sizes");
    const auto open = std::find(sizes.begin(), sizes.end(), -1);
    if (open != sizes.end()) {
      int64_t known = 0;
      for (const int64_t size : sizes) known += size == -1 || size > whole ? 0 : size;
      *open = whole - known;
    }
  } else if (count > 0 && whole % count == 0) {
    sizes.assign(static_cast<size_t>(count), whole / count);
  }
  int64_t sum = 0;
  bool fits = static_cast<int64_t>(sizes.size()) == count;
  for (const int64_t size : sizes) {
    fits = fits && size >= 0 && size <= whole;
    if (fits) sum += size;
  }
  if (!fits || sum != whole)
    c.malformed(fmt::format("{} parts of {} along dimension {}", count, c.type(x).to_string(), axis),
                "parts that are the whole together");
  Ints starts(dims.size(), 0);
  for (int i = 0; i < c.num_outputs(); ++i) {
    dims[a] = sizes[static_cast<size_t>(i)];
    c.out(i, c.op("slice", {x}, {{"starts", starts}, {"sizes", dims}, {"steps", Ints(dims.size(), 1)}}));
    starts[a] += dims[a];
  }
}

}  // namespace

std::span<const TfliteOperator> shape_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {CONCATENATION, import_concatenation},
      {EXPAND_DIMS, import_expand_dims},
      {PACK, import_pack},
      {RANK, import_rank},
      {RESHAPE, import_reshape},
      {SHAPE, import_shape},
      {SPLIT, import_split},
      {SPLIT_V, import_split},
      {SQUEEZE, import_squeeze},
      {TRANSPOSE, import_transpose},
      {UNPACK, import_unpack},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
