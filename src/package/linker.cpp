#include "package/linker.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <mutex>

#include <fmt/format.h>
#include <lld/Common/Driver.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/raw_ostream.h>

#include "support/error.h"

LLD_HAS_DRIVER(elf)
LLD_HAS_DRIVER(wasm)

namespace tessera::inline package {

namespace {

// lld keeps its state in globals.
std::mutex& lld_mutex() {
  static std::mutex mutex;
  return mutex;
}

// lld's fatal errors leave through exit() unless LLVM's crash recovery is on, which turns them into a return. While it
// is on, LLVM also holds the process's fault signals; so it is on only during a link.
class CrashRecovery {
 public:
  CrashRecovery() { llvm::CrashRecoveryContext::Enable(); }
  ~CrashRecovery() { llvm::CrashRecoveryContext::Disable(); }
  CrashRecovery(const CrashRecovery&) = delete;
  CrashRecovery& operator=(const CrashRecovery&) = delete;
};

}  // namespace

OutputPipe::OutputPipe() {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, "no pipe for the linker's output");
  read_end_ = ends[0], write_end_ = ends[1];
  reader_ = std::thread([this] { drain(); });
}

OutputPipe::~OutputPipe() {
  if (reader_.joinable()) finish();
  close(read_end_);
}

std::string OutputPipe::path() const { return fmt::format("/proc/self/fd/{}", write_end_); }

std::vector<std::byte> OutputPipe::finish() {
  close(write_end_);
  reader_.join();
  return std::move(bytes_);
}

void OutputPipe::drain() {
  std::array<std::byte, 65536> chunk;
  while (true) {
    const ssize_t got = read(read_end_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    bytes_.insert(bytes_.end(), chunk.begin(), chunk.begin() + got);
  }
}

AnonymousFile file_with(const char* label, std::span<const std::byte> bytes) {
  AnonymousFile file(label);
  write_fully(file.fd(), bytes, "a file in memory");
  return file;
}

LinkerResult run_linker(const std::vector<const char*>& arguments) {
  LinkerResult result;
  std::string notes;
  llvm::raw_string_ostream note_stream(notes), error_stream(result.errors);
  const std::lock_guard lock(lld_mutex());
  const CrashRecovery recovery;
  const lld::Result linked =
      lld::lldMain(arguments, note_stream, error_stream, {{lld::Gnu, &lld::elf::link}, {lld::Wasm, &lld::wasm::link}});
  result.done = linked.retCode == 0;
  return result;
}

}  // namespace tessera::inline package
