#include "driver/training/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "support/refuse.h"

namespace tessera::inline driver {

namespace {

std::string shape_text(const Tensor& tensor) {
  return fmt::format("{}[{}]", dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ","));
}

constexpr double kMostWhole = 9e18;  // fits 64 bits

// Both one after the other.
Tensor joined(const Tensor& a, const Tensor& b, const char* what) {
  if (a.dtype() != b.dtype() || !std::equal(a.dims().begin() + 1, a.dims().end(), b.dims().begin() + 1, b.dims().end()))
    refuse("TSR-6230", fmt::format("{} are {} for training and {} for testing", what, shape_text(a), shape_text(b)),
           "rows of one type and shape");
  std::vector<int64_t> dims = a.dims();
  dims[0] += b.dims()[0];
  Tensor both(a.dtype(), dims);
  std::memcpy(both.mutable_bytes(), a.bytes(), static_cast<size_t>(a.num_bytes()));
  std::memcpy(both.mutable_bytes() + a.num_bytes(), b.bytes(), static_cast<size_t>(b.num_bytes()));
  return both;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> rows;
  for (int64_t i = begin; i < end; ++i) rows.push_back(i);
  return rows;
}

void require_rows(const Tensor& tensor, const char* what) {
  if (tensor.dims().empty()) refuse("TSR-6230", fmt::format("{} are a single number", what), "rows of numbers");
  if (tensor.dtype() == DType::kString) refuse("TSR-6230", fmt::format("{} are strings", what), "rows of numbers");
}

}  // namespace

TrainingData training_data(Tensor samples, Tensor targets) {
  require_rows(samples, "samples");
  require_rows(targets, "targets");
  if (samples.dims()[0] != targets.dims()[0])
    refuse("TSR-6230", fmt::format("samples are {} and targets {}", shape_text(samples), shape_text(targets)),
           "a target for each sample");
  const int64_t rows = samples.dims()[0];
  return {std::move(samples), std::move(targets), range(0, rows), {}};
}

void add_tests(TrainingData& data, const Tensor& samples, const Tensor& targets) {
  const TrainingData tests = training_data(samples, targets);
  data.samples = joined(data.samples, tests.samples, "samples");
  data.targets = joined(data.targets, tests.targets, "targets");
  const int64_t rows = tests.rows();
  data.test = range(data.rows() - rows, data.rows());
}

void scale_samples(TrainingData& data, double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    refuse("TSR-4080", fmt::format("--scale {}", scale), "a finite number above 0");
  if (scale == 1) return;
  Tensor scaled(DType::kF64, data.samples.dims());
  for (int64_t i = 0; i < scaled.num_elements(); ++i) scaled.set_double(i, data.samples.get_double(i) * scale);
  data.samples = std::move(scaled);
}

Tensor as_rows(const Tensor& data, DType dtype, int64_t elements, const std::string& what) {
  const int64_t rows = data.dims()[0], have = rows == 0 ? elements : data.num_elements() / rows;
  if (have != elements)
    refuse("TSR-6231", fmt::format("{} are {}: {} numbers each", what, shape_text(data), have),
           fmt::format("{} numbers each, as the model takes them", elements));
  Tensor result(dtype, {rows, elements});
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    if (is_int(dtype)) {
      const double given = data.get_double(i);
      const bool is_whole = std::abs(given) <= kMostWhole && given == std::floor(given);
      if (is_whole) result.set_int(i, data.get_int(i));
      if (!is_whole || result.get_double(i) != given)
        refuse("TSR-6233", fmt::format("{}: row {} has {}", what, i / elements, given),
               fmt::format("whole numbers that {} has", dtype_name(dtype)));
    } else {
      result.set_double(i, data.get_double(i));
    }
  }
  return result;
}

void require_batch(const TrainingData& data, int64_t batch) {
  if (std::ssize(data.train) < batch)
    refuse("TSR-6231", fmt::format("there are {} samples to train on and {} in a batch", data.train.size(), batch),
           "at least one batch of samples", "choose a smaller --batch");
}

void require_classes(const Tensor& targets, int64_t classes, std::optional<int64_t> ignored) {
  for (int64_t i = 0; i < targets.num_elements(); ++i)
    if (const int64_t target = targets.get_int(i); (target < 0 || target >= classes) && target != ignored)
      refuse("TSR-6232", fmt::format("the target of row {} is {}", i / targets.dims()[1], target),
             fmt::format("classes from 0 to {}", classes - 1));
}

void require_finite(const Tensor& data, const std::string& what) {
  for (int64_t i = 0; i < data.num_elements(); ++i)
    if (!std::isfinite(data.get_double(i)))
      refuse("TSR-6233", fmt::format("{}: row {} has {}", what, i / data.dims()[1], data.get_double(i)),
             "finite numbers");
}

std::vector<int64_t> shuffled(std::vector<int64_t> rows, uint64_t seed, uint64_t epoch) {
  std::seed_seq mixed{seed, seed >> 32, epoch, epoch >> 32};
  std::mt19937_64 random(mixed);
  // Fisher and Yates; the library's own shuffle is another one on every library.
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  return rows;
}

}  // namespace tessera::inline driver
