#include "schedule/choose.h"

#include <algorithm>
#include <array>
#include <map>

#include "program/memory_plan.h"
#include "program/steps.h"
#include "schedule/dynamic/axis_sizes.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/dynamic/merge_open_axes.h"
#include "schedule/dynamic/open_products.h"
#include "schedule/fusion/fuse_rows.h"
#include "schedule/fusion/join_plan.h"
#include "schedule/fusion/overlapped_tiles.h"
#include "schedule/fusion/row_cut.h"
#include "schedule/fusion/strip_cut.h"
#include "schedule/packing/packed_operands.h"
#include "schedule/rules/rules.h"
#include "schedule/sketches/sketch.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr std::array kRules = {
    ScheduleRule{"blocked_bytes",
                 "products of bytes that have a scale for each group with constant weights in blocks, by sums of bytes",
                 1, Numerics::kRounding, blocked_bytes},
    ScheduleRule{
        "blocked_weights",
        "products with constant weights in blocks of a few bits or other narrow numbers, which are made floats "
        "in registers",
        1, Numerics::kRounding, blocked_weights},
    ScheduleRule{"winograd",
                 "convolutions of stride 1 with 3, 5 or 7 places along one dimension or 3 or 5 along two by minimal "
                 "filtering, where fewer "
                 "products pay",
                 3, Numerics::kAlgorithm, winograd},
    ScheduleRule{"matrix_tile", "products of bf16 with weights, in the machine's two-dimensional tiles", 1,
                 Numerics::kRounding, matrix_tile},
    ScheduleRule{"bf16x3", "products of f32 with weights as products of pieces of bf16 (--fp32)", 1,
                 Numerics::kAlgorithm, bf16x3, 1, bf16x3_not_wanted},
    ScheduleRule{"packed_panels", "sums of products of operands of a run over many steps, in blocks of packed panels",
                 1, Numerics::kRounding, packed_panels},
    ScheduleRule{"streamed_product", "few rows by a large matrix of a run, which is read as it lies, row by row", 1,
                 Numerics::kRounding, streamed_product},
    ScheduleRule{"window_dots", "depthwise convolutions of bytes, by dot products of turned windows", 1,
                 Numerics::kExact, window_dots},
    ScheduleRule{"register_tile", "reductions with a contiguous output axis, accumulated in a register tile", 1,
                 Numerics::kRounding, register_tile},
    ScheduleRule{"window_rows", "windows along the output's contiguous axis, in lanes of outputs", 1, Numerics::kExact,
                 window_rows},
    ScheduleRule{"row_reduce", "reductions along contiguous memory, in lanes of partial results", 1,
                 Numerics::kRounding, row_reduce},
    ScheduleRule{"lane_reduce",
                 "several reductions or results in one pass, with a contiguous output axis, in lanes of outputs", 1,
                 Numerics::kRounding, lane_reduce},
    ScheduleRule{"injective", "no reduction: contiguous vectors, merged loops", 1, Numerics::kExact, injective},
    ScheduleRule{"scalar_loops", "one output element at a time", 1, Numerics::kExact, scalar_loops},
    ScheduleRule{"dynamic_loops", "extents that only a run knows, where no rule has a tile for them", 1,
                 Numerics::kRounding, dynamic_loops},
};

// A row's sum may be taken in blocks that a running maximum corrects; strips ask the rules anew, which may order sums
// otherwise for them.
constexpr std::array kJoiningSteps = {
    JoiningStep{kFuseRows, "kernels that hand rows to one another, block of rows by block of rows", 2,
                Numerics::kRounding, fuse_rows},
    JoiningStep{kOverlappedTiles, "kernels that hand images to one another, strip by strip", 2, Numerics::kRounding,
                overlapped_tiles},
};

// Whether an operand of a reduction does not lie along the axis that is contiguous in another one, as in the product of
// queries and keys that are stored column by column: lanes along that axis would gather it.
bool gathers(const TensorProgram& kernel) {
  const Stage* reduction = kernel.reduction();
  if (!reduction) return false;
  std::vector<const ExprNode*> loads;
  walk(reduction->body.value, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad && !e->operands.empty()) loads.push_back(e.get());
  });
  const auto mentions = [](const Expr& e, const Var& var) {
    bool found = false;
    walk(e, [&](const Expr& part) { found |= part.same_node(Expr(var)); });
    return found;
  };
  return std::any_of(reduction->body.reduce_axes.begin(), reduction->body.reduce_axes.end(), [&](const Axis& axis) {
    const auto along = [&](const ExprNode* load) { return load->operands.back().same_node(Expr(axis.var)); };
    const auto across = [&](const ExprNode* load) {
      return std::any_of(load->operands.begin(), load->operands.end() - 1,
                         [&](const Expr& index) { return mentions(index, axis.var); });
    };
    return std::any_of(loads.begin(), loads.end(), along) && std::any_of(loads.begin(), loads.end(), across);
  });
}

