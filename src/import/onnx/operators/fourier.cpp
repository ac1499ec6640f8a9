// DFT, STFT, MelWeightMatrix.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/simplify.h"
#include "import/common/fourier.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostFrames = 1 << 26;  // elements of all frames together

void check_length(NodeContext& c, int64_t n) {
  if (n < 1 || n > kLongestTransform)
    c.malformed(fmt::format("a transform of {} values", n), fmt::format("1 to {}", kLongestTransform));
}

void import_dft(NodeContext& c) {
  const bool axis_is_input = c.version() >= 20;
  c.require_inputs(1, axis_is_input ? 3 : 2);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const int rank = c.rank(x);
  if (rank < 2 || dims.back() < 1 || dims.back() > 2)
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "[..., 1] or [..., 2]");
  const bool inverse = c.attrs.get_int("inverse", 0) != 0, onesided = c.attrs.get_int("onesided", 0) != 0;
  std::optional<int64_t> axis, length;
  if (!axis_is_input) axis = c.attrs.get_int("axis", 1);
  else if (!c.has(2)) axis = -2;
  else if (const auto known = c.constant(c.in(2)); known && known->num_elements() == 1) axis = known->get_int(0);
  if (c.has(1)) {
    length = c.const_int(1, "dft_length");
    check_length(c, *length);
  }
  const auto plan_of = [&](size_t d) {
    return FourierTransform{length ? *length : inverse && onesided ? 2 * (dims[d] - 1) : dims[d], inverse, onesided};
  };
  const auto usable = [&](int64_t raw) {
    const int at = c.axis(raw, rank);
    if (at == rank - 1) c.malformed(fmt::format("axis is {} for a tensor of rank {}", raw, rank), "not the last one");
    return static_cast<size_t>(at);
  };
  if (axis) {
    const size_t at = usable(*axis);
    const FourierTransform plan = plan_of(at);
    check_length(c, plan.length);
    return c.out(0, plan.along(c, x, at));
  }
  // An axis that only the run knows: of the results that have the declared shape, the one that it asks for.
  const auto declared = c.declared_dims(0);
  if (!declared || declared->size() != dims.size()) c.const_int(2, "axis");
  const ValueId raw = c.reshape(c.cast(c.in(2), DType::kI64), {});
  std::optional<ValueId> result;
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    const FourierTransform plan = plan_of(d);
    Ints shape = dims;
    shape.back() = inverse && onesided ? 1 : 2;
    shape[d] = plan.kept();
    if (shape != *declared || plan.length < 1) continue;
    const ValueId y = plan.along(c, x, d);
    const auto is = [&](int64_t value) { return c.op("eq", {raw, c.integer(value)}); };
    const auto at = static_cast<int64_t>(d);
    result = result ? c.op("select", {c.op("logical_or", {is(at), is(at - rank)}), y, *result}) : y;
  }
  if (!result)
    c.malformed(fmt::format("a result that is declared as [{}]", fmt::join(*declared, ",")),
                "the shape that the transform has along one of the axes");
  c.out(0, *result);
}

// The frame length, which a run knows, of which a one-sided transform has the declared number of values: of the two
// there can be the one that gives the declared number of frames, too.
int64_t declared_frame(NodeContext& c, int64_t extent, bool onesided) {
  const Ints declared = c.require_declared(3, "frame_length");
  const auto step = c.constant(c.in(1));
  Ints fitting;
  if (declared.size() == 4)
    for (const int64_t length : onesided ? Ints{2 * declared[2] - 2, 2 * declared[2] - 1} : Ints{declared[2]}) {
      if (length < 1 || length > extent) continue;
      if (step && (step->num_elements() != 1 || step->get_int(0) < 1 ||
                   (extent - length) / step->get_int(0) + 1 != declared[1]))
        continue;
      fitting.push_back(length);
    }
  if (fitting.size() != 1)
    c.unsupported(
        fmt::format("{} is known only when the model runs, and {} frame lengths give the declared shape of "
                    "'{}'; a window, whose length it is, would tell",
                    c.input_name(3, "frame_length"), fitting.size(), c.output_name(0)));
  return fitting[0];
}

