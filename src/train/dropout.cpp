#include "train/dropout.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace tessera::inline train {
namespace {

// A bijection of 32 bits all of whose output bits depend on all input bits (Wellons, hash-prospector, 2018).
constexpr uint32_t kFirst = 0x21f0aaad, kSecond = 0xd35a2d97;
constexpr uint32_t kOfElements = 0x9e3779b9;  // between the two keys of a dropout

uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= kFirst;
  x ^= x >> 15;
  x *= kSecond;
  return x ^ (x >> 15);
}

struct Bits {
  const GraphOps& o;

  ValueId number(uint32_t value) const {
    Tensor tensor(DType::kU32, {});
    tensor.set_int(0, static_cast<int64_t>(value));
    return o.op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId exclusive_or(ValueId a, ValueId b) const { return o.op("bitwise_xor", {a, b}); }
  ValueId folded(ValueId x, uint32_t by) const { return exclusive_or(x, o.op("shift_right", {x, number(by)})); }
  ValueId mixed(ValueId x) const {
    x = o.mul(folded(x, 16), number(kFirst));
    x = o.mul(folded(x, 15), number(kSecond));
    return folded(x, 15);
  }
};

uint32_t key_of(uint64_t seed, int64_t which) {
  const uint32_t low = mixed(static_cast<uint32_t>(seed) ^ mixed(static_cast<uint32_t>(which)));
  return mixed(low ^ static_cast<uint32_t>(seed >> 32));
}

}  // namespace

uint32_t random_bits(uint64_t seed, int64_t step, int64_t which, uint32_t element) {
  const uint32_t first = mixed(key_of(seed, which) ^ static_cast<uint32_t>(step));
  const uint32_t second = mixed(first ^ kOfElements);
  return mixed(mixed(element ^ first) ^ second);
}

ValueId dropped(const GraphOps& o, ValueId x, double ratio, uint64_t seed, ValueId step, int64_t which) {
  check(ratio >= 0 && ratio <= 1, "a part of the elements");
  if (ratio == 0) return x;
  const Bits bits{o};
  const TensorType type = o.type(x);
  const ValueId first = bits.mixed(bits.exclusive_or(o.cast(step, DType::kU32), bits.number(key_of(seed, which))));
  const ValueId second = bits.mixed(bits.exclusive_or(first, bits.number(kOfElements)));
  // The element's place in row-major order, dimension by dimension.
  const std::vector<int64_t> dims = type.dims();
  ValueId place = -1;
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
    if (dims[d] == 1) continue;
    const ValueId along =
        o.op("iota", {}, {{"shape", type.shape}, {"axis", static_cast<int64_t>(d)}, {"dtype", DType::kU32}});
    const ValueId step_along = stride == 1 ? along : o.mul(along, bits.number(static_cast<uint32_t>(stride)));
    place = place < 0 ? step_along : o.add(place, step_along);
  }
  if (place < 0) place = bits.number(0);
  const ValueId random = bits.mixed(bits.exclusive_or(bits.mixed(bits.exclusive_or(place, first)), second));
  const double bound = std::ldexp(ratio, 32);
  const auto last = static_cast<uint32_t>(std::min(bound, std::ldexp(1, 32) - 1));
  const ValueId stays = o.op("ge", {random, bits.number(last)});
  const ValueId zero = o.scalar(0, type.dtype);
  if (ratio == 1) return o.mul(x, zero);
  return o.op("select", {stays, o.times(x, 1 / (1 - ratio)), zero});
}

}  // namespace tessera::inline train
