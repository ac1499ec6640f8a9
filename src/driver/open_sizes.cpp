#include "driver/open_sizes.h"

#include <algorithm>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "driver/size_search.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "program/switch_by_size.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr int kMostSwitches = 3;  // one less than the programs that a range is made of, at most

std::string sizes_text(const std::vector<SymbolRange>& symbols, const SizePoint& point) {
  std::string text;
  for (size_t i = 0; i < symbols.size(); ++i)
    text += fmt::format("{}{}={}", i ? ", " : "", symbols[i].var->name, point[i]);
  return text;
}

}  // namespace

std::vector<SymbolRange> open_ranges(const CompileOptions& options) {
  std::vector<SymbolRange> ranges;
  for (const auto& [name, bounds] : options.dims)
    if (bounds.lo != bounds.hi)
      ranges.push_back({make_var(name), bounds.lo, bounds.hi - (bounds.hi - bounds.lo) % bounds.step, bounds.step});
  return ranges;
}

bool is_beyond(const std::vector<SymbolRange>& symbols, const SizePoint& values) {
  for (size_t i = 0; i < symbols.size(); ++i)
    if (values[i] > symbols[i].hi) return true;
  return false;
}

Diagnostic refused_at(const NodesRefused& refused, const std::vector<SymbolRange>& symbols,
                      const std::vector<int64_t>& values) {
  const Diagnostic& reason = refused.diagnostic;
  if (!refused.break_rules) return reason;
  const bool beyond = is_beyond(symbols, values);
  return {"TSR-5023",
          fmt::format("the model has no meaning for {}{}: {}: {}", sizes_text(symbols, values),
                      beyond ? ", which is looked at because the range is short" : "", reason.id, reason.message),
          reason.node, reason.legal,
          beyond ? "compile one module for each size: --dim NAME=VALUE"
                 : "leave such sizes out of the range: --dim NAME=LO..HI, or LO..HI:STEP for every STEP-th"};
}

