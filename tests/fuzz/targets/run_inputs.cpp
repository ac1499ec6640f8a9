#include "run_inputs.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace tessera::fuzz {
namespace {

constexpr const char* kTexts[] = {"",
                                  "a",
                                  "b",
                                  "a,b",
                                  " x  y ",
                                  "1.5",
                                  "-2e3",
                                  ("\xc3\x9c"
                                   "ber"),
                                  "nan",
                                  "0x10",
                                  "1",
                                  "9223372036854775808",
                                  "inf",
                                  "STOP",
                                  "\xe6\x97\xa5"};

double special_float(uint8_t byte) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNumbers[] = {0, -0.0, 1, -1, 0.5, std::numeric_limits<double>::quiet_NaN(), kInf, -kInf};
  return kNumbers[byte % 8];
}

double wild_float(uint8_t byte) {
  constexpr double kNumbers[] = {
      3.4028235e38,          -3.4028235e38,          1e-45, 1e300,   -1e-310, 65504, 65520, 2147483648.0,
      9223372036854775808.0, -9223372036854775809.0, 255.5, 16777217};
  return byte < 64 ? special_float(byte) : kNumbers[byte % 12];
}

int64_t special_int(uint8_t byte, int bits, bool is_signed) {
  const int64_t high = bits >= 63 ? INT64_MAX : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const int64_t numbers[] = {0, 1, -1, 2, high, -high - 1, high - 1, int64_t{1} << (bits / 2)};
  return numbers[byte % 8];
}

void fill(Tensor& tensor, Filling filling, Bytes& bytes) {
  std::vector<uint8_t> pattern(1 + bytes.below(24));
  for (uint8_t& byte : pattern) byte = bytes.byte();
  const DType dtype = tensor.dtype();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const uint8_t byte = pattern[static_cast<size_t>(i) % pattern.size()];
    const int tame = byte % 24 - 8;
    // In the fillings with exceptions half of the elements are none.
    const bool exception = (byte & 128) != 0 && (filling == Filling::kSpecial || filling == Filling::kWild);
    if (filling == Filling::kZeros) continue;
    if (is_float(dtype)) {
      tensor.set_double(i, !exception                  ? tame / 4.0
                           : filling == Filling::kWild ? wild_float(byte)
                                                       : special_float(byte));
    } else if (dtype == DType::kBool) {
      tensor.mutable_bytes()[i] = static_cast<std::byte>(exception && filling == Filling::kWild ? byte : byte & 1);
    } else {
      tensor.set_int(i, exception ? special_int(byte, dtype_bits(dtype), is_signed_int(dtype)) : tame);
    }
  }
}

std::string make_text(Bytes& bytes) {
  const uint8_t kind = bytes.byte();
  if (kind < 200) return kTexts[kind % std::size(kTexts)];
  std::string text(bytes.below(12), '\0');
  for (char& c : text) c = static_cast<char>(kind < 240 ? bytes.byte() & 127 : bytes.byte());
  return text;
}

Tensor make_tensor(DType dtype, const std::vector<int64_t>& dims, Filling filling, Bytes& bytes) {
  if (dtype != DType::kString) {
    Tensor tensor(dtype, dims);
    fill(tensor, filling, bytes);
    return tensor;
  }
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < count; ++i) texts.push_back(make_text(bytes));
  return Tensor::of_strings(std::move(texts), dims);
}

std::vector<int64_t> make_dims(const tessera_value_info& info, bool inside, Bytes& bytes) {
  std::vector<int64_t> dims;
  const bool any = info.rank < 0 || (inside && bytes.byte() > 200);
  const int32_t rank = any ? static_cast<int32_t>(bytes.below(4)) : info.rank;
  for (int32_t d = 0; d < rank; ++d) {
    dims.push_back(!any && info.dims[d] >= 0 ? info.dims[d] : bytes.below(5));
  }
  return dims;
}

RunValue make_value(const tessera_value_info& info, int32_t depth, Filling filling, Bytes& bytes) {
  const auto dtype = static_cast<DType>(info.dtype);
  if (depth == info.num_wrappers) return make_tensor(dtype, make_dims(info, depth > 0, bytes), filling, bytes);
  std::vector<RunValue> items;
  switch (info.wrappers[depth]) {
    case TESSERA_MAP: {
      const int64_t count = bytes.below(5);
      items.emplace_back(make_tensor(static_cast<DType>(info.key), {count}, filling, bytes));
      items.emplace_back(make_tensor(dtype, {count}, filling, bytes));
      return {ValueKind::kMap, std::move(items)};
    }
    case TESSERA_OPTIONAL:
      if (bytes.byte() % 4 != 0) items.push_back(make_value(info, depth + 1, filling, bytes));
      return {ValueKind::kOptional, std::move(items)};
    default:
      for (uint32_t count = bytes.below(5); count > 0; --count) {
        items.push_back(make_value(info, depth + 1, filling, bytes));
      }
      return {ValueKind::kSequence, std::move(items)};
  }
}

