#include "ops/blocked_formats.h"

#include <algorithm>
#include <array>

namespace tessera::inline ops {
namespace {

constexpr int64_t kBlock = 32, kSuperblock = 256;

Expr number(int64_t value) { return const_int(DType::kI32, value); }
Expr bits_and(Expr a, int64_t mask) { return binary(BinaryOp::kAnd, std::move(a), number(mask)); }
Expr bits_or(Expr a, Expr b) { return binary(BinaryOp::kOr, std::move(a), std::move(b)); }
Expr left(Expr a, int64_t bits) { return binary(BinaryOp::kShl, std::move(a), number(bits)); }
Expr right(Expr a, Expr bits) { return binary(BinaryOp::kShr, std::move(a), cast(DType::kI32, std::move(bits))); }
Expr as_float(Expr a) { return cast(DType::kF32, std::move(a)); }

// The f16 at byte `at`.
Expr half(const BlockByte& byte, int64_t at) {
  const Expr bits = bits_or(byte(at), left(byte(at + 1), 8));
  return as_float(bitcast(DType::kF16, cast(DType::kU16, bits)));
}

// Element i of 32 nibbles from byte `at` on: the low halves of 16 bytes, then their high ones.
Expr nibble(const BlockByte& byte, int64_t at, const Expr& i) {
  const Expr pair = byte(floormod(i, kBlock / 2) + Expr(at));
  return bits_and(right(pair, floordiv(i, kBlock / 2) * Expr(4)), 15);
}

// The same with a fifth bit, of 32 in the four bytes from `high` on.
Expr five_bits(const BlockByte& byte, int64_t high, int64_t at, const Expr& i) {
  const Expr bit = bits_and(right(byte(floordiv(i, 8) + Expr(high)), floormod(i, 8)), 1);
  return bits_or(nibble(byte, at, i), left(bit, 4));
}

// Scales of 11 or 17 bits times numbers of at most 5 are exact in f32, so these multiply-adds are what a product and a
// sum, each rounded, would be.
Expr q4_0(const BlockByte& byte, const Expr& i) { return half(byte, 0) * as_float(nibble(byte, 2, i) - number(8)); }
Expr q4_1(const BlockByte& byte, const Expr& i) {
  return fma(half(byte, 0), as_float(nibble(byte, 4, i)), half(byte, 2));
}
Expr q5_0(const BlockByte& byte, const Expr& i) {
  return half(byte, 0) * as_float(five_bits(byte, 2, 6, i) - number(16));
}
Expr q5_1(const BlockByte& byte, const Expr& i) {
  return fma(half(byte, 0), as_float(five_bits(byte, 4, 8, i)), half(byte, 2));
}
Expr signed_byte(const Expr& byte) { return cast(DType::kI32, bitcast(DType::kI8, cast(DType::kU8, byte))); }
Expr q8_0(const BlockByte& byte, const Expr& i) { return as_float(signed_byte(byte(i + Expr(2)))) * half(byte, 0); }

// The factors of sub-block s, of which a superblock has 8, each in 6 bits of the 12 bytes from 4 on: of the elements,
// and of what is taken away.
Expr six_bit_scale(const BlockByte& byte, const Expr& s) {
  const Expr behind = bits_or(bits_and(byte(s + Expr(8)), 15), left(right(byte(s), 6), 4));
  return select(s < Expr(4), bits_and(byte(s + Expr(4)), 63), behind);
}
Expr six_bit_least(const BlockByte& byte, const Expr& s) {
  const Expr behind = bits_or(right(byte(s + Expr(8)), 4), left(right(byte(s + Expr(4)), 6), 4));
  return select(s < Expr(4), bits_and(byte(s + Expr(8)), 63), behind);
}

// Q4_K from byte 16 on; with `high`, where the fifth bits are, Q5_K.
Expr q45_k(const BlockByte& byte, int64_t high, int64_t at, const Expr& i) {
  const Expr s = floordiv(i, kBlock), j = floormod(i, kBlock);
  const Expr pair = byte(floordiv(s, 2) * Expr(kBlock) + j + Expr(at));
  Expr q = bits_and(right(pair, floormod(s, 2) * Expr(4)), 15);
  if (high > 0) q = bits_or(q, left(bits_and(right(byte(j + Expr(high)), s), 1), 4));
  const Expr factor = half(byte, 0) * as_float(six_bit_scale(byte, s));
  return fma(factor, as_float(q), -(half(byte, 2) * as_float(six_bit_least(byte, s))));
}
Expr q4_k(const BlockByte& byte, const Expr& i) { return q45_k(byte, 0, 16, i); }
Expr q5_k(const BlockByte& byte, const Expr& i) { return q45_k(byte, 16, 48, i); }

// 128 bytes of low halves, 64 of upper pairs of bits, 16 scales, the f16 that all share.
Expr q6_k(const BlockByte& byte, const Expr& i) {
  const Expr part = floordiv(i, 128), quarter = floordiv(floormod(i, 128), kBlock), j = floormod(i, kBlock);
  const Expr pair = byte(part * Expr(64) + floormod(quarter, 2) * Expr(kBlock) + j);
  const Expr low = bits_and(right(pair, floordiv(quarter, 2) * Expr(4)), 15);
  const Expr high = bits_and(right(byte(part * Expr(kBlock) + j + Expr(128)), quarter * Expr(2)), 3);
  const Expr q = bits_or(low, left(high, 4)) - number(32);
  return half(byte, 208) * as_float(signed_byte(byte(floordiv(i, 16) + Expr(192)))) * as_float(q);
}

// Floats of 16 bits: blocks of one element.
Expr f16(const BlockByte& byte, const Expr&) { return half(byte, 0); }
Expr bf16(const BlockByte& byte, const Expr&) {
  const Expr bits = bits_or(byte(0), left(byte(1), 8));
  return bitcast(DType::kF32, left(bits, 16));
}

constexpr std::array kFormats = {
    BlockedFormat{"f16", 1, 2, f16},
    BlockedFormat{"bf16", 1, 2, bf16},
    BlockedFormat{"q4_0", kBlock, 18, q4_0},
    BlockedFormat{"q4_1", kBlock, 20, q4_1},
    BlockedFormat{"q5_0", kBlock, 22, q5_0},
    BlockedFormat{"q5_1", kBlock, 24, q5_1},
    BlockedFormat{"q8_0", kBlock, 34, q8_0},
    BlockedFormat{"q4_k", kSuperblock, 144, q4_k},
    BlockedFormat{"q5_k", kSuperblock, 176, q5_k},
    BlockedFormat{"q6_k", kSuperblock, 210, q6_k},
};

}  // namespace

std::span<const BlockedFormat> blocked_formats() { return kFormats; }

const BlockedFormat* find_blocked_format(std::string_view name) {
  const auto it =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const BlockedFormat& format) { return format.name == name; });
  return it == kFormats.end() ? nullptr : &*it;
}

std::vector<std::string_view> blocked_format_names() {
  std::vector<std::string_view> names;
  for (const BlockedFormat& format : kFormats) names.push_back(format.name);
  return names;
}

}  // namespace tessera::inline ops
