// How far a step of the compiler may change the bits of what a model computes, and how far a compile lets its steps go.
// docs/numerics.md says what that means for a user.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::inline types {

// What stands in the row of every pass and rule, from the strictest on. NaN counts as equal to NaN.
enum class Numerics : uint8_t {
  kExact,      // equal bit for bit
  kZeroSign,   // equal numbers; a zero may change its sign
  kRounding,   // the same algorithm, rounded otherwise: sums in another order, one rounding for two, folded factors.
               // Floats differ by a few units in the last place of the largest operand; integers are equal.
  kAlgorithm,  // another algorithm: minimal filtering, products of pieces, lower precision
};

constexpr std::string_view numerics_name(Numerics numerics) {
  constexpr std::string_view kNames[] = {"exact", "sign of zero", "rounding", "algorithm"};
  return kNames[static_cast<int>(numerics)];
}

// What a compile is asked for.
enum class NumericsMode : uint8_t {
  kDefault,        // every step
  kStrict,         // exact steps alone: sums in the order of the definition, no multiply-adds that it does not have
  kDeterministic,  // the same bits on every machine, for every number of threads
};

// The loosest steps that a mode takes. Another algorithm gives the same bits everywhere where one machine chooses it.
constexpr Numerics loosest(NumericsMode mode) {
  return mode == NumericsMode::kStrict ? Numerics::kExact : Numerics::kAlgorithm;
}

// How products of f32 are computed (`--fp32`): by multiply-adds, or as products of three pieces of bf16.
enum class Fp32Products : uint8_t {
  kFma,
  kPieces,
  kPiecesIfFaster,  // where pieces are expected to be faster
};

// What a compile lets its schedule rules do to numbers.
struct RuleNumerics {
  Numerics loosest = Numerics::kAlgorithm;
  Fp32Products fp32 = Fp32Products::kFma;
};

}  // namespace tessera::inline types
