// Programs: the launcher's bytes, a module, a trailer.
#include <sys/stat.h>

#include <cstring>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "abi/executable_trailer.h"
#include "abi/module_abi.h"
#include "package/atomic_file.h"
#include "package/module_writer.h"
#include "support/error.h"

// src/launcher, as it was built.
asm(".section .rodata\n"
    ".balign 16\n"
    ".global tessera_launcher_begin\n"
    "tessera_launcher_begin:\n"
    ".incbin \"" TESSERA_LAUNCHER
    "\"\n"
    ".global tessera_launcher_end\n"
    "tessera_launcher_end:\n"
    ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const std::byte tessera_launcher_begin[], tessera_launcher_end[];

namespace tessera::inline package {

namespace {

#if defined(__x86_64__)
constexpr const char* kOwnArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char* kOwnArchitecture = "aarch64";
#elif defined(__riscv)
constexpr const char* kOwnArchitecture = "riscv64";
#endif

void check_machine(const std::string& triple) {
  const std::string architecture = triple.substr(0, triple.find('-'));
  if (architecture == kOwnArchitecture) return;
  throw UserError(
      {.id = "TSR-4078",
       .message = fmt::format("a program for {} is to be written, and this compiler has the launcher for {}",
                              architecture, kOwnArchitecture),
       .node = {},
       .legal = fmt::format("a target of {}", kOwnArchitecture),
       .hint = "write a module (--emit module), and link the runtime on that machine: docs/deploy.md"});
}

}  // namespace

void write_executable(const std::string& path, const ModuleContents& contents) {
  check_machine(contents.info.target_triple);
  const std::span launcher(tessera_launcher_begin, tessera_launcher_end);
  const std::vector<std::byte> zeros((TSR_BUFFER_ALIGN - launcher.size() % TSR_BUFFER_ALIGN) % TSR_BUFFER_ALIGN);
  tsr_executable_trailer trailer = {};
  static_assert(sizeof(TSR_EXECUTABLE_MAGIC) == sizeof(trailer.magic));
  std::memcpy(trailer.magic, TSR_EXECUTABLE_MAGIC, sizeof(trailer.magic));
  trailer.module_offset = launcher.size() + zeros.size();
  AtomicFile file(path, "program");
  file.write(launcher);
  file.write(zeros);
  trailer.module_size = write_module(file.fd(), "program '" + path + "'", contents);
  file.write(std::as_bytes(std::span(&trailer, 1)));
  // Executable by whoever may read it.
  struct stat info = {};
  if (fstat(file.fd(), &info) == 0) fchmod(file.fd(), info.st_mode | ((info.st_mode & 0444) >> 2));
  file.commit();
}

}  // namespace tessera::inline package
