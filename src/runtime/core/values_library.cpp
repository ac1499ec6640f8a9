#include "runtime/core/values_library.h"

#include <dlfcn.h>
#include <string.h>

#include "runtime/core/errors.h"
#include "runtime/core/libraries.h"
#include "runtime/core/module_loader.h"
#include "runtime/core/session.h"

// Null in a program that is not linked with libtessera_values.
extern "C" __attribute__((weak)) const tessera::ValuesLibrary tessera_values_library;

namespace tessera {

namespace {

// Null when there is none; dlerror says why.
const ValuesLibrary* load_library() {
  void* handle = open_library("tessera_values");
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
                module_name, clip_path(reason ? reason : "it is not linked").text, library_name("tessera_values").text);
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
