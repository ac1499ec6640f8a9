#include "driver/analysis/reduce.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "diagnose/find_difference.h"
#include "diagnose/graph_edit.h"
#include "diagnose/reduce_model.h"
#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/isolated.h"
#include "driver/engine/native_model.h"
#include "driver/engine/open_model.h"
#include "driver/formats.h"
#include "driver/model_file.h"
#include "graph/bind_symbols.h"
#include "graph/printer.h"
#include "import/common/refused_model.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

using Clock = std::chrono::steady_clock;

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

// The options with those sizes alone that this graph leaves open.
DriverOptions for_sizes_of(const Graph& graph, DriverOptions options) {
  options.compile.shapes.clear();
  std::erase_if(options.compile.dims, [&](const auto& entry) {
    return std::none_of(graph.symbols.begin(), graph.symbols.end(),
                        [&](const SymbolRange& symbol) { return symbol.var->name == entry.first; });
  });
  return options;
}

// Values of the symbols at which a graph is run: the first of each range, the last, and one between. What data decide
// has none.
std::vector<std::map<std::string, int64_t>> sizes_to_run(const Graph& graph) {
  std::vector<std::map<std::string, int64_t>> points(1);
  for (const SymbolRange& symbol : graph.symbols) {
    if (symbol.is_data()) continue;
    points.resize(3);
    const int64_t steps = (std::min(symbol.hi, symbol.lo + 64 * symbol.step) - symbol.lo) / symbol.step;
    points[0][symbol.var->name] = symbol.lo;
    points[1][symbol.var->name] = symbol.lo + steps / 2 * symbol.step;
    points[2][symbol.var->name] = symbol.lo + steps * symbol.step;
  }
  return points;
}

class FailureProbe {
 public:
  explicit FailureProbe(const ReduceRequest& request) : request_(request) {}

  // In this process. `whole`: nothing is cut yet, and the options for dimensions are the model's.
  std::string outcome(const std::string& onnx, bool whole) const {
    return outcome_of([&] { return differs(whole ? import(onnx, true) : import_cut(onnx), request_.driver); });
  }
  std::string outcome(const Graph& graph) const {
    return outcome_of([&] { return differs(graph, for_sizes_of(graph, request_.driver)); });
  }

 private:
  // An edit may make any model of a model: whatever compiling and running it throws is its outcome.
  static std::string outcome_of(const std::function<bool()>& differs) {
    try {
      return differs() ? "differs" : "agrees";
    } catch (const UserError& error) {
      return "error " + error.diagnostic().id;
    } catch (const InternalError& error) {
      return "bug: " + without_numbers(error.what());
    } catch (const std::exception& error) {
      return std::string("bug: ") + error.what();
    }
  }

  // Options for dimensions that a smaller model no longer has do not matter.
  Graph import_cut(const std::string& onnx) const {
    try {
      return import(onnx, false);
    } catch (const RefusedModel& refused) {
      if (refused.reason() != RefusedModel::Reason::kOpenSizes) throw;
    }
    return import(onnx, true);
  }

  Graph import(const std::string& onnx, bool open_dims) const {
    ImportOptions options;
    if (open_dims) {
      for (const auto& [name, bounds] : request_.driver.compile.dims) options.dims[name] = {bounds.lo, bounds.hi};
      options.shapes = request_.driver.compile.shapes;
    }
    GraphInterpreter evaluator;
    return import_onnx_bytes(onnx, options, standard_ops(), evaluator);
  }

  std::unique_ptr<Model> compiled(const Graph& graph, DriverOptions options) const {
    options.emit = Emit::kModule;
    PassRunner runner(options);
    ImportedModel model;
    model.graph = graph;
    return load_module(module_in_memory(compile_imported(std::move(model), options, runner)), "part",
                       request_.num_threads);
  }

