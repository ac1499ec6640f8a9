// The zip archive of a .pt2 file, in memory. Nothing is unpacked to a disk: names are keys and no paths.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline aten {

struct ArchiveEntry {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};

class Pt2Archive {
 public:
  // Borrows `bytes`, which `owner` keeps alive; null: they outlive the archive and what it answers. UserError TSR-1111
  // when they are no zip archive or a damaged one, TSR-1112 for entries that no .pt2 file has: names that lead out of
  // the archive, encryption, contents that are much larger than what is in the file.
  Pt2Archive(std::string_view bytes, std::shared_ptr<const void> owner, std::string place);

  // Without the folder that all names begin with, in the archive's order.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return entries_.contains(name); }
  // The contents, aligned to 16 bytes; borrowed where they are stored so. UserError TSR-1111 when they are damaged
  // (their checksum differs), TSR-1113 when there is no such entry.
  ArchiveEntry read(const std::string& name) const;

  const std::string& place() const { return place_; }

 private:
  struct Entry {
    std::string name;  // whole
    uint64_t offset = 0, stored = 0, size = 0;
    uint32_t crc = 0;
    bool deflated = false;
  };
  [[noreturn]] void damaged(const std::string& found) const;

  std::string_view bytes_;
  std::shared_ptr<const void> owner_;
  std::string place_;
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
};

}  // namespace tessera::inline aten
