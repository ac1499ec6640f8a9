#include "package/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "package/anonymous_file.h"
#include "support/error.h"

namespace tessera::inline package {

namespace {

// Names of the files being written. The one piece of state in the process that is not owned by a compile: signals
// arrive at the process, not at a compile. A name is copied in whole before `used` says so.
struct Slot {
  enum State : int { kFree, kTaken, kUsed };
  std::atomic<int> state{kFree};
  char path[PATH_MAX];
};
std::array<Slot, 64>& slots() {
  static constinit std::array<Slot, 64> list = {};
  return list;
}

// -1 when all slots are taken or the name is too long: the file is then not removed by a signal, which is bearable.
int take_slot(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (size_t i = 0; i < slots().size(); ++i) {
    int expected = Slot::kFree;
    if (!slots()[i].state.compare_exchange_strong(expected, Slot::kTaken)) continue;
    std::memcpy(slots()[i].path, path.c_str(), path.size() + 1);
    slots()[i].state = Slot::kUsed;
    return static_cast<int>(i);
  }
  return -1;
}

void free_slot(int slot) {
  if (slot >= 0) slots()[static_cast<size_t>(slot)].state = Slot::kFree;
}

std::atomic<unsigned>& temporary_counter() {
  static constinit std::atomic<unsigned> counter = 0;
  return counter;
}

[[noreturn]] void fail_to_create(const std::string& what, const std::string& path, const char* reason) {
  throw UserError({.id = "TSR-6102",
                   .message = fmt::format("{} '{}' cannot be written: {}", what, path, reason),
                   .node = {},
                   .legal = "a file name in an existing folder that may be written to",
                   .hint = "make the folder, or give another file name"});
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string what) : path_(std::move(path)), what_(std::move(what)) {
  struct stat info = {};
  if (stat(path_.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) fail_to_create(what_, path_, "it is a folder");
  // Devices and pipes ("-o /dev/stdout") have no place for a temporary file beside them: written straight.
  if (stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail_to_create(what_, path_, std::strerror(errno));
    return;
  }
  temporary_ = fmt::format("{}.tmp-{}-{}", path_, getpid(), temporary_counter()++);
  slot_ = take_slot(temporary_);
  fd_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    const int reason = errno;
    free_slot(slot_);
    fail_to_create(what_, path_, std::strerror(reason));
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  free_slot(slot_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_fully(fd_, bytes, fmt::format("{} '{}'", what_, path_));
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  // Some file systems report a full disk only at close.
  const int failed = close(std::exchange(fd_, -1));
  if (failed != 0) fail_to_create(what_, path_, std::strerror(errno));
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_create(what_, path_, std::strerror(errno));
  temporary_.clear();
}

void write_file(const std::string& path, const std::string& what, std::string_view contents) {
  AtomicFile file(path, what);
  file.write(contents);
  file.commit();
}

void remove_unfinished_files() noexcept {
  for (Slot& slot : slots()) {
    if (slot.state.load() == Slot::kUsed) unlink(slot.path);
  }
}

}  // namespace tessera::inline package
