// Kernels of one's own, or of a library's, in a compiled model: a declaration (loop/intrinsic_text.h, with `call`)
// whose pattern is a whole kernel, as plain loops, and the C function that stands for it.
#pragma once

#include <set>
#include <string>

#include "loop/intrinsic.h"
#include "program/program.h"
#include "support/remarks.h"
#include "target/target.h"
#include "types/numerics.h"

namespace tessera::inline driver {

// Kernels that match a declaration call its function, and lose their definition, so that no rule takes them. What a
// group computes behind a reduction is a loop of its own behind the call. The first declaration that matches is taken.
//
// Where code for the target runs here, both ways are run in turn on random numbers: the function is kept only where it
// is faster by 3 % (always, where the declaration says `use always`), and must give the kernel's results to 1e-3 of the
// largest (UserError TSR-3133). For other targets only `use always` is taken. `remarks` (may be null) is told, and each
// kernel's `refused`.
void use_declared_kernels(Program& program, const Intrinsics& declared, const Target& target, int opt_level,
                          const std::set<std::string>& disabled, const RuleNumerics& numerics, Remarks* remarks);

}  // namespace tessera::inline driver
