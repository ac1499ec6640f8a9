#include "calibration_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "npy.h"
#include "support/error.h"
#include "support/refuse.h"
#include "tensor_spec.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

bool is_sample(const fs::path& file) {
  constexpr std::array kKinds = {".npy", ".npz", ".pb"};
  const std::string kind = file.extension().string();
  return is_picture(file.string()) || std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_sample(entry.path())) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  if (files.empty())
    refuse("TSR-6240", fmt::format("folder '{}' holds no samples", folder),
           ".npy, .npz, .pb, .png, .jpg, .jpeg or .bmp files");
  return files;
}

std::string shape_text(const std::vector<int64_t>& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

// The rows of `all` from `row` on, as many as `dims` has room for.
Tensor rows_of(const Tensor& all, size_t row, std::vector<int64_t> dims) {
  int64_t elements = 1;  // of a row
  for (size_t d = 1; d < all.dims().size(); ++d) elements *= all.dims()[d];
  const auto owner = std::make_shared<const Tensor>(all);
  const int64_t begin = dtype_bytes(all.dtype(), static_cast<int64_t>(row) * elements);
  return {all.dtype(), std::move(dims), owner, owner->bytes() + begin};
}

Tensor converted(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor result(dtype, tensor.dims());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) result.set_double(i, tensor.get_double(i));
  return result;
}

}  // namespace

CalibrationData::CalibrationData(std::string path, PictureOptions pictures, size_t most)
    : path_(std::move(path)), pictures_(std::move(pictures)) {
  size_t there = 0;
  const std::string kind = fs::path(path_).extension().string();
  if (fs::is_directory(path_)) {
    files_ = files_of(path_);
    there = files_.size();
  } else if (kind == ".npz" || kind == ".npy") {
    if (kind == ".npy") arrays_.emplace("", read_npy(path_));
    else
      for (const std::string& name : names_in_npz(path_)) arrays_.emplace(name, read_npz(path_, name));
    there = SIZE_MAX;
    for (const auto& [name, array] : arrays_) {
      if (array.dims().empty())
        refuse("TSR-6240", fmt::format("array '{}' of '{}' is a single number", name, path_),
               "samples along dimension 0");
      there = std::min(there, static_cast<size_t>(array.dims()[0]));
    }
    if (arrays_.empty()) there = 0;
  } else {
    if (!fs::exists(path_))
      refuse("TSR-6240", fmt::format("there is no '{}'", path_), "a folder, an .npz file or a sample");
    files_ = {path_};
    there = 1;
  }
  if (there == 0) refuse("TSR-6240", fmt::format("'{}' holds no samples", path_), "at least one");
  total_ = there;
  const size_t taken = most == 0 ? there : std::min(most, there);
  for (size_t i = 0; i < taken; ++i) places_.push_back(i * there / taken);
}

std::string CalibrationData::array_text(const std::string& name) const {
  return name.empty() ? fmt::format("'{}'", path_) : fmt::format("array '{}' of '{}'", name, path_);
}

std::string CalibrationData::array_for(const std::string& input, size_t num_inputs) const {
  if (arrays_.count(input)) return input;
  if (num_inputs == 1 && arrays_.size() == 1) return arrays_.begin()->first;
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays_) names.push_back("'" + name + "'");
  refuse("TSR-6240", fmt::format("'{}' has no array for input '{}'", path_, input),
         fmt::format("one of {}", fmt::join(names, ", ")),
         "save it by numpy.savez with the names of the model's inputs");
}

GivenShapes CalibrationData::shapes(const std::vector<DeclaredTensor>& inputs) const {
  GivenShapes shapes(inputs.size());
  std::vector<TensorInfo> infos;  // of the inputs that files have arrays for
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DeclaredTensor& input = inputs[i];
    if (!input.dtype || !input.has_rank) continue;
    if (!arrays_.empty()) {
      std::vector<int64_t> dims = arrays_.at(array_for(input.name, inputs.size())).dims();
      if (dims.size() == input.dims.size() + 1) dims.erase(dims.begin());
      else if (!dims.empty()) dims[0] = !input.dims.empty() && input.dims[0].value > 0 ? input.dims[0].value : 1;
      shapes[i] = std::move(dims);
      continue;
    }
    TensorInfo info;
    info.name = input.name;
    info.dtype = *input.dtype;
    for (const DeclaredDim& dim : input.dims) info.dims.push_back(dim.value);
    infos.push_back(std::move(info));
    places.push_back(i);
  }
  if (!arrays_.empty() || infos.empty()) return shapes;
  const std::vector<TensorSpec> specs = parse_tensor_specs({"@" + files_[0]}, true);
  const std::vector<int> chosen = match_specs(specs, infos, "--calib");
  for (size_t i = 0; i < infos.size(); ++i)
    if (chosen[i] >= 0) shapes[places[i]] = shape_of(specs[static_cast<size_t>(chosen[i])], infos[i]);
  return shapes;
}

