// What the primitives share: finding what a name means, refusing with words, and small questions about a program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/primitives/dependence.h"
#include "schedule/primitives/loop_tree.h"
#include "schedule/primitives/schedule.h"

namespace tessera::inline schedule {

// The ids of refusals (docs/errors.md).
namespace refusal {
inline constexpr char kArguments[] = "TSR-3403";
inline constexpr char kNoLoop[] = "TSR-3404";
inline constexpr char kNoStatement[] = "TSR-3405";
inline constexpr char kNameTaken[] = "TSR-3406";
inline constexpr char kStructure[] = "TSR-3407";
inline constexpr char kDependence[] = "TSR-3408";
inline constexpr char kRegion[] = "TSR-3409";
inline constexpr char kIntrinsic[] = "TSR-3410";
inline constexpr char kAxis[] = "TSR-3411";
inline constexpr char kRegister[] = "TSR-3412";
inline constexpr char kTooLarge[] = "TSR-3413";
}  // namespace refusal

[[noreturn]] void refuse(const char* id, std::string message, std::string legal = "", std::string hint = "");

// "a, b, c", or "none".
std::string listed(const std::vector<std::string>& names);

// Not as many names as results.
[[noreturn]] void refuse_names(size_t given, size_t results);
// The names for which `attempt` throws no UserError: choices that a refusal may offer.
Names accepted(const Names& names, const std::function<void(const std::string&)>& attempt);

// ---- names
StmtPath loop_named(const LoopProgram& program, const std::string& name);
BufferPtr buffer_named(const LoopProgram& program, const std::string& name);
// The one store that a name like "C", "C.init", "C.update" or "C#1" means.
StmtPath store_named(const LoopProgram& program, const std::string& name);
std::vector<StmtPath> stores_of(const LoopProgram& program, const Buffer* buffer);
// `as` filled up to `wishes`; each name of `as` must be new to the program and a word.
Names new_names(const LoopProgram& program, const Names& as, const Names& wishes);

// ---- dependences
// A pair of accesses that iterations of a loop must not be exchanged for.
struct Carried {
  Access first, second;
};
// Of the loop at the end of `path`: accesses of different iterations (with equal iterations of the loops around it)
// that may touch the same element. `allow_reduction`: not the updates of one reduction whose element the loop's
// variable does not choose.
std::optional<Carried> carried_dependence(const LoopProgram& program, const StmtPath& path, bool allow_reduction);
std::string describe(const Carried& dependence);
// Refuses when the loop `name` is concurrent or vectorized, and its iterations are not independent in `body`; `legal`
// is what would be.
void recheck_kind(const LoopProgram& program, const Stmt& body, const std::string& name, const char* primitive,
                  const char* legal);
// Names of the loops for which `test` holds.
std::vector<std::string> loops_where(const LoopProgram& program, const std::function<bool(const StmtPath&)>& test);

// ---- structure
bool contains(const Stmt& s, const std::function<bool(const Stmt&)>& test);
// REQUIRES: nothing of a tensorized nest is touched; refuses otherwise.
void refuse_tensorized(const StmtPath& path, const std::string& what);
Stmt with_kind(const Stmt& loop, ForKind kind);
// Refuses when the loop's range is loaded from what `by` (null: its body) stores to: the primitive would evaluate it
// again.
void refuse_changing_range(const Stmt& loop, const char* primitive, const Stmt& by = {});
// A loop like `loop` with another body.
Stmt with_body(const Stmt& loop, Stmt body);
// Indices, conditions and ranges simplified by what the loops around them say.
Stmt simplified(const Stmt& s, Bounds bounds);

}  // namespace tessera::inline schedule
