// What Adjoint::fail throws.
#pragma once

#include "support/error.h"

namespace tessera::inline graph {

// An operator has no gradient, with these attributes or at all: error TSR-2072. Whoever puts gradients together gathers
// these, to name all such operators at once.
class NoGradientError : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace tessera::inline graph
