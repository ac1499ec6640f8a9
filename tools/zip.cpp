#include "zip.h"

#include <zlib.h>

#include <algorithm>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera {

namespace {

[[noreturn]] void fail_on_zip(const std::string& path, const std::string& why) {
  throw UserError({.id = "TSR-6211",
                   .message = fmt::format("'{}' is not a usable .npz file: {}", path, why),
                   .node = {},
                   .legal = "a file written by numpy.savez or numpy.savez_compressed",
                   .hint = {}});
}

// Little-endian numbers at places that must be there.
class ZipReader {
 public:
  ZipReader(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  uint64_t number(uint64_t at, int count) const {
    if (at > bytes_.size() || bytes_.size() - at < static_cast<uint64_t>(count)) fail_on_zip(path_, "it is cut off");
    uint64_t value = 0;
    for (int i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes_[at + static_cast<size_t>(i)]);
    return value;
  }
  std::string_view text(uint64_t at, uint64_t count) const {
    if (at > bytes_.size() || bytes_.size() - at < count) fail_on_zip(path_, "it is cut off");
    return bytes_.substr(at, count);
  }

 private:
  const std::string& path_;
  std::string_view bytes_;
};

constexpr uint32_t kEnd = 0x06054b50, kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr uint32_t kLocator64 = 0x07064b50, kEnd64 = 0x06064b50;
constexpr uint64_t kEndSize = 22, kEntrySize = 46, kLocalSize = 30;
constexpr uint64_t kSee64 = 0xffffffff;  // the number stands in an extra field of 64 bits

struct Directory {
  uint64_t entries = 0, offset = 0;
};

Directory find_directory(const std::string& path, std::string_view archive) {
  const ZipReader reader(path, archive);
  if (archive.size() < kEndSize) fail_on_zip(path, "it is no archive");
  // Behind the end record stands at most a comment of 16 bits.
  const uint64_t first = archive.size() - std::min<uint64_t>(archive.size(), kEndSize + 0xffff);
  for (uint64_t at = archive.size() - kEndSize + 1; at-- > first;) {
    if (reader.number(at, 4) != kEnd) continue;
    Directory directory{reader.number(at + 10, 2), reader.number(at + 16, 4)};
    if (at >= 20 && reader.number(at - 20, 4) == kLocator64) {
      const uint64_t end = reader.number(at - 12, 8);
      if (reader.number(end, 4) == kEnd64) directory = {reader.number(end + 32, 8), reader.number(end + 48, 8)};
    }
    return directory;
  }
  fail_on_zip(path, "it is no archive");
}

}  // namespace

std::vector<ZipEntry> zip_entries(const std::string& path, std::string_view archive) {
  const ZipReader reader(path, archive);
  const Directory directory = find_directory(path, archive);
  std::vector<ZipEntry> entries;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (reader.number(at, 4) != kEntry) fail_on_zip(path, "its directory is damaged");
    ZipEntry entry;
    entry.method = static_cast<uint16_t>(reader.number(at + 10, 2));
    entry.crc = static_cast<uint32_t>(reader.number(at + 16, 4));
    entry.compressed = reader.number(at + 20, 4);
    entry.size = reader.number(at + 24, 4);
    entry.offset = reader.number(at + 42, 4);
    const uint64_t name = reader.number(at + 28, 2), extra = reader.number(at + 30, 2);
    entry.name = reader.text(at + kEntrySize, name);
    // Fields of 64 bits, in this order, for those numbers that do not fit.
    for (uint64_t field = at + kEntrySize + name, end = field + extra; field + 4 <= end;) {
      const uint64_t kind = reader.number(field, 2), size = reader.number(field + 2, 2);
      uint64_t place = field + 4;
      for (uint64_t* number : {&entry.size, &entry.compressed, &entry.offset}) {
        if (kind != 1 || *number != kSee64) continue;
        *number = reader.number(place, 8);
        place += 8;
      }
      field += 4 + size;
    }
    entries.push_back(std::move(entry));
    at += kEntrySize + name + extra + reader.number(at + 32, 2);
  }
  return entries;
}

std::string unzipped(const std::string& path, std::string_view archive, const ZipEntry& entry) {
  const ZipReader reader(path, archive);
  if (reader.number(entry.offset, 4) != kLocal) fail_on_zip(path, "its directory is damaged");
  const uint64_t begin =
      entry.offset + kLocalSize + reader.number(entry.offset + 26, 2) + reader.number(entry.offset + 28, 2);
  const std::string_view packed = reader.text(begin, entry.compressed);
  std::string bytes;
  if (entry.method == 0) {
    bytes = packed;
  } else if (entry.method == 8) {
    // Deflate packs a thousand bytes into one at most: a size beyond is damage, and is not allocated.
    if (entry.size > entry.compressed * 1100 + 1100) fail_on_zip(path, fmt::format("'{}' is damaged", entry.name));
    bytes.resize(entry.size);
    z_stream stream = {};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail_on_zip(path, "out of memory");
    constexpr uint64_t kPiece = 1 << 30;  // zlib counts with 32 bits
    uint64_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {
      const uint64_t in = std::min(packed.size() - read, kPiece), out = std::min(bytes.size() - written, kPiece);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
      stream.avail_in = static_cast<uInt>(in);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + written);
      stream.avail_out = static_cast<uInt>(out);
      status = inflate(&stream, Z_NO_FLUSH);
      read += in - stream.avail_in;
      written += out - stream.avail_out;
    }
    inflateEnd(&stream);
    if (status != Z_STREAM_END || written != entry.size) fail_on_zip(path, fmt::format("'{}' is damaged", entry.name));
  } else {
    fail_on_zip(path,
                fmt::format("'{}' is packed in a way (number {}) that numpy does not use", entry.name, entry.method));
  }
  if (bytes.size() != entry.size) fail_on_zip(path, fmt::format("'{}' is damaged", entry.name));
  uint64_t crc = crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < bytes.size(); at += 1 << 30)
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at),
                static_cast<uInt>(std::min<uint64_t>(bytes.size() - at, 1 << 30)));
  if (crc != entry.crc) fail_on_zip(path, fmt::format("'{}' is damaged", entry.name));
  return bytes;
}

}  // namespace tessera
