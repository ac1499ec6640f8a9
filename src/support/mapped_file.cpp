#include "support/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/error.h"

namespace tessera::inline support {
namespace {

// Closes the descriptor on every way out; the mapping does not need it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, const std::string& what,
                                                   const std::string& error_id) {
  // Non-blocking, so that opening a pipe cannot hang.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0)
    throw UserError({error_id, fmt::format("cannot open the {} '{}': {}", what, path, std::strerror(errno)), "",
                     "a readable file", "check the path and the permissions"});
  struct stat info{};
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
    throw UserError({error_id, fmt::format("the {} '{}' is not a regular file", what, path), "", "a regular file",
                     "give the name of a file, not of a folder or a device"});
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  if (info.st_size == 0) return mapped;
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    throw UserError({error_id, fmt::format("cannot map the {} '{}': {}", what, path, std::strerror(errno)), "",
                     "a file that can be mapped into memory", "copy it to a local disk"});
  mapped->data_ = static_cast<const std::byte*>(data);
  mapped->size_ = size;
  return mapped;
}

void MappedFile::forget(size_t size) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (const size_t pages = std::min(size, size_) / page * page; data_ && pages > 0)
    madvise(const_cast<std::byte*>(data_), pages, MADV_DONTNEED);  // advice: whether it is taken does not matter
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tessera::inline support
