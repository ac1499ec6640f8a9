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
// `body` behind a request for the cache line of an element (prefetching): a loop that runs once carries it.
Stmt with_prefetch(const BufferPtr& buffer, const Expr& element, Stmt body);
Stmt vectorized(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body);

// Stores each result at its place, one after the other. `at` gives the kernel's variables and what stands for finished
// reductions.
Stmt store_each(const LinearKernel& kernel, const VarMap& at, const VarMap& finished);
// Computes and stores the results at the places that `at` gives the kernel's variables; `lane` is the place in
// registers of as many lanes as with_results was told.
using StoreResults = std::function<Stmt(const VarMap& at, const Expr& lane)>;
// What `body` makes of it. All values are computed before the first one is stored, since a result may take the place of
// an operand of another one: of several results they wait in registers around `body`.
Stmt with_results(const LinearKernel& kernel, int64_t lanes, const std::function<Stmt(const StoreResults&)>& body);

// Computes and stores the results for one place of the output, reductions step by step.
Stmt one_element(const LinearKernel& kernel, const VarMap& at);

}  // namespace tessera::inline schedule
