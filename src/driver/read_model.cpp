#include "driver/read_model.h"

#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "driver/compile_options.h"
#include "driver/open_sizes.h"
#include "driver/step_names.h"
#include "graph/data_sizes.h"
#include "program/size_formula.h"
#include "support/error.h"

namespace tessera::inline driver {

Remark not_symbolic(const NoGraph& why) {
  return {Remark::Kind::kRefused, std::string(kSymbolicSizes), why.node, "", why.reason};
}

ImportedModel with_reason(ImportedModel model, const NoGraph& why) {
  if (model.as_flow)
    model.as_flow = [as_flow = std::move(model.as_flow), why] {
      auto flow = as_flow();
      if (auto* made = std::get_if<ImportedModel>(&flow)) *made = as_flow_because(std::move(*made), why);
      return flow;
    };
  return as_flow_because(std::move(model), why);
}

namespace {

ImportOptions import_options(const CompileOptions& options) {
  ImportOptions result;
  for (const auto& [name, bounds] : options.dims) result.dims[name] = {bounds.lo, bounds.hi};
  result.shapes = options.shapes;
  return result;
}

ReadOutcome named(ReadOutcome outcome, const std::string& name) {
  auto* model = std::get_if<ImportedModel>(&outcome);
  if (!model) return outcome;
  model->graph.name = name;
  if (model->flow) {
    auto flow = std::make_shared<Flow>(*model->flow);
    flow->name = name;
    model->flow = std::move(flow);
  }
  return outcome;
}

using ReadModel = std::function<ReadOutcome(const ImportOptions&)>;

// The model for one choice of the symbols' values, and how to read it for another.
ImportedModel read_samples(const ImportOptions& import, const std::vector<SymbolRange>& symbols, PassRunner& runner,
                           const ReadModel& read, bool reads_open) {
  const auto read_with = [read, import, symbols](const SizePoint& values) {
    ImportOptions fixed = import;
    fixed.loop_nodes = false;  // programs of several sizes are compared call by call
    for (size_t i = 0; i < symbols.size(); ++i) fixed.dims[symbols[i].var->name] = {values[i], values[i]};
    return read(fixed);
  };
  // NodesRefused says at which sizes: at those of the range, where the model has no meaning for them either.
  const auto read_at = [read_with, symbols](const SizePoint& values) {
    ReadOutcome outcome = read_with(values);
    auto* refused = std::get_if<NodesRefused>(&outcome);
    if (!refused) return outcome;
    SizePoint at = values;
    if (refused->break_rules && is_beyond(symbols, values))
      for (const SizePoint& corner : {largest_sizes(symbols), smallest_sizes(symbols)}) {
        ReadOutcome within = read_with(corner);
        auto* also = std::get_if<NodesRefused>(&within);
        if (!also || !also->break_rules) continue;
        at = corner;
        *refused = std::move(*also);
        break;
      }
    refused->diagnostic = refused_at(*refused, symbols, at);
    return outcome;
  };
  const auto read_open = [read, import] {
    ImportOptions open = import;
    open.leave_open = true;
    return read(open);
  };
  ImportedModel model = runner.run(kImport, [&] { return imported(read_at(first_points(symbols)[0])); });
  if (model.flow) return runner.run(kImport, [&] { return as_flow_because(imported(read_open()), model.flow->why); });
  model.symbols = symbols;
  model.at = [read_at, symbols](const std::vector<int64_t>& values) -> GraphOrRefusal {
    ReadOutcome outcome = read_at(values);
    if (auto* refused = std::get_if<NodesRefused>(&outcome)) return SizesRefused{std::move(refused->diagnostic)};
    ImportedModel own = imported(std::move(outcome));
    if (own.flow) return SizesRefused{open_flow_refused(symbols), true};
    return std::move(own.graph);
  };
  if (reads_open)
    model.as_flow = [read_open]() -> std::variant<ImportedModel, Diagnostic> {
      ReadOutcome outcome = read_open();
      if (auto* refused = std::get_if<NodesRefused>(&outcome)) return std::move(refused->diagnostic);
      return imported(std::move(outcome));
    };
  return model;
}

// A model of fixed sizes: where it is a graph with sizes that data decide, it can be read as a flow, too.
ImportedModel read_with_data_sizes(const DriverOptions& driver, const ImportOptions& import, const ReadModel& read) {
  ImportOptions with_data_sizes = import;
  with_data_sizes.data_sizes = !driver.compile.disabled_passes.contains(std::string(kSymbolicSizes));
  ImportedModel model = imported(read(with_data_sizes));
  if (has_data_symbols(model.graph)) model.at_samples = [import, read] { return imported(read(import)); };
  return model;
}

// With the ranges of --dim left open: one graph whose shapes are expressions of them, else the model for one choice of
// their values, and how to read it for another.
ImportedModel read_for_sizes(const DriverOptions& driver, const CompileOptions& options, PassRunner& runner,
                             const ModelReader& reader, const std::string& name) {
  const ReadModel read = [read = reader.read, name](const ImportOptions& import) { return named(read(import), name); };
  ImportOptions import = import_options(options);
  import.for_training = driver.for_training;
  const std::vector<SymbolRange> symbols = open_ranges(options);
  if (symbols.empty()) return runner.run(kImport, [&] { return read_with_data_sizes(driver, import, read); });
  const bool reads_open = reader.reads_open;
  if (reader.reads_symbols && !options.disabled_passes.contains(std::string(kSymbolicSizes))) {
    ImportOptions open = import;
    open.symbols = symbols;
    ReadOutcome outcome = runner.run(kImport, [&] { return read(open); });
    const auto* reason = std::get_if<NoGraph>(&outcome);
    if (!reason) {
      ImportedModel model = imported(std::move(outcome));
      model.at_samples = [import, symbols, read, reads_open] {
        const DriverOptions nobody;
        PassRunner unwatched(nobody);
        return read_samples(import, symbols, unwatched, read, reads_open);
      };
      return model;
    }
    driver.observers.tell(&Observer::remarked, not_symbolic(*reason));
    return with_reason(read_samples(import, symbols, runner, read, reads_open), *reason);
  }
  return read_samples(import, symbols, runner, read, reads_open);
}

}  // namespace

namespace {

// The name says more than what exporters write there.
ImportedModel read_source(const ModelSource& source, const DriverOptions& options, PassRunner& runner) {
  check_options(options);
  return read_model(format_of(source).open(source), source.name(), options, runner);
}

Graph one_graph(ImportedModel model) {
  refuse_ranges(model, "what is asked for");
  return graph_alone(std::move(model));
}

}  // namespace

ImportedModel read_model(const ModelReader& reader, const std::string& name, const DriverOptions& options,
                         PassRunner& runner) {
  check_options(options);
  const CompileOptions& given = options.compile;
  ImportedModel model = read_for_sizes(
      options, reader.with_declared_sizes ? reader.with_declared_sizes(given) : given, runner, reader, name);
  check_layer_names(plan_of(given), model);
  return model;
}

ImportedModel read_model(const std::string& path, const DriverOptions& options, PassRunner& runner) {
  return read_source({path, {}}, options, runner);
}

ImportedModel read_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner) {
  return read_source({std::nullopt, model}, options, runner);
}

Graph import_model(const std::string& path, const DriverOptions& options, PassRunner& runner) {
  refuse_ranges(options.compile, "what is asked for");
  return one_graph(read_model(path, options, runner));
}

Graph import_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner) {
  refuse_ranges(options.compile, "what is asked for");
  return one_graph(read_model(model, options, runner));
}

}  // namespace tessera::inline driver
