// Tensors that depend on no other tensor's elements.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

// The sizes under "size", or those of "self" for the operators whose names end in "_like".
Shape wanted_sizes(AtenContext& c) { return c.has("size") ? c.sizes("size") : c.shape(c.tensor("self")); }

DType wanted_dtype(AtenContext& c) { return c.result_dtype(c.has("self") ? c.dtype(c.tensor("self")) : DType::kF32); }

ValueId filled(AtenContext& c, ValueId value, const Shape& sizes) { return c.broadcast(value, sizes); }

void import_zeros(AtenContext& c) { c.out(c.zeros(wanted_dtype(c), wanted_sizes(c))); }
void import_ones(AtenContext& c) { c.out(filled(c, c.scalar(wanted_dtype(c), 1), wanted_sizes(c))); }
void import_full(AtenContext& c) { c.out(filled(c, c.as("fill_value", wanted_dtype(c)), wanted_sizes(c))); }

void import_fill(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(filled(c, c.as("value", c.dtype(x)), c.shape(x)));
}

void import_scalar_tensor(AtenContext& c) { c.out(c.as("s", c.result_dtype(DType::kF32))); }

void import_arange(AtenContext& c) {
  const auto is_size = [&](const char* name) { return !c.has(name) || (c.argument(name)->kind == ArgumentKind::kInt); };
  const bool whole = is_size("start") && is_size("end") && is_size("step");
  const DType dtype = c.result_dtype(whole ? DType::kI64 : DType::kF32);
  if (whole) {
    const Expr start = c.has("start") ? c.size("start") : Expr(0), end = c.size("end");
    const int64_t step = c.whole("step", 1);
    if (step == 0) c.malformed("step = 0", "another number");
    const Expr span = normalize_size(step > 0 ? end - start : start - end);
    Expr count = normalize_size(ceildiv(span, step > 0 ? step : -step));
    if (const auto known = as_int(count); known ? *known < 0 : !size_at_most(0, count))
      count = normalize_size(max(count, 0));
    ValueId values = c.iota({count}, 0);
    if (step != 1) values = c.mul(values, c.integer(step));
    if (!is_const_int(start, 0)) values = c.add(values, c.integer(start));
    return c.out(c.cast(values, dtype));
  }
  const double start = c.number("start", 0), end = c.number("end"), step = c.number("step", 1);
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0) || count > (1 << 26)) c.malformed(fmt::format("{} to {} by {}", start, end, step), "fewer numbers");
  Tensor values(dtype, {static_cast<int64_t>(count)});
  for (int64_t i = 0; i < values.num_elements(); ++i) values.set_double(i, start + static_cast<double>(i) * step);
  c.out(c.constant_value(std::move(values)));
}

ValueId end_of_line(AtenContext& c, const char* name) {
  return c.argument(name)->kind == ArgumentKind::kTensor ? c.cast(c.tensor(name), DType::kF64)
                                                         : c.as(name, DType::kF64);
}
void linspace_of_tensors(AtenContext& c) {
  const int64_t steps = c.whole("steps");
  if (steps < 0 || steps > (1 << 26)) c.malformed(fmt::format("{} steps", steps), "fewer");
  const DType dtype = c.result_dtype(DType::kF32);
  if (steps == 0) return c.out(c.zeros(dtype, {0}));
  const ValueId start = end_of_line(c, "start"), end = end_of_line(c, "end");
  const ValueId step =
      c.div(c.sub(end, start), c.scalar(DType::kF64, static_cast<double>(std::max<int64_t>(1, steps - 1))));
  const ValueId number = c.cast(c.iota({steps}, 0), DType::kF64);
  const ValueId from_start = c.add(start, c.mul(step, number));
  const ValueId left = c.sub(c.scalar(DType::kF64, static_cast<double>(steps - 1)), number);
  const ValueId from_end = c.sub(end, c.mul(step, left));
  const ValueId is_first_half =
      c.op("lt", {c.iota({steps}, 0), c.integer(std::max<int64_t>(steps == 1 ? 1 : 0, steps / 2))});
  c.out(c.cast(c.op("select", {is_first_half, from_start, from_end}), dtype));
}

// Counted from both ends to the middle, as PyTorch does it.
void import_linspace(AtenContext& c) {
  if (c.overload().starts_with("Tensor") || c.overload().ends_with("Tensor")) return linspace_of_tensors(c);
  const double start = c.number("start"), end = c.number("end");
  const int64_t steps = c.whole("steps");
  if (steps < 0 || steps > (1 << 26)) c.malformed(fmt::format("{} steps", steps), "fewer");
  Tensor values(c.result_dtype(DType::kF32), {steps});
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  for (int64_t i = 0; i < steps; ++i)
    values.set_double(
        i, i < steps / 2 ? start + step * static_cast<double>(i) : end - step * static_cast<double>(steps - 1 - i));
  if (steps == 1) values.set_double(0, start);
  c.out(c.constant_value(std::move(values)));
}

void import_eye(AtenContext& c) {
  const Expr rows = c.size("n"), columns = c.has("m") ? c.size("m") : rows;
  const ValueId diagonal = c.op("eq", {c.iota({rows, 1}, 0), c.iota({1, columns}, 1)});
  c.out(c.cast(diagonal, c.result_dtype(DType::kF32)));
}

}  // namespace

std::span<const AtenOperator> generating_operators() {
  static constexpr AtenOperator table[] = {
      {"arange", import_arange},
      {"empty", import_zeros},
      {"empty_like", import_zeros},
      {"empty_permuted", import_zeros},
      {"empty_strided", import_zeros},
      {"eye", import_eye},
      {"fill", import_fill},
      {"full", import_full},
      {"full_like", import_full},
      {"linspace", import_linspace},
      {"new_empty", import_zeros},
      {"new_full", import_full},
      {"new_ones", import_ones},
      {"new_zeros", import_zeros},
      {"ones", import_ones},
      {"ones_like", import_ones},
      {"scalar_tensor", import_scalar_tensor},
      {"zero", import_zeros},
      {"zeros", import_zeros},
      {"zeros_like", import_zeros},
  };
  return table;
}

}  // namespace tessera::inline aten
