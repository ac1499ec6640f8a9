#include "package/link.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <lld/Common/Driver.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/raw_ostream.h>

#include "abi/module_abi.h"
#include "package/anonymous_file.h"
#include "support/error.h"

LLD_HAS_DRIVER(elf)

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

// A pipe that a thread empties into memory. lld replaces regular output files by name, which an anonymous file does not
// allow; a pipe it simply writes to. Nothing touches the disk that way.
class OutputPipe {
 public:
  OutputPipe() {
    int ends[2];
    check(pipe2(ends, O_CLOEXEC) == 0, "no pipe for the linker's output");
    read_end_ = ends[0], write_end_ = ends[1];
    reader_ = std::thread([this] { drain(); });
  }
  ~OutputPipe() {
    if (reader_.joinable()) finish();
    close(read_end_);
  }
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  std::string path() const { return fmt::format("/proc/self/fd/{}", write_end_); }
  // Everything that was written. Call once, when nobody writes any more.
  std::vector<std::byte> finish() {
    close(write_end_);
    reader_.join();
    return std::move(bytes_);
  }

 private:
  void drain() {
    std::array<std::byte, 65536> chunk;
    while (true) {
      const ssize_t got = read(read_end_, chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      bytes_.insert(bytes_.end(), chunk.begin(), chunk.begin() + got);
    }
  }

  int read_end_ = -1, write_end_ = -1;
  std::vector<std::byte> bytes_;  // the reader's until it is joined
  std::thread reader_;
};

AnonymousFile file_with(const char* label, std::span<const std::byte> bytes) {
  AnonymousFile file(label);
  write_fully(file.fd(), bytes, "a file in memory");
  return file;
}

// Of lld's words, on one line.
std::string first_lines(const std::string& text) {
  std::string result;
  size_t lines = 0;
  for (size_t at = 0; at < text.size() && lines < 4; ++lines) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.starts_with("ld.lld: error: ")) line = line.substr(15);
    if (!line.empty()) result += (result.empty() ? "" : " ") + line;
    at = end + 1;
  }
  return result;
}

}  // namespace

std::vector<std::byte> link_shared_object(std::span<const std::byte> object, const LinkOptions& options) {
  return link_shared_object(std::span(&object, 1), options);
}

std::vector<std::byte> link_shared_object(std::span<const std::span<const std::byte>> objects,
                                          const LinkOptions& options) {
  // Not every module prepares; a pattern need not match.
  const std::vector<std::string> patterns = options.exports.empty()
                                                ? std::vector<std::string>{TSR_ENTRY_SYMBOL "*", TSR_PREPARE_SYMBOL "*"}
                                                : options.exports;
  const std::string exported = fmt::format("{{ global: {}; local: *; }};\n", fmt::join(patterns, "; "));
  std::vector<AnonymousFile> inputs;
  std::vector<std::string> input_paths;
  for (const std::span<const std::byte> object : objects)
    input_paths.push_back(inputs.emplace_back(file_with("tessera-object", object)).path());
  const AnonymousFile exports = file_with("tessera-exports", std::as_bytes(std::span(exported)));
  OutputPipe output;
  const std::string version_script = "--version-script=" + exports.path(), soname = "-soname=" + options.soname,
                    output_path = output.path();
  std::vector<const char*> args = {"ld.lld",
                                   "-shared",
                                   "-nostdlib",
                                   soname.c_str(),
                                   version_script.c_str(),
                                   "-o",
                                   output_path.c_str(),
                                   "--build-id=none",
                                   "--gc-sections",
                                   "--hash-style=gnu",
                                   "--no-undefined-version",
                                   "--threads=1",
                                   "-z",
                                   "defs",
                                   "-z",
                                   "noexecstack",
                                   "-z",
                                   "max-page-size=4096",
                                   "-z",
                                   "now",
                                   "-z",
                                   "relro",
                                   "-z",
                                   "text"};
  for (const std::string& path : input_paths) args.push_back(path.c_str());
  std::vector<std::string> folders;  // where the loader looks for libraries first: where they were found
  for (const std::string& file : options.files) {
    args.push_back(file.c_str());
    if (file.find(".so") == std::string::npos) continue;
    std::error_code ignored;
    folders.push_back("-rpath=" + std::filesystem::canonical(file, ignored).parent_path().string());
  }
  for (const std::string& folder : folders) args.push_back(folder.c_str());

  std::string notes, errors;
  llvm::raw_string_ostream note_stream(notes), error_stream(errors);
  const std::lock_guard lock(lld_mutex());
  const CrashRecovery recovery;
  const lld::Result result = lld::lldMain(args, note_stream, error_stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0 && !options.files.empty())
    throw UserError({.id = "TSR-6110",
                     .message = fmt::format("the module cannot be linked with {}: {}", fmt::join(options.files, ", "),
                                            first_lines(error_stream.str())),
                     .node = {},
                     .legal = "files that define all that they and the declarations name, or name a library that does",
                     .hint = "objects are made with 'cc -c -O2 -fPIC'; of the C library a module has memset, memcpy, "
                             "memmove and memcmp only"});
  if (result.retCode != 0) throw InternalError(fmt::format("lld cannot link a module:\n{}", error_stream.str()));
  return output.finish();
}

}  // namespace tessera::inline package
