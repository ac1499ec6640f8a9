#include "wire_mutator.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tessera {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// One field; a length-delimited one whose bytes read as a message has `children` instead of `bytes`.
struct Field {
  uint64_t tag = 0;
  uint64_t number = 0;  // kVarint
  std::string bytes;    // fixed and length-delimited fields
  bool is_message = false;
  std::vector<Field> children;

  uint32_t wire_type() const { return static_cast<uint32_t>(tag & 7); }
};

std::optional<uint64_t> read_varint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

void write_varint(uint64_t value, std::string& out) {
  for (; value > 127; value >>= 7) out += static_cast<char>((value & 127) | 128);
  out += static_cast<char>(value);
}

std::optional<std::vector<Field>> parse(const std::string& bytes, int depth) {
  std::vector<Field> fields;
  for (size_t at = 0; at < bytes.size();) {
    Field field;
    const auto tag = read_varint(bytes, at);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 100) return std::nullopt;
    field.tag = *tag;
    size_t size = 0;
    switch (field.wire_type()) {
      case kVarint: {
        const auto number = read_varint(bytes, at);
        if (!number) return std::nullopt;
        field.number = *number;
        break;
      }
      case kFixed64: size = 8; break;
      case kFixed32: size = 4; break;
      case kLength: {
        const auto length = read_varint(bytes, at);
        if (!length) return std::nullopt;
        size = *length;
        break;
      }
      default: return std::nullopt;
    }
    if (size > bytes.size() - at) return std::nullopt;
    field.bytes = bytes.substr(at, size);
    at += size;
    if (field.wire_type() == kLength && size > 1 && depth < 12)
      if (auto children = parse(field.bytes, depth + 1)) {
        field.is_message = true;
        field.children = std::move(*children);
      }
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string serialize(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    write_varint(field.tag, out);
    const std::string bytes = field.is_message ? serialize(field.children) : field.bytes;
    if (field.wire_type() == kVarint) write_varint(field.number, out);
    if (field.wire_type() == kLength) write_varint(bytes.size(), out);
    if (field.wire_type() != kVarint) out += bytes;
  }
  return out;
}

struct Place {
  std::vector<Field>* list;
  size_t index;
};

void collect(std::vector<Field>& fields, std::vector<Place>& places, std::vector<std::string>& texts) {
  for (size_t i = 0; i < fields.size(); ++i) {
    places.push_back({&fields, i});
    if (fields[i].is_message) collect(fields[i].children, places, texts);
    else if (fields[i].wire_type() == kLength) texts.push_back(fields[i].bytes);
  }
}

uint64_t changed_number(uint64_t value, std::mt19937_64& random) {
  switch (random() % 8) {
    case 0: return 0;
    case 1: return ~uint64_t{0};
    case 2: return static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    case 3: return uint64_t{1} << 63;
    case 4: return uint64_t{1} << (random() % 63);
    case 5: return value + 1;
    case 6: return value - 1;
    default: return random() % 40;
  }
}

std::string changed_bytes(const std::string& value, const std::vector<std::string>& texts, std::mt19937_64& random) {
  std::string changed = value;
  switch (random() % 5) {
    case 0: return "";
    case 1: return value.substr(0, value.size() / 2);
    case 2: return value + "x";
    case 3:
      if (!changed.empty()) changed[random() % changed.size()] ^= static_cast<char>(1 << (random() % 8));
      return changed;
    default: return texts[random() % texts.size()];
  }
}

}  // namespace

std::string mutate_message(const std::string& bytes, std::mt19937_64& random) {
  auto fields = parse(bytes, 0);
  if (!fields || fields->empty()) return bytes;
  std::vector<Place> places;
  std::vector<std::string> texts = {"x"};
  collect(*fields, places, texts);
  const Place place = places[random() % places.size()];
  std::vector<Field>& list = *place.list;
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(place.index);
  switch (random() % 8) {
    case 0: list.erase(at); break;
    case 1: {
      const Field copy = *at;
      list.insert(at, copy);
      break;
    }
    case 2: std::swap(*at, list[random() % list.size()]); break;
    default:
      if (at->wire_type() == kVarint) {
        at->number = changed_number(at->number, random);
      } else if (!at->is_message) {
        const size_t size = at->bytes.size();
        at->bytes = changed_bytes(at->bytes, texts, random);
        if (at->wire_type() != kLength) at->bytes.resize(size, '\x7f');
      } else if (!at->children.empty()) {
        at->children.pop_back();
      }
  }
  return serialize(*fields);
}

}  // namespace tessera
