#include "npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <regex>

#include <fmt/format.h>

#include "package/atomic_file.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "support/nearest_names.h"
#include "support/utf8.h"
#include "zip.h"

namespace tessera {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void fail_on_npy(const std::string& path, const std::string& why) {
  throw UserError({.id = "TSR-6211",
                   .message = fmt::format("'{}' is not a usable .npy file: {}", path, why),
                   .node = {},
                   .legal = "a file written by numpy.save",
                   .hint = {}});
}

struct Header {
  DType dtype = DType::kF32;
  size_t characters = 0;  // of each string
  bool swapped = false;   // big-endian
  bool fortran = false;   // first axis fastest
  std::vector<int64_t> dims;
  size_t data_offset = 0;
};

// numpy's letters and sizes for what both sides have.
struct Name {
  char kind;
  int bytes;
  DType dtype;
};
constexpr Name kNames[] = {{'f', 8, DType::kF64}, {'f', 4, DType::kF32}, {'f', 2, DType::kF16}, {'i', 8, DType::kI64},
                           {'i', 4, DType::kI32}, {'i', 2, DType::kI16}, {'i', 1, DType::kI8},  {'u', 8, DType::kU64},
                           {'u', 4, DType::kU32}, {'u', 2, DType::kU16}, {'u', 1, DType::kU8},  {'b', 1, DType::kBool}};

void read_descr(const std::string& path, const std::string& descr, Header& header) {
  for (const Name& name : kNames) {
    const std::string plain = fmt::format("{}{}", name.kind, name.bytes);
    if (descr.size() < 2 || descr.substr(1) != plain || std::string_view("<>|=").find(descr[0]) == std::string::npos)
      continue;
    header.dtype = name.dtype;
    header.swapped = descr[0] == '>' && name.bytes > 1;
    return;
  }
  // "<U12": strings of up to 12 characters of 32 bits each.
  size_t characters = 0;
  const char* end = descr.data() + descr.size();
  if (descr.size() > 2 && descr[1] == 'U' && (descr[0] == '<' || descr[0] == '>')) {
    const auto [stop, error] = std::from_chars(descr.data() + 2, end, characters);
    if (error == std::errc() && stop == end && characters < (1u << 24)) {
      header.dtype = DType::kString;
      header.characters = characters;
      header.swapped = descr[0] == '>';
      return;
    }
  }
  if (descr == "<U0") {
    header.dtype = DType::kString;
    return;
  }
  throw UserError({.id = "TSR-6212",
                   .message = fmt::format("'{}' holds elements of numpy type '{}'", path, descr),
                   .node = {},
                   .legal = "floats of 16, 32 or 64 bits, integers of 8 to 64 bits, bool, strings (U)",
                   .hint = "convert the array with astype()"});
}

Header read_header(const std::string& path, std::string_view file) {
  if (!file.starts_with(kMagic) || file.size() < 12) fail_on_npy(path, "it does not begin as one");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(file[i])); };
  const size_t version = byte(6);
  if (version < 1 || version > 3) fail_on_npy(path, fmt::format("its format version is {}", version));
  const size_t begin = version == 1 ? 10 : 12;
  const size_t size = version == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (size > file.size() - begin || size > 1 << 16) fail_on_npy(path, "its header is cut off");
  const std::string text(file.substr(begin, size));

  Header header;
  header.data_offset = begin + size;
  std::smatch match;
  static const std::regex kDescr("'descr': *'([^']*)'"), kOrder("'fortran_order': *(True|False)"),
      kShape("'shape': *\\(([0-9, L]*)\\)"), kNumber("[0-9]+");
  if (!std::regex_search(text, match, kDescr)) fail_on_npy(path, "its header does not say the element type");
  read_descr(path, match[1], header);
  if (!std::regex_search(text, match, kOrder)) fail_on_npy(path, "its header does not say the memory order");
  header.fortran = match[1] == "True";
  if (!std::regex_search(text, match, kShape)) fail_on_npy(path, "its header does not say the shape");
  const std::string shape = match[1];
  for (auto it = std::sregex_iterator(shape.begin(), shape.end(), kNumber); it != std::sregex_iterator(); ++it) {
    if (it->length() > 18) fail_on_npy(path, "a dimension is out of range");
    header.dims.push_back(std::stoll(it->str()));
  }
  return header;
}

// The bytes that the header's elements take; empty when that overflows.
std::optional<uint64_t> data_size(const Header& header) {
  int64_t count =
      header.dtype == DType::kString ? static_cast<int64_t>(4 * header.characters) : dtype_bits(header.dtype) / 8;
  for (const int64_t dim : header.dims) {
    if (__builtin_mul_overflow(count, dim, &count)) return {};
  }
  return static_cast<uint64_t>(count);
}

// Strings end with the zeros that fill them up.
Tensor strings_from(const std::string& path, const Header& header, const std::byte* data) {
  std::vector<std::string> texts;
  int64_t count = 1;
  for (const int64_t dim : header.dims) count *= dim;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<uint32_t> characters(header.characters);
    std::memcpy(characters.data(), data + static_cast<size_t>(i) * 4 * header.characters, 4 * header.characters);
    while (!characters.empty() && characters.back() == 0) characters.pop_back();
    std::string text;
    for (uint32_t c : characters) {
      if (header.swapped) c = __builtin_bswap32(c);
      if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        fail_on_npy(path, "a string has a character that Unicode does not have");
      append_character(text, c);
    }
    texts.push_back(std::move(text));
  }
  return Tensor::of_strings(std::move(texts), header.dims);
}

