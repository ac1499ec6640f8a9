#include "driver/analysis/reduce.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "diagnose/find_difference.h"
#include "diagnose/reduce_model.h"
#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/isolated.h"
#include "driver/engine/native_model.h"
#include "driver/engine/open_model.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

using Clock = std::chrono::steady_clock;

void write_file(const std::string& path, const std::string& bytes) {
  AtomicFile file(path, "model");
  file.write(bytes);
  file.commit();
}

// Floats in [-2, 2), integers in [0, 8): the same for the same seed.
Tensor random_values(const TensorInfo& info, uint64_t seed) {
  Tensor tensor(info.dtype, info.dims);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto number = static_cast<double>(state >> 40) / 16777216;
    if (is_float(info.dtype)) tensor.set_double(i, 4 * number - 2);
    else tensor.set_int(i, static_cast<int64_t>(info.dtype == DType::kBool ? number * 2 : number * 8));
  }
  return tensor;
}

// A bug's text without what changes from model to model.
std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, text.find('\n')))
    if (c < '0' || c > '9') result += c;
  return result.substr(0, result.find('%')).substr(0, 120);
}

class FailureProbe {
 public:
  explicit FailureProbe(const ReduceRequest& request) : request_(request) {}

  // In this process.
  std::string outcome(const std::string& onnx, bool open_dims) const {
    try {
      return run(onnx, open_dims) ? "differs" : "agrees";
    } catch (const UserError& error) {
      return "error " + error.diagnostic().id;
    } catch (const InternalError& error) {
      return "bug: " + without_numbers(error.what());
    } catch (const std::exception& error) {
      return std::string("bug: ") + error.what();
    }
  }

 private:
  Graph import(const std::string& onnx, bool open_dims) const {
    ImportOptions options;
    if (open_dims) {
      for (const auto& [name, bounds] : request_.driver.compile.dims) options.dims[name] = {bounds.lo, bounds.hi};
      options.shapes = request_.driver.compile.shapes;
    }
    GraphInterpreter evaluator;
    return import_onnx_bytes(onnx, options, standard_ops(), evaluator);
  }

  // Whether some output differs for some inputs.
  bool run(const std::string& onnx, bool open_dims) const {
    const Graph graph = import(onnx, open_dims);
    DriverOptions options = request_.driver;
    options.emit = Emit::kModule;
    PassRunner runner(options.runner);
    const auto tested =
        load_module(module_in_memory(compile_graph(graph, options, runner)), "part", request_.num_threads);
    std::unique_ptr<Model> reference;
    if (request_.against == "O0") {
      options.compile.opt_level = 0;
      options.compile.disabled_passes.clear();
      reference = load_module(module_in_memory(compile_graph(graph, options, runner)), "part", request_.num_threads);
    } else {
      reference = interpret_graph(graph, "part");
    }
    for (uint64_t trial = 0; trial < 3; ++trial) {
      const std::vector<Tensor> inputs = make_inputs(reference->inputs(), trial);
      tested->bind(inputs);
      tested->run();
      reference->bind(inputs);
      reference->run();
      for (size_t i = 0; i < tested->results().size(); ++i) {
        const Tensor& want = reference->results()[i];
        if (!compare(tested->results()[i], want, tolerance_for(request_.tolerance, want.dtype())).agrees) return true;
      }
    }
    return false;
  }

  std::vector<Tensor> make_inputs(const std::vector<TensorInfo>& infos, uint64_t trial) const {
    if (trial == 0) {
      try {
        return fitting_inputs(infos, request_.make_inputs(infos));
      } catch (const UserError&) {
        // Cut down, the model has other inputs than those that were given.
      }
    }
    std::vector<Tensor> inputs;
    for (const TensorInfo& info : infos) inputs.push_back(random_values(info, trial * 100 + inputs.size()));
    return inputs;
  }

  const ReduceRequest& request_;
};

// The types of all values, one a line: name length, name, dtype, dims.
std::string types_text(const std::string& onnx) {
  GraphInterpreter evaluator;
  std::string text;
  try {
    const Graph graph = import_onnx_bytes(onnx, {}, standard_ops(), evaluator);
    for (const Value& value : graph.values()) {
      if (!value.type.is_static()) continue;
      text += fmt::format("{} {} {} {}\n", value.name.size(), value.name, static_cast<int>(value.type.dtype),
                          fmt::join(value.type.dims(), "x"));
    }
  } catch (const std::exception&) {
    text.clear();
  }
  return text.empty() ? "none" : text;
}

