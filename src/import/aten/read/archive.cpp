#include "import/aten/read/archive.h"

#include <fmt/format.h>
#include <minizip/unzip.h>
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "support/error.h"

namespace tessera::inline aten {
namespace {

constexpr uint64_t kMostEntries = 1 << 20;
constexpr uint64_t kMostNameBytes = 1 << 12;
// What a compressed entry may become: text of a program shrinks to a twentieth or so, and only bombs to a thousandth.
constexpr uint64_t kFreeBytes = 1 << 20, kMostRatio = 200;

// minizip reads through functions; these read from memory.
struct MemoryStream {
  std::string_view bytes;
  uint64_t at = 0;
};

void* open_stream(void* opaque, const void*, int) { return opaque; }

uLong read_stream(void*, void* opaque, void* to, uLong size) {
  auto& stream = *static_cast<MemoryStream*>(opaque);
  const uint64_t count = std::min<uint64_t>(size, stream.bytes.size() - stream.at);
  if (count > 0) std::memcpy(to, stream.bytes.data() + stream.at, count);
  stream.at += count;
  return static_cast<uLong>(count);
}

uLong refuse_write(void*, void*, const void*, uLong) { return 0; }

ZPOS64_T tell_stream(void*, void* opaque) { return static_cast<MemoryStream*>(opaque)->at; }

long seek_stream(void*, void* opaque, ZPOS64_T offset, int origin) {
  auto& stream = *static_cast<MemoryStream*>(opaque);
  const uint64_t base = origin == ZLIB_FILEFUNC_SEEK_CUR   ? stream.at
                        : origin == ZLIB_FILEFUNC_SEEK_END ? stream.bytes.size()
                                                           : 0;
  const uint64_t to = base + offset;
  if (to < base || to > stream.bytes.size()) return -1;
  stream.at = to;
  return 0;
}

int close_stream(void*, void*) { return 0; }
int stream_error(void*, void*) { return 0; }

struct UnzipCloser {
  void operator()(void* file) const { unzClose(file); }
};
using UnzipFile = std::unique_ptr<void, UnzipCloser>;

UnzipFile open_zip(MemoryStream& stream) {
  zlib_filefunc64_def functions{};
  functions.zopen64_file = open_stream;
  functions.zread_file = read_stream;
  functions.zwrite_file = refuse_write;
  functions.ztell64_file = tell_stream;
  functions.zseek64_file = seek_stream;
  functions.zclose_file = close_stream;
  functions.zerror_file = stream_error;
  functions.opaque = &stream;
  return UnzipFile(unzOpen2_64("", &functions));
}

bool leads_out(const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find('\\') != std::string::npos || name.find('\0') != std::string::npos ||
      (name.size() > 1 && name[1] == ':'))
    return true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return true;
    begin = end + 1;
  }
  return false;
}

uint32_t checksum(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (size_t at = 0; at < bytes.size();) {
    const auto count = static_cast<uInt>(std::min<size_t>(bytes.size() - at, 1 << 30));
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at), count);
    at += count;
  }
  return static_cast<uint32_t>(crc);
}

std::shared_ptr<char> aligned_bytes(uint64_t size) {
  const auto units =
      std::make_shared<std::vector<std::max_align_t>>(static_cast<size_t>(size) / sizeof(std::max_align_t) + 1);
  return {units, reinterpret_cast<char*>(units->data())};
}

}  // namespace

void Pt2Archive::damaged(const std::string& found) const {
  throw UserError({.id = "TSR-1111",
                   .message = fmt::format("{} is no .pt2 file, or a damaged one: {}", place_, found),
                   .node = {},
                   .legal = "a zip archive that torch.export.save wrote",
                   .hint = "get the file again, or save the program again"});
}

