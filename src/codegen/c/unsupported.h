// What a program may have that C has no form for.
#pragma once

#include "program/program.h"

namespace tessera::inline c_codegen {

// UserError TSR-5130 that names all of it, by the model's nodes.
void refuse_unsupported(const Program& program);

}  // namespace tessera::inline c_codegen
