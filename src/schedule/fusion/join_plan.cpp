#include "schedule/fusion/join_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/memory_plan.h"
#include "program/merge_kernels.h"
#include "program/steps.h"
#include "schedule/fusion/fuse_rows.h"
#include "schedule/fusion/join_planner.h"
#include "schedule/fusion/overlapped_tiles.h"

namespace tessera::inline schedule {
namespace {

// A row-major constant's elements.
TensorPtr constant_of(const ProgramBuffer& buffer) {
  const bool is_plain = buffer.kind == BufferKind::kWeight && buffer.alias_of < 0 && buffer.data &&
                        buffer.data->has_data() && buffer.type.layout.row_major();
  return is_plain ? buffer.data : nullptr;
}

}  // namespace

FoundChain JoinPlanner::define(std::string_view step, std::vector<size_t> calls, std::vector<NumberedMember> members,
                               bool own_weights, const std::string& name) const {
  // Arguments in the order in which members have them, the result of the last one at the end. A weight by itself has a
  // number beyond those of all buffers.
  FoundChain found{step, std::move(calls), nullptr, {}, {}};
  const BufferId result = members.back().args.back();
  std::set<BufferId> inside;
  for (const NumberedMember& member : members) inside.insert(member.args.back());
  inside.erase(result);
  std::vector<int32_t> outside;
  auto next = static_cast<int32_t>(program_.buffers.size());
  for (NumberedMember& member : members)
    for (size_t a = 0; a < member.args.size(); ++a) {
      int32_t& number = member.args[a];
      if (inside.contains(number)) continue;
      const BufferId buffer = number;
      const auto& params = member.program->params;
      if (own_weights && a < params.size() && params[a].may_be_packed()) number = next++;
      if (std::find(outside.begin(), outside.end(), number) != outside.end()) continue;
      outside.push_back(number);
      found.args.push_back(buffer);
      found.context.constants.push_back(constant_of(program_.buffers[static_cast<size_t>(buffer)]));
    }
  JoinedProgram program = join_programs(name, members, outside);
  // Arguments are called as what they are in the program.
  for (size_t i = 0; i < found.args.size(); ++i) {
    BufferPtr& value = program.values[i].buffer;
    value = make_buffer(program_.buffers[static_cast<size_t>(found.args[i])].name, value->dtype, value->shape);
  }
  found.program = std::make_shared<const JoinedProgram>(std::move(program));
  for (const auto& known : {program_.symbols, loop_indices(program_)})
    for (const SymbolRange& symbol : known)
      if (std::any_of(found.calls.begin(), found.calls.end(), [&](size_t call) {
            const std::vector<Var>& own = kernel_of(call).program.symbols;
            return std::any_of(own.begin(), own.end(), [&](const Var& var) { return var.same_node(symbol.var); });
          }))
        found.context.symbols.push_back(symbol);
  return found;
}

std::string JoinPlanner::signature_of(const FoundChain& chain) const {
  std::string text = fmt::format("{}:", chain.step);
  std::map<BufferId, size_t> numbers;
  for (const size_t call : chain.calls) {
    text += fmt::format("{}(", program_.calls[call].kernel);
    for (const BufferId arg : args_of(call))
      text += fmt::format("{},", numbers.emplace(arg, numbers.size()).first->second);
    text += ")";
  }
  return text + chain.of_constants;
}

std::string JoinPlanner::location_of(const FoundChain& chain) const {
  std::vector<std::string> parts;
  for (const size_t call : chain.calls)
    if (const std::string& loc = program_.calls[call].loc;
        !loc.empty() && std::find(parts.begin(), parts.end(), loc) == parts.end())
      parts.push_back(loc);
  return fmt::format("{}", fmt::join(parts, "+"));
}

JoinPlanner::Code& JoinPlanner::code_of(const FoundChain& chain) {
  const auto [it, is_new] = codes_.try_emplace(signature_of(chain));
  if (!is_new) return it->second;
  Kernel kernel = joined_kernel(chain);
  const JoiningStep& step = *find_joining_step(chain.step);
  const auto apply = [&](Knobs knobs) {
    return step.apply(*chain.program, chain.context, target_, options_.ask, knobs);
  };
  std::variant<ScheduledKernel, Declined> answer = Declined{};
  const TunedChoice tuned = options_.choose ? options_.choose(kernel) : TunedChoice();
  kernel.refused_tuning = tuned.refused;
  if (tuned.point) {
    answer = apply_joined_point(*tuned.point, *chain.program, chain.context, target_, options_.ask);
    if (const auto* declined = std::get_if<Declined>(&answer))
      kernel.refused_tuning = to_string(*tuned.point) + ": " + declined->reason;
    else kernel.rule = to_string(*tuned.point);
  }
  if (std::holds_alternative<Declined>(answer)) answer = apply({});
  if (const auto* declined = std::get_if<Declined>(&answer)) {
    it->second.refused = declined->reason;
    return it->second;
  }
  take(std::move(kernel), std::move(std::get<ScheduledKernel>(answer)), chain, it->second);
  return it->second;
}

Kernel JoinPlanner::joined_kernel(const FoundChain& chain) const {
  Kernel kernel;
  kernel.joined = chain.program;
  kernel.rule = chain.step;
  kernel.loc = location_of(chain);
  kernel.device = kernel_of(chain.calls.back()).device;
  return kernel;
}

void JoinPlanner::take(Kernel kernel, ScheduledKernel scheduled, const FoundChain& chain, Code& code) const {
  kernel.program = std::move(scheduled.program);
  kernel.program.name = chain.program->name;
  const bool is_open = !kernel.program.symbols.empty();
  kernel.flops = kernel.bytes = is_open ? -1 : 0;
  if (!is_open) {
    for (const size_t call : chain.calls) kernel.flops += std::max<int64_t>(kernel_of(call).flops, 0);
    for (const BufferPtr& param : kernel.program.params)
      kernel.bytes += dtype_bytes(param->dtype, as_int(param->shape[0]).value_or(0));
  }
  code.kernel = {std::move(kernel), std::move(scheduled.packed)};
}

bool JoinPlanner::has_code(const FoundChain& chain) { return code_of(chain).kernel.has_value(); }

void JoinPlanner::join(const FoundChain& chain) {
  const std::string why = add(chain);
  for (const size_t call : chain.calls) flow_.set_free(call, !why.empty());
  for (size_t i = 0; !why.empty() && i + 1 < chain.calls.size(); ++i)
    refuse(chain.step, chain.calls[i], chain.calls[i + 1], why);
}

void JoinPlanner::join(const FoundChain& chain, LoopProgram code) {
  const auto [it, is_new] = codes_.try_emplace(signature_of(chain));
  if (is_new) take(joined_kernel(chain), {std::move(code), {}}, chain, it->second);
  join(chain);
}

// Why the chain is not in the plan; empty when it is.
std::string JoinPlanner::add(const FoundChain& chain) {
  Code& code = code_of(chain);
  if (!code.kernel) return code.refused;
  if (!std::exchange(code.is_asked, true))
    code.is_allowed = !options_.allow || options_.allow(chain.step, code.kernel->kernel);
  if (!code.is_allowed) return "the chain is left out by name";
  for (const PackedParam& packed : code.kernel->packed) {
    const BufferId arg = chain.args[packed.param];
    const ProgramBuffer& weights = program_.buffers[static_cast<size_t>(root_buffer(program_, arg))];
    if (!weights.data) continue;
    if (std::string why = packing_problem(*weights.data, packed); !why.empty()) return why;
  }
  if (code.number == SIZE_MAX) {
    code.number = plan_.kernels.size();
    plan_.kernels.push_back(*code.kernel);
  }
  plan_.joins.push_back({chain.step, chain.calls, chain.args, code.number, location_of(chain)});
  return "";
}

JoinPlan JoinPlanner::finish() && {
  std::vector<size_t> join_of(program_.calls.size(), SIZE_MAX);
  for (size_t j = 0; j < plan_.joins.size(); ++j)
    for (const size_t call : plan_.joins[j].calls) join_of[call] = j;
  for (const auto& [key, reason] : refused_) {
    const auto& [writer, reader] = key.second;
    if (join_of[writer] == SIZE_MAX || join_of[writer] != join_of[reader])
      plan_.refused.push_back({key.first, writer, reader, reason});
  }
  return std::move(plan_);
}

JoinPlan plan_joins(const Program& program, const Target& target, const JoinOptions& options) {
  JoinPlanner planner(program, target, options);
  if (options.steps.contains(kFuseRows)) plan_fused_rows(planner);
  if (options.steps.contains(kOverlappedTiles)) plan_overlapped_tiles(planner);
  return std::move(planner).finish();
}

void tell_refused(const JoinPlan& plan, const Program& program, Remarks* remarks) {
  if (!remarks) return;
  for (const RefusedJoin& refused : plan.refused)
    remarks->refused(std::string(refused.step), program.calls[refused.writer].loc, refused.reason,
                     program.calls[refused.reader].loc);
}

std::vector<PackedKernel> apply_joins(Program& program, JoinPlan plan) {
  if (plan.joins.empty()) return {};
  const size_t first = program.kernels.size();
  for (PlannedKernel& planned : plan.kernels) program.kernels.push_back(std::move(planned.kernel));
  std::set<size_t> gone;
  for (PlannedJoin& join : plan.joins) {
    KernelCall& call = program.calls[join.calls.back()];
    call = {static_cast<int32_t>(first + join.kernel), std::move(join.args), std::move(join.loc)};
    gone.insert(join.calls.begin(), join.calls.end() - 1);
  }
  remove_calls(program, gone);
  const std::vector<int32_t> numbers = drop_uncalled_kernels(program);
  std::vector<PackedKernel> packed;
  for (size_t k = 0; k < plan.kernels.size(); ++k)
    if (const int32_t number = numbers[first + k]; number >= 0 && !plan.kernels[k].packed.empty())
      packed.push_back({number, std::move(plan.kernels[k].packed)});
  return packed;
}

}  // namespace tessera::inline schedule