// By tiles, or as a product, with a variable for the size of each axis; or else by tiles of the kernel as it is.
std::variant<ScheduledKernel, Declined> apply_to_open_axes(const ScheduleRule& rule, const TensorProgram& kernel,
                                                           const Target& target) {
  const SizedKernel sized = name_axis_sizes(kernel);
  const auto by_tiles = [&](const SizedKernel& of) {
    auto answer = apply_by_tiles(rule, of.program, target);
    if (auto* scheduled = std::get_if<ScheduledKernel>(&answer))
      scheduled->program = with_values(scheduled->program, values_of(of));
    return answer;
  };
  const auto is_taken = [](const auto& answer) { return std::holds_alternative<ScheduledKernel>(answer); };
  auto answer = by_tiles(sized);
  if (is_taken(answer)) return answer;
  if (rule.apply == register_tile)
    if (auto product = apply_to_open_product(rule, sized, target); is_taken(product)) return product;
  if (auto as_it_is = apply_by_tiles(rule, kernel, target); is_taken(as_it_is)) return as_it_is;
  if (!kernel.reduction())
    if (auto outside = by_tiles(name_axis_sizes(kernel, NamedAxes::kAllOutsideOpen)); is_taken(outside)) return outside;
  return answer;
}

// Why a compile does not want the rule; empty when it does.
std::string why_not_wanted(const ScheduleRule& rule, const TensorProgram& kernel, const Target& target,
                           Fp32Products fp32) {
  return rule.not_wanted ? rule.not_wanted(kernel, target, fp32) : std::string();
}

// The rule's answer, by tiles or windows when a run decides about sizes.
std::variant<ScheduledKernel, Declined> ask(const ScheduleRule& rule, const TensorProgram& kernel, const Target& target,
                                            const std::vector<SymbolRange>& symbols, Fp32Products fp32) {
  if (std::string why = why_not_wanted(rule, kernel, target, fp32); !why.empty()) return Declined{std::move(why)};
  // Single elements by tiles are slower than loops of their own.
  const bool symbolic = is_symbolic(kernel);
  if (symbolic && rule.apply == scalar_loops) return Declined{"a run decides about sizes"};
  Knobs knobs;
  const bool directly =
      !symbolic || rule.apply == dynamic_loops || rule.apply == blocked_weights || rule.apply == blocked_bytes;
  if (!directly && !kernel.is_single())
    return Declined{"the kernel has several results or reductions, and a run decides about sizes"};
  if (symbolic && rule.apply == row_reduce && gathers(kernel))
    return Declined{"an operand is not contiguous along the reduced axis"};
  // Loops go along more of a kernel's axes at once where these are one; those of several results have no tiles instead.
  const bool as_it_is = !symbolic || (directly && kernel.is_single());
  const TensorProgram merged = as_it_is ? TensorProgram() : merge_open_axes(kernel);
  auto answer =
      directly ? rule.apply(as_it_is ? kernel : merged, target, knobs) : apply_to_open_axes(rule, merged, target);
  if (!directly && std::holds_alternative<Declined>(answer)) {
    auto by_windows = rule.apply == winograd ? open_winograd(kernel, symbols, target)
                                             : apply_by_windows(rule, merged, symbols, target);
    if (const auto* declined = std::get_if<Declined>(&by_windows)) {
      std::get<Declined>(answer).reason += "; " + declined->reason;
    } else {
      answer = std::move(by_windows);
    }
  }
  // A kernel of fixed sizes may have elements that depend on open ones.
  if (auto* scheduled = std::get_if<ScheduledKernel>(&answer))
    for (const SymbolRange& symbol : symbols) scheduled->program.symbols.push_back(symbol.var);
  return answer;
}

