// Steps of a flow that make or add elements: ranges and pads.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <set>

#include "interp/flow_values.h"
#include "support/error.h"

namespace tessera::inline interp {

using Ints = std::vector<int64_t>;

Tensor range_of(const FlowStep& step, const Tensor& start, const Tensor& limit, const Tensor& delta) {
  const DType dtype = start.dtype();
  for (const Tensor* number : {&start, &limit, &delta})
    if (number->dtype() != dtype || number->num_elements() != 1)
      fail_step(step, "start, limit and delta that are no single numbers of one type; legal: three of those");
  const auto no_end = [&] { fail_step(step, "a delta that leads to no end; legal: one that reaches the limit"); };
  if (is_float(dtype)) {
    const double first = start.get_double(0), by = delta.get_double(0), steps = (limit.get_double(0) - first) / by;
    if (!(steps <= 0) && !(steps < 0x1p62)) no_end();
    Tensor result(dtype, {steps <= 0 ? 0 : static_cast<int64_t>(std::ceil(steps))});
    for (int64_t i = 0; i < result.num_elements(); ++i) {
      if (dtype == DType::kF32)
        result.set_double(i, static_cast<float>(first) + static_cast<float>(i) * static_cast<float>(by));
      else result.set_double(i, first + static_cast<double>(i) * by);
    }
    return result;
  }
  const int64_t by = delta.get_int(0), end = limit.get_int(0);
  if (by == 0) no_end();
  Ints values;
  for (int64_t at = start.get_int(0); by > 0 ? at < end : at > end;) {
    values.push_back(at);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  Tensor result(dtype, {std::ssize(values)});
  for (size_t i = 0; i < values.size(); ++i) result.set_int(static_cast<int64_t>(i), values[i]);
  return result;
}

Tensor padded(const FlowStep& step, const std::vector<const RunValue*>& in) {
  const Tensor& x = in[0]->tensor;
  const auto rank = std::ssize(x.dims());
  const Ints pads = ints_of(step, *in[1], "pads");
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (in[3]) axes = ints_of(step, *in[3], "axes");
  const size_t listed = axes.size();
  if (pads.size() != 2 * listed)
    fail_step(step, fmt::format("{} pads for {} axes; legal: two for each", pads.size(), listed));
  if (in[2] && (in[2]->tensor.dtype() != x.dtype() || in[2]->tensor.num_elements() != 1))
    fail_step(step, fmt::format("a value that is no single {}", dtype_name(x.dtype())));
  const int64_t mode = step.ints[0];
  Ints dims = x.dims(), begins(static_cast<size_t>(rank), 0);
  std::set<int64_t> seen;
  for (size_t i = 0; i < listed; ++i) {
    const int64_t axis = axis_of(step, axes[i], rank);
    if (!seen.insert(axis).second) fail_step(step, fmt::format("axis {} is named twice; legal: each axis once", axis));
    const auto d = static_cast<size_t>(axis);
    constexpr int64_t kMost = int64_t{1} << 40;
    const int64_t begin = pads[i], end = pads[listed + i];
    const bool far = std::abs(begin) > kMost || std::abs(end) > kMost;
    if (far || dims[d] + begin + end < 0 || (mode != 0 && dims[d] == 0 && begin + end > 0))
      fail_step(step, fmt::format("pads of {} and {} for a dimension of {}; legal: pads that leave 0 elements or more",
                                  begin, end, dims[d]));
    dims[d] += begin + end;
    begins[d] = begin;
  }
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  Ints places;  // in x; -1: the value
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, place = 0, stride = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      int64_t at = rest % dims[d] - begins[d];
      rest /= dims[d];
      const int64_t extent = x.dims()[d];
      if (mode == 1) at = std::min(std::max<int64_t>(at, 0), extent - 1);
      // One turn after the other, as the words of the standard have it.
      while (mode == 2 && (at < 0 || at >= extent)) at = extent == 1 ? 0 : at < 0 ? -at : 2 * (extent - 1) - at;
      while (mode == 3 && at < 0) at += extent;
      while (mode == 3 && at >= extent) at -= extent;
      if (at < 0 || at >= extent) place = -1;
      if (place >= 0) place += at * stride;
      stride *= extent;
    }
    places.push_back(place);
  }
  if (x.dtype() == DType::kString) {
    const std::string fill = in[2] ? in[2]->tensor.strings()[0] : "";
    std::vector<std::string> texts;
    for (const int64_t place : places) texts.push_back(place < 0 ? fill : x.strings()[static_cast<size_t>(place)]);
    return Tensor::of_strings(std::move(texts), dims);
  }
  Tensor result(x.dtype(), dims);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto to = static_cast<int64_t>(i);
    if (places[i] >= 0) copy_element(x, places[i], result, to);
    else if (in[2]) copy_element(in[2]->tensor, 0, result, to);
    else result.set_int(to, 0);
  }
  return result;
}

}  // namespace tessera::inline interp
