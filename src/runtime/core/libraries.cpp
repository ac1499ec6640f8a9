#include "runtime/core/libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace tessera {

LibraryName library_name(const char* name) {
  LibraryName result;
  snprintf(result.text, sizeof(result.text), "lib%s.so.%.*s", name, static_cast<int>(strcspn(TESSERA_VERSION, ".")),
           TESSERA_VERSION);
  return result;
}

void* open_library(const char* name) {
  const LibraryName file = library_name(name);
  void* handle = nullptr;
  Dl_info self;
  // The name of the file is as the program was started when this code is linked into it: a path is one only from the
  // root on.
  if (dladdr(reinterpret_cast<const void*>(&open_library), &self) != 0 && self.dli_fname && self.dli_fname[0] == '/') {
    char path[4096];
    const auto folder_size = static_cast<int>(strrchr(self.dli_fname, '/') + 1 - self.dli_fname);
    snprintf(path, sizeof(path), "%.*s%s", folder_size, self.dli_fname, file.text);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return handle ? handle : dlopen(file.text, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace tessera
