#include "import/onnx/onnx_import.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

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
ImportedModel with_advice_in_errors(Import&& import) {
  try {
    return import();
  } catch (const NodesRefused& error) {
    throw NodesRefused(with_advice(error.diagnostic()));
  } catch (const UserError& error) {
    throw UserError(with_advice(error.diagnostic()));
  }
}

// A graph of fixed sizes, else one with sizes that data decide, else a flow.
ImportedModel build_with_data_sizes(const std::function<std::shared_ptr<LoadedModel>()>& load, ImportOptions options,
                                    const OpTable& ops, Evaluator& evaluator) {
  options.data_sizes = false;
  options.graph_alone = true;
  try {
    return build_model(load(), options, ops, evaluator);
  } catch (const BecomesFlow&) {
    options.graph_alone = false;
  }
  options.data_sizes = true;
  try {
    return build_model(load(), options, ops, evaluator);
  } catch (const NeedsFixedSizes&) {
    options.data_sizes = false;
  } catch (const UserError&) {
    options.data_sizes = false;  // the flow's error says what is wrong
  }
  return build_model(load(), options, ops, evaluator);
}

// Reads the model until no two sizes are left that it needs to be equal; each time a symbol is gone.
ImportedModel build(const std::function<std::shared_ptr<LoadedModel>()>& load, ImportOptions options,
                    const OpTable& ops, Evaluator& evaluator) {
  if (options.symbols.empty() && options.data_sizes) return build_with_data_sizes(load, options, ops, evaluator);
  if (options.symbols.empty()) return build_model(load(), options, ops, evaluator);
  while (true) {
    std::optional<EqualSizes> equal;
    try {
      return build_model(load(), options, ops, evaluator);
    } catch (const EqualSizes& found) {
      equal = found;
    }
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
  throw UserError({"TSR-1046", "the model has strings, sequences, optionals or maps, or shapes that only a run knows",
                   "", "tensors of numbers with fixed shapes",
                   "use 'tessera compile', 'run' or 'verify', which know them"});
}

ImportedModel import_onnx_model(const std::string& path, const ImportOptions& options, const OpTable& ops,
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
  return graph_alone(import_onnx_model(path, options, ops, evaluator));
}

ImportedModel import_onnx_model_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops,
                                      Evaluator& evaluator, const std::string& folder) {
  return with_advice_in_errors(
      [&] { return build([&] { return load_model(bytes, "the model", folder); }, options, ops, evaluator); });
}

Graph import_onnx_bytes(std::string_view bytes, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator,
                        const std::string& folder) {
  return graph_alone(import_onnx_model_bytes(bytes, options, ops, evaluator, folder));
}

}  // namespace tessera::inline onnx_import
