#include "training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "npy.h"
#include "refuse.h"

namespace tessera {

namespace {

std::string shape_text(const Tensor& tensor) {
  return fmt::format("{}[{}]", dtype_name(tensor.dtype()), fmt::join(tensor.dims(), ","));
}

class Arrays {
 public:
  explicit Arrays(const std::string& path) : path_(path), names_(names_in_npz(path)) {}

  std::string find(std::initializer_list<const char*> candidates) const {
    for (const char* candidate : candidates)
      if (std::find(names_.begin(), names_.end(), candidate) != names_.end()) return candidate;
    return "";
  }
  Tensor read(const std::string& name) const {
    Tensor tensor = read_npz(path_, name);
    if (tensor.dims().empty())
      refuse("TSR-6230", fmt::format("array '{}' of '{}' is a single number", name, path_), "an array of rows");
    if (tensor.dtype() == DType::kString)
      refuse("TSR-6230", fmt::format("array '{}' of '{}' holds strings", name, path_), "an array of numbers");
    return tensor;
  }
  Tensor need(const std::string& name, std::initializer_list<const char*> candidates, const char* flag) const {
    const std::string found = name.empty() ? find(candidates) : name;
    if (found.empty())
      refuse("TSR-6230", fmt::format("'{}' has the arrays {}", path_, fmt::join(names_, ", ")),
             fmt::format("an array called {}", fmt::join(candidates, ", ")), fmt::format("name it with {}", flag));
    return read(found);
  }
  std::vector<int64_t> rows(const std::string& name, int64_t count) const {
    const Tensor places = read(name);
    std::vector<int64_t> result;
    for (int64_t i = 0; i < places.num_elements(); ++i) {
      const double row = places.get_double(i);
      if (!(row >= 0 && row < static_cast<double>(count)) || row != std::floor(row))
        refuse("TSR-6230", fmt::format("'{}' of '{}' names row {}", name, path_, row),
               fmt::format("rows from 0 to {}", count - 1));
      result.push_back(static_cast<int64_t>(row));
    }
    return result;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

void require_equal_rows(const Arrays& arrays, const Tensor& samples, const Tensor& targets) {
  if (samples.dims()[0] != targets.dims()[0])
    refuse("TSR-6230",
           fmt::format("'{}' has samples {} and targets {}", arrays.path(), shape_text(samples), shape_text(targets)),
           "a target for each sample");
}

constexpr double kMostWhole = 9e18;  // fits 64 bits

// Both one after the other.
Tensor joined(const Tensor& a, const Tensor& b, const std::string& path) {
  if (a.dtype() != b.dtype() || !std::equal(a.dims().begin() + 1, a.dims().end(), b.dims().begin() + 1, b.dims().end()))
    refuse("TSR-6230", fmt::format("'{}' has {} for training and {} for testing", path, shape_text(a), shape_text(b)),
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

}  // namespace

TrainingData read_training_data(const TrainingDataOptions& options) {
  const Arrays arrays(options.path);
  TrainingData data;
  data.samples = arrays.need(options.samples, {"x", "images", "data", "features", "x_train"}, "--samples");
  data.targets = arrays.need(options.targets, {"y", "labels", "target", "targets", "y_train"}, "--targets");
  require_equal_rows(arrays, data.samples, data.targets);
  const int64_t rows = data.samples.dims()[0];
  if (const std::string train = arrays.find({"train_index"}); !train.empty()) data.train = arrays.rows(train, rows);
  if (const std::string test = arrays.find({"test_index"}); !test.empty()) data.test = arrays.rows(test, rows);
  if (data.test.empty() && !arrays.find({"x_test"}).empty() && !arrays.find({"y_test"}).empty()) {
    const Tensor x = arrays.read("x_test"), y = arrays.read("y_test");
    require_equal_rows(arrays, x, y);
    data.samples = joined(data.samples, x, options.path);
    data.targets = joined(data.targets, y, options.path);
    data.train = range(0, rows);
    data.test = range(rows, data.samples.dims()[0]);
  }
  if (data.train.empty()) {
    std::vector<bool> tests(static_cast<size_t>(rows), false);
    for (const int64_t row : data.test) tests[static_cast<size_t>(row)] = true;
    for (int64_t row = 0; row < rows; ++row)
      if (!tests[static_cast<size_t>(row)]) data.train.push_back(row);
  }
  if (options.scale != 1) {
    Tensor scaled(DType::kF64, data.samples.dims());
    for (int64_t i = 0; i < scaled.num_elements(); ++i)
      scaled.set_double(i, data.samples.get_double(i) * options.scale);
    data.samples = std::move(scaled);
  }
  return data;
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

}  // namespace tessera