void set_dtype(tessera_dtype& dtype, uint8_t number) {
  const uint32_t wide = number;
  std::memcpy(&dtype, &wide, sizeof(dtype));
}

}  // namespace

MadeInputs make_inputs(const std::vector<tessera_value_info>& declared, Bytes& bytes) {
  MadeInputs made;
  constexpr Filling kFillings[] = {Filling::kTame,    Filling::kTame,    Filling::kTame, Filling::kZeros,
                                   Filling::kSpecial, Filling::kSpecial, Filling::kWild};
  made.filling = kFillings[bytes.below(std::size(kFillings))];
  for (const tessera_value_info& info : declared) made.values.push_back(make_value(info, 0, made.filling, bytes));
  return made;
}

const tessera_value* ApiValues::add(const RunValue& value) {
  tessera_value& result = values_.emplace_back();
  result = {};
  result.kind = static_cast<tessera_value_kind>(value.kind);
  if (!value.is_tensor()) {
    std::vector<const tessera_value*> items;
    for (const RunValue& item : value.items) items.push_back(add(item));
    result.num_items = static_cast<int64_t>(items.size());
    result.items = items_.emplace_back(std::move(items)).data();
    return &result;
  }
  const Tensor& tensor = value.tensor;
  result.dtype = static_cast<tessera_dtype>(tensor.dtype());
  result.rank = static_cast<int32_t>(tensor.dims().size());
  std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
  result.data = tensor.bytes();
  if (tensor.dtype() != DType::kString) return &result;
  std::vector<tessera_string> texts;
  for (const std::string& text : tensor.strings()) texts.push_back({text.data(), text.size()});
  result.data = texts_.emplace_back(std::move(texts)).data();
  return &result;
}

void break_a_value(ApiValues& values, Bytes& bytes) {
  if (values.all().empty()) return;
  tessera_value& value = values.all()[bytes.byte() % values.all().size()];
  switch (bytes.below(9)) {
    case 0: {
      const uint32_t kind = bytes.byte();
      std::memcpy(&value.kind, &kind, sizeof(value.kind));
      // What the new kind looks at, nothing may be behind.
      if (value.items == nullptr) value.num_items = 0;
      if (value.data == nullptr) value.rank = 0;
      return;
    }
    case 1: return set_dtype(value.dtype, bytes.byte() < 128 ? 0 : 33 + bytes.byte());
    case 2: value.rank = bytes.flag() ? -1 - bytes.byte() : TESSERA_MAX_RANK + 1 + bytes.byte(); return;
    case 3: {
      constexpr int64_t kDims[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 8, 0};
      value.dims[bytes.below(TESSERA_MAX_RANK)] = kDims[bytes.below(5)];
      return;
    }
    case 4: value.data = nullptr; return;
    case 5: value.items = nullptr; return;
    case 6: value.num_items = bytes.flag() ? -1 : INT64_MIN; return;
    case 7:
      for (auto& items : values.items()) {
        if (!items.empty()) items[bytes.byte() % items.size()] = nullptr;
      }
      return;
    default:
      for (auto& texts : values.texts()) {
        if (!texts.empty()) texts[bytes.byte() % texts.size()].data = nullptr;
      }
  }
}

namespace {

// Puts a tensor to where another one is, or a little before, when what it declares lies inside that one's memory.
void move_to(tessera_tensor& tensor, const tessera_tensor& other, int64_t before) {
  const auto bytes_of = [](const tessera_tensor& t) {
    int64_t bits = tessera_dtype_bits(t.dtype);
    for (int32_t d = 0; d < t.rank; ++d) bits *= t.dims[d];
    return (bits + 7) / 8;
  };
  if (bytes_of(tensor) <= bytes_of(other) + before) tensor.data = static_cast<uint8_t*>(other.data) - before;
}

}  // namespace

void break_a_tensor(std::vector<tessera_tensor>& tensors, Bytes& bytes) {
  if (tensors.empty()) return;
  tessera_tensor& tensor = tensors[bytes.byte() % tensors.size()];
  const tessera_tensor& other = tensors[bytes.byte() % tensors.size()];
  switch (bytes.below(8)) {
    case 0: tensor.data = nullptr; return;
    case 1: return set_dtype(tensor.dtype, bytes.byte());
    case 2: tensor.rank = static_cast<int8_t>(bytes.byte()); return;
    case 3: tensor.dims[bytes.below(TESSERA_MAX_RANK)] = bytes.number(); return;
    case 4: tensor.data = static_cast<uint8_t*>(tensor.data) - bytes.below(9); return;  // rooms begin earlier
    case 5: return move_to(tensor, other, 0);
    case 6: return move_to(tensor, other, 8 * bytes.below(20));
    default: tensor.dims[bytes.below(TESSERA_MAX_RANK)] += bytes.flag() ? 1 : -1; return;
  }
}

}  // namespace tessera::fuzz
