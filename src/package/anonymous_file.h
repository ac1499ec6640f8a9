// A file without a name, in memory: what lld reads and writes, and how a module is run without touching the disk.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera::inline package {

// Owns the descriptor. Moves, never copies.
class AnonymousFile {
 public:
  // UserError when the kernel refuses one; `label` appears in /proc only.
  explicit AnonymousFile(const char* label);
  ~AnonymousFile();
  AnonymousFile(AnonymousFile&& other) noexcept : fd_(other.release()) {}
  AnonymousFile& operator=(AnonymousFile&& other) noexcept;

  int fd() const { return fd_; }
  // Gives the descriptor away; the caller closes it.
  int release();
  std::string path() const;  // "/proc/self/fd/N": opens the same file
  std::vector<std::byte> contents() const;

 private:
  int fd_ = -1;
};

// Writes everything or throws UserError TSR-6101 that names `what`.
void write_fully(int fd, std::span<const std::byte> bytes, const std::string& what);

}  // namespace tessera::inline package
