#include "package/bundle.h"

#include <cstring>

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

}  // namespace tessera::inline package
