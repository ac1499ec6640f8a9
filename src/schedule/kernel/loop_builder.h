// Small helpers shared by the rules: nests of outer loops of which the first few become one parallel loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "loop/stmt.h"
#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

// What a search may ask for as `enough` of outer_nest: 1 is no parallel loop at all, the last all loops joined.
inline constexpr int64_t kJoinAll = INT64_MAX;
inline const std::vector<int64_t> kParallelChoices = {1, 8, 32, 256, kJoinAll};

// Loops over `loops`, outermost first; the leading ones are joined into one parallel loop until it has more than half
// of `enough` iterations (the last of them only in part, where a part is enough), the rest are serial. `body` receives
// the value of each loop's variable.
Stmt outer_nest(const std::vector<OutputLoop>& loops, int64_t enough, const std::function<Stmt(const VarMap&)>& body);

// `extent` copies of `body` under an unrolled loop named `name`.
Stmt unrolled(const std::string& name, int64_t begin, int64_t extent, const std::function<Stmt(const Var&)>& body);
Stmt vectorized(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body);

}  // namespace tessera::inline schedule
