#include "runtime/core/values_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "runtime/core/errors.h"
#include "runtime/core/module_loader.h"
#include "runtime/core/session.h"

// Null in a program that is not linked with libtessera_values.
extern "C" __attribute__((weak)) const tessera::ValuesLibrary tessera_values_library;

namespace tessera {

namespace {

struct FileName {
  char text[4096];
};

// "libtessera_values.so.0": the number is that of incompatible versions, the first of the three.
FileName library_name(const char* folder, size_t folder_size) {
  FileName result;
  snprintf(result.text, sizeof(result.text), "%.*slibtessera_values.so.%.*s", static_cast<int>(folder_size), folder,
           static_cast<int>(strcspn(TESSERA_VERSION, ".")), TESSERA_VERSION);
  return result;
}

// Null when there is none; dlerror says why.
const ValuesLibrary* load_library() {
  void* handle = nullptr;
  Dl_info self;
  // The name of the file is as the program was started when this code is linked into it: a path is one only from the
  // root on.
  if (dladdr(reinterpret_cast<const void*>(&find_values_library), &self) != 0 && self.dli_fname &&
      self.dli_fname[0] == '/') {
    const size_t folder_size = static_cast<size_t>(strrchr(self.dli_fname, '/') + 1 - self.dli_fname);
    handle = dlopen(library_name(self.dli_fname, folder_size).text, RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle) handle = dlopen(library_name("", 0).text, RTLD_NOW | RTLD_LOCAL);
  return handle ? static_cast<const ValuesLibrary*>(dlsym(handle, "tessera_values_library")) : nullptr;
}

}  // namespace

tessera_status find_values_library(const char* module_name, const ValuesLibrary** library, tessera_error* error) {
  const ValuesLibrary* const linked = &tessera_values_library;
  const ValuesLibrary* const found = linked ? linked : load_library();
  if (!found) {
    const char* reason = dlerror();
    return fail(error, kErrNoValuesLibrary,
                "'%s' has strings, sequences, maps or tensors of sizes that a run decides, and libtessera_values, "
                "which they need, cannot be loaded: %s; install %s beside libtessera_runtime.so, or link "
                "libtessera_values.a into the program (-Wl,-u,tessera_values_library -ltessera_values "
                "-ltessera_runtime)",
                module_name, clip_path(reason ? reason : "it is not linked").text, library_name("", 0).text);
  }
  if (found->size != sizeof(ValuesLibrary) || found->session_bytes != sizeof(tessera_session) ||
      found->module_bytes != sizeof(tessera_module) ||
      strncmp(found->version, TESSERA_VERSION, sizeof(found->version)) != 0) {
    return fail(error, kErrNoValuesLibrary,
                "'%s' has strings, sequences, maps or tensors of sizes that a run decides, and the libtessera_values "
                "that is there for them is of another build (%.20s) than this runtime (" TESSERA_VERSION
                "); install both from one build",
                module_name, found->version);
  }
  *library = found;
  return TESSERA_OK;
}

}  // namespace tessera