// Copies `count` elements of `size` bytes from memory order "first axis fastest" to row-major.
void copy_transposed(const std::byte* from, std::byte* to, const std::vector<int64_t>& dims, size_t size) {
  std::vector<int64_t> index(dims.size());
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t source = 0;
    for (size_t axis = dims.size(); axis-- > 0;) source = source * dims[axis] + index[axis];
    std::memcpy(to + static_cast<size_t>(flat) * size, from + static_cast<size_t>(source) * size, size);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++index[axis] < dims[axis]) break;
      index[axis] = 0;
    }
  }
}

void write_file(const std::string& path, const std::string& descr, const std::vector<int64_t>& dims,
                std::span<const std::byte> data) {
  std::string shape = fmt::format("{}", fmt::join(dims, ", "));
  if (dims.size() == 1) shape += ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  // The data begins at a multiple of 64; the header ends with a line break.
  const size_t total = (10 + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - 10 - 1, ' ');
  header += '\n';
  AtomicFile file(path, "tensor");
  file.write(kMagic);
  const char lead[] = {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file.write(std::string_view(lead, sizeof(lead)));
  file.write(header);
  file.write(data);
  file.commit();
}

// As numpy has them: all as long as the longest, characters of 32 bits.
void write_strings(const std::string& path, const Tensor& tensor) {
  std::vector<std::vector<uint32_t>> texts;
  size_t longest = 1;
  for (std::string_view text : tensor.strings()) {
    auto& characters = texts.emplace_back();
    while (!text.empty()) characters.push_back(next_character(text));
    longest = std::max(longest, characters.size());
  }
  std::vector<uint32_t> data;
  for (auto& characters : texts) {
    characters.resize(longest);
    data.insert(data.end(), characters.begin(), characters.end());
  }
  write_file(path, fmt::format("<U{}", longest), tensor.dims(), std::as_bytes(std::span(data)));
}

}  // namespace

namespace {

Tensor read_array(const std::string& path, std::string_view file) {
  const Header header = read_header(path, file);
  const std::optional<uint64_t> bytes = data_size(header);
  const uint64_t available = file.size() - header.data_offset;
  if (!bytes || *bytes > available) {
    fail_on_npy(path, fmt::format("its header asks for more elements than its {} bytes of data hold", available));
  }
  const std::byte* data = reinterpret_cast<const std::byte*>(file.data()) + header.data_offset;
  if (header.dtype == DType::kString) {
    if (header.fortran && header.dims.size() > 1) fail_on_npy(path, "strings in the order 'first axis fastest'");
    return strings_from(path, header, data);
  }
  const auto size = static_cast<size_t>(dtype_bits(header.dtype) / 8);
  Tensor tensor(header.dtype, header.dims);
  if (*bytes == 0) return tensor;
  if (header.fortran && header.dims.size() > 1) {
    copy_transposed(data, tensor.mutable_bytes(), header.dims, size);
  } else {
    std::memcpy(tensor.mutable_bytes(), data, *bytes);
  }
  if (header.swapped) {
    std::byte* element = tensor.mutable_bytes();
    for (uint64_t i = 0; i < *bytes; i += size) std::reverse(element + i, element + i + size);
  }
  return tensor;
}

}  // namespace

Tensor read_npy(const std::string& path) {
  return read_array(path, MappedFile::open(path, "tensor", "TSR-6211")->text());
}

std::vector<std::string> names_in_npz(const std::string& path) {
  const auto file = MappedFile::open(path, "tensor", "TSR-6211");
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip_entries(path, file->text()))
    if (entry.name.ends_with(".npy")) names.push_back(entry.name.substr(0, entry.name.size() - 4));
  return names;
}

Tensor read_npz(const std::string& path, const std::string& name) {
  const auto file = MappedFile::open(path, "tensor", "TSR-6211");
  for (const ZipEntry& entry : zip_entries(path, file->text()))
    if (entry.name == name + ".npy")
      return read_array(fmt::format("{}:{}", path, name), unzipped(path, file->text(), entry));
  throw UserError({.id = "TSR-6213",
                   .message = fmt::format("'{}' has no array '{}'", path, name),
                   .node = {},
                   .legal = fmt::format("{}", fmt::join(names_in_npz(path), ", ")),
                   .hint = did_you_mean(name, names_in_npz(path))});
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kString) return write_strings(path, tensor);
  const auto* name =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.dtype == dtype; });
  if (name == std::end(kNames)) {
    const DType wider = is_float(dtype) ? DType::kF32 : is_signed_int(dtype) ? DType::kI8 : DType::kU8;
    Tensor converted(wider, tensor.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (is_float(dtype)) {
        converted.set_double(i, tensor.get_double(i));
      } else {
        converted.set_int(i, tensor.get_int(i));
      }
    }
    return write_npy(path, converted);
  }
  write_file(path, fmt::format("{}{}{}", name->bytes > 1 ? '<' : '|', name->kind, name->bytes), tensor.dims(),
             std::span(tensor.bytes(), static_cast<size_t>(tensor.num_bytes())));
}

}  // namespace tessera
