// Reads loop programs in the form of loop/printer.h. Problems of the text are UserErrors TSR-31xx (or the reader's
// TSR-3001) at file:line:column; what is read is well typed, but only verify.h says whether it is a legal program.
#pragma once

#include <string_view>
#include <vector>

#include "loop/intrinsic.h"
#include "loop/stmt.h"
#include "support/text_reader.h"

namespace tessera::inline loop {

// All kernels of a text. `declared`: intrinsics besides those of the table.
std::vector<LoopProgram> parse_loop_programs(std::string_view text, std::string_view file = "<text>",
                                             const Intrinsics& declared = {});
// A text with exactly one kernel.
LoopProgram parse_loop_program(std::string_view text, std::string_view file = "<text>");
// The kernel that is next, for texts that contain kernels among other things. Symbols of the names in `symbols` are
// those of the text around it.
LoopProgram parse_kernel(TextReader& reader, const std::vector<Var>& symbols = {});

}  // namespace tessera::inline loop
