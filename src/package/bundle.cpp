#include "package/bundle.h"

#include <array>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "abi/module_abi.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline package {

namespace {

uint64_t digest_of(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

std::span<const std::byte> bytes_of(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw UserError({.id = "TSR-6104",
                   .message = fmt::format("bundle '{}' {}", path, what),
                   .node = {},
                   .legal = "a file that `tessera train --with-step` wrote",
                   .hint = {}});
}

}  // namespace

void write_bundle_file(const std::string& path, const std::vector<BundlePart>& parts) {
  check(!parts.empty() && parts.size() <= TSR_MAX_ENTRIES && parts[0].module, "parts of a bundle");
  AtomicFile file(path, "bundle");
  tsr_bundle_footer footer = {};
  uint64_t end = 0;
  const std::vector<std::byte> zeros(TSR_WEIGHTS_ALIGN);
  for (const BundlePart& part : parts) {
    check(!part.name.empty() && part.name.size() < TSR_ENTRY_NAME, "the name of a part of a bundle");
    tsr_bundle_entry& entry = footer.entries[footer.num_entries++];
    std::memcpy(entry.name, part.name.data(), part.name.size());
    const uint64_t padding = (TSR_WEIGHTS_ALIGN - end % TSR_WEIGHTS_ALIGN) % TSR_WEIGHTS_ALIGN;
    file.write(std::span(zeros).first(padding));
    entry.offset = end + padding;
    if (part.module) {
      const std::vector<std::byte> bytes = part.module->contents();
      file.write(bytes);
      entry.size = bytes.size();
      entry.kind = TSR_ENTRY_MODULE;
    } else {
      file.write(part.data);
      entry.size = part.data.size();
      entry.kind = TSR_ENTRY_DATA;
      entry.digest = digest_of(part.data.data(), part.data.size());
    }
    end = entry.offset + entry.size;
  }
  footer.file_size = end + sizeof(footer);
  std::memcpy(footer.magic, TSR_BUNDLE_MAGIC, sizeof(footer.magic));
  footer.digest = digest_of(&footer, offsetof(tsr_bundle_footer, digest));
  file.write(bytes_of(&footer, sizeof(footer)));
  file.commit();
}

std::optional<std::string> read_bundle_data(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse_file(path, "cannot be read");
  const auto size = static_cast<uint64_t>(file.tellg());
  tsr_bundle_footer footer = {};
  if (size < sizeof(footer)) return std::nullopt;
  file.seekg(static_cast<std::streamoff>(size - sizeof(footer)));
  file.read(reinterpret_cast<char*>(&footer), sizeof(footer));
  if (!file) refuse_file(path, "cannot be read");
  if (std::memcmp(footer.magic, TSR_BUNDLE_MAGIC, sizeof(footer.magic)) != 0) return std::nullopt;
  if (digest_of(&footer, offsetof(tsr_bundle_footer, digest)) != footer.digest || footer.file_size != size ||
      footer.num_entries > TSR_MAX_ENTRIES)
    refuse_file(path, "is damaged: its footer does not fit it");
  for (uint64_t i = 0; i < footer.num_entries; ++i) {
    const tsr_bundle_entry& entry = footer.entries[i];
    if (entry.kind != TSR_ENTRY_DATA || std::string_view(entry.name, strnlen(entry.name, sizeof(entry.name))) != name)
      continue;
    if (entry.offset > size || entry.size > size - entry.offset) refuse_file(path, "is damaged: a part does not fit");
    std::string data(entry.size, '\0');
    file.seekg(static_cast<std::streamoff>(entry.offset));
    file.read(data.data(), static_cast<std::streamsize>(data.size()));
    if (!file) refuse_file(path, "cannot be read");
    if (digest_of(data.data(), data.size()) != entry.digest)
      refuse_file(path, fmt::format("is damaged: '{}' does not match its digest", name));
    return data;
  }
  return std::nullopt;
}

}  // namespace tessera::inline package
