#include "schedule/gpu/gpu_rules.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::inline schedule {
namespace {

constexpr std::array kGpuRules = {
    GpuRule{"gpu_mma", "products of bf16 and f16 on tensor cores", Numerics::kRounding, gpu_mma},
    GpuRule{"gpu_tile", "products in tiles: operands in shared memory, sums in registers", Numerics::kRounding,
            gpu_tile},
    GpuRule{"gpu_columns", "reductions across neighbours in memory by groups of threads", Numerics::kRounding,
            gpu_columns},
    GpuRule{"gpu_reduce", "long reductions by blocks of threads, a tree of partial results", Numerics::kRounding,
            gpu_reduce},
    GpuRule{"gpu_turn", "operands that are turned: tiles in shared memory", Numerics::kExact, gpu_turn},
    GpuRule{"gpu_map", "a thread for each element of the output", Numerics::kExact, gpu_map},
};

bool rounds(const TensorProgram& kernel) {
  const std::vector<const Stage*> reductions = kernel.reductions();
  return std::any_of(reductions.begin(), reductions.end(), [](const Stage* reduction) {
    return is_float(reduction->out->dtype) &&
           (reduction->body.combiner == Combiner::kSum || reduction->body.combiner == Combiner::kProd);
  });
}

}  // namespace

std::span<const GpuRule> gpu_rules() { return kGpuRules; }

std::variant<GpuAnswer, Declined> schedule_for_gpu(const TensorProgram& kernel, const GpuLimits& limits,
                                                   Numerics loosest) {
  std::vector<std::string> refused;
  Declined last;
  for (const GpuRule& rule : kGpuRules) {
    if (rule.numerics > loosest && rounds(kernel)) {
      last = {"--numerics leaves it out"};
    } else {
      GpuRuleResult answer = rule.apply(kernel, limits);
      if (auto* program = std::get_if<LoopProgram>(&answer))
        return GpuAnswer{rule.name, std::move(*program), std::move(refused)};
      last = std::move(std::get<Declined>(answer));
    }
    refused.push_back(std::string(rule.name) + ": " + last.reason);
  }
  return last;
}

}  // namespace tessera::inline schedule
