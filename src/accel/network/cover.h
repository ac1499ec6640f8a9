// What is computed of each finished sum, as instructions that compute vectors of vectors: the fewest that cover the
// expression, and the one that stores the result.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "accel/network/contraction.h"
#include "accel/network/unit_roles.h"

namespace tessera::inline network {

// What an instruction reads.
struct CoverOperand {
  enum class Kind : uint8_t {
    kSum,     // the finished sum
    kStep,    // what an earlier step gave
    kStream,  // a parameter, an element for each of the output
    kRow      // numbers that are known: one for each channel
  };
  Kind kind = Kind::kSum;
  size_t number = 0;  // of the step, the parameter, the row
};

struct CoverStep {
  const UnitMap* map = nullptr;
  std::vector<CoverOperand> operands;  // in the order of the kernel's parameters
  std::vector<int64_t> immediates;     // in the order of its symbols
};

// A number for each channel: of a parameter along the axis of channels, or the same for all.
struct CoverRow {
  Expr value;  // a constant, or a load
  DType dtype = DType::kF32;
  size_t param = SIZE_MAX, dim = SIZE_MAX;  // of a load: the parameter, and which of its dimensions is the channels'
};

struct Cover {
  std::vector<CoverStep> steps;
  CoverStep store;
  std::vector<CoverRow> rows;
  std::vector<size_t> streams;  // parameters
};

std::variant<Cover, NotOffloaded> cover(const UnitRoles& roles, const Contraction& of);

}  // namespace tessera::inline network
