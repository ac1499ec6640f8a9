// The way from the core to libtessera_values (src/runtime/values), which runs the steps of modules with values. It is a
// library of its own because few modules need it: a program links it, or it is loaded with the first module that does.
#pragma once

#include <stdint.h>

#include "abi/module_abi.h"
#include "tessera/tessera.h"

namespace tessera {

// What the steps need of the core's state: sessions and their threads. Everything else that they call is a function
// without state (errors.h, dtypes.h, utf8.h), of which libtessera_values.so has copies.
struct CoreFunctions {
  int32_t (*run_code)(tessera_session* session);
  tessera_status (*read_checks)(const tessera_session& session, uint32_t first, uint32_t count, tessera_error* error);
};

// What libtessera_values defines, as the one symbol `tessera_values_library`. Both sides read tessera_session and
// tessera_module, so a table of another version, or with other sizes, is not used.
struct ValuesLibrary {
  uint32_t size;  // sizeof(ValuesLibrary)
  uint32_t session_bytes, module_bytes;
  char version[28];  // tessera_version() of its build
  // tessera_session_run_values with checked arguments, of a session that is marked as running.
  tessera_status (*run)(const CoreFunctions& core, tessera_session* session, const tessera_value* const* inputs,
                        tessera_value** outputs, const tessera_allocator* allocator, tessera_error* error);
  int32_t (*step)(void* session, uint32_t step, tsr_run_fn piece);  // tsr_host.step
};

// The table that is linked into the program, else that of the shared library beside the file that this code is in, else
// that of the shared library where the dynamic loader finds it; such a library stays loaded. On failure `*library` is
// untouched. `module_name` is for the message.
tessera_status find_values_library(const char* module_name, const ValuesLibrary** library, tessera_error* error);

}  // namespace tessera
