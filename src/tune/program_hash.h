// A loop program as a number: equal for programs that are the same but for names, and as good as never for others. What
// tells two schedules of a kernel apart, much faster than their texts.
#pragma once

#include <cstdint>

#include "loop/stmt.h"

namespace tessera::inline tune {

uint64_t program_hash(const LoopProgram& program);

}  // namespace tessera::inline tune
