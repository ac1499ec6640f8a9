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
  for (const SymbolRange& symbol : model.symbols.empty() ? model.graph.symbols : model.symbols) {
    if (symbol.is_data()) continue;
    throw UserError({"TSR-1025",
                     fmt::format("the model leaves '{}' open in {}..{}", symbol.var->name, symbol.lo, symbol.hi), "",
                     fmt::format("one value: {} works on one size", what),
                     fmt::format("give --dim {}={}", symbol.var->name, symbol.hi)});
  }
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

[[noreturn]] void refuse(const std::vector<SymbolRange>& symbols, const std::string& what, const std::string& where) {
  throw UserError({"TSR-5022", fmt::format("the model cannot be compiled for a range of sizes: {}", what), where,
                   "models whose sizes alone depend on the named dimensions",
                   symbols.size() > 1 ? "give a smaller range, or leave only the batch open"
                                      : "give a smaller range, or one value for each dimension"});
}

// The programs of a box of sizes and of the boxes that it is cut into.
class Boxes {
 public:
  Boxes(const ImportedModel& model, const LowerGraph& lower, const SearchLimits& limits)
      : model_(model), lower_(lower), limits_(limits) {}

  SizedProgram run() { return of_box(model_.symbols, true); }

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

  SizedProgram of_box(const std::vector<SymbolRange>& box, bool whole) {
    ImportedModel part = part_of_model(box);
    if (part.symbols.empty()) return {lower_(part.at({}), {}), {1, 0, 1}};
    const std::vector<SizePoint> first = whole ? first_points(part.symbols) : inner_points(part.symbols);
    part.graph = whole ? model_.graph : part.at(first[0]);
    // The first multiply weights by what a mean divides by; the last makes tables of what windows at the borders have.
    static constexpr const char* kMergeConstants[] = {"fold_batch_norm_forward", "fold_batch_norm", "fold_constants"};
    std::set<std::string> left_out;
    for (size_t i = 0;; ++i) {
      SizeSearch search(part, lower_, left_out, prover_, limits_, whole);
      auto result = search.run();
      if (auto* found = std::get_if<SizedProgram>(&result)) return std::move(*found);
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

  SizedProgram of_parts(const std::vector<SymbolRange>& box, const ImportedModel& part, SizeSearch& search,
                        std::variant<SizedProgram, Unlike, DiffersAt> result) {
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
          if (++switches_ > kMostSwitches) refuse(model_.symbols, what, where);
          std::vector<SymbolRange> below = box, above = box;
          for (size_t i = 0; i < box.size(); ++i) {
            if (!box[i].var.same_node(open[s].var)) continue;
            below[i].hi = *cut - box[i].step;
            above[i].lo = *cut;
          }
          SizedProgram low = of_box(below, false), high = of_box(above, false);
          SizedProgram both;
          both.evidence = {low.evidence.proved + high.evidence.proved, low.evidence.run + high.evidence.run,
                           low.evidence.of + high.evidence.of};
          auto joined = switch_by_size(std::move(low.program), std::move(high.program), box, open[s].var, *cut,
                                       [this](const TensorPtr& weight) { return prover_.hash_of(weight); });
          if (const auto* reason = std::get_if<std::string>(&joined))
            refuse(model_.symbols, fmt::format("{}; {}", what, *reason), where);
          both.program = std::move(std::get<Program>(joined));
          return both;
        }
    refuse(model_.symbols, what, where);
  }

  // The first value of a dimension on the upper side of the border between the size that differs and the others, where
  // that dimension alone makes the difference.
  std::optional<int64_t> border(const SymbolRange& symbol, size_t s, const DiffersAt& difference, SizeSearch& search) {
    SizePoint point = difference.point;
    int64_t differs = point[s], equal = std::clamp(difference.others[s], symbol.lo, symbol.hi);
    if (differs == equal) return {};
    const auto is_equal = [&](int64_t value) {
      point[s] = value;
      try {
        return search.verdict(difference.program, point) != SizeSearch::Verdict::kDiffers;
      } catch (const UserError&) {
        return false;
      }
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

Program program_of_sizes(const ImportedModel& model, const LowerGraph& lower, SizeEvidence& evidence,
                         const SearchLimits& limits) {
  SizedProgram sized = Boxes(model, lower, limits).run();
  sized.program.symbols = model.symbols;
  evidence = sized.evidence;
  return std::move(sized.program);
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
  try {
    model.graph = model.at(first_points(piece.symbols)[0]);
    // What passes decide by a size, they need not do.
    static const std::vector<std::set<std::string>> kWithout = {{}, {"fold_constants"}, optional_graph_passes()};
    SizeEvidence evidence;
    for (size_t i = 0;; ++i) {
      const std::set<std::string>& without = kWithout[i];
      try {
        return program_of_sizes(
            model,
            [&](Graph graph, std::set<std::string> left_out) {
              left_out.insert(without.begin(), without.end());
              return lower(std::move(graph), left_out);
            },
            evidence, kLimits);
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