EditableModel::Types parse_types(const std::string& text) {
  EditableModel::Types types;
  size_t at = 0;
  while (at < text.size()) {
    char* end = nullptr;
    const size_t length = std::strtoull(text.c_str() + at, &end, 10);
    at = static_cast<size_t>(end - text.c_str()) + 1;
    if (length == 0 || at + length >= text.size()) return types;
    const std::string name = text.substr(at, length);
    at += length + 1;
    const size_t line = std::min(text.find('\n', at), text.size());
    std::istringstream rest(text.substr(at, line - at));
    int dtype = 0;
    std::string dims;
    rest >> dtype >> dims;
    PartType type{static_cast<DType>(dtype), {}};
    std::istringstream list(dims);
    for (std::string dim; std::getline(list, dim, 'x');) type.dims.push_back(std::stoll(dim));
    types[name] = std::move(type);
    at = line + 1;
  }
  return types;
}

class Reduction {
 public:
  explicit Reduction(const ReduceRequest& request) : request_(request), probe_(request) {}

  ReduceResult run() {
    const EditableModel model = EditableModel::read(request_.model);
    temporary_ = request_.output + fmt::format(".{}.trial.onnx", getpid());
    ReduceResult result;
    result.nodes_before = model.num_nodes();
    result.elements_before = model.num_elements();
    // Open dimensions are fixed by the options; candidates have none, unless the options still fit.
    failure_ = outcome(model);
    const bool fails = request_.command.empty() ? failure_ != "agrees" : failure_ != "exit 0";
    if (!fails) {
      throw UserError(
          {.id = "TSR-4046",
           .message = request_.command.empty()
                          ? fmt::format("'{}' does not fail: it agrees with {}", request_.model, request_.against)
                          : fmt::format("'{}' does not fail: the command ends with 0", request_.model),
           .node = {},
           .legal = "a model that differs, breaks the compiler or makes the command end with another code",
           .hint = "give the inputs, options or tolerance with which it fails"});
    }
    write_file(request_.output, model.bytes());
    const ReduceSteps steps{.fails = [&](const EditableModel& candidate) { return outcome(candidate) == failure_; },
                            .types = [&](const EditableModel& candidate) { return types_of(candidate); },
                            .time_is_up = [&] { return seconds() > request_.seconds; },
                            .found =
                                [&](const EditableModel& candidate) {
                                  write_file(request_.output, candidate.bytes());
                                  if (request_.step)
                                    request_.step(fmt::format("{} nodes, {} elements of weights", candidate.num_nodes(),
                                                              candidate.num_elements()));
                                }};
    const EditableModel best = reduce_model(model, steps);
    std::error_code error;
    std::filesystem::remove(temporary_, error);
    result.failure = failure_;
    result.nodes = best.num_nodes();
    result.elements = best.num_elements();
    result.trials = trials_;
    result.time_is_up = seconds() > request_.seconds;
    return result;
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  std::string outcome(const EditableModel& model) {
    ++trials_;
    const std::string bytes = model.bytes();
    if (!request_.command.empty()) {
      write_file(temporary_, bytes);
      std::string command = request_.command;
      for (size_t at = 0; (at = command.find("{model}", at)) != std::string::npos; at += temporary_.size())
        command.replace(at, 7, temporary_);
      return run_shell(command, request_.timeout);
    }
    const bool whole = trials_ == 1;
    std::string text = run_isolated([&] { return probe_.outcome(bytes, whole); }, request_.timeout);
    // Options for dimensions that a smaller model no longer has do not matter.
    if (!whole && text == "error TSR-1020")
      text = run_isolated([&] { return probe_.outcome(bytes, true); }, request_.timeout);
    return text;
  }

  EditableModel::Types types_of(const EditableModel& model) const {
    const std::string bytes = model.bytes();
    return parse_types(run_isolated([&] { return types_text(bytes); }, request_.timeout));
  }

  const ReduceRequest& request_;
  FailureProbe probe_;
  std::string failure_, temporary_;
  int trials_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

ReduceResult reduce_failure(const ReduceRequest& request) {
  check_options(request.driver);
  if (!request.command.empty() && request.command.find("{model}") == std::string::npos) {
    throw UserError({.id = "TSR-4047",
                     .message = fmt::format("--command '{}' does not say where the model goes", request.command),
                     .node = {},
                     .legal = "a command with {model} in it",
                     .hint = "for example --command 'tessera compile {model} -o /dev/null'"});
  }
  if (looks_like_module(request.model)) {
    throw UserError({.id = "TSR-4043",
                     .message = fmt::format("'{}' is a compiled module", request.model),
                     .node = {},
                     .legal = "an ONNX model",
                     .hint = "give the model that the module was compiled from"});
  }
  return Reduction(request).run();
}

}  // namespace tessera::inline driver