// Removes buffers that no call reads or writes and that are not part of the signature.
void drop_unused_buffers(Program& program) {
  std::vector<bool> used(program.buffers.size(), false);
  const auto mark = [&](BufferId id) {
    for (; id >= 0 && !used[static_cast<size_t>(id)]; id = program.buffers[static_cast<size_t>(id)].alias_of)
      used[static_cast<size_t>(id)] = true;
  };
  for (const KernelCall& call : program.calls)
    for (const BufferId id : call.args) mark(id);
  for_each_step(program.steps, [&](const ProgramStep& step) { for_each_step_buffer(step, mark); });
  for (BufferId id : program.inputs) mark(id);
  for (BufferId id : program.outputs) mark(id);
  for (const ProgramState& state : program.states) mark(state.initial);
  std::vector<BufferId> renumber(program.buffers.size(), -1);
  std::vector<ProgramBuffer> kept;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (!used[i]) continue;
    renumber[i] = static_cast<BufferId>(kept.size());
    kept.push_back(std::move(program.buffers[i]));
  }
  const auto apply = [&](BufferId& id) {
    if (id >= 0) id = renumber[static_cast<size_t>(id)];
  };
  for (ProgramBuffer& buffer : kept) {
    apply(buffer.alias_of);
    apply(buffer.over);
  }
  for (KernelCall& call : program.calls)
    for (BufferId& id : call.args) apply(id);
  for_each_step(program.steps, [&](ProgramStep& step) { for_each_step_buffer(step, apply); });
  for (BufferId& id : program.inputs) apply(id);
  for (BufferId& id : program.outputs) apply(id);
  for (ProgramState& state : program.states) apply(state.initial);
  program.buffers = std::move(kept);
}

}  // namespace

std::span<const ScheduleRule> schedule_rules() { return kRules; }

std::span<const JoiningStep> joining_steps() { return kJoiningSteps; }

const JoiningStep* find_joining_step(std::string_view name) {
  const auto it = std::find_if(kJoiningSteps.begin(), kJoiningSteps.end(),
                               [&](const JoiningStep& step) { return step.name == name; });
  return it == kJoiningSteps.end() ? nullptr : &*it;
}

std::vector<std::string_view> schedule_step_names() {
  std::vector<std::string_view> names;
  for (const JoiningStep& step : kJoiningSteps) names.push_back(step.name);
  for (const ScheduleRule& rule : kRules) names.push_back(rule.name);
  return names;
}

const ScheduleRule* find_schedule_rule(std::string_view name) {
  const auto it =
      std::find_if(kRules.begin(), kRules.end(), [&](const ScheduleRule& rule) { return rule.name == name; });
  return it == kRules.end() ? nullptr : &*it;
}

AskRules first_answer_of(const Target& target, int opt_level, const std::set<std::string>& disabled,
                         const RuleNumerics& numerics) {
  return [=](const TensorProgram& kernel) -> std::optional<RuleAnswer> {
    for (const ScheduleRule& rule : kRules) {
      if (opt_level < rule.min_level || disabled.contains(std::string(rule.name))) continue;
      if (numerics_of(rule, kernel) > numerics.loosest) continue;
      if (!why_not_wanted(rule, kernel, target, numerics.fp32).empty()) continue;
      Knobs knobs;
      auto answer = rule.apply(kernel, target, knobs);
      if (auto* scheduled = std::get_if<ScheduledKernel>(&answer)) return RuleAnswer{rule.name, std::move(*scheduled)};
    }
    return std::nullopt;
  };
}

std::vector<RuleOffer> ask_all_rules(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                                     const Target& target, int opt_level, const std::set<std::string>& disabled,
                                     const RuleNumerics& numerics) {
  std::vector<RuleOffer> offers;
  for (const ScheduleRule& rule : kRules) {
    if (opt_level < rule.min_level) {
      offers.push_back({rule.name, "it is asked from -O" + std::to_string(rule.min_level) + " on", {}});
      continue;
    }
    if (disabled.contains(std::string(rule.name))) {
      offers.push_back({rule.name, "--disable-pass leaves it out", {}});
      continue;
    }
    if (const Numerics own = numerics_of(rule, kernel); own > numerics.loosest) {
      offers.push_back({rule.name, "--numerics leaves it out: " + std::string(numerics_name(own)), {}});
      continue;
    }
    auto answer = ask(rule, kernel, target, symbols, numerics.fp32);
    if (const auto* declined = std::get_if<Declined>(&answer)) {
      offers.push_back({rule.name, declined->reason, {}});
    } else {
      offers.push_back({rule.name, "", std::move(std::get<ScheduledKernel>(answer).program)});
    }
  }
  return offers;
}

