// What is wrong with a node: it breaks a rule of its operator.
#pragma once

#include "support/error.h"

namespace tessera::inline support {

// Operands or attributes of a node do not fit its operator. For other sizes they may.
class OperatorRuleError : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace tessera::inline support
