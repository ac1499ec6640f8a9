// Reads programs in the form of program/printer.h. Problems of the text are UserErrors TSR-32xx (TSR-30xx and TSR-31xx
// from the parts it shares with graphs and kernels) at file:line:column; verify.h says whether the program is legal.
#pragma once

#include <string_view>

#include "program/program.h"

namespace tessera::inline program {

Program parse_program(std::string_view text, std::string_view file = "<text>");

}  // namespace tessera::inline program
