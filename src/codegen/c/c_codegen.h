// A program as C99 source: for devices that have a C compiler and little else.
#pragma once

#include <string>

#include "program/program.h"

namespace tessera::inline c_codegen {

// NAME.h and NAME.c. The one function calls no allocator and opens no file; weights are constant arrays, and memory
// comes from the caller, whose size the header states. It wants C99's <math.h> where the model has a square root or
// rounds, and <string.h>. Sums are in the order of the loops and products are not contracted (where the compiler obeys
// the pragma), so that IEEE machines agree bit for bit.
struct CSource {
  std::string header, source;
};

struct COptions {
  std::string name;      // of the files; C identifiers begin with what is legal of it
  std::string producer;  // "tessera 0.1.0"
};

// REQUIRES: a planned program, mathematical functions expanded. UserError TSR-5130, which names all of what C has no
// form for: open sizes, steps of a flow, devices, element types of fewer than 8 bits or floats of 8.
CSource generate_c(const Program& program, const COptions& options);

}  // namespace tessera::inline c_codegen
