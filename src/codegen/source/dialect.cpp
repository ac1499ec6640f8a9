#include "codegen/source/dialect.h"

namespace tessera::inline source_codegen {

const Dialect& c99() {
  static constexpr Dialect kC99{
      .name = "C99", .function = "static inline", .kernel = "static void", .restrict_word = "restrict "};
  return kC99;
}

}  // namespace tessera::inline source_codegen
