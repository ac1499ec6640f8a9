// ZIP archives, as far as numpy writes them: stored or deflated files, of any size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;      // of its local header
  uint64_t compressed = 0;  // bytes
  uint64_t size = 0;        // bytes, uncompressed
  uint32_t crc = 0;
  uint16_t method = 0;  // 0: stored, 8: deflated
};

// The entries of the archive's directory, in order. `path` is for messages. UserError TSR-6211 for bytes that are no
// archive.
std::vector<ZipEntry> zip_entries(const std::string& path, std::string_view archive);
// The bytes of one of them. UserError TSR-6211 for another kind of compression, or damage.
std::string unzipped(const std::string& path, std::string_view archive, const ZipEntry& entry);

}  // namespace tessera
