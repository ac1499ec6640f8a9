// Libraries that belong to the runtime and are loaded when a module needs them.
#pragma once

namespace tessera {

struct LibraryName {
  char text[64];
};
// "libtessera_values.so.0" for "tessera_values": the number is that of incompatible versions, the first of the three.
LibraryName library_name(const char* name);

// Looks beside this code's own library first, then where the system looks. Null when there is none; dlerror says why.
void* open_library(const char* name);

}  // namespace tessera
