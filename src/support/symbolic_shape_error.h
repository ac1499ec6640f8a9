// What is wrong with a model of symbolic sizes, and may be right at fixed ones.
#pragma once

#include "support/error.h"

namespace tessera::inline support {

// A UserError about shapes with symbols: an operator whose meaning for all their values is not proved, or that wants
// numbers. Whoever can compile the model at fixed sizes tries that; any other UserError is the user's.
class SymbolicShapeError : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace tessera::inline support
