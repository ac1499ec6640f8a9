#include "types/dtype.h"

#include <array>

namespace tessera::inline types {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kRows = {
    Row{DType::kF64, "f64", 64},
    Row{DType::kF32, "f32", 32},
    Row{DType::kF16, "f16", 16},
    Row{DType::kBF16, "bf16", 16},
    Row{DType::kF8E4M3FN, "f8e4m3fn", 8},
    Row{DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8},
    Row{DType::kF8E5M2, "f8e5m2", 8},
    Row{DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8},
    Row{DType::kF8E8M0, "f8e8m0", 8},
    Row{DType::kF4E2M1, "f4e2m1", 4},
    Row{DType::kI64, "i64", 64},
    Row{DType::kI32, "i32", 32},
    Row{DType::kI16, "i16", 16},
    Row{DType::kI8, "i8", 8},
    Row{DType::kI4, "i4", 4},
    Row{DType::kI2, "i2", 2},
    Row{DType::kU64, "u64", 64},
    Row{DType::kU32, "u32", 32},
    Row{DType::kU16, "u16", 16},
    Row{DType::kU8, "u8", 8},
    Row{DType::kU4, "u4", 4},
    Row{DType::kU2, "u2", 2},
    Row{DType::kBool, "bool", 8},
    Row{DType::kString, "string", 0},
};

// Rows by the enumerator's number; asked for every element that an interpreter touches.
constexpr auto kRowOf = [] {
  std::array<uint8_t, 256> rows{};
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = kRows.size() - 1;
  for (size_t i = 0; i < kRows.size(); ++i) rows[static_cast<size_t>(kRows[i].dtype)] = static_cast<uint8_t>(i);
  return rows;
}();

const Row& row_of(DType dtype) { return kRows[kRowOf[static_cast<size_t>(dtype)]]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

int dtype_bits(DType dtype) { return row_of(dtype).bits; }

int64_t dtype_bytes(DType dtype, int64_t count) { return (count * dtype_bits(dtype) + 7) / 8; }

bool is_float(DType dtype) { return static_cast<int>(dtype) <= 10; }
bool is_signed_int(DType dtype) { return static_cast<int>(dtype) >= 16 && static_cast<int>(dtype) <= 21; }
bool is_unsigned_int(DType dtype) { return static_cast<int>(dtype) >= 24 && static_cast<int>(dtype) <= 29; }
bool is_int(DType dtype) { return is_signed_int(dtype) || is_unsigned_int(dtype); }

}  // namespace tessera::inline types
