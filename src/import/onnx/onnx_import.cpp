#include "import/onnx/onnx_import.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "import/common/refused_model.h"
#include "import/onnx/graph_importer.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline onnx_import {
namespace {

// Every message says what to do: where no better advice is known, the model contradicts the standard and only its
// writer can mend it.
Diagnostic with_advice(Diagnostic diagnostic) {
  if (diagnostic.hint.empty())
    diagnostic.hint =
        "the model contradicts the ONNX standard here: look at it with onnx.checker.check_model(path, full_check=True) "
        "in Python, mend the program that wrote it, and export it again";
  return diagnostic;
}

// Runs `import`.
template <typename Import>
ReadOutcome with_advice_in_errors(Import&& import) {
  try {
    ReadOutcome outcome = import();
    if (auto* refused = std::get_if<NodesRefused>(&outcome)) refused->diagnostic = with_advice(refused->diagnostic);
    return outcome;
  } catch (const RefusedModel& error) {
    throw RefusedModel(error.reason(), with_advice(error.diagnostic()));
  } catch (const UserError& error) {
    throw UserError(with_advice(error.diagnostic()));
  }
}

using Build = std::function<BuildOutcome(const ImportOptions& options, Wanted wanted)>;

// Of options without symbols of which two could have to be equal.
ReadOutcome without_equal_sizes(BuildOutcome outcome) {
  if (auto* model = std::get_if<ImportedModel>(&outcome)) return std::move(*model);
  if (auto* none = std::get_if<NoGraph>(&outcome)) return std::move(*none);
  check(std::holds_alternative<NodesRefused>(outcome), "an import asks for the value of a symbol that there is not");
  return std::get<NodesRefused>(std::move(outcome));
}

// A graph of fixed sizes, else one with sizes that data decide, else a flow, which says why it is not the former.
ReadOutcome build_with_data_sizes(const Build& build_once, ImportOptions options) {
  options.data_sizes = false;
  BuildOutcome fixed = build_once(options, Wanted::kFixedGraph);
  if (!std::holds_alternative<NoGraph>(fixed)) return without_equal_sizes(std::move(fixed));
  options.data_sizes = true;
  BuildOutcome with_symbols = build_once(options, Wanted::kModel);
  if (auto* model = std::get_if<ImportedModel>(&with_symbols)) return std::move(*model);
  options.data_sizes = false;
  ReadOutcome outcome = without_equal_sizes(build_once(options, Wanted::kModel));
  // What nodes are refused for with symbols, the flow may do; else its refusal says what is wrong.
  auto* model = std::get_if<ImportedModel>(&outcome);
  const auto* reason = std::get_if<NoGraph>(&with_symbols);
  if (model && reason) *model = as_flow_because(std::move(*model), *reason);
  return outcome;
}

// Reads the model until no two sizes are left that it needs to be equal; each time a symbol is gone.
ReadOutcome build(const std::function<std::shared_ptr<LoadedModel>()>& load, ImportOptions options, const OpTable& ops,
                  Evaluator& evaluator) {
  const Build build_once = [&](const ImportOptions& now, Wanted wanted) {
    return build_model(load(), now, wanted, ops, evaluator);
  };
  if (options.symbols.empty() && options.data_sizes) return build_with_data_sizes(build_once, options);
  if (options.symbols.empty()) return without_equal_sizes(build_once(options, Wanted::kModel));
  while (true) {
    BuildOutcome outcome = build_once(options, Wanted::kModel);
    const auto* equal = std::get_if<EqualSizes>(&outcome);
    if (!equal) return without_equal_sizes(std::move(outcome));
    VarMap map;
    std::erase_if(options.symbols, [&](const SymbolRange& symbol) {
      if (symbol.var->name != equal->symbol) return false;
      map[symbol.var.get()] = equal->size;
      return true;
    });
    check(!map.empty(), "an import asks twice for the value of a symbol");
    for (auto& [name, size] : options.equal) size = substitute(size, map);
    options.equal[equal->symbol] = equal->size;
  }
}

}  // namespace

Graph graph_alone(ImportedModel model) {
  if (!model.flow) return std::move(model.graph);
  const NoGraph& why = model.flow->why;
  throw UserError(
      {"TSR-1046",
       fmt::format("the model has strings, sequences, optionals or maps, or shapes that only a run knows{}{}",
                   why.reason.empty() ? "" : ": ", why.reason),
       why.node, "tensors of numbers with fixed shapes", "use 'tessera compile', 'run' or 'verify', which know them"});
}

ImportedModel imported(ReadOutcome outcome) {
  if (auto* refused = std::get_if<NodesRefused>(&outcome)) throw_refusal(*refused);
  check(std::holds_alternative<ImportedModel>(outcome),
        "a model without a graph, where no graph with symbols is asked");
  return std::get<ImportedModel>(std::move(outcome));
}

ReadOutcome read_onnx_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
                            Evaluator& evaluator) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return with_advice_in_errors([&] {
    const auto load = [&] {
      // The mapping is given back as protobuf makes its own copy of the weights: they are in memory once.
      const auto file = MappedFile::open(path, "model", "TSR-1001");
      return load_model(file->text(), fmt::format("'{}'", path), folder.empty() ? "." : folder.string(),
                        [&](size_t consumed) { file->forget(consumed); });
    };
    return build(load, options, ops, evaluator);
  });
}

Graph import_onnx_file(const std::string& path, const ImportOptions& options, const OpTable& ops,
                       Evaluator& evaluator) {
  return graph_alone(imported(read_onnx_model(path, options, ops, evaluator)));
}

ReadOutcome read_onnx_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                  Evaluator& evaluator, const std::string& folder) {
  return with_advice_in_errors(
      [&] { return build([&] { return load_model(bytes, "the model", folder); }, options, ops, evaluator); });
}

Graph import_onnx_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator,
                        const std::string& folder) {
  return graph_alone(imported(read_onnx_model_bytes(bytes, options, ops, evaluator, folder)));
}

}  // namespace tessera::inline onnx_import