  // Whether some output differs for some inputs.
  bool differs(const Graph& graph, DriverOptions options) const {
    const auto tested = compiled(graph, options);
    std::unique_ptr<Model> unoptimized;
    if (request_.against == "O0") {
      options.compile.opt_level = 0;
      options.compile.disabled_passes.clear();
      unoptimized = compiled(graph, options);
    }
    for (const std::map<std::string, int64_t>& sizes : sizes_to_run(graph)) {
      const std::unique_ptr<Model> reference = interpret_graph(bind_symbols(graph, sizes), "part");
      for (uint64_t trial = 0; trial < 3; ++trial) {
        const std::vector<Tensor> inputs = make_inputs(reference->inputs(), trial);
        Model& other = unoptimized ? *unoptimized : *reference;
        if (differ_on(*tested, other, inputs)) return true;
      }
    }
    return false;
  }

  bool differ_on(Model& tested, Model& reference, const std::vector<Tensor>& inputs) const {
    for (Model* model : {&tested, &reference}) {
      model->bind(inputs);
      model->run();
    }
    for (size_t i = 0; i < tested.results().size(); ++i) {
      const Tensor& want = reference.results()[i];
      if (!compare(tested.results()[i], want, tolerance_for(request_.tolerance, want.dtype())).agrees) return true;
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
    EditType type{static_cast<DType>(dtype), {}};
    std::istringstream list(dims);
    for (std::string dim; std::getline(list, dim, 'x');) type.dims.push_back(std::stoll(dim));
    types[name] = std::move(type);
    at = line + 1;
  }
  return types;
}

// The model as a graph; empty where it is none: with strings, sequences or sizes that nothing bounds, or with open
// sizes that shapes as expressions cannot say.
std::optional<Graph> graph_of_model(const ReduceRequest& request) {
  const DriverOptions nobody;
  PassRunner runner(nobody);
  ImportedModel model = read_model(request.model, request.driver, runner);
  if (model.flow || !model.symbols.empty()) return std::nullopt;
  return std::move(model.graph);
}

class Reduction {
 public:
  explicit Reduction(const ReduceRequest& request)
      : request_(request), probe_(request), as_text_(request.output.ends_with(".graph")) {
    temporary_ = request_.output + fmt::format(".{}.trial{}", getpid(), as_text_ ? ".graph" : ".onnx");
  }

  ReduceResult run() {
    const std::optional<Graph> graph = importable_graph();
    if (graph) {
      const EditableGraph model(*graph);
      if (const std::string found = outcome(model); fails(found)) return reduced(model, found, "graph");
    }
    if (is_graph_) fail_nothing_wrong();
    trials_ = 0;
    const EditableModel model = editable_model_of_file(request_.model);
    const std::string found = outcome(model);
    if (!fails(found)) fail_nothing_wrong();
    if (as_text_) {
      throw UserError({.id = "TSR-4048",
                       .message = fmt::format("'{}' fails ({}) before it is a graph", request_.model, found),
                       .node = {},
                       .legal = "an ONNX file as the output: such a model is cut as ONNX",
                       .hint = "give -o FILE.onnx"});
    }
    return reduced(model, found, "onnx");
  }

 private:
  bool fails(const std::string& found) const {
    return request_.command.empty() ? found != "agrees" : found != "exit 0";
  }

  [[noreturn]] void fail_nothing_wrong() const {
    throw UserError(
        {.id = "TSR-4046",
         .message = request_.command.empty()
                        ? fmt::format("'{}' does not fail: it agrees with {}", request_.model, request_.against)
                        : fmt::format("'{}' does not fail: the command ends with 0", request_.model),
         .node = {},
         .legal = "a model that differs, breaks the compiler or makes the command end with another code",
         .hint = "give the inputs, options or tolerance with which it fails"});
  }

  static void require_onnx_form(const Graph& graph) {
    try {
      export_onnx_bytes(graph);
    } catch (const NoOnnxForm& error) {
      Diagnostic diagnostic = error.diagnostic();
      diagnostic.hint = "give -o FILE.graph: a graph as text has words for it";
      throw UserError(diagnostic);
    }
  }

