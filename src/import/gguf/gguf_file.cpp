#include "import/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "support/utf8.h"

namespace tessera::inline gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kOldest = 2, kNewest = 3;
constexpr size_t kMaxDims = 4;
constexpr size_t kLongestName = 256;  // in a message
constexpr int64_t kMaxElements = int64_t{1} << 40;

size_t bytes_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::kU8:
    case GgufKind::kI8:
    case GgufKind::kBool: return 1;
    case GgufKind::kU16:
    case GgufKind::kI16: return 2;
    case GgufKind::kU32:
    case GgufKind::kI32:
    case GgufKind::kF32: return 4;
    case GgufKind::kU64:
    case GgufKind::kI64:
    case GgufKind::kF64: return 8;
    case GgufKind::kString:
    case GgufKind::kArray: return 0;
  }
  return 0;
}

template <typename T>
T read_as(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// A number at `bytes`, which has bytes_of(kind) of them.
GgufValue number_at(GgufKind kind, const char* bytes) {
  switch (kind) {
    case GgufKind::kU8: return int64_t{read_as<uint8_t>(bytes)};
    case GgufKind::kI8: return int64_t{read_as<int8_t>(bytes)};
    case GgufKind::kU16: return int64_t{read_as<uint16_t>(bytes)};
    case GgufKind::kI16: return int64_t{read_as<int16_t>(bytes)};
    case GgufKind::kU32: return int64_t{read_as<uint32_t>(bytes)};
    case GgufKind::kI32: return int64_t{read_as<int32_t>(bytes)};
    case GgufKind::kU64: return static_cast<int64_t>(read_as<uint64_t>(bytes));
    case GgufKind::kI64: return read_as<int64_t>(bytes);
    case GgufKind::kF32: return static_cast<double>(read_as<float>(bytes));
    case GgufKind::kF64: return read_as<double>(bytes);
    case GgufKind::kBool: return read_as<uint8_t>(bytes) != 0;
    case GgufKind::kString:
    case GgufKind::kArray: break;
  }
  check(false, "a kind that is no number");
  return false;
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

  size_t at() const { return at_; }
  void set_context(std::string context) { context_ = std::move(context); }

  [[noreturn]] void fail(const std::string& found, const std::string& legal = "") const {
    throw UserError({.id = "TSR-1070",
                     .message = fmt::format("{} is a damaged GGUF file: at byte {}{}{}, {}", place_, at_,
                                            context_.empty() ? "" : ", ", context_, found),
                     .node = {},
                     .legal = legal,
                     .hint = "get the file again, or convert the model again"});
  }

  std::string_view take(uint64_t count, std::string_view what) {
    if (count > bytes_.size() - at_)
      fail(fmt::format("{} has {} bytes, of which the file holds {}", what, count, bytes_.size() - at_));
    const std::string_view taken = bytes_.substr(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return taken;
  }

  template <typename T>
  T number(std::string_view what) {
    return read_as<T>(take(sizeof(T), what).data());
  }

  std::string_view string(std::string_view what) {
    const auto length = number<uint64_t>(what);
    return take(length, what);
  }

  GgufKind kind() {
    const auto kind = number<uint32_t>("a value's type");
    if (kind > static_cast<uint32_t>(GgufKind::kF64)) fail(fmt::format("a value has the type {}", kind), "0 to 12");
    return static_cast<GgufKind>(kind);
  }

  GgufValue value() {
    const GgufKind kind = this->kind();
    if (kind == GgufKind::kString) return string("a string");
    if (kind == GgufKind::kArray) return array();
    return number_at(kind, take(bytes_of(kind), "a value").data());
  }

  // A count of things that have at least `least` bytes each.
  uint64_t count(uint64_t least, std::string_view what) {
    const auto count = number<uint64_t>(what);
    if (count > (bytes_.size() - at_) / least)
      fail(fmt::format("{} is {}, for which the file is too short", what, count));
    return count;
  }

 private:
  GgufArray array() {
    GgufArray array;
    array.kind = kind();
    if (array.kind == GgufKind::kArray) fail("an array holds arrays", "arrays of numbers or strings");
    const size_t size = bytes_of(array.kind);
    array.count = count(size > 0 ? size : sizeof(uint64_t), "an array's length");
    const size_t begin = at_;
    if (size > 0) take(array.count * size, "an array");
    else
      for (uint64_t i = 0; i < array.count; ++i) string("a string of an array");
    array.bytes = bytes_.substr(begin, at_ - begin);
    return array;
  }

  std::string_view bytes_;
  const std::string& place_;
  size_t at_ = 0;
  std::string context_;  // "in the metadata 'x'"
};

// For messages and as a key: what the file calls something.
std::string name_of(Reader& reader, std::string_view what) {
  const std::string_view name = reader.string(what);
  if (name.empty() || name.size() > kLongestName || !is_utf8(name))
    reader.fail(fmt::format("{} has {} bytes, or is no text", what, name.size()), "1 to 256 bytes of UTF-8");
  return std::string(name);
}

}  // namespace

int64_t GgufTensor::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  return count;
}

bool looks_like_gguf(std::string_view beginning) { return beginning.starts_with(kMagic); }

