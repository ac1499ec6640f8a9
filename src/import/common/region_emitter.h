// Adds nodes to the graph of a region, for the operator whose node has it, and which its errors name.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "import/common/emitter.h"

namespace tessera::inline import_common {

class RegionEmitter final : public Emitter {
 public:
  // `id`: of the reader's error for an operator that is not as it should be.
  RegionEmitter(EmitState& state, const Emitter& around, std::string id)
      : Emitter(state), type_(around.op_type()), label_(around.label()), id_(std::move(id)) {}
  const std::string& op_type() const override { return type_; }
  const std::string& label() const override { return label_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override {
    return {id_, fmt::format("{}: {}", type_, found), label_, legal, hint};
  }

 private:
  const std::string type_, label_, id_;
};

}  // namespace tessera::inline import_common