Numerics numerics_of(const ScheduleRule& rule, const TensorProgram& kernel) {
  if (rule.numerics != Numerics::kRounding) return rule.numerics;
  const auto adds = [](const Stage* reduction) {
    return is_float(reduction->out->dtype) &&
           (reduction->body.combiner == Combiner::kSum || reduction->body.combiner == Combiner::kProd);
  };
  const std::vector<const Stage*> reductions = kernel.reductions();
  return std::any_of(reductions.begin(), reductions.end(), adds) ? rule.numerics : Numerics::kExact;
}

std::variant<KnobSpace, Declined> knob_space(const ScheduleRule& rule, const TensorProgram& kernel,
                                             const Target& target, Fp32Products fp32) {
  if (is_symbolic(kernel)) return Declined{"a run decides about sizes"};
  if (std::string why = why_not_wanted(rule, kernel, target, fp32); !why.empty()) return Declined{std::move(why)};
  const KnobPoint by_name{std::string(rule.name), {}};
  Knobs knobs(by_name);
  auto answer = rule.apply(kernel, target, knobs);
  if (auto* declined = std::get_if<Declined>(&answer)) return std::move(*declined);
  return KnobSpace{by_name.rule, knobs.seen()};
}

std::variant<ScheduledKernel, Declined> apply_point(const KnobPoint& point, const TensorProgram& kernel,
                                                    const Target& target, Fp32Products fp32) {
  if (is_trace(point)) return apply_trace_point(point, kernel, target);
  const ScheduleRule* rule = find_schedule_rule(point.rule);
  if (!rule) return Declined{"there is no rule '" + point.rule + "'"};
  if (is_symbolic(kernel)) return Declined{"a run decides about sizes"};
  if (std::string why = why_not_wanted(*rule, kernel, target, fp32); !why.empty()) return Declined{std::move(why)};
  Knobs knobs(point);
  auto answer = rule->apply(kernel, target, knobs);
  // A value that is not legal is the better reason, and a knob that is not asked for the worse.
  if (!knobs.illegal_value().empty()) return Declined{knobs.illegal_value()};
  if (std::holds_alternative<Declined>(answer)) return answer;
  if (std::string why = knobs.unknown_knob(); !why.empty()) return Declined{std::move(why)};
  return answer;
}

std::variant<KnobSpace, Declined> joined_knob_space(const JoiningStep& step, const JoinedProgram& kernel,
                                                    const JoinedContext& context, const Target& target,
                                                    const AskRules& ask) {
  const KnobPoint by_name{std::string(step.name), {}};
  Knobs knobs(by_name);
  auto answer = step.apply(kernel, context, target, ask, knobs);
  if (auto* declined = std::get_if<Declined>(&answer)) return std::move(*declined);
  return KnobSpace{by_name.rule, knobs.seen()};
}

std::variant<ScheduledKernel, Declined> apply_joined_point(const KnobPoint& point, const JoinedProgram& kernel,
                                                           const JoinedContext& context, const Target& target,
                                                           const AskRules& ask) {
  const JoiningStep* step = find_joining_step(point.rule);
  if (!step) return Declined{"there is no step '" + point.rule + "' that joins kernels"};
  Knobs knobs(point);
  auto answer = step->apply(kernel, context, target, ask, knobs);
  if (std::string why = knobs.refusal(); !why.empty() && std::holds_alternative<ScheduledKernel>(answer))
    return Declined{std::move(why)};
  return answer;
}

KnobPoint essential(const KnobPoint& point, const TensorProgram& kernel, const Target& target) {
  KnobPoint result{point.rule, {}};
  const ScheduleRule* rule = find_schedule_rule(point.rule);
  if (!rule) return point;
  Knobs knobs(point);
  rule->apply(kernel, target, knobs);
  for (const auto& [name, value] : point.values)
    for (const Knob& knob : knobs.seen())
      if (knob.name == name && knob.preferred != value) result.values.emplace_back(name, value);
  return result;
}

std::vector<SymbolRange> symbols_of(const Program& program, const Kernel& kernel) {
  std::vector<SymbolRange> result;
  for (const auto& symbols : {program.symbols, loop_indices(program)})
    for (const SymbolRange& symbol : symbols)
      for (const Var& own : kernel.program.symbols)
        if (own.same_node(symbol.var)) result.push_back(symbol);
  return result;
}

