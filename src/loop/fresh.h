// Copies of statements for programs in which a piece appears more than once: every variable and allocation has one
// definition in a program, so a second copy defines new ones.
#pragma once

#include "loop/stmt.h"

namespace tessera::inline loop {

// `s` with new loop variables and allocations of the same names for all that it defines.
Stmt with_fresh_definitions(const Stmt& s);

}  // namespace tessera::inline loop
