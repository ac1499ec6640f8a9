// What a kernel's reductions are so far, one buffer for each of them: one step more, and partial results put together.
// An extremum and its place (te/extremum_place.h) change together, so that the place is stored first.
#pragma once

#include <functional>
#include <vector>

#include "loop/stmt.h"
#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

using Reductions = std::vector<LinearReduction>;
using Partials = std::vector<BufferPtr>;

// A buffer called `name` of `shape` for each.
Partials make_partials(const Reductions& reductions, const char* name, const Shape& shape,
                       MemoryScope scope = MemoryScope::kRegister);
Stmt alloc_all(const Partials& partials, Stmt body);

// What each is of no elements.
Stmt clear_partials(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index);
// One more element of each, at `at`.
Stmt add_element(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index,
                 const VarMap& at);
// What is in `from`, in addition.
Stmt add_partials(const Reductions& reductions, const Partials& into, const std::vector<Expr>& index,
                  const Partials& from, const std::vector<Expr>& from_index);
// The same of all lanes: `over_lanes` makes the vectorized loop of what is done for one. Loops in which one element is
// all that a lane changes are reduced in registers, so that places wait for the extrema of all lanes.
Stmt add_lanes(const Reductions& reductions, const Partials& into, const std::vector<Expr>& index, const Partials& from,
               const std::function<Stmt(const std::function<Stmt(const Var&)>&)>& over_lanes);

// What stands for the results in `at`.
void finish_partials(const Reductions& reductions, const Partials& partials, const std::vector<Expr>& index,
                     VarMap& at);

}  // namespace tessera::inline schedule
