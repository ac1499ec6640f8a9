// What a loop pass is, and the one list of them.
#pragma once

#include <span>
#include <string_view>

#include "loop/stmt.h"
#include "target/target.h"
#include "types/numerics.h"

namespace tessera::inline loop_passes {

struct LoopPassContext {
  const Target& target;
  int opt_level = 3;  // 0..3
};

// A pure function of one kernel and the context. The result verifies, has the same name, parameters and symbols, and
// computes the same values, as far as its row says.
struct LoopPass {
  std::string_view name;
  std::string_view summary;  // one sentence
  int min_level;             // the lowest optimisation level that runs it
  Numerics numerics;
  LoopProgram (*run)(const LoopProgram& program, const LoopPassContext& ctx);
  bool suits_gpus = true;  // false: threads of a block would go different ways
};

// In execution order. A pass may stand in it more than once.
std::span<const LoopPass> loop_pipeline();
// By name; null when unknown.
const LoopPass* find_loop_pass(std::string_view name);

}  // namespace tessera::inline loop_passes
