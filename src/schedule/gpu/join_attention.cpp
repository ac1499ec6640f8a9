// Finds attention among the calls of a program: a product with a softmax of what another product gives.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "schedule/fusion/fold_copies.h"
#include "schedule/fusion/join_planner.h"
#include "schedule/gpu/gpu_attention.h"

namespace tessera::inline schedule {
namespace {

bool sums(const TensorProgram* kernel) {
  return kernel && kernel->reduction() && kernel->reduction()->body.combiner == Combiner::kSum;
}

class AttentionJoiner {
 public:
  AttentionJoiner(const Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of)
      : program_(program), limits_of_(limits_of), planner_(program, target_, options_) {}

  JoinPlan run() {
    for (size_t c = program_.calls.size(); c-- > 0;)
      if (planner_.flow().is_free(c) && limits(c) && sums(definition(c))) end_with(c);
    return std::move(planner_).finish();
  }

 private:
  struct Member {
    const TensorProgram* program = nullptr;
    std::vector<BufferId> args;
  };
  // While it grows: the calls that it does the work of, ascending, and its members in an order of their own.
  struct Found {
    std::vector<size_t> calls;
    Member scores, maximum, exponential, sum, product;
  };

  const GpuLimits* limits(size_t call) const { return limits_of_(planner_.kernel_of(call)); }
  const TensorProgram* definition(size_t call) const { return planner_.flow().definition(call); }
  Member member_of(size_t call) const { return {definition(call), planner_.args_of(call)}; }

  // The call that writes a value which `reader` reads, added to the calls; empty where the value may not stay inside.
  std::optional<size_t> writer_inside(BufferId value, size_t reader, Found& found) const {
    const size_t writer = planner_.flow().writer_of(value);
    if (writer == SIZE_MAX || !planner_.flow().is_free(writer) || !definition(writer) ||
        limits(writer) != limits(found.calls.back()))
      return std::nullopt;
    if (std::find(found.calls.begin(), found.calls.end(), writer) != found.calls.end()) return writer;
    std::vector<size_t> calls = found.calls;
    calls.insert(std::upper_bound(calls.begin(), calls.end(), writer), writer);
    if (!planner_.flow().why_not_inside({value, writer, reader}, found.calls).empty()) return std::nullopt;
    found.calls = std::move(calls);
    return writer;
  }

  void end_with(size_t product) {
    const std::vector<BufferId>& args = planner_.args_of(product);
    for (size_t p = 0; p + 1 < args.size(); ++p) {
      auto found = with_softmax(product, p);
      if (!found) continue;
      FoundChain chain = chain_of(*found);
      GpuRuleResult answer = gpu_attention(*chain.program, chain.context, *limits(product));
      if (auto* code = std::get_if<LoopProgram>(&answer)) {
        for (const SymbolRange& symbol : chain.context.symbols) code->symbols.push_back(symbol.var);
        return planner_.join(chain, std::move(*code));
      }
      planner_.refuse(kGpuAttention, chain.calls.front(), product, std::get<Declined>(answer).reason);
    }
  }

  // Parameter `p` of the product is a softmax: exponentials that are divided by their sums before they are multiplied.
  std::optional<Found> with_softmax(size_t product, size_t p) {
    Found found;
    found.calls = {product};
    found.product = member_of(product);
    const auto quotient = writer_inside(found.product.args[p], product, found);
    if (!quotient) return std::nullopt;
    auto scaled = scale_afterwards(*found.product.program, p, *definition(*quotient));
    if (!scaled) return std::nullopt;
    const std::vector<BufferId>& divided = planner_.args_of(*quotient);
    const BufferId numerators = divided[scaled->values], total = divided[scaled->factors];
    programs_.push_back(std::move(scaled->product));
    found.product.program = &programs_.back();
    found.product.args[p] = numerators;
    found.product.args.insert(found.product.args.end() - 1, total);
    const auto sum = writer_inside(total, *quotient, found);
    if (!sum || !sums(definition(*sum))) return std::nullopt;
    const auto exponential = writer_inside(numerators, *sum, found);
    if (!exponential || planner_.args_of(*exponential).size() != 3) return std::nullopt;
    found.sum = member_of(*sum), found.exponential = member_of(*exponential);
    for (size_t m = 0; m < 2; ++m) {
      Found whole = found;
      const BufferId scores = found.exponential.args[1 - m];
      const auto maximum = writer_inside(found.exponential.args[m], *exponential, whole);
      if (!maximum || planner_.args_of(*maximum)[0] != scores) continue;
      const auto first = writer_inside(scores, *maximum, whole);
      if (!first || !sums(definition(*first))) continue;
      whole.maximum = member_of(*maximum), whole.scores = member_of(*first);
      return whole;
    }
    return std::nullopt;
  }

  FoundChain chain_of(const Found& found) const {
    std::vector<NumberedMember> members;
    for (const Member* member : {&found.scores, &found.maximum, &found.exponential, &found.sum, &found.product})
      members.push_back({member->program, member->args});
    return planner_.define(kGpuAttention, found.calls, std::move(members), false,
                           planner_.kernel_of(found.calls.back()).program.name + "_attention");
  }

  const Program& program_;
  const std::function<const GpuLimits*(const Kernel&)>& limits_of_;
  const Target target_;
  const JoinOptions options_;
  JoinPlanner planner_;
  std::deque<TensorProgram> programs_;  // that members point to
};

}  // namespace

void join_attention_on_gpus(Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of,
                            Remarks* remarks) {
  JoinPlan plan = AttentionJoiner(program, limits_of).run();
  tell_refused(plan, program, remarks);
  apply_joins(program, std::move(plan));
}

}  // namespace tessera::inline schedule