void schedule_program(Program& program, const Target& target, int opt_level, const std::set<std::string>& disabled,
                      const AllowRule& allow, const ChoosePoint& choose, const RuleNumerics& numerics,
                      Remarks* remarks) {
  JoinOptions joining{{}, first_answer_of(target, opt_level, disabled, numerics), allow, choose};
  for (const JoiningStep& step : kJoiningSteps)
    if (opt_level >= step.min_level && step.numerics <= numerics.loosest && !disabled.contains(std::string(step.name)))
      joining.steps.insert(step.name);
  JoinPlan plan = plan_joins(program, target, joining);
  tell_refused(plan, program, remarks);
  const std::vector<PackedKernel> joined = apply_joins(program, std::move(plan));
  PackedOperands operands(program, target);
  for (const PackedKernel& kernel : joined)
    for (const PackedParam& packed : kernel.packed) operands.use(kernel.kernel, packed);
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    Kernel& kernel = program.kernels[k];
    const bool is_joined = kernel.joined && kernel.rule == "naive";  // and has no loops of its own yet
    if (!is_joined && (!kernel.definition || kernel.rule != "naive")) continue;
    const auto take = [&](ScheduledKernel scheduled, std::string rule) {
      if (scheduled.program.symbols.empty()) scheduled.program.symbols = kernel.program.symbols;
      kernel.program = std::move(scheduled.program);
      kernel.rule = std::move(rule);
      for (const PackedParam& packed : scheduled.packed) operands.use(static_cast<int32_t>(k), packed);
    };
    const auto may_ask = [&](const ScheduleRule& rule) {
      return opt_level >= rule.min_level && !disabled.contains(std::string(rule.name)) &&
             numerics_of(rule, *kernel.definition) <= numerics.loosest;
    };
    const TunedChoice tuned = choose ? choose(kernel) : TunedChoice();
    kernel.refused_tuning = tuned.refused;
    if (is_joined) {
      const JoinedContext context{{}, symbols_of(program, kernel)};
      std::variant<ScheduledKernel, Declined> answer = Declined{};
      if (tuned.point) {
        answer = apply_joined_point(*tuned.point, *kernel.joined, context, target, joining.ask);
        if (const auto* declined = std::get_if<Declined>(&answer))
          kernel.refused_tuning = to_string(*tuned.point) + ": " + declined->reason;
        else kernel.rule = to_string(*tuned.point);
      }
      for (const JoiningStep& step : kJoiningSteps) {
        if (std::holds_alternative<ScheduledKernel>(answer) || !joining.steps.contains(step.name)) continue;
        Knobs knobs;
        answer = step.apply(*kernel.joined, context, target, joining.ask, knobs);
        if (std::holds_alternative<ScheduledKernel>(answer)) kernel.rule = step.name;
      }
      if (auto* scheduled = std::get_if<ScheduledKernel>(&answer)) take(std::move(*scheduled), kernel.rule);
      continue;
    }
    if (const auto& point = tuned.point) {
      const ScheduleRule* rule = find_schedule_rule(point->rule);
      std::variant<ScheduledKernel, Declined> answer = Declined{"the level or --disable-pass leaves the rule out"};
      if (!rule || may_ask(*rule)) answer = apply_point(*point, *kernel.definition, target, numerics.fp32);
      if (const auto* scheduled = std::get_if<ScheduledKernel>(&answer))
        if (std::string why = operands.problem(static_cast<int32_t>(k), scheduled->packed); !why.empty())
          answer = Declined{std::move(why)};
      if (const auto* declined = std::get_if<Declined>(&answer)) {
        kernel.refused_tuning = to_string(*point) + ": " + declined->reason;
      } else {
        if (!allow || allow(point->rule, kernel))
          take(std::move(std::get<ScheduledKernel>(answer)), to_string(essential(*point, *kernel.definition, target)));
        continue;
      }
    }
    for (const ScheduleRule& rule : kRules) {
      if (!may_ask(rule)) continue;
      auto answer = ask(rule, *kernel.definition, target, symbols_of(program, kernel), numerics.fp32);
      if (const auto* scheduled = std::get_if<ScheduledKernel>(&answer))
        if (std::string why = operands.problem(static_cast<int32_t>(k), scheduled->packed); !why.empty())
          answer = Declined{std::move(why)};
      if (const auto* declined = std::get_if<Declined>(&answer)) {
        kernel.refused.push_back(std::string(rule.name) + ": " + declined->reason);
        continue;
      }
      if (!allow || allow(rule.name, kernel))
        take(std::move(std::get<ScheduledKernel>(answer)), std::string(rule.name));
      break;
    }
  }
  operands.share_tables();
  operands.place_calls();
  drop_unused_buffers(program);
}

}  // namespace tessera::inline schedule
