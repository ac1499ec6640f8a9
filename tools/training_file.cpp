#include "training_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "npy.h"
#include "support/refuse.h"

namespace tessera {

namespace {

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

// Rows that test do not train.
void leave_out_tests(TrainingData& data) {
  std::vector<bool> tests(static_cast<size_t>(data.rows()), false);
  for (const int64_t row : data.test) tests[static_cast<size_t>(row)] = true;
  std::erase_if(data.train, [&](int64_t row) { return tests[static_cast<size_t>(row)]; });
}

}  // namespace

TrainingData read_training_data(const TrainingFile& file) {
  const Arrays arrays(file.path);
  TrainingData data =
      training_data(arrays.need(file.samples, {"x", "images", "data", "features", "x_train"}, "--samples"),
                    arrays.need(file.targets, {"y", "labels", "target", "targets", "y_train"}, "--targets"));
  const int64_t rows = data.rows();
  const std::string train = arrays.find({"train_index"}), test = arrays.find({"test_index"});
  if (!test.empty()) data.test = arrays.rows(test, rows);
  if (data.test.empty() && !arrays.find({"x_test"}).empty() && !arrays.find({"y_test"}).empty())
    add_tests(data, arrays.read("x_test"), arrays.read("y_test"));
  else if (!data.test.empty()) leave_out_tests(data);
  if (!train.empty()) data.train = arrays.rows(train, rows);
  scale_samples(data, file.scale);
  return data;
}

}  // namespace tessera
