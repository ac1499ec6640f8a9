#include "driver/output_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"

namespace tessera::inline driver {
namespace {

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers(static_cast<size_t>(tensor.num_elements()));
  if (tensor.dtype() == DType::kF32) {
    std::copy(tensor.as<float>().begin(), tensor.as<float>().end(), numbers.begin());
    return numbers;
  }
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = tensor.get_double(static_cast<int64_t>(i));
  return numbers;
}

int64_t largest(const std::vector<double>& numbers, int64_t begin, int64_t row) {
  const auto first = numbers.begin() + begin;
  return std::max_element(first, first + row) - first;
}

}  // namespace

void OutputComparison::add(const Tensor& real, const Tensor& bytes, std::optional<int64_t> label) {
  // As many elements as values say: nothing to hold beside one another.
  if (real.dims() != bytes.dims()) {
    noise_ = std::numeric_limits<double>::infinity();
    ++rows_;
    return;
  }
  const std::vector<double> reals = numbers_of(real), others = numbers_of(bytes);
  const auto count = static_cast<int64_t>(reals.size());
  const int64_t row = real.dims().empty() ? 1 : real.dims().back();
  if (label && (count != row || *label < 0 || *label >= row))
    throw UserError({.id = "TSR-4085",
                     .message = fmt::format("the label {} for output '{}' of {} elements", *label, name_,
                                            fmt::join(real.dims(), "x")),
                     .node = {},
                     .legal = count == row ? fmt::format("0 to {}", row - 1) : "labels of a model with a batch of 1",
                     .hint = {}});
  for (size_t i = 0; i < reals.size(); ++i) {
    const double a = reals[i], b = others[i];
    const bool both_nan = std::isnan(a) && std::isnan(b);
    if (!std::isfinite(a) || !std::isfinite(b)) {
      // No number says how far these are apart.
      if (a != b && !both_nan) noise_ = std::numeric_limits<double>::infinity();
      continue;
    }
    signal_ += a * a;
    noise_ += (a - b) * (a - b);
  }
  for (int64_t begin = 0; row > 1 && begin + row <= count; begin += row) {
    const int64_t of_real = largest(reals, begin, row), of_bytes = largest(others, begin, row);
    ++rows_;
    equal_ += of_real == of_bytes;
    if (!label) continue;
    ++labels_;
    real_right_ += of_real == *label;
    byte_right_ += of_bytes == *label;
  }
}

OutputReport OutputComparison::report() const {
  OutputReport report;
  report.name = name_;
  report.sqnr_db = noise_ > 0 ? 10 * std::log10(signal_ / noise_) : std::numeric_limits<double>::infinity();
  report.agreement = rows_ == 0 ? 1 : static_cast<double>(equal_) / static_cast<double>(rows_);
  report.drop = 100 * (1 - report.agreement);
  if (labels_ > 0) {
    report.real_accuracy = static_cast<double>(real_right_) / static_cast<double>(labels_);
    report.byte_accuracy = static_cast<double>(byte_right_) / static_cast<double>(labels_);
    report.drop = 100 * (*report.real_accuracy - *report.byte_accuracy);
  }
  return report;
}

}  // namespace tessera::inline driver