std::vector<TensorInfo> CalibrationData::with_sizes_of(size_t number, std::vector<TensorInfo> inputs) const {
  const auto is_open = [](const TensorInfo& info) {
    return std::any_of(info.dims.begin(), info.dims.end(), [](int64_t dim) { return dim < 0; });
  };
  if (std::none_of(inputs.begin(), inputs.end(), is_open)) return inputs;
  std::vector<TensorSpec> specs;
  std::vector<int> chosen(inputs.size(), -1);
  if (arrays_.empty()) {
    specs = parse_tensor_specs({"@" + files_[places_.at(number)]}, true);
    chosen = match_specs(specs, inputs, "--calib");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorInfo& info = inputs[i];
    if (!is_open(info)) continue;
    std::optional<std::vector<int64_t>> dims;
    if (chosen[i] >= 0) dims = shape_of(specs[static_cast<size_t>(chosen[i])], info);
    if (!arrays_.empty()) {
      dims = arrays_.at(array_for(info.name, inputs.size())).dims();
      if (dims->size() == info.dims.size() + 1) dims->erase(dims->begin());
      else if (!dims->empty()) dims->front() = std::max<int64_t>(info.dims.empty() ? 1 : info.dims[0], 1);
    }
    for (size_t d = 0; dims && dims->size() == info.dims.size() && d < dims->size(); ++d)
      if (info.dims[d] < 0) info.dims[d] = (*dims)[d];
  }
  return inputs;
}

std::vector<Tensor> CalibrationData::from_file(const std::string& file, const std::vector<TensorInfo>& inputs) const {
  const std::vector<TensorSpec> specs = parse_tensor_specs({"@" + file}, true);
  const std::vector<int> chosen = match_specs(specs, inputs, "--calib");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (chosen[i] < 0)
      refuse("TSR-6240", fmt::format("'{}' has nothing for input '{}'", file, inputs[i].name),
             "a tensor for each input", "put the inputs of a sample into one .npz file, by their names");
    tensors.push_back(make_tensor(specs[static_cast<size_t>(chosen[i])], inputs[i], pictures_));
  }
  return tensors;
}

std::vector<Tensor> CalibrationData::sample(size_t number, const std::vector<TensorInfo>& inputs) const {
  const size_t place = places_.at(number);
  std::vector<Tensor> tensors;
  if (arrays_.empty()) {
    tensors = from_file(files_[place], inputs);
  } else {
    for (const TensorInfo& input : inputs) {
      const std::string name = array_for(input.name, inputs.size());
      const Tensor& all = arrays_.at(name);
      // A sample has the batch that the model asks for: one row of the array, or, of a larger batch, as many.
      std::vector<int64_t> row(all.dims().begin() + 1, all.dims().end());
      const bool is_apart = row == input.dims;
      const int64_t batch = is_apart || input.dims.empty() ? 1 : input.dims[0];
      std::vector<int64_t> with_batch = row;
      with_batch.insert(with_batch.begin(), batch);
      if (!is_apart && with_batch != input.dims)
        refuse("TSR-6240", fmt::format("{} has rows of shape {}", array_text(name), shape_text(row)),
               fmt::format("{} for input '{}'", shape_text(input.dims), input.name));
      if (batch > all.dims()[0])
        refuse("TSR-6240", fmt::format("{} has {} rows", array_text(name), all.dims()[0]),
               fmt::format("a batch of {} for input '{}'", batch, input.name));
      const auto last = static_cast<size_t>(all.dims()[0] - batch);
      tensors.push_back(rows_of(all, std::min(place, last), input.dims));
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) tensors[i] = converted(tensors[i], inputs[i].dtype);
  try {
    return fitting_inputs(inputs, std::move(tensors));
  } catch (const UserError& error) {
    Diagnostic diagnostic = error.diagnostic();
    diagnostic.message = fmt::format("sample {}{}: {}", number + 1,
                                     arrays_.empty() ? fmt::format(" ('{}')", files_[place]) : "", diagnostic.message);
    throw UserError(std::move(diagnostic));
  }
}

}  // namespace tessera
