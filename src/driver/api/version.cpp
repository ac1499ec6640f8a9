#include "driver/api/version.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "tessera/compiler.h"

namespace tessera {

std::string_view compiler_version() { return TESSERA_VERSION; }

}  // namespace tessera

namespace tessera::inline driver {

std::string version_text() { return fmt::format("tessera {} (LLVM {})", compiler_version(), TESSERA_LLVM_VERSION); }

std::string build_identity() {
  // The file that this function was loaded from: the program, or a library around the compiler.
  Dl_info where = {};
  struct stat info = {};
  if (dladdr(reinterpret_cast<const void*>(&build_identity), &where) == 0 || !where.dli_fname ||
      (stat(where.dli_fname, &info) != 0 && stat("/proc/self/exe", &info) != 0)) {
    return version_text();
  }
  return fmt::format("{} {} {}.{}", version_text(), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

}  // namespace tessera::inline driver