GgufFile::GgufFile(std::string_view bytes, const std::string& place) : place_(place) {
  static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");
  Reader reader(bytes, place_);
  if (reader.take(kMagic.size(), "the beginning") != kMagic) reader.fail("it does not begin with GGUF");
  const auto version = reader.number<uint32_t>("the version");
  if (version < kOldest || version > kNewest)
    reader.fail(fmt::format("the version is {}", version), fmt::format("{} or {}, little-endian", kOldest, kNewest));
  const auto num_tensors = reader.count(1, "the number of tensors");
  const auto num_values = reader.count(1, "the number of metadata values");
  for (uint64_t i = 0; i < num_values; ++i) {
    reader.set_context(fmt::format("metadata value {}", i));
    std::string key = name_of(reader, "a key");
    reader.set_context(fmt::format("metadata '{}'", key));
    GgufValue value = reader.value();
    if (!metadata_.emplace(std::move(key), value).second) reader.fail("the key was there before");
  }

  int64_t alignment = 32;
  reader.set_context("");
  if (const GgufValue* value = find("general.alignment")) {
    const int64_t* number = std::get_if<int64_t>(value);
    if (!number || *number < 1 || *number > (1 << 20) || !std::has_single_bit(static_cast<uint64_t>(*number)))
      reader.fail("general.alignment is no power of two", "a power of two up to 2^20");
    alignment = *number;
  }

  struct Entry {
    GgufTensor tensor;
    uint64_t offset;
  };
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    reader.set_context(fmt::format("tensor {}", i));
    Entry entry;
    entry.tensor.name = name_of(reader, "a tensor's name");
    reader.set_context(fmt::format("tensor '{}'", entry.tensor.name));
    const auto rank = reader.number<uint32_t>("a number of dimensions");
    if (rank > kMaxDims) reader.fail(fmt::format("it has {} dimensions", rank), "at most 4");
    int64_t elements = 1;
    for (uint32_t d = 0; d < rank; ++d) {
      const auto extent = reader.number<uint64_t>("a dimension");
      if (extent == 0 || extent > static_cast<uint64_t>(kMaxElements / elements))
        reader.fail(fmt::format("dimension {} is {}", d, extent), "at least 1, and at most 2^40 elements");
      elements *= static_cast<int64_t>(extent);
      entry.tensor.dims.insert(entry.tensor.dims.begin(), static_cast<int64_t>(extent));
    }
    const auto type = reader.number<uint32_t>("a tensor's type");
    entry.offset = reader.number<uint64_t>("a tensor's offset");
    const std::optional<BlockType> known = block_type(type);
    if (!known)
      throw UserError({.id = "TSR-1071",
                       .message = fmt::format("the tensor '{}' has the type {}, which is not read", entry.tensor.name,
                                              gguf_type_name(type)),
                       .node = place_,
                       .legal = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K",
                       .hint = "convert the model to one of these, by llama.cpp's llama-quantize for instance"});
    entry.tensor.type = *known;
    const int64_t row = rank == 0 ? 1 : entry.tensor.dims.back();
    if (row % block_elements(*known) != 0)
      reader.fail(fmt::format("rows of {} elements are no whole blocks of {}", row, block_elements(*known)));
    if (entry.offset % static_cast<uint64_t>(alignment) != 0)
      reader.fail(fmt::format("the offset {} is not aligned", entry.offset),
                  fmt::format("a multiple of {}", alignment));
    entries.push_back(std::move(entry));
  }

  const uint64_t begin = (reader.at() + static_cast<uint64_t>(alignment) - 1) & ~(static_cast<uint64_t>(alignment) - 1);
  for (Entry& entry : entries) {
    reader.set_context(fmt::format("tensor '{}'", entry.tensor.name));
    const auto size = static_cast<uint64_t>(entry.tensor.num_elements() / block_elements(entry.tensor.type)) *
                      block_bytes(entry.tensor.type);
    if (begin > bytes.size() || entry.offset > bytes.size() - begin || size > bytes.size() - begin - entry.offset)
      reader.fail(
          fmt::format("its {} bytes from {} on are not in the file, which has {}", size, entry.offset, bytes.size()));
    entry.tensor.data = reinterpret_cast<const std::byte*>(bytes.data()) + begin + entry.offset;
    std::string name = entry.tensor.name;
    if (!tensors_.emplace(std::move(name), std::move(entry.tensor)).second) reader.fail("the name was there before");
  }
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

std::vector<std::string_view> strings_of(const GgufArray& array) {
  std::vector<std::string_view> strings;
  if (array.kind != GgufKind::kString) return strings;
  std::string_view rest = array.bytes;
  for (uint64_t i = 0; i < array.count; ++i) {
    const auto length = static_cast<size_t>(read_as<uint64_t>(rest.data()));
    strings.push_back(rest.substr(sizeof(uint64_t), length));
    rest.remove_prefix(sizeof(uint64_t) + length);
  }
  return strings;
}

std::vector<double> numbers_of(const GgufArray& array) {
  std::vector<double> numbers;
  const size_t size = bytes_of(array.kind);
  if (size == 0) return numbers;
  for (uint64_t i = 0; i < array.count; ++i) {
    const GgufValue value = number_at(array.kind, array.bytes.data() + i * size);
    if (const auto* integer = std::get_if<int64_t>(&value)) numbers.push_back(static_cast<double>(*integer));
    else if (const auto* real = std::get_if<double>(&value)) numbers.push_back(*real);
    else numbers.push_back(std::get<bool>(value) ? 1 : 0);
  }
  return numbers;
}

}  // namespace tessera::inline gguf
