#include "test_case.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/formats.h"
#include "driver/model_file.h"
#include "import/onnx/read/tensor_proto.h"
#include "support/error.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Errors that say "we do not do this yet", not "this model is wrong": operators, input kinds, dtypes, opsets.
constexpr std::string_view kUnsupportedIds[] = {"TSR-1040", "TSR-1024", "TSR-1031", "TSR-1006"};

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "; ");
  return text;
}

// The model of a case; empty when there is none.
std::string model_of_case(const fs::path& folder) {
  for (const char* name : {"model.onnx", "model.graph", "model.onnxjson"})
    if (fs::exists(folder / name)) return (folder / name).string();
  return "";
}

// input_0.pb, input_1.pb, ...: as many as there are without a gap.
std::vector<std::string> numbered_files(const fs::path& folder, const std::string& stem) {
  std::vector<std::string> files;
  for (int i = 0;; ++i) {
    const fs::path path = folder / fmt::format("{}_{}.pb", stem, i);
    if (!fs::exists(path)) return files;
    files.push_back(path);
  }
}

// In the model's order. Files stand for inputs by number; when there are more or fewer of them (inputs with values in
// the model may have files or not) by the tensors' names.
std::vector<RunValue> read_inputs(const Model& model, const fs::path& folder) {
  const std::vector<std::string> files = numbered_files(folder, "input");
  std::vector<RunValue> values(files.size());
  std::vector<std::string> names(files.size());
  const std::vector<TensorInfo>& infos = model.inputs();
  const bool in_order = files.size() == infos.size();
  for (size_t i = 0; i < files.size(); ++i)
    values[i] = in_order ? read_value_proto_file(files[i], flow_type_of(infos[i]), &names[i])
                         : RunValue(read_tensor_proto_file(files[i], &names[i]));
  if (in_order) return values;
  std::vector<RunValue> chosen;
  for (const TensorInfo& info : infos) {
    const auto name = std::find(names.begin(), names.end(), info.name);
    if (name == names.end()) {
      throw UserError({.id = "TSR-6221",
                       .message = fmt::format("'{}' has {} input files, none for input '{}'", folder.string(),
                                              files.size(), info.name),
                       .node = {},
                       .legal = fmt::format("a file for each of the model's {} inputs", infos.size()),
                       .hint = {}});
    }
    chosen.push_back(values[static_cast<size_t>(name - names.begin())]);
  }
  return chosen;
}

// Whether a generator of random numbers decides about an output's elements. No two implementations draw the same ones.
bool is_random_output(const std::string& model, const std::string& output) {
  if (is_graph_without_onnx(model)) return false;  // its random numbers follow from their key
  static const std::set<std::string> kGenerators = {"Bernoulli",        "Multinomial",   "RandomNormal",
                                                    "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
  std::set<std::string> random;
  for (const OnnxNodeEntry& node : statistics_of_file(model).nodes) {
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](const std::string& name) { return random.count(name) != 0; });
    const bool elements_matter = node.op_type != "Shape" && node.op_type != "Size";
    if (kGenerators.count(node.op_type) || (reads && elements_matter))
      random.insert(node.outputs.begin(), node.outputs.end());
  }
  return random.count(output) != 0;
}

// Empty when all outputs agree. `notes`: what was not compared.
std::string run_data_set(Model& model, const fs::path& folder, const Tolerance& tolerance,
                         std::set<std::string>& notes) {
  model.bind_values(read_inputs(model, folder));
  model.run();
  const std::vector<std::string> files = numbered_files(folder, "output");
  const std::vector<RunValue> results = model.value_results();
  if (files.size() != results.size()) {
    return fmt::format("the model has {} outputs, {} has {} files", results.size(), folder.filename().string(),
                       files.size());
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const RunValue want = read_value_proto_file(files[i], flow_type_of(model.outputs()[i]));
    const Comparison comparison = compare_case_output(results[i], want, tolerance);
    if (comparison.agrees) continue;
    if (value_type_text(results[i]) == value_type_text(want) &&
        is_random_output(model_of_case(folder.parent_path()), model.outputs()[i].name)) {
      notes.insert(
          fmt::format("output '{}' is random: its type and shape alone were compared", model.outputs()[i].name));
      continue;
    }
    return fmt::format("{}, output '{}': {}", folder.filename().string(), model.outputs()[i].name, comparison.text);
  }
  return "";
}

