#include "loop_passes/pass.h"

#include <array>

#include "loop_passes/byte_rounding.h"
#include "loop_passes/expand_math.h"
#include "loop_passes/pack_bytes.h"
#include "loop_passes/partition_loops.h"
#include "loop_passes/simplify_loops.h"

namespace tessera::inline loop_passes {
namespace {

constexpr LoopPass kSimplify{"simplify_loops",
                             "Simplifies indices and conditions and drops loops and branches that do nothing.", 1,
                             Numerics::kExact, simplify_loops};
constexpr LoopPass kPartition{"partition_loops",
                              "Splits loops where conditions change, so that they leave the inner loops.",
                              2,
                              Numerics::kExact,
                              partition_loops,
                              false};
constexpr LoopPass kByteRounding{"byte_rounding",
                                 "Rounds numbers to bytes by an addition, and keeps floats that bytes are read as.", 1,
                                 Numerics::kExact, byte_rounding};
constexpr LoopPass kPackBytes{"pack_bytes",
                              "Packs numbers that become bytes several vectors at a time, where the machine does so.",
                              2,
                              Numerics::kExact,
                              pack_bytes,
                              false};
// What code generation relies on, at every level.
constexpr LoopPass kExpandMath{
    "expand_math", "Writes mathematical functions as polynomials.", 0, Numerics::kRounding,
    [](const LoopProgram& program, const LoopPassContext& context) { return expand_math(program, &context.target); }};

constexpr std::array kPipeline = {kSimplify, kPartition, kByteRounding, kPackBytes, kExpandMath};

}  // namespace

std::span<const LoopPass> loop_pipeline() { return kPipeline; }

const LoopPass* find_loop_pass(std::string_view name) {
  for (const LoopPass& pass : kPipeline)
    if (pass.name == name) return &pass;
  return nullptr;
}

}  // namespace tessera::inline loop_passes