Pt2Archive::Pt2Archive(std::string_view bytes, std::shared_ptr<const void> owner, std::string place)
    : bytes_(bytes), owner_(std::move(owner)), place_(std::move(place)) {
  MemoryStream stream{bytes_};
  const UnzipFile zip = open_zip(stream);
  unz_global_info64 global{};
  if (!zip || unzGetGlobalInfo64(zip.get(), &global) != UNZ_OK) damaged("it has no list of contents");
  if (global.number_entry == 0 || global.number_entry > kMostEntries)
    damaged(fmt::format("it has {} entries", global.number_entry));
  const auto refuse = [&](const std::string& name, const std::string& found, const std::string& legal) {
    throw UserError({.id = "TSR-1112",
                     .message = fmt::format("{}: the entry '{}' {}", place_, name, found),
                     .node = {},
                     .legal = legal,
                     .hint = "do not trust the file; save the program again by torch.export.save"});
  };
  std::vector<Entry> entries;
  int status = unzGoToFirstFile(zip.get());
  for (; status == UNZ_OK; status = unzGoToNextFile(zip.get())) {
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(zip.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK)
      damaged("its list of contents breaks off");
    if (info.size_filename > kMostNameBytes) damaged(fmt::format("a name of {} bytes", info.size_filename));
    std::string name(info.size_filename + 1, '\0');
    unzGetCurrentFileInfo64(zip.get(), &info, name.data(), info.size_filename + 1, nullptr, 0, nullptr, 0);
    name.resize(info.size_filename);
    if (leads_out(name)) refuse(name, "has a name that leads out of the archive", "names inside of it");
    if (name.back() == '/') continue;
    if ((info.flag & 1) != 0) refuse(name, "is encrypted", "contents that are not");
    if (info.compression_method != 0 && info.compression_method != Z_DEFLATED)
      refuse(name, fmt::format("is compressed by method {}", info.compression_method), "stored or deflated");
    Entry entry{name,
                0,
                info.compressed_size,
                info.uncompressed_size,
                static_cast<uint32_t>(info.crc),
                info.compression_method != 0};
    if (!entry.deflated && entry.stored != entry.size) damaged(fmt::format("the entry '{}' has two sizes", name));
    if (entry.deflated && entry.size > kFreeBytes && entry.size / kMostRatio > entry.stored)
      refuse(name, fmt::format("of {} bytes would become {}", entry.stored, entry.size),
             fmt::format("at most {} times as many bytes", kMostRatio));
    if (unzOpenCurrentFile2(zip.get(), nullptr, nullptr, 1) != UNZ_OK)
      damaged(fmt::format("the entry '{}' does not fit the list of contents", name));
    entry.offset = unzGetCurrentFileZStreamPos64(zip.get());
    unzCloseCurrentFile(zip.get());
    if (entry.offset > bytes_.size() || entry.stored > bytes_.size() - entry.offset)
      damaged(fmt::format("the entry '{}' goes beyond the file's {} bytes", name, bytes_.size()));
    entries.push_back(std::move(entry));
  }
  if (status != UNZ_END_OF_LIST_OF_FILE) damaged("its list of contents breaks off");
  if (entries.empty()) damaged("it has no files");
  // All are in one folder, which has the file's name of the time at which it was written.
  size_t folder = entries[0].name.find('/');
  folder = folder == std::string::npos ? 0 : folder + 1;
  for (const Entry& entry : entries)
    if (entry.name.compare(0, folder, entries[0].name, 0, folder) != 0) folder = 0;
  for (Entry& entry : entries) {
    const std::string name = entry.name.substr(folder);
    if (!entries_.emplace(name, entry).second) refuse(name, "is there twice", "one of each name");
    names_.push_back(name);
  }
}

ArchiveEntry Pt2Archive::read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw UserError({.id = "TSR-1113",
                     .message = fmt::format("{} has no entry '{}'", place_, name),
                     .node = {},
                     .legal = "what torch.export.save writes",
                     .hint = "save the program again"});
  const Entry& entry = found->second;
  const std::string_view stored = bytes_.substr(entry.offset, entry.stored);
  ArchiveEntry result{stored, owner_};
  if (entry.deflated) {
    const auto to = aligned_bytes(entry.size);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) damaged("it cannot be decompressed");
    constexpr uint64_t kBlock = 1 << 30;
    uint64_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {
      const uint64_t in = std::min(entry.stored - read, kBlock), out = std::min(entry.size - written, kBlock);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data() + read));
      stream.avail_in = static_cast<uInt>(in);
      stream.next_out = reinterpret_cast<Bytef*>(to.get() + written);
      stream.avail_out = static_cast<uInt>(out);
      status = inflate(&stream, Z_NO_FLUSH);
      const uint64_t taken = in - stream.avail_in, given = out - stream.avail_out;
      if (status == Z_OK && taken == 0 && given == 0) status = Z_BUF_ERROR;
      read += taken;
      written += given;
    }
    inflateEnd(&stream);
    if (status != Z_STREAM_END || written != entry.size)
      damaged(fmt::format("the entry '{}' cannot be decompressed", name));
    result = {{to.get(), entry.size}, to};
  } else if (reinterpret_cast<uintptr_t>(stored.data()) % alignof(std::max_align_t) != 0) {
    const auto to = aligned_bytes(entry.size);
    std::copy(stored.begin(), stored.end(), to.get());
    result = {{to.get(), entry.size}, to};
  }
  if (checksum(result.bytes) != entry.crc) damaged(fmt::format("the checksum of the entry '{}' differs", name));
  return result;
}

}  // namespace tessera::inline aten
