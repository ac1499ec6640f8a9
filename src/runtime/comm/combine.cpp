#include "runtime/comm/combine.h"

#include "abi/module_abi.h"

namespace tessera {
namespace {

// `T` as numbers are stored, `Wide` as they are added: without a sign where they wrap.
template <typename T, typename Wide>
void combine_as(uint32_t combiner, void* to, const void* from, uint64_t count) {
  auto* a = static_cast<T*>(to);
  const auto* b = static_cast<const T*>(from);
  switch (combiner) {
    case TSR_COMBINE_SUM:
      for (uint64_t i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<Wide>(a[i]) + static_cast<Wide>(b[i]));
      break;
    case TSR_COMBINE_PROD:
      for (uint64_t i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<Wide>(a[i]) * static_cast<Wide>(b[i]));
      break;
    case TSR_COMBINE_MIN:
      for (uint64_t i = 0; i < count; ++i) a[i] = b[i] < a[i] ? b[i] : a[i];
      break;
    default:
      for (uint64_t i = 0; i < count; ++i) a[i] = b[i] > a[i] ? b[i] : a[i];
  }
}

using Combine = void (*)(uint32_t, void*, const void*, uint64_t);

Combine function_for(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return combine_as<double, double>;
    case TSR_F32: return combine_as<float, float>;
    case TSR_I64: return combine_as<int64_t, uint64_t>;
    case TSR_I32: return combine_as<int32_t, uint32_t>;
    case TSR_I16: return combine_as<int16_t, uint32_t>;
    case TSR_I8: return combine_as<int8_t, uint32_t>;
    case TSR_U64: return combine_as<uint64_t, uint64_t>;
    case TSR_U32: return combine_as<uint32_t, uint32_t>;
    case TSR_U16: return combine_as<uint16_t, uint32_t>;
    case TSR_U8: return combine_as<uint8_t, uint32_t>;
    default: return nullptr;
  }
}

}  // namespace

bool can_combine(const tsr_collective_row& row) {
  return row.combiner == TSR_COMBINE_NONE || function_for(row.dtype) != nullptr;
}

void combine(uint32_t combiner, uint32_t dtype, void* to, const void* from, uint64_t count) {
  function_for(dtype)(combiner, to, from, count);
}

}  // namespace tessera
