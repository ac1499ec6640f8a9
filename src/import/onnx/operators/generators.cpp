// Operators that make tensors: constants, ranges, identity matrices, window functions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numbers>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/data_size.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

DType dtype_attribute(NodeContext& c, const std::string& name, DType fallback) {
  if (!c.attrs.has(name)) return fallback;
  const int64_t number = c.attrs.get_int(name, 0);
  const auto dtype = dtype_of_onnx(number);
  if (!dtype || *dtype == DType::kString) c.unsupported(fmt::format("{} = {}", name, onnx_dtype_name(number)));
  return *dtype;
}

Tensor from_floats(const std::vector<double>& values, std::vector<int64_t> dims) {
  Tensor tensor(DType::kF32, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

// How many values a range has: max(ceil((limit - start) / delta), 0).
int64_t range_count(NodeContext& c, const Tensor& start, const Tensor& limit, const Tensor& delta) {
  const auto fail = [&] { c.malformed("a range with a delta of 0, or of more than 2^40 elements", "a finite range"); };
  if (is_float(start.dtype())) {
    const double step = delta.get_double(0);
    const double count = std::ceil((limit.get_double(0) - start.get_double(0)) / step);
    if (step == 0 || !(count < 1e12)) fail();
    return static_cast<int64_t>(std::max(0.0, count));
  }
  __extension__ typedef __int128 Wide;  // differences of two i64 do not overflow it
  const Wide step = delta.get_int(0);
  if (step == 0) fail();
  const Wide span = Wide{limit.get_int(0)} - start.get_int(0);
  if ((span > 0) != (step > 0) || span == 0) return 0;
  const Wide count = (span + (step > 0 ? step - 1 : step + 1)) / step;
  if (count > (Wide{1} << 40)) fail();
  return static_cast<int64_t>(count);
}

// The extent of a result of one dimension that operand `i` will say when the model runs.
int64_t declared_extent(NodeContext& c, int i, const std::string& name) {
  const auto shape = c.require_declared(i, name);
  if (shape.size() != 1)
    c.unsupported(fmt::format("the declared shape {} of '{}'", dims_text(shape), c.output_name(0)));
  require_ints(c, i, name, shape);
  return shape[0];
}

// How many values a range of i64 or f64 has, as range_count has it, but as a value; `legal` receives whether there is
// such a number.
ValueId runtime_range_count(NodeContext& c, ValueId start, ValueId limit, ValueId delta, ValueId& legal) {
  const DType dtype = c.dtype(start);
  const ValueId zero = c.scalar(dtype, 0);
  legal = c.op("ne", {delta, zero});
  const ValueId span = c.sub(limit, start);
  if (is_float(dtype)) return c.cast(c.op("max", {c.op("ceil", {c.div(span, delta)}), zero}), DType::kI64);
  const ValueId one = c.scalar(dtype, 1);
  const ValueId upwards = c.op("gt", {delta, zero});
  const ValueId rounded = c.op("select", {upwards, c.sub(c.add(span, delta), one), c.add(c.add(span, delta), one)});
  return c.op("max", {c.div(rounded, delta), zero});
}

// The length of a range of integers that data decide: `count` is what they decide.
Expr bound_range(NodeContext& c, ValueId count) {
  const Expr limit = largest_element(c, c.in(1));
  const auto start = c.known_sizes(c.in(0));
  const auto delta = c.constant(c.in(2));
  if (!limit || !start || !delta || !size_at_most(0, (*start)[0]) || delta->get_int(0) < 1)
    c.unsupported("a range whose length only a run knows, and nothing bounds");
  return bind_size(c, count, max(floordiv(limit - (*start)[0] + Expr(delta->get_int(0) - 1), delta->get_int(0)), 0));
}

// A range whose length the model declares, or data decide.
void import_runtime_range(NodeContext& c, int i, const std::string& name) {
  const bool decides = may_bind_sizes(c) && !c.declared_dims(0) && is_int(c.dtype(c.in(0)));
  std::vector<int64_t> declared = {0};
  if (!decides) declared = c.require_declared(i, name);
  const DType dtype = c.dtype(c.in(0));
  for (int k = 0; k < 3; ++k)
    if (c.num_elements(c.in(k)) != 1 || c.dtype(c.in(k)) != dtype || dtype == DType::kBool || declared.size() != 1)
      c.malformed("start, limit and delta are not scalars of one type", "three scalars of one type");
  const DType counting = is_float(dtype) ? DType::kF64 : DType::kI64;
  const auto operand = [&](int k, DType as) { return c.cast(c.reshape(c.in(k), {}), as); };
  ValueId legal = -1;
  const ValueId count = runtime_range_count(c, operand(0, counting), operand(1, counting), operand(2, counting), legal);
  if (!decides) require_shape(c, 0, c.reshape(count, {1}), declared, legal);
  const Shape shape = decides ? Shape{bound_range(c, count)} : make_shape(declared);
  const DType computing = is_float(dtype) && dtype_bits(dtype) < 32 ? DType::kF32 : dtype;
  const ValueId steps = c.mul(c.iota(shape, 0, computing), operand(2, computing));
  c.out(0, c.cast(c.add(steps, operand(0, computing)), dtype));
}

// A range of integers whose length is an expression of sizes.
void import_symbolic_range(NodeContext& c) {
  const Expr start = c.const_size(0, "start"), limit = c.const_size(1, "limit");
  const int64_t step = c.const_int(2, "delta");
  const DType dtype = c.dtype(c.in(0));
  if (dtype != c.dtype(c.in(1)) || dtype != c.dtype(c.in(2)))
    c.malformed("start, limit and delta are not scalars of one type", "three scalars of one type");
  if (step == 0) c.malformed("a range with a delta of 0, or of more than 2^40 elements", "a finite range");
  const Expr way = step > 0 ? limit - start + Expr(step - 1) : start - limit + Expr(-step - 1);
  ValueId places = c.iota({max(floordiv(way, step > 0 ? step : -step), 0)}, 0, dtype);
  if (step != 1) places = c.mul(places, c.reshape(c.in(2), {}));
  c.out(0, is_const_int(start, 0) ? places : c.add(places, c.reshape(c.in(0), {})));
}

void import_constant(NodeContext& c) {
  c.require_inputs(0, 0);
  if (const auto* proto = c.attrs.get_tensor("value")) {
    const Tensor value = c.tensor(*proto);
    return c.out(0,
                 value.dtype() == DType::kString ? c.strings(value.strings(), value.dims()) : c.constant_value(value));
  }
  if (c.attrs.has("value_string")) return c.out(0, c.strings({c.attrs.get_string("value_string", "")}, {}));
  if (c.attrs.has("value_strings")) {
    const auto values = c.attrs.get_strings("value_strings");
    return c.out(0, c.strings(values, {std::ssize(values)}));
  }
  if (c.attrs.has("value_float"))
    return c.out(0, c.constant_value(from_floats({c.attrs.get_float("value_float", 0)}, {})));
  if (c.attrs.has("value_floats")) {
    const auto values = c.attrs.get_floats("value_floats");
    return c.out(0, c.constant_value(from_floats(values, {static_cast<int64_t>(values.size())})));
  }
  if (c.attrs.has("value_int")) return c.out(0, c.reshape(c.ints({c.attrs.get_int("value_int", 0)}), {}));
  if (c.attrs.has("value_ints")) return c.out(0, c.ints(c.attrs.get_ints("value_ints")));
  if (c.attrs.has("sparse_value")) c.unsupported("attribute 'sparse_value'");
  c.malformed("the constant has no value", "one of the attributes value, value_float(s), value_int(s)");
}

void import_constant_of_shape(NodeContext& c) {
  c.require_inputs(1, 1);
  const bool decides = c.is_runtime(0) && may_bind_sizes(c) && !c.declared_dims(0);
  const Shape shape = decides ? bound_sizes(c, 0, "input")
                              : sizes_or_expected(c, 0, "input", [&] { return c.require_declared(0, "input"); });
  std::vector<int64_t> least;
  for (const Expr& extent : shape) least.push_back(as_int(extent).value_or(size_range(extent).lo.value_or(-1)));
  if (!checked_num_elements(least))
    c.malformed(fmt::format("the shape {}", to_string(shape)), "extents of 0 or more, and at most 2^40 elements");
  ValueId value;
  if (const auto* proto = c.attrs.get_tensor("value")) {
    const Tensor tensor = c.tensor(*proto);
    if (tensor.num_elements() != 1)
      c.malformed(fmt::format("value has {} elements", tensor.num_elements()), "one element");
    value = c.reshape(c.constant_value(tensor), {});
  } else {
    value = c.scalar(DType::kF32, 0);
  }
  c.out(0, c.broadcast(value, shape));
}

// start + i * delta
void import_range(NodeContext& c) {
  c.require_inputs(3, 3);
  c.attrs.ignore("stash_type");
  constexpr const char* kNames[] = {"start", "limit", "delta"};
  for (int i = 0; i < 3; ++i)
    if (c.is_runtime(i)) return import_runtime_range(c, i, kNames[i]);
  if (!c.constant(c.in(0)) || !c.constant(c.in(1)) || !c.constant(c.in(2))) return import_symbolic_range(c);
  const Tensor start = c.const_tensor(0, "start"), limit = c.const_tensor(1, "limit"),
               delta = c.const_tensor(2, "delta");
  if (start.num_elements() != 1 || limit.num_elements() != 1 || delta.num_elements() != 1 ||
      start.dtype() != limit.dtype() || start.dtype() != delta.dtype())
    c.malformed("start, limit and delta are not scalars of one type", "three scalars of one type");
  const DType dtype = start.dtype();
  // 16-bit floats cannot count far: the places are computed in f32.
  const DType counting = is_float(dtype) && dtype_bits(dtype) < 32 ? DType::kF32 : dtype;
  const auto operand = [&](int i) { return c.cast(c.reshape(c.in(i), {}), counting); };
  // Counting from 0 on by 1 needs no arithmetic.
  if (start.get_double(0) == 0 && delta.get_double(0) == 1)
    return c.out(0, c.cast(c.iota({range_count(c, start, limit, delta)}, 0, counting), dtype));
  const ValueId steps = c.mul(c.iota({range_count(c, start, limit, delta)}, 0, counting), operand(2));
  c.out(0, c.cast(c.add(steps, operand(0)), dtype));
}

void import_eye_like(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId like = c.in(0);
  const Shape dims = c.shape(like);
  if (dims.size() != 2) c.malformed(fmt::format("an operand of type {}", c.type(like).to_string()), "a matrix");
  const DType dtype = dtype_attribute(c, "dtype", c.dtype(like));
  const int64_t k = c.attrs.get_int("k", 0);
  ValueId row = c.iota(dims, 0);
  if (k != 0) row = c.add(row, c.reshape(c.ints({k}), {}));
  c.out(0, c.cast(c.op("eq", {c.iota(dims, 1), row}), dtype));
}

// a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n), with n one less unless the window is periodic.
void import_window_function(NodeContext& c) {
  c.require_inputs(1, 1);
  const int64_t size = c.is_runtime(0) ? declared_extent(c, 0, "size") : c.const_int(0, "size");
  if (size < 0 || size > (1 << 24)) c.malformed(fmt::format("size = {}", size), "0 to 2^24");
  const DType dtype = dtype_attribute(c, "output_datatype", DType::kF32);
  const bool periodic = c.attrs.get_int("periodic", 1) != 0;
  const std::string name = c.op_type();
  const double a0 = name == "HannWindow" ? 0.5 : name == "HammingWindow" ? 25.0 / 46 : 0.42;
  const double a1 = name == "HannWindow" ? 0.5 : name == "HammingWindow" ? 1 - 25.0 / 46 : 0.5;
  const double a2 = name == "BlackmanWindow" ? 0.08 : 0;
  const auto n = static_cast<double>(periodic ? size : size - 1);
  Tensor window(dtype, {size});
  for (int64_t i = 0; i < size; ++i) {
    const double angle = n == 0 ? 0 : 2 * std::numbers::pi * static_cast<double>(i) / n;
    window.set_double(i, a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  c.out(0, c.constant_value(std::move(window)));
}

}  // namespace

OperatorFamily generators_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"BlackmanWindow", 17, import_window_function},
      OperatorImporter{"Constant", 1, import_constant},
      OperatorImporter{"ConstantOfShape", 9, import_constant_of_shape},
      OperatorImporter{"EyeLike", 9, import_eye_like},
      OperatorImporter{"HammingWindow", 17, import_window_function},
      OperatorImporter{"HannWindow", 17, import_window_function},
      OperatorImporter{"Range", 11, import_range},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
