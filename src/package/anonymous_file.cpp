#include "package/anonymous_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline package {

namespace {

[[noreturn]] void fail_to_write(const std::string& what, int reason) {
  throw UserError({.id = "TSR-6101",
                   .message = fmt::format("{} cannot be written: {}", what, std::strerror(reason)),
                   .node = {},
                   .legal = "a place with enough free space that may be written to",
                   .hint = "free space, or give another file name"});
}

}  // namespace

AnonymousFile::AnonymousFile(const char* label) : fd_(memfd_create(label, MFD_CLOEXEC)) {
  if (fd_ < 0) fail_to_write("an anonymous file in memory", errno);
}

AnonymousFile::~AnonymousFile() {
  if (fd_ >= 0) close(fd_);
}

AnonymousFile& AnonymousFile::operator=(AnonymousFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int AnonymousFile::release() { return std::exchange(fd_, -1); }

std::string AnonymousFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

std::vector<std::byte> AnonymousFile::contents() const {
  struct stat info = {};
  check(fstat(fd_, &info) == 0, "an anonymous file cannot be asked for its size");
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    check(got > 0, "an anonymous file cannot be read back");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void write_fully(int fd, std::span<const std::byte> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to_write(what, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

}  // namespace tessera::inline package
