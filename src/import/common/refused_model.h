// Why a model is not read, for those who decide on it.
#pragma once

#include <cstdint>
#include <utility>

#include "support/error.h"

namespace tessera::inline import_common {

class RefusedModel : public UserError {
 public:
  enum class Reason : uint8_t {
    kOpenSizes,    // it leaves sizes open that no option gives; with values for them it may be read
    kUnsupported,  // it is a model, and uses what is not supported: operators, types, opsets
  };

  RefusedModel(Reason reason, Diagnostic diagnostic) : UserError(std::move(diagnostic)), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

}  // namespace tessera::inline import_common
