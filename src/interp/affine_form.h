// Ranges and affine forms of index values over the loop interpreter's slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace tessera::inline interp {

// Inclusive range of an i64 value; empty ends are unknown. Deliberately its own few lines instead of
// arith/simplify.h: the oracle does not depend on the code that it checks.
struct SlotRange {
  std::optional<int64_t> lo, hi;
};

inline SlotRange add(const SlotRange& a, const SlotRange& b) {
  SlotRange r;
  int64_t v = 0;
  if (a.lo && b.lo && !__builtin_add_overflow(*a.lo, *b.lo, &v)) r.lo = v;
  if (a.hi && b.hi && !__builtin_add_overflow(*a.hi, *b.hi, &v)) r.hi = v;
  return r.lo && r.hi ? r : SlotRange{};  // a sum that may wrap has no bounds
}

inline SlotRange scale(const SlotRange& a, int64_t k) {
  if (!a.lo || !a.hi) return {};
  int64_t lo = 0;
  int64_t hi = 0;
  if (__builtin_mul_overflow(*a.lo, k, &lo) || __builtin_mul_overflow(*a.hi, k, &hi)) return {};
  return {std::min(lo, hi), std::max(lo, hi)};
}

// constant + sum of coefficient * slot (i64, wrapping).
struct AffineForm {
  int64_t constant = 0;
  std::map<int32_t, int64_t> terms;

  void add(const AffineForm& other, int64_t factor) {
    constant = multiply_add(constant, other.constant, factor);
    for (const auto& [slot, k] : other.terms) {
      const auto it = terms.try_emplace(slot, 0).first;
      it->second = multiply_add(it->second, k, factor);
      if (it->second == 0) terms.erase(it);
    }
  }
  static int64_t multiply_add(int64_t sum, int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  bool operator<(const AffineForm& other) const {
    return constant != other.constant ? constant < other.constant : terms < other.terms;
  }
};

}  // namespace tessera::inline interp
