// From a module file to something a session can run: the file as checked data, then its code.
#pragma once

#include <stddef.h>

#include "runtime/core/code_image.h"
#include "runtime/core/devices.h"
#include "runtime/core/module_file.h"
#include "runtime/core/values_library.h"
#include "tessera/tessera.h"

// Immutable after loading; may be shared by threads and sessions.
struct tessera_module {
  tessera::ModuleFile file;
  tessera::CodeImage code;
  const tessera::ValuesLibrary* values;  // null without values
  tessera::ModuleDevices* devices;       // null without devices
};

namespace tessera {

// Each loads a module into `*module`, to be freed with tessera_module_free; on failure `*module` is untouched. Of a
// bundle the entry of this name; null: the first.
// The weights are never copied: they stay in the file's mapping.
tessera_status load_from_path(const char* path, const char* entry, bool check_weights, tessera_module** module,
                              tessera_error* error);
// From an open file (a memfd, say) positioned anywhere; takes ownership of `fd` in every case.
tessera_status load_from_fd(int fd, const char* name, const char* entry, bool check_weights, tessera_module** module,
                            tessera_error* error);
// From bytes, which are copied once into an anonymous file and may be freed afterwards.
tessera_status load_from_memory(const void* bytes, size_t size, const char* entry, bool check_weights,
                                tessera_module** module, tessera_error* error);

}  // namespace tessera
