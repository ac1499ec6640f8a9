// Element types. Sub-byte elements are packed lowest bits first, two (4-bit) or four (2-bit) to a byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::inline types {

// The numbers are those of tsr_dtype in abi/module_abi.h.
enum class DType : uint8_t {
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kF8E4M3FN = 5,
  kF8E4M3FNUZ = 6,
  kF8E5M2 = 7,
  kF8E5M2FNUZ = 8,
  kF8E8M0 = 9,
  kF4E2M1 = 10,
  kI64 = 16,
  kI32 = 17,
  kI16 = 18,
  kI8 = 19,
  kI4 = 20,
  kI2 = 21,
  kU64 = 24,
  kU32 = 25,
  kU16 = 26,
  kU8 = 27,
  kU4 = 28,
  kU2 = 29,
  kBool = 32,
  kString = 33,
};

std::string_view dtype_name(DType dtype);  // "f32", "i64", "bool", ...
std::optional<DType> parse_dtype(std::string_view name);
int dtype_bits(DType dtype);                      // bool: 8; string: 0
int64_t dtype_bytes(DType dtype, int64_t count);  // bytes of `count` packed elements
bool is_float(DType dtype);                       // f64 down to f4
bool is_signed_int(DType dtype);
bool is_unsigned_int(DType dtype);
bool is_int(DType dtype);  // signed or unsigned, not bool

}  // namespace tessera::inline types
