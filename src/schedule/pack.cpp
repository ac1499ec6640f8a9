#include "schedule/pack.h"

#include <cstring>

#include "schedule/rules/winograd_matrices.h"
#include "support/error.h"

namespace tessera {
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
      inside &= place[a] < spec.axes[a].extent;
      base += place[a] * spec.axes[a].stride;
    }
    for (int64_t i = 0; i < d.extent; ++i) {
      const int64_t p = start + i * d.multiplier;
      *out++ = inside && p < spec.axes[axis].extent ? source[base + p * spec.axes[axis].stride] : T{};
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

int64_t PackedParam::num_elements() const { return total_elements(parts); }

Tensor pack(const Tensor& source, const PackedParam& packed) {
  if (packed.winograd != 0) {
    PackedParam plain = packed;
    plain.winograd = 0;
    return pack(transform_filters(winograd_matrices(packed.winograd), source), plain);
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

}  // namespace tessera