void import_stft(NodeContext& c) {
  c.require_inputs(2, 4);
  const ValueId signal = c.in(0);
  const Shape dims = c.shape(signal);
  const bool onesided = c.attrs.get_int("onesided", 1) != 0;
  const int64_t parts = dims.size() == 3 ? fixed_extent(c, signal, 2) : 0;
  if (dims.size() != 3 || parts < 1 || parts > 2 || (onesided && parts == 2))
    c.malformed(fmt::format("a signal of type {} with onesided = {}", c.type(signal).to_string(), onesided ? 1 : 0),
                "[batch, length, 1], or with 2 parts when both sides are asked for");
  if (c.has(2) && c.rank(c.in(2)) != 1)
    c.malformed(fmt::format("a window of type {}", c.type(c.in(2)).to_string()), "a list");
  int64_t length = c.has(2) ? c.dims(c.in(2))[0] : c.has(3) ? 0 : fixed_extent(c, signal, 1);
  if (c.is_runtime(3)) {
    // The window's, or the one that gives the declared number of values.
    if (!c.has(2)) length = declared_frame(c, fixed_extent(c, signal, 1), onesided);
    require_ints(c, 3, "frame_length", {length});
  } else if (c.has(3)) {
    length = c.const_int(3, "frame_length");
  }
  check_length(c, length);
  if (c.has(2) && c.dims(c.in(2)) != Ints{length})
    c.malformed(fmt::format("a window of type {}", c.type(c.in(2)).to_string()), fmt::format("[{}]", length));
  if (!size_at_most(length, dims[1]))
    c.malformed(fmt::format("frames of {} values of {}", length, to_string(dims[1])), "shorter frames");
  // Where each value of each frame stands in the signal; a step that only the run knows gives as many frames as the
  // result is declared to have.
  Expr frames = 0;
  const auto step = c.constant(c.in(1));
  const auto declared = c.declared_dims(0);
  if (step || !declared || declared->size() != 4) {
    const int64_t known = c.const_int(1, "frame_step");
    if (known < 1) c.malformed(fmt::format("frame_step = {}", known), "1 or more");
    frames = normalize_size(floordiv(dims[1] - Expr(length), known) + Expr(1));
  } else {
    frames = declared->at(1);
  }
  if (!size_at_most(1, frames) || !size_at_most(frames, kMostFrames / length))
    c.unsupported(fmt::format("{} frames of {} values", to_string(frames), length));
  const ValueId starts = c.mul(c.iota({frames, 1}, 0), c.reshape(c.cast(c.in(1), DType::kI64), {}));
  const ValueId places = c.add(starts, c.iota({1, length}, 1));
  const DType dtype = computing_type(c.dtype(signal));
  ValueId x = c.op("gather", {c.transpose(c.cast(signal, dtype), {0, 2, 1}), places}, {{"axis", int64_t{2}}});
  if (c.has(2)) x = c.mul(x, c.cast(c.in(2), dtype));
  x = c.reshape(c.transpose(x, {0, 2, 1, 3}), {dims[0] * frames, parts, length});
  const int64_t kept = onesided ? length / 2 + 1 : length;
  const ValueId y = c.transpose(fourier_transform(c, x, kept), {0, 2, 1});
  c.out(0, c.cast(c.reshape(y, {dims[0], frames, kept, 2}), c.dtype(signal)));
}

// Triangles between neighbouring centres, which are equally spaced in mels. Computed in f64 from operands that need
// not be known; then the result's declared shape says how many bins there are.
void import_mel_weight_matrix(NodeContext& c) {
  c.require_inputs(5, 5);
  const auto to = c.attrs.get_int("output_datatype", 1);
  const auto dtype = dtype_of_onnx(to);
  if (!dtype || *dtype == DType::kString) c.unsupported(fmt::format("output_datatype = {}", to));
  int64_t bins = 0, lines = 0;
  const auto declared = c.declared_dims(0);
  if ((!c.constant(c.in(0)) || !c.constant(c.in(1))) && declared && declared->size() == 2) {
    lines = declared->at(0);
    bins = declared->at(1);
  } else {
    bins = c.const_int(0, "num_mel_bins");
    lines = c.const_int(1, "dft_length") / 2 + 1;
  }
  if (bins < 1 || lines < 1 || bins > (1 << 20) || lines > (1 << 20))
    c.malformed(fmt::format("{} mel bins of {} lines", bins, lines), "1 to 2^20");
  const auto operand = [&](int i) { return c.cast(c.reshape(c.in(i), {}), DType::kF64); };
  const auto number = [&](double value) { return c.scalar(DType::kF64, value); };
  const double scale = 2595 / std::log(10);
  const auto mel = [&](ValueId hertz) {
    return c.mul(c.op("log", {c.add(c.div(hertz, number(700)), number(1))}), number(scale));
  };
  const ValueId low = mel(operand(3)), high = mel(operand(4));
  const ValueId step = c.div(c.sub(high, low), number(static_cast<double>(bins + 2)));
  const ValueId mels = c.add(c.mul(c.iota({bins + 2}, 0, DType::kF64), step), low);
  const ValueId hertz = c.mul(c.sub(c.op("exp", {c.div(mels, number(scale))}), number(1)), number(700));
  const ValueId edges = c.op("floor", {c.div(c.mul(hertz, c.add(operand(1), number(1))), operand(2))});
  const auto edge = [&](int64_t i) { return c.slice(edges, {i}, {bins}, {1}); };
  const ValueId left = edge(0), centre = edge(1), right = edge(2), line = c.iota({lines, 1}, 0, DType::kF64);
  const auto both = [&](ValueId a, ValueId b) { return c.op("logical_and", {a, b}); };
  const ValueId width = c.sub(centre, left), right_width = c.sub(right, centre);
  const ValueId zero = number(0);
  const ValueId rising = c.op("select", {both(c.op("ge", {line, left}), c.op("le", {line, centre})),
                                         c.div(c.sub(line, left), c.op("max", {width, number(1)})), zero});
  const ValueId peak = c.op("select", {c.op("eq", {line, centre}), number(1), zero});
  const ValueId up = c.op("select", {c.op("eq", {width, zero}), peak, rising});
  const ValueId falling =
      both(c.op("gt", {right_width, zero}), both(c.op("ge", {line, centre}), c.op("lt", {line, right})));
  const ValueId down = c.div(c.sub(right, line), c.op("max", {right_width, number(1)}));
  c.out(0, c.cast(c.op("select", {falling, down, up}), *dtype));
}

}  // namespace

OperatorFamily fourier_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"DFT", 17, import_dft},
      OperatorImporter{"MelWeightMatrix", 17, import_mel_weight_matrix},
      OperatorImporter{"STFT", 17, import_stft},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
