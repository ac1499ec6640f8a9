#include "runtime/core/module_loader.h"

#include <errno.h>
#include <fcntl.h>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/core/errors.h"

namespace tessera {

namespace {

constexpr char kMemoryName[] = "module in memory";

tessera_status finish(ModuleFile* file, tessera_module** result, tessera_error* error) {
  CodeImage code;
  const tessera_status status = code.load(*file, error);
  if (status != TESSERA_OK) {
    file->close();
    return status;
  }
  void* memory = malloc(sizeof(tessera_module));
  if (!memory) {
    code.unload();
    file->close();
    return fail(error, kErrMemory, "not enough memory to load a module: %zu bytes were refused",
                sizeof(tessera_module));
  }
  *result = new (memory) tessera_module{*file, code};
  return TESSERA_OK;
}

// Everything at once if the kernel lets us; errno tells when it did not.
bool write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

tessera_status load_from_path(const char* path, bool check_weights, tessera_module** module, tessera_error* error) {
  ModuleFile file;
  const tessera_status status = file.open_path(path, check_weights, error);
  return status == TESSERA_OK ? finish(&file, module, error) : status;
}

tessera_status load_from_fd(int fd, const char* name, bool check_weights, tessera_module** module,
                            tessera_error* error) {
  ModuleFile file;
  const tessera_status status = file.open_fd(fd, name, check_weights, error);
  return status == TESSERA_OK ? finish(&file, module, error) : status;
}

tessera_status load_from_memory(const void* bytes, size_t size, bool check_weights, tessera_module** module,
                                tessera_error* error) {
  const int fd = memfd_create("tessera-module", MFD_CLOEXEC);
  if (fd < 0 || !write_all(fd, static_cast<const char*>(bytes), size)) {
    const int reason = errno;
    if (fd >= 0) close(fd);
    return fail(error, kErrMemoryFile, "a module of %zu bytes in memory cannot be loaded: the kernel refuses an "
                "anonymous file (%s); write the module to a file and load that", size, strerror(reason));
  }
  return load_from_fd(fd, kMemoryName, check_weights, module, error);
}

}  // namespace tessera
