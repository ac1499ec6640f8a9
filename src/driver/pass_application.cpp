#include "driver/pass_application.h"

#include "graph/printer.h"
#include "loop/printer.h"
#include "program/printer.h"

namespace tessera::inline driver {

namespace {

std::string printed(const Graph& graph) { return print(graph, {.elide_constants = true}); }
std::string printed(const Program& program) { return print(program, {.elide_constants = true}); }
std::string printed(const LoopProgram& loops) { return print(loops); }

}  // namespace

const char* application_kind_name(PassApplication::Kind kind) {
  switch (kind) {
    case PassApplication::Kind::kGraphPass: return "graph pass";
    case PassApplication::Kind::kProgramPass: return "program pass";
    case PassApplication::Kind::kScheduleRule: return "schedule rule";
    case PassApplication::Kind::kLoopPass: return "loop pass";
    case PassApplication::Kind::kCodegen: return "code generation";
  }
  return "?";
}

std::string text_of(const ChangedIr& ir) {
  return std::visit([](const auto* level) { return printed(*level); }, ir);
}

}  // namespace tessera::inline driver