// The shapes of a data set's inputs, in the order of the model's: files stand for them as in read_inputs.
GivenShapes shapes_in(const fs::path& folder, const std::vector<DeclaredTensor>& inputs) {
  const std::vector<std::string> files = numbered_files(folder, "input");
  GivenShapes shapes(inputs.size());
  for (size_t i = 0; i < files.size(); ++i) {
    if (files.size() == inputs.size() && !inputs[i].dtype) continue;  // no tensor
    std::string name;
    const std::vector<int64_t> dims = read_tensor_proto_file(files[i], &name).dims();
    for (size_t k = 0; k < inputs.size(); ++k)
      if (files.size() == inputs.size() ? k == i : inputs[k].name == name) shapes[k] = dims;
  }
  return shapes;
}

CaseResult run_case_or_throw(const std::string& folder, const CaseOptions& options) {
  const std::string path = model_of_case(folder);
  OpenedModel opened;
  // Where the model leaves sizes open, each data set has its own, and a compile for them.
  std::optional<UserError> open_sizes;
  try {
    opened = open_model(path, options.open);
  } catch (const UserError& error) {
    if (error.diagnostic().id != "TSR-1020") throw;
    open_sizes = error;
  }
  std::vector<fs::path> data_sets;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set_")) {
      data_sets.push_back(entry.path());
    }
  }
  if (data_sets.empty()) return {CaseVerdict::kNoData, "there is no test_data_set_* folder beside the model"};
  std::sort(data_sets.begin(), data_sets.end());
  std::set<std::string> notes;
  for (const fs::path& data_set : data_sets) {
    if (open_sizes) {
      OpenOptions sized = options.open;
      sized.input_shapes = [&](const std::vector<DeclaredTensor>& inputs) { return shapes_in(data_set, inputs); };
      opened = open_model(path, sized);
    }
    const std::string difference = run_data_set(*opened.model, data_set, options.tolerance, notes);
    if (!difference.empty()) return {CaseVerdict::kFail, difference};
  }
  return {CaseVerdict::kPass, fmt::to_string(fmt::join(notes, "; "))};
}

}  // namespace

std::vector<std::string> find_cases(const std::vector<std::string>& dirs) {
  std::vector<std::string> cases;
  for (const std::string& dir : dirs) {
    std::vector<std::string> found;
    std::error_code error;
    if (!model_of_case(dir).empty()) found.push_back(dir);
    for (auto it = fs::recursive_directory_iterator(dir, error); !error && it != fs::recursive_directory_iterator();
         it.increment(error)) {
      if (it->is_directory() && !model_of_case(it->path()).empty()) found.push_back(it->path());
    }
    if (error || found.empty()) {
      throw UserError(
          {.id = "TSR-6220",
           .message = error ? fmt::format("folder '{}' cannot be searched: {}", dir, error.message())
                            : fmt::format("there is no model.onnx or model.graph in or below '{}'", dir),
           .node = {},
           .legal = "folders with test cases: model.onnx or model.graph, test_data_set_0/input_0.pb, output_0.pb",
           .hint = {}});
    }
    std::sort(found.begin(), found.end());
    cases.insert(cases.end(), found.begin(), found.end());
  }
  return cases;
}

CaseResult run_case(const std::string& folder, const CaseOptions& options) {
  try {
    return run_case_or_throw(folder, options);
  } catch (const UserError& error) {
    const std::string& id = error.diagnostic().id;
    const bool unsupported =
        std::find(std::begin(kUnsupportedIds), std::end(kUnsupportedIds), id) != std::end(kUnsupportedIds);
    return {unsupported ? CaseVerdict::kUnsupported : CaseVerdict::kFail, one_line(error.what())};
  } catch (const std::exception& error) {
    return {CaseVerdict::kFail, one_line(error.what())};
  }
}

Comparison compare_case_output(const RunValue& got, const RunValue& want, Tolerance tolerance) {
  return compare_values(got, want,
                        [&](const Tensor& a, const Tensor& b) { return compare_case_output(a, b, tolerance); });
}

Comparison compare_case_output(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  if (want.dtype() == DType::kBF16) tolerance.rtol = std::max(tolerance.rtol, 1.0 / 64);
  return compare(got, want, tolerance);
}

}  // namespace tessera
