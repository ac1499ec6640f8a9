#include "runtime/core/module_loader.h"

#include <stdlib.h>
#include <new>

#include "runtime/core/errors.h"

namespace tessera {

namespace {

tessera_status finish(ModuleFile* file, tessera_module** result, tessera_error* error) {
  CodeImage code;
  tessera_status status = code.load(*file, error);
  const ValuesLibrary* values = nullptr;
  if (status == TESSERA_OK && file->has_values()) status = find_values_library(file->name, &values, error);
  ModuleDevices* devices = nullptr;
  if (status == TESSERA_OK) status = open_devices(*file, &devices, error);
  if (status != TESSERA_OK) {
    code.unload();
    file->close();
    return status;
  }
  void* memory = malloc(sizeof(tessera_module));
  if (!memory) {
    close_devices(devices);
    code.unload();
    file->close();
    return fail(error, kErrMemory, "not enough memory to load a module: %zu bytes were refused",
                sizeof(tessera_module));
  }
  *result = new (memory) tessera_module{*file, code, values, devices};
  return TESSERA_OK;
}

}  // namespace

tessera_status load_from_path(const char* path, const char* entry, bool check_weights, tessera_module** module,
                              tessera_error* error) {
  ModuleFile file;
  const tessera_status status = file.open_path(path, entry, check_weights, error);
  return status == TESSERA_OK ? finish(&file, module, error) : status;
}

tessera_status load_from_fd(int fd, const char* name, const char* entry, bool check_weights, tessera_module** module,
                            tessera_error* error) {
  ModuleFile file;
  const tessera_status status = file.open_fd(fd, name, entry, check_weights, error);
  return status == TESSERA_OK ? finish(&file, module, error) : status;
}

tessera_status load_from_memory(const void* bytes, size_t size, const char* entry, bool check_weights,
                                tessera_module** module, tessera_error* error) {
  ModuleFile file;
  const tessera_status status = file.open_memory(bytes, size, entry, check_weights, error);
  return status == TESSERA_OK ? finish(&file, module, error) : status;
}

}  // namespace tessera