void refuse_ranges(const CompileOptions& options, const std::string& what) {
  for (const SymbolRange& symbol : open_ranges(options))
    throw UserError({"TSR-1025", fmt::format("--dim {}={}..{} is a range", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
}

void refuse_ranges(const ImportedModel& model, const std::string& what) {
  for (const SymbolRange& symbol : model.symbols.empty() ? model.graph.symbols : model.symbols) {
    if (symbol.is_data()) continue;
    throw UserError({"TSR-1025",
                     fmt::format("the model leaves '{}' open in {}..{}", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
  }
}

Diagnostic open_flow_refused(const std::vector<SymbolRange>& symbols) {
  return {"TSR-5022",
          fmt::format("--dim {}={}..{}: the model takes steps of a run for some of these sizes, and for others not",
                      symbols[0].var->name, symbols[0].lo, symbols[0].hi),
          "", "models whose sizes alone depend on the named dimensions",
          fmt::format("give --dim {}={}", symbols[0].var->name, symbols[0].hi)};
}

namespace {

SizesRefused no_program(const std::vector<SymbolRange>& symbols, const std::string& what, const std::string& where) {
  return {{"TSR-5022", fmt::format("the model cannot be compiled for a range of sizes: {}", what), where,
           "models whose sizes alone depend on the named dimensions",
           symbols.size() > 1 ? "give a smaller range, or leave only the batch open"
                              : "give a smaller range, or one value for each dimension"},
          true};
}

// The programs of a box of sizes and of the boxes that it is cut into.
class Boxes {
 public:
  Boxes(const ImportedModel& model, const LowerGraph& lower, const SearchLimits& limits)
      : model_(model), lower_(lower), limits_(limits) {}

  using Found = std::variant<SizedProgram, SizesRefused>;
  Found run() { return of_box(model_.symbols, true); }

 private:
  // The model with fewer sizes: dimensions of one value have that, and are no symbols.
  ImportedModel part_of_model(const std::vector<SymbolRange>& box) const {
    ImportedModel part;
    for (const SymbolRange& s : box)
      if (s.lo != s.hi) part.symbols.push_back(s);
    part.at = [this, box](const SizePoint& open) {
      SizePoint point;
      size_t next = 0;
      for (const SymbolRange& s : box) point.push_back(s.lo == s.hi ? s.lo : open[next++]);
      return model_.at(point);
    };
    return part;
  }

  Found of_box(const std::vector<SymbolRange>& box, bool whole) {
    ImportedModel part = part_of_model(box);
    GraphOrRefusal graph = whole                  ? model_.graph
                           : part.symbols.empty() ? part.at({})
                                                  : part.at(inner_points(part.symbols)[0]);
    if (auto* refused = std::get_if<SizesRefused>(&graph)) return std::move(*refused);
    part.graph = std::get<Graph>(std::move(graph));
    if (part.symbols.empty()) return SizedProgram{lower_(std::move(part.graph), {}), {1, 0, 1}};
    // The first multiply weights by what a mean divides by; the last makes tables of what windows at the borders have.
    static constexpr const char* kMergeConstants[] = {"fold_batch_norm_forward", "fold_batch_norm", "fold_constants"};
    std::set<std::string> left_out;
    for (size_t i = 0;; ++i) {
      SizeSearch search(part, lower_, left_out, prover_, limits_, whole);
      auto result = search.run();
      if (auto* found = std::get_if<SizedProgram>(&result)) return std::move(*found);
      if (auto* refused = std::get_if<SizesRefused>(&result)) return std::move(*refused);
      const auto* unlike = std::get_if<Unlike>(&result);
      if (unlike && unlike->in_constants && i < std::size(kMergeConstants)) {
        left_out.insert(kMergeConstants[i]);
        continue;
      }
      // What a short range's sizes do not show may be shown by those behind it, and the other way round.
      if (whole && std::any_of(part.symbols.begin(), part.symbols.end(), is_short)) return of_box(box, false);
      return of_parts(box, part, search, std::move(result));
    }
  }

  static bool is_short(const SymbolRange& s) { return inner_points({s}) != first_points({s}); }

  Found of_parts(const std::vector<SymbolRange>& box, const ImportedModel& part, SizeSearch& search,
                 SizeSearch::Result result) {
    std::vector<SymbolRange> open = part.symbols;
    std::string what, where;
    std::vector<DiffersAt> known;
    if (auto* differs = std::get_if<DiffersAt>(&result)) {
      what = fmt::format("for {} it does something else than for {} ({})", sizes_text(open, differs->point),
                         sizes_text(open, differs->others), differs->what);
      known.push_back(std::move(*differs));
    } else {
      const Unlike& unlike = std::get<Unlike>(result);
      what = fmt::format("{} ({}; {})", unlike.what, sizes_text(open, search.points()[0]),
                         search.points().size() > 1 ? sizes_text(open, search.points()[1]) : "");
      where = unlike.where;
      for (size_t s = 0; s < open.size(); ++s)
        if (auto found = search.part(s)) known.push_back(std::move(*found));
    }
    for (const DiffersAt& difference : known)
      for (size_t s = 0; s < open.size(); ++s)
        if (const auto cut = border(open[s], s, difference, search)) {
          if (++switches_ > kMostSwitches) return no_program(model_.symbols, what, where);
          std::vector<SymbolRange> below = box, above = box;
          for (size_t i = 0; i < box.size(); ++i) {
            if (!box[i].var.same_node(open[s].var)) continue;
            below[i].hi = *cut - box[i].step;
            above[i].lo = *cut;
          }
          Found of_below = of_box(below, false);
          if (std::holds_alternative<SizesRefused>(of_below)) return of_below;
          Found of_above = of_box(above, false);
          if (std::holds_alternative<SizesRefused>(of_above)) return of_above;
          auto& low = std::get<SizedProgram>(of_below);
          auto& high = std::get<SizedProgram>(of_above);
          SizedProgram both;
          both.evidence = {low.evidence.proved + high.evidence.proved, low.evidence.run + high.evidence.run,
                           low.evidence.of + high.evidence.of};
          auto joined = switch_by_size(std::move(low.program), std::move(high.program), box, open[s].var, *cut,
                                       [this](const TensorPtr& weight) { return prover_.hash_of(weight); });
          if (const auto* reason = std::get_if<std::string>(&joined))
            return no_program(model_.symbols, fmt::format("{}; {}", what, *reason), where);
          both.program = std::move(std::get<Program>(joined));
          return both;
        }
    return no_program(model_.symbols, what, where);
  }

  // The first value of a dimension on the upper side of the border between the size that differs and the others, where
  // that dimension alone makes the difference.
  std::optional<int64_t> border(const SymbolRange& symbol, size_t s, const DiffersAt& difference, SizeSearch& search) {
    SizePoint point = difference.point;
    int64_t differs = point[s], equal = std::clamp(difference.others[s], symbol.lo, symbol.hi);
    if (differs == equal) return {};
    const auto is_equal = [&](int64_t value) {
      point[s] = value;
      return search.verdict(difference.program, point) != SizeSearch::Verdict::kDiffers;
    };
    if (!is_equal(equal)) return {};
    while (std::abs(equal - differs) > symbol.step) {
      const int64_t middle = std::min(equal, differs) + std::abs(equal - differs) / symbol.step / 2 * symbol.step;
      (is_equal(middle) ? equal : differs) = middle;
    }
    return std::max(equal, differs);
  }

  const ImportedModel& model_;
  const LowerGraph& lower_;
  const SearchLimits limits_;
  SizeProver prover_;
  int switches_ = 0;
};

}  // namespace

std::string to_string(const SizeEvidence& evidence) {
  if (evidence.of == 0) return "";
  return fmt::format("proved at {}, run at {}, of {} sizes", evidence.proved, evidence.run, evidence.of);
}

std::variant<SizedProgram, SizesRefused> program_of_sizes(const ImportedModel& model, const LowerGraph& lower,
                                                          const SearchLimits& limits) {
  Boxes::Found found = Boxes(model, lower, limits).run();
  if (auto* sized = std::get_if<SizedProgram>(&found)) sized->program.symbols = model.symbols;
  return found;
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
  constexpr SearchLimits kLimits{0.2, true};  // a piece is one node, and there may be many
  const OpenPiece& piece = flow.open.at(number);
  ImportedModel model{{}, nullptr, piece.symbols, nullptr};
  model.at = [&piece](const std::vector<int64_t>& values) {
    GraphInterpreter evaluator;
    return piece.at(values, evaluator);
  };
  std::optional<Diagnostic> reason;
  GraphOrRefusal first = model.at(first_points(piece.symbols)[0]);
  if (auto* refused = std::get_if<SizesRefused>(&first)) {
    reason = std::move(refused->diagnostic);
  } else {
    model.graph = std::get<Graph>(std::move(first));
    // What passes decide by a size, they need not do.
    for (const auto& without :
         std::initializer_list<std::set<std::string>>{{}, {"fold_constants"}, optional_graph_passes()}) {
      auto found = program_of_sizes(
          model,
          [&](Graph graph, std::set<std::string> left_out) {
            left_out.insert(without.begin(), without.end());
            return lower(std::move(graph), left_out);
          },
          kLimits);
      if (auto* sized = std::get_if<SizedProgram>(&found)) return std::move(sized->program);
      auto& refused = std::get<SizesRefused>(found);
      reason = std::move(refused.diagnostic);
      if (!refused.flow_may_do) break;
    }
  }
  std::string node;
  for (const FlowStep* step : steps_in_order(flow.body))
    if (step->piece == number && node.empty()) node = step->loc;
  const SymbolRange& symbol = piece.symbols[0];
  throw UserError({"TSR-5024",
                   fmt::format("{} has dimensions that only a run knows, and cannot be compiled for all of {} to {}: "
                               "{}: {}",
                               node, symbol.lo, symbol.hi, reason->id, reason->message),
                   reason->node, "operators that do the same for all sizes",
                   "declare a fixed shape for its operands (value_info)"});
}

}  // namespace tessera::inline driver
