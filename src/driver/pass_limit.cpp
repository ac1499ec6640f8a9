#include "driver/pass_limit.h"

namespace tessera::inline driver {

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

}  // namespace tessera::inline driver
