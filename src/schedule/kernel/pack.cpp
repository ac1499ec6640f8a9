#include "schedule/kernel/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "schedule/kernel/winograd_matrices.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

template <typename T>
void copy_dims(const PackSpec& spec, size_t dim, const T* source, T*& out, std::vector<int64_t>& place) {
  const PackDim& d = spec.dims[dim];
  const auto axis = static_cast<size_t>(d.axis);
  const int64_t start = place[axis];
  if (dim + 1 == spec.dims.size()) {
    // The innermost dimension: one axis moves, the others are fixed.
    int64_t base = spec.offset;
    bool inside = true;
    for (size_t a = 0; a < spec.axes.size(); ++a) {
      if (a == axis) continue;
      inside &= place[a] >= 0 && place[a] < spec.axes[a].extent;
      base += place[a] * spec.axes[a].stride;
    }
    for (int64_t i = 0; i < d.extent; ++i) {
      const int64_t p = start + i * d.multiplier;
      *out++ = inside && p >= 0 && p < spec.axes[axis].extent ? source[base + p * spec.axes[axis].stride] : T{};
    }
    return;
  }
  for (int64_t i = 0; i < d.extent; ++i) {
    place[axis] = start + i * d.multiplier;
    copy_dims(spec, dim + 1, source, out, place);
  }
  place[axis] = start;
}

template <typename T>
void pack_as(const Tensor& source, const std::vector<PackSpec>& parts, Tensor& result) {
  T* out = result.as_mutable<T>().data();
  for (const PackSpec& spec : parts) {
    check(!spec.dims.empty(), "packing without dimensions");
    std::vector<int64_t> place(spec.axes.size(), 0);
    copy_dims(spec, 0, source.as<T>().data(), out, place);
  }
}

constexpr float kLeastWeight = 0x1p-60f, kGreatestWeight = 0x1p60f;

uint16_t bf16_bits(float value) { return static_cast<uint16_t>(encode_float(DType::kBF16, value)); }

// x = x1 + x2 + ...: each piece is what the ones before leave, rounded.
Tensor cut_into_pieces(const Tensor& source, int64_t pieces) {
  const auto values = source.as<float>();
  Tensor result(DType::kBF16, {pieces, source.num_elements()});
  const auto bits = result.as_mutable<uint16_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    float rest = values[i];
    for (size_t p = 0; p < static_cast<size_t>(pieces); ++p) {
      const uint16_t piece = bf16_bits(rest);
      bits[p * values.size() + i] = piece;
      rest -= static_cast<float>(decode_float(DType::kBF16, piece));
    }
  }
  return result;
}

// The magnitudes of the other factor, powers of two: it and its products are at least 2^-100 (their last bits, 2^-24 of
// that, are then no denormals), and 2^26 products add to less than 2^127.
Tensor with_limits(const Tensor& packed, const Tensor& weights) {
  float least = kGreatestWeight, greatest = kLeastWeight;
  for (const float value : weights.as<float>())
    if (value != 0) {
      least = std::min(least, std::abs(value));
      greatest = std::max(greatest, std::abs(value));
    }
  const auto count = packed.as<uint16_t>().size();
  Tensor result(DType::kBF16, {static_cast<int64_t>(count) + 2});
  const auto bits = result.as_mutable<uint16_t>();
  std::copy_n(packed.as<uint16_t>().begin(), count, bits.begin());
  bits[count] = bf16_bits(std::ldexp(1.0f, std::max(-100, -100 - std::ilogb(least))));
  bits[count + 1] = bf16_bits(std::ldexp(1.0f, std::min(100, 100 - std::ilogb(greatest))));
  return result;
}

int64_t total_elements(const std::vector<PackSpec>& parts) {
  int64_t count = 0;
  for (const PackSpec& part : parts) count += part.num_elements();
  return count;
}

}  // namespace

int64_t PackSpec::num_elements() const {
  int64_t count = 1;
  for (const PackDim& dim : dims) count *= dim.extent;
  return count;
}

int64_t PackedParam::num_elements() const { return total_elements(parts) + (pieces != 0 ? 2 : 0); }

std::string packing_problem(const Tensor& source, const PackedParam& packed) {
  if (packed.pieces == 0) return "";
  for (const float value : source.as<float>())
    if (value != 0 && !(std::abs(value) >= kLeastWeight && std::abs(value) <= kGreatestWeight))
      return fmt::format("a weight is {}, and the pieces of numbers beyond 2^-60 and 2^60 may be lost", value);
  return "";
}

Tensor pack(const Tensor& source, const PackedParam& packed) {
  if (const auto& tile = packed.winograd; tile.rows != 0) {
    PackedParam plain = packed;
    plain.winograd = {};
    return pack(transform_filters(winograd_matrices(tile.rows, tile.height),
                                  winograd_matrices(tile.columns, tile.width), source),
                plain);
  }
  if (packed.pieces != 0) {
    PackedParam plain = packed;
    plain.pieces = 0;
    return with_limits(pack(cut_into_pieces(source, packed.pieces), plain), source);
  }
  const std::vector<PackSpec>& parts = packed.parts;
  Tensor result(source.dtype(), {total_elements(parts)});
  switch (dtype_bits(source.dtype())) {
    case 64: pack_as<uint64_t>(source, parts, result); break;
    case 32: pack_as<uint32_t>(source, parts, result); break;
    case 16: pack_as<uint16_t>(source, parts, result); break;
    case 8: pack_as<uint8_t>(source, parts, result); break;
    default: throw InternalError("packing of sub-byte elements");
  }
  return result;
}

}  // namespace tessera::inline schedule
