#include "driver/open_sizes.h"

#include <algorithm>
#include <memory>
#include <variant>

#include <fmt/format.h>

#include "lower/generalize.h"
#include "support/error.h"

namespace tessera {
namespace {

constexpr size_t kMaxPoints = 32;  // sizes for which a model is read and lowered, at most

std::string sizes_text(const std::vector<SymbolRange>& symbols, const SizePoint& point) {
  std::string text;
  for (size_t i = 0; i < symbols.size(); ++i)
    text += fmt::format("{}{}={}", i ? ", " : "", symbols[i].var->name, point[i]);
  return text;
}

// Equal weights are kept once.
void forget_weights(Program& program, const Program& first) {
  for (size_t i = 0; i < program.buffers.size() && i < first.buffers.size(); ++i) {
    ProgramBuffer& buffer = program.buffers[i];
    const TensorPtr& known = first.buffers[i].data;
    if (!buffer.data || !known || buffer.data->dims() != known->dims()) continue;
    const uint64_t hash = buffer.data->content_hash();
    if (hash == known->content_hash())
      buffer.data = std::make_shared<Tensor>(Tensor::without_data(buffer.data->dtype(), buffer.data->dims(), hash));
  }
}

// The formulas of the outputs' shapes against what the model's own shapes are.
void check_outputs(const Program& program, const Graph& graph, const SizePoint& point) {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Shape& shape = program.buffers[static_cast<size_t>(program.outputs[i])].type.shape;
    const std::vector<int64_t> dims = graph.type(graph.outputs[i]).dims();
    for (size_t d = 0; d < dims.size(); ++d)
      if (const int64_t formula = value_at(shape[d], program.symbols, point); formula != dims[d])
        throw UserError(
            {"TSR-5022",
             fmt::format("the sizes of output '{}' follow no formula: dimension {} is {} for {} and {} "
                         "would be expected from other sizes",
                         graph.value(graph.outputs[i]).name, d, dims[d], sizes_text(program.symbols, point), formula),
             "", "sizes that are sums, products and quotients of the named dimensions",
             "give a smaller range, or one value"});
  }
}

}  // namespace

std::vector<SymbolRange> open_ranges(const CompileOptions& options) {
  std::vector<SymbolRange> ranges;
  for (const auto& [name, bounds] : options.dims)
    if (bounds.lo != bounds.hi)
      ranges.push_back({make_var(name), bounds.lo, bounds.hi - (bounds.hi - bounds.lo) % bounds.step, bounds.step});
  return ranges;
}

void rethrow_for_size(const UserError& error, const std::vector<SymbolRange>& symbols,
                      const std::vector<int64_t>& values) {
  const Diagnostic& inner = error.diagnostic();
  if (!inner.id.starts_with("TSR-2")) throw error;
  throw UserError(
      {"TSR-5023",
       fmt::format("the model has no meaning for {}: {}: {}", sizes_text(symbols, values), inner.id, inner.message),
       inner.node, inner.legal,
       "leave such sizes out of the range: --dim NAME=LO..HI, or LO..HI:STEP for every STEP-th"});
}

void refuse_ranges(const CompileOptions& options, const std::string& what) {
  for (const SymbolRange& symbol : open_ranges(options))
    throw UserError({"TSR-1025", fmt::format("--dim {}={}..{} is a range", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
}

void refuse_open_flow(const std::vector<SymbolRange>& symbols) {
  throw UserError(
      {"TSR-5021",
       fmt::format("--dim {}={}..{}: a model with strings, sequences, optionals or maps is compiled for fixed "
                   "sizes only",
                   symbols[0].var->name, symbols[0].lo, symbols[0].hi),
       "", "one value", fmt::format("give --dim {}={}", symbols[0].var->name, symbols[0].hi)});
}

namespace {

// The program without some passes, or how the programs of some sizes differ.
std::variant<Program, Unlike> try_program(const ImportedModel& model, const LowerGraph& lower,
                                          const std::set<std::string>& left_out, std::vector<SizePoint>& points) {
  points = first_points(model.symbols);
  const SizePoint largest = largest_sizes(model.symbols);
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<SizePoint> avoided;
  bool second_is_doubt = false;
  while (true) {
    while (programs.size() < points.size()) {
      const bool is_first = programs.empty();
      programs.push_back(
          std::make_unique<Program>(lower(is_first ? model.graph : model.at(points[programs.size()]), left_out)));
      if (!is_first) forget_weights(*programs.back(), *programs[0]);
    }
    SizeFormulas formulas(model.symbols, points, avoided);
    std::vector<const Program*> all;
    for (const auto& program : programs) all.push_back(program.get());
    auto result = generalize(all, formulas);
    // Where formulas differ that fit all that is known, another look decides.
    if (formulas.doubt() && points.size() < kMaxPoints &&
        !(second_is_doubt && std::holds_alternative<Unlike>(result))) {
      auto program = std::make_unique<Program>(lower(model.at(*formulas.doubt()), left_out));
      forget_weights(*program, *programs[0]);
      points.insert(points.begin() + 1, *formulas.doubt());  // the largest sizes stay the last
      programs.insert(programs.begin() + 1, std::move(program));
      second_is_doubt = true;
      continue;
    }
    // What falls away at the end of a range decides nothing: an axis of extent 1, a slice of all of a table.
    if (std::holds_alternative<Unlike>(result) && second_is_doubt && avoided.size() < kMaxPoints) {
      avoided.push_back(points[1]);
      points.erase(points.begin() + 1);
      programs.erase(programs.begin() + 1);
      second_is_doubt = false;
      continue;
    }
    if (std::holds_alternative<Unlike>(result) && points.back() == largest && points.size() > 2) {
      points.pop_back();
      programs.pop_back();
      continue;
    }
    return result;
  }
}

}  // namespace

Program program_of_sizes(const ImportedModel& model, const LowerGraph& lower) {
  // These passes multiply weights by what a mean divides by.
  static constexpr const char* kMergeConstants[] = {"fold_batch_norm_forward", "fold_batch_norm"};
  std::set<std::string> left_out;
  std::vector<SizePoint> points;
  auto result = try_program(model, lower, left_out, points);
  for (const char* pass : kMergeConstants) {
    const auto* unlike = std::get_if<Unlike>(&result);
    if (!unlike || !unlike->in_constants) break;
    left_out.insert(pass);
    result = try_program(model, lower, left_out, points);
  }
  if (const auto* unlike = std::get_if<Unlike>(&result))
    throw UserError({"TSR-5022",
                     fmt::format("the model cannot be compiled for a range of sizes: {} ({})", unlike->what,
                                 sizes_text(model.symbols, points[0]) + "; " + sizes_text(model.symbols, points[1])),
                     unlike->where, "models whose sizes alone depend on the named dimensions",
                     "give one value for each dimension, or leave only the batch open"});
  Program program = std::move(std::get<Program>(result));
  SizePoint smallest;
  for (const SymbolRange& symbol : model.symbols) smallest.push_back(symbol.lo);
  for (const SizePoint& point : {smallest, largest_sizes(model.symbols)})
    check_outputs(program, model.at(point), point);
  return program;
}

}  // namespace tessera
