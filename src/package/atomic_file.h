// A file that appears under its name whole or not at all: written beside its place under a temporary name, then
// renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::inline package {

// Thread safety: one thread at a time per object; different objects are independent.
class AtomicFile {
 public:
  // Opens the temporary file. UserError TSR-6102 when the folder of `path` cannot be written to, or `path` is a
  // folder. `what` names the file's role in messages ("module").
  AtomicFile(std::string path, std::string what);
  // Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int fd() const { return fd_; }
  void write(std::span<const std::byte> bytes);  // UserError TSR-6101 when the disk is full, say
  void write(std::string_view text);
  // Gives the file its name, replacing what had it; other names of the old file keep the old contents.
  void commit();

 private:
  std::string path_, what_, temporary_;
  int fd_ = -1;
  int slot_ = -1;  // in the list of remove_unfinished_files
};

// The file with `contents` and nothing else; UserError as AtomicFile.
void write_file(const std::string& path, const std::string& what, std::string_view contents);

// Removes the temporary files of this process that are being written. For signal handlers: async-signal-safe.
void remove_unfinished_files() noexcept;

}  // namespace tessera::inline package
