#include "diagnose/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tessera::inline diagnose {

namespace {

std::string index_text(int64_t flat, const std::vector<int64_t>& dims) {
  std::vector<int64_t> index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = flat % dims[i];
    flat /= dims[i];
  }
  return fmt::format("[{}]", fmt::join(index, ","));
}

std::string element_text(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kString) {
    std::string text = tensor.strings()[static_cast<size_t>(i)];
    constexpr size_t kShown = 60;
    const bool cut = text.size() > kShown;
    if (cut) text.resize(kShown);
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20) c = '?';
    return fmt::format("'{}{}'", text, cut ? "..." : "");
  }
  if (tensor.dtype() == DType::kBool) return tensor.get_int(i) ? "true" : "false";
  if (is_float(tensor.dtype())) return fmt::format("{:.6g}", tensor.get_double(i));
  if (is_unsigned_int(tensor.dtype())) return fmt::format("{}", static_cast<uint64_t>(tensor.get_int(i)));
  return fmt::format("{}", tensor.get_int(i));
}

// The worst elements of a comparison so far.
struct Differences {
  int64_t count = 0;   // elements out of tolerance
  int64_t worst = -1;  // the one farthest out
  double worst_excess = -1;
  double max_difference = 0, max_reference = 0;

  void add(int64_t index, double excess) {
    ++count;
    if (excess > worst_excess) worst = index, worst_excess = excess;
  }
};

Differences compare_floats(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
  Differences result;
  const int64_t n = want.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const double w = want.get_double(i);
    if (std::isfinite(w)) result.max_reference = std::max(result.max_reference, std::abs(w));
  }
  const double allowed = tolerance.atol + tolerance.mtol * result.max_reference;
  for (int64_t i = 0; i < n; ++i) {
    const double g = got.get_double(i), w = want.get_double(i);
    if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
    const double difference = std::abs(g - w);
    if (!std::isfinite(difference)) {
      result.add(i, std::numeric_limits<double>::infinity());
      continue;
    }
    result.max_difference = std::max(result.max_difference, difference);
    const double excess = difference - (allowed + tolerance.rtol * std::abs(w));
    if (excess > 0) result.add(i, excess);
  }
  return result;
}

Differences compare_exactly(const Tensor& got, const Tensor& want) {
  Differences result;
  const int64_t n = want.num_elements();
  for (size_t i = 0; i < want.strings().size(); ++i)
    if (got.strings()[i] != want.strings()[i]) result.add(static_cast<int64_t>(i), 1);
  if (want.dtype() == DType::kString) return result;
  for (int64_t i = 0; i < n; ++i) {
    if (got.get_int(i) != want.get_int(i)) {
      const double difference = std::abs(static_cast<double>(got.get_int(i)) - static_cast<double>(want.get_int(i)));
      result.max_difference = std::max(result.max_difference, difference);
      result.add(i, difference);
    }
  }
  return result;
}

}  // namespace

std::string tensor_type_text(const Tensor& tensor) {
  return fmt::format("{}[{}]", dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ","));
}

Comparison compare(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims()) {
    return {.agrees = false, .text = fmt::format("got {}, expected {}", tensor_type_text(got), tensor_type_text(want))};
  }
  const bool floats = is_float(want.dtype());
  const Differences d = floats ? compare_floats(got, want, tolerance) : compare_exactly(got, want);
  std::string text = "equal";
  if (floats && d.max_difference > 0) {
    text = fmt::format("max|d| {:.2g}", d.max_difference);
    if (d.max_reference > 0) text += fmt::format(" ({:.2g} of max|ref|)", d.max_difference / d.max_reference);
  }
  Comparison result{.agrees = d.count == 0,
                    .text = text,
                    .differing = d.count,
                    .max_difference = d.max_difference,
                    .max_reference = d.max_reference};
  if (result.agrees) return result;
  result.where = index_text(d.worst, want.dims());
  result.got = element_text(got, d.worst);
  result.want = element_text(want, d.worst);
  result.text = fmt::format("{} of {} elements differ, worst at {}: got {}, expected {}{}", d.count,
                            want.num_elements(), result.where, result.got, result.want, floats ? "; " + text : "");
  return result;
}

Comparison compare_values(const RunValue& got, const RunValue& want,
                          const std::function<Comparison(const Tensor& got, const Tensor& want)>& compare_tensors) {
  // An element that stands for an optional with one, and the other way round, as files have both.
  if (want.kind == ValueKind::kOptional && got.kind != ValueKind::kOptional && want.items.size() == 1)
    return compare_values(got, want.items[0], compare_tensors);
  if (got.kind != want.kind || got.items.size() != want.items.size())
    return {false, fmt::format("got {}, expected {}", value_type_text(got), value_type_text(want))};
  if (want.is_tensor()) return compare_tensors(got.tensor, want.tensor);
  Comparison whole{true, "equal"};
  for (size_t i = 0; i < want.items.size(); ++i) {
    const Comparison part = compare_values(got.items[i], want.items[i], compare_tensors);
    if (!part.agrees) return {false, fmt::format("element {}: {}", i, part.text)};
    if (part.text != "equal") whole.text = fmt::format("element {}: {}", i, part.text);
  }
  return whole;
}

Comparison compare(const RunValue& got, const RunValue& want, const Tolerance& tolerance) {
  return compare_values(got, want, [&](const Tensor& a, const Tensor& b) { return compare(a, b, tolerance); });
}

std::string value_type_text(const RunValue& value) {
  switch (value.kind) {
    case ValueKind::kTensor: return tensor_type_text(value.tensor);
    case ValueKind::kSequence: return fmt::format("a sequence of {}", value.items.size());
    case ValueKind::kOptional: return value.items.empty() ? "an empty optional" : "an optional";
    default: return fmt::format("a map of {}", value.items[0].tensor.num_elements());
  }
}

std::string value_summary(const RunValue& value) {
  if (value.is_tensor()) return tensor_summary(value.tensor);
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(value.items.size(), kShown); ++i)
    text += fmt::format("{}{} {}", i > 0 ? ", " : "", value_type_text(value.items[i]), value_summary(value.items[i]));
  return "(" + text + (value.items.size() > kShown ? ", ...)" : ")");
}

std::string tensor_summary(const Tensor& tensor) {
  constexpr int64_t kShown = 6;
  const int64_t n = tensor.num_elements();
  std::string text;
  if (is_float(tensor.dtype()) && n > 0) {
    double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0;
    int64_t odd = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double value = tensor.get_double(i);
      if (!std::isfinite(value)) {
        ++odd;
        continue;
      }
      low = std::min(low, value), high = std::max(high, value), sum += value;
    }
    if (odd < n)
      text = fmt::format("min {:.6g}  max {:.6g}  mean {:.6g}  ", low, high, sum / static_cast<double>(n - odd));
    if (odd > 0) text += fmt::format("({} not finite)  ", odd);
  }
  text += "[";
  for (int64_t i = 0; i < std::min(n, kShown); ++i) text += (i ? ", " : "") + element_text(tensor, i);
  return text + (n > kShown ? ", ...]" : "]");
}

}  // namespace tessera::inline diagnose
