#include "driver/open_sizes.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <variant>

#include <fmt/format.h>

#include "driver/size_check.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "lower/generalize.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr size_t kMaxPoints = 64;  // sizes for which a model is read and lowered, at most

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
  bool beyond = false;
  for (size_t i = 0; i < symbols.size(); ++i) beyond = beyond || values[i] > symbols[i].hi;
  throw UserError(
      {"TSR-5023",
       fmt::format("the model has no meaning for {}{}: {}: {}", sizes_text(symbols, values),
                   beyond ? ", which is looked at because the range is short" : "", inner.id, inner.message),
       inner.node, inner.legal,
       beyond ? "compile one module for each size: --dim NAME=VALUE"
              : "leave such sizes out of the range: --dim NAME=LO..HI, or LO..HI:STEP for every STEP-th"});
}

void refuse_ranges(const CompileOptions& options, const std::string& what) {
  for (const SymbolRange& symbol : open_ranges(options))
    throw UserError({"TSR-1025", fmt::format("--dim {}={}..{} is a range", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
}

void refuse_ranges(const ImportedModel& model, const std::string& what) {
  for (const SymbolRange& symbol : model.symbols)
    throw UserError({"TSR-1025",
                     fmt::format("the model leaves '{}' open in {}..{}", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
}

void refuse_open_flow(const std::vector<SymbolRange>& symbols) {
  throw UserError(
      {"TSR-5022",
       fmt::format("--dim {}={}..{}: the model takes steps of a run for some of these sizes, and for others not",
                   symbols[0].var->name, symbols[0].lo, symbols[0].hi),
       "", "models whose sizes alone depend on the named dimensions",
       fmt::format("give --dim {}={}", symbols[0].var->name, symbols[0].hi)});
}

namespace {

// A model that does something else below some size does so for the smallest ones. Of nothing at all it may read what is
// not there, and not use it; where it would write there, a run refuses it.
void check_small_sizes(const ImportedModel& model, Program& program, const std::function<Program(Graph)>& lower) {
  for (const int64_t more : {0, 1, 2, 3, 5}) {
    SizePoint point;
    for (const SymbolRange& symbol : model.symbols)
      point.push_back(std::min(symbol.lo + more * symbol.step, symbol.hi));
    SizeDifference difference = SizeDifference::kNone;
    try {
      difference = difference_at(program, point, lower(model.at(point)));
    } catch (const UserError&) {
      continue;  // a size that the model has no meaning for
    }
    const bool empty = std::find(point.begin(), point.end(), 0) != point.end();
    if (difference == SizeDifference::kNone || (empty && difference == SizeDifference::kReads)) continue;
    if (empty && difference == SizeDifference::kWrites && point.size() == 1) {
      program.symbols[0].lo = std::min(program.symbols[0].lo + program.symbols[0].step, program.symbols[0].hi);
      continue;
    }
    throw UserError({"TSR-5022",
                     fmt::format("the model cannot be compiled for a range of sizes: for {} it does something else "
                                 "than for larger ones",
                                 sizes_text(model.symbols, point)),
                     "", "models whose sizes alone depend on the named dimensions",
                     "leave small sizes out of the range, or give one value for each dimension"});
  }
}

// Programs of some sizes, and what they have in common.
class Search {
 public:
  Search(const ImportedModel& model, const LowerGraph& lower, const std::set<std::string>& left_out, double seconds)
      : model_(model), lower_(lower), left_out_(left_out), seconds_(seconds), points_(first_points(model.symbols)) {}

  const std::vector<SizePoint>& points() const { return points_; }

  // The program of all sizes, or how the programs of some differ.
  std::variant<Program, Unlike> run() {
    const auto begin = std::chrono::steady_clock::now();
    programs_.push_back(std::make_unique<Program>(lower_(model_.graph, left_out_)));
    for (size_t i = 1; i < points_.size(); ++i) programs_.push_back(program_at(points_[i]));
    auto result = settle();
    // Formulas that fit are held against sizes that had no part in finding them: every size of short ranges, else as
    // many as there is time for. One that is wrong is found anew.
    std::mt19937_64 random(1);
    for (const SizePoint& point : sizes_to_check(random)) {
      if (std::holds_alternative<Unlike>(result)) return result;
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (taken.count() > seconds_ && checked_ >= kFewestChecks) break;
      if (is_known(point)) continue;
      ++checked_;
      insert(point, program_at(point));
      // Nothing new, or a size at which something falls away, which says nothing about formulas.
      const auto with_it = generalized().first;
      const auto* unlike = std::get_if<Unlike>(&with_it);
      if (unlike && unlike->no_formula) result = settle();
      else remove_second();
    }
    return result;
  }

 private:
  static constexpr size_t kFewestChecks = 4, kMostChecks = 200;

  std::unique_ptr<Program> program_at(const SizePoint& point) {
    auto program = std::make_unique<Program>(lower_(model_.at(point), left_out_));
    forget_weights(*program, *programs_[0]);
    return program;
  }

  bool is_known(const SizePoint& point) const {
    return std::find(points_.begin(), points_.end(), point) != points_.end();
  }

  // Behind the first: the largest sizes stay the last.
  void insert(const SizePoint& point, std::unique_ptr<Program> program) {
    points_.insert(points_.begin() + 1, point);
    programs_.insert(programs_.begin() + 1, std::move(program));
  }
  void remove_second() {
    points_.erase(points_.begin() + 1);
    programs_.erase(programs_.begin() + 1);
  }

  std::pair<std::variant<Program, Unlike>, std::optional<SizePoint>> generalized() {
    SizeFormulas formulas(model_.symbols, points_, avoided_);
    std::vector<const Program*> all;
    for (const auto& program : programs_) all.push_back(program.get());
    auto result = generalize(all, formulas);
    return {std::move(result), formulas.doubt()};
  }

  // Looks at more sizes as long as several formulas fit what is known.
  std::variant<Program, Unlike> settle() {
    bool second_is_doubt = false;
    while (true) {
      auto [result, doubt] = generalized();
      const bool unlike = std::holds_alternative<Unlike>(result);
      if (unlike && second_is_doubt && !std::get<Unlike>(result).no_formula && avoided_.size() < kMaxPoints) {
        // What falls away at the end of a range decides nothing: an axis of extent 1, a slice of all of a table.
        avoided_.push_back(points_[1]);
        remove_second();
        second_is_doubt = false;
        continue;
      }
      if (doubt && points_.size() < kMaxPoints) {
        try {
          insert(*doubt, program_at(*doubt));
          second_is_doubt = true;
        } catch (const UserError&) {
          avoided_.push_back(*doubt);  // beyond the range, and beyond what the model can do
        }
        continue;
      }
      if (doubt && !unlike)
        return Unlike{"the whole model", fmt::format("{} sizes do not tell which formula is right", points_.size()),
                      true};
      if (unlike && points_.back() == largest_sizes(model_.symbols) && points_.size() > 2) {
        points_.pop_back();
        programs_.pop_back();
        continue;
      }
      return std::move(result);
    }
  }

  std::vector<SizePoint> sizes_to_check(std::mt19937_64& random) const {
    std::vector<SizePoint> points;
    uint64_t all = 1;
    for (const SymbolRange& s : model_.symbols) {
      const auto count = static_cast<uint64_t>((s.hi - s.lo) / s.step + 1);
      all = all > kMostChecks ? all : all * std::min<uint64_t>(count, kMostChecks + 1);
    }
    for (uint64_t i = 0; i < std::min<uint64_t>(all, kMostChecks); ++i) {
      SizePoint point;
      uint64_t rest = i;
      for (const SymbolRange& s : model_.symbols) {
        const auto count = static_cast<uint64_t>((s.hi - s.lo) / s.step + 1);
        const uint64_t number = all <= kMostChecks ? rest % count : random() % count;
        rest /= count;
        point.push_back(s.lo + static_cast<int64_t>(number) * s.step);
      }
      points.push_back(std::move(point));
    }
    std::shuffle(points.begin(), points.end(), random);
    return points;
  }

  const ImportedModel& model_;
  const LowerGraph& lower_;
  const std::set<std::string>& left_out_;
  const double seconds_;
  std::vector<SizePoint> points_, avoided_;
  std::vector<std::unique_ptr<Program>> programs_;
  size_t checked_ = 0;
};

}  // namespace

Program program_of_sizes(const ImportedModel& model, const LowerGraph& lower, double seconds) {
  // The first multiply weights by what a mean divides by; the last makes tables of what windows at the borders have.
  static constexpr const char* kMergeConstants[] = {"fold_batch_norm_forward", "fold_batch_norm", "fold_constants"};
  std::set<std::string> left_out;
  std::vector<SizePoint> points;
  const auto search = [&] {
    Search of_model(model, lower, left_out, seconds);
    auto found = of_model.run();
    points = of_model.points();
    return found;
  };
  auto result = search();
  for (const char* pass : kMergeConstants) {
    const auto* unlike = std::get_if<Unlike>(&result);
    if (!unlike || !unlike->in_constants) break;
    left_out.insert(pass);
    result = search();
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
  check_small_sizes(model, program, [&](Graph graph) { return lower(std::move(graph), left_out); });
  return program;
}

namespace {

std::set<std::string> optional_graph_passes() {
  std::set<std::string> names;
  for (const GraphPass& pass : graph_pipeline())
    if (pass.min_level > 0) names.insert(std::string(pass.name));
  return names;
}

}  // namespace

Program program_of_piece(const Flow& flow, int32_t number, const LowerGraph& lower) {
  constexpr double kSeconds = 0.2;  // a piece is one node, and there may be many
  const OpenPiece& piece = flow.open.at(number);
  ImportedModel model{{}, nullptr, piece.symbols, nullptr};
  model.at = [&piece](const std::vector<int64_t>& values) {
    GraphInterpreter evaluator;
    return piece.at(values, evaluator);
  };
  try {
    model.graph = model.at(first_points(piece.symbols)[0]);
    // What passes decide by a size, they need not do.
    static const std::vector<std::set<std::string>> kWithout = {{}, {"fold_constants"}, optional_graph_passes()};
    for (size_t i = 0;; ++i) {
      const std::set<std::string>& without = kWithout[i];
      try {
        return program_of_sizes(
            model,
            [&](Graph graph, std::set<std::string> left_out) {
              left_out.insert(without.begin(), without.end());
              return lower(std::move(graph), left_out);
            },
            kSeconds);
      } catch (const UserError& error) {
        if (error.diagnostic().id != "TSR-5022" || i + 1 == kWithout.size()) throw;
      }
    }
  } catch (const UserError& error) {
    std::string node;
    for (const FlowStep* step : steps_in_order(flow.body))
      if (step->piece == number && node.empty()) node = step->loc;
    const SymbolRange& symbol = piece.symbols[0];
    throw UserError({"TSR-5024",
                     fmt::format("{} has dimensions that only a run knows, and cannot be compiled for all of {} to {}: "
                                 "{}: {}",
                                 node, symbol.lo, symbol.hi, error.diagnostic().id, error.diagnostic().message),
                     error.diagnostic().node, "operators that do the same for all sizes",
                     "declare a fixed shape for its operands (value_info)"});
  }
}

}  // namespace tessera::inline driver
