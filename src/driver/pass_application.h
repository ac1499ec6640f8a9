// One change that a compile may leave out: what --pass-limit counts, and what bisect searches with.
//
// An application is an optional graph or program pass on the whole model, a schedule rule on one kernel that it takes,
// an optional loop pass on one kernel, or the optimisation of the generated code. What later steps rely on (passes that
// -O0 runs, lowering, memory planning) is always done and does not count. The first applications are the same whatever
// the limit is.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "graph/graph.h"
#include "loop/stmt.h"
#include "program/program.h"

namespace tessera::inline driver {

struct PassApplication {
  enum class Kind : uint8_t { kGraphPass, kProgramPass, kScheduleRule, kLoopPass, kCodegen };
  Kind kind = Kind::kGraphPass;
  std::string pass;
  std::string nodes;   // of the kernel; empty for the whole model
  int64_t number = 0;  // from 1 on, in the order of the compile; set by whoever counts them
};

// "graph pass", "schedule rule", ...
const char* application_kind_name(PassApplication::Kind kind);

// What an application changes: never null.
using ChangedIr = std::variant<const Graph*, const Program*, const LoopProgram*>;
// As text, without the values of constants.
std::string text_of(const ChangedIr& ir);

}  // namespace tessera::inline driver