  // The graph of a model that can be imported, and, for a command, that fails when its graph is written as the file
  // does. Throws what is wrong with a graph as text.
  std::optional<Graph> importable_graph() {
    if (is_graph_) {
      std::optional<Graph> graph = graph_of_model(request_);
      if (graph && !as_text_) require_onnx_form(*graph);
      return graph;
    }
    // It may be the import that crashes.
    const std::string imports = run_isolated(
        [&]() -> std::string {
          try {
            return graph_of_model(request_) ? "graph" : "none";
          } catch (const std::exception&) {
            return "none";
          }
        },
        request_.timeout);
    if (imports != "graph") return std::nullopt;
    std::optional<Graph> graph = graph_of_model(request_);
    if (request_.command.empty()) {
      if (!as_text_) require_onnx_form(*graph);
      return graph;
    }
    try {
      if (outcome(EditableGraph(*graph)) != outcome(editable_model_of_file(request_.model))) graph.reset();
    } catch (const UserError&) {
      graph.reset();  // no ONNX form
    }
    trials_ = 0;
    return graph;
  }

  template <typename Edited>
  ReduceResult reduced(const Edited& model, const std::string& failure, const char* cut) {
    ReduceResult result;
    result.failure = failure;
    result.cut = cut;
    result.nodes_before = model.num_nodes();
    result.elements_before = model.num_elements();
    write_file(request_.output, "model", bytes_of(model));
    const ReduceSteps<Edited> steps{.fails = [&](const Edited& candidate) { return outcome(candidate) == failure; },
                                    .learn = learn_types(model),
                                    .time_is_up = [&] { return seconds() > request_.seconds; },
                                    .found =
                                        [&](const Edited& candidate) {
                                          write_file(request_.output, "model", bytes_of(candidate));
                                          if (request_.step)
                                            request_.step(fmt::format("{} nodes, {} elements of weights",
                                                                      candidate.num_nodes(), candidate.num_elements()));
                                        }};
    const Edited best = reduce_model(model, steps);
    std::error_code error;
    std::filesystem::remove(temporary_, error);
    result.nodes = best.num_nodes();
    result.elements = best.num_elements();
    result.trials = trials_;
    result.time_is_up = seconds() > request_.seconds;
    return result;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // The file of a candidate. UserError TSR-1060 where ONNX cannot say it.
  std::string bytes_of(const EditableModel& model) const { return model.bytes(); }
  std::string bytes_of(const EditableGraph& model) const {
    if (as_text_) return print(model.graph());
    return export_onnx_bytes(model.graph());
  }

  std::string outcome(const EditableGraph& model) {
    ++trials_;
    // Only what can be written counts: without an input that tells a symbol, ONNX has no word for its size.
    if (!request_.command.empty() || !as_text_) {
      std::string bytes;
      try {
        bytes = bytes_of(model);
      } catch (const UserError& error) {
        return "error " + error.diagnostic().id;
      }
      if (!request_.command.empty()) return outcome_of_command(bytes);
    }
    return run_isolated([&] { return probe_.outcome(model.graph()); }, request_.timeout);
  }

  std::string outcome(const EditableModel& model) {
    ++trials_;
    const std::string bytes = model.bytes();
    if (!request_.command.empty()) return outcome_of_command(bytes);
    // Open dimensions are fixed by the options; candidates have none, unless the options still fit.
    const bool whole = trials_ == 1;
    return run_isolated([&] { return probe_.outcome(bytes, whole); }, request_.timeout);
  }

  std::string outcome_of_command(const std::string& bytes) const {
    write_file(temporary_, "model", bytes);
    std::string command = request_.command;
    for (size_t at = 0; (at = command.find("{model}", at)) != std::string::npos; at += temporary_.size())
      command.replace(at, 7, temporary_);
    return run_shell(command, request_.timeout);
  }

  // A graph knows its types.
  std::function<EditableGraph(EditableGraph)> learn_types(const EditableGraph&) const { return nullptr; }
  std::function<EditableModel(EditableModel)> learn_types(const EditableModel&) const {
    return [this](EditableModel model) {
      const std::string bytes = model.bytes();
      return model.with_types(parse_types(run_isolated([&] { return types_text(bytes); }, request_.timeout)));
    };
  }

  const ReduceRequest& request_;
  FailureProbe probe_;
  bool as_text_;
  bool is_graph_ = !is_onnx_file(request_.model);
  std::string temporary_;
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
                     .legal = "a model",
                     .hint = "give the model that the module was compiled from"});
  }
  return Reduction(request).run();
}

}  // namespace tessera::inline driver
