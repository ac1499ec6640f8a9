// Object code -> ELF shared object, in process with lld as a library: no linker is needed on the machine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera {

struct LinkOptions {
  std::string soname = "tessera_module.so";
};

// Links one relocatable ELF object into a shared object that exports TSR_ENTRY_SYMBOL and nothing else and depends on
// no library. The same object gives the same bytes. InternalError with lld's own words when the object is unusable or
// refers to a symbol it does not define: objects come from our code generator, so this is never the user's fault.
// Thread safety: may be called from several threads; lld itself is not re-entrant, so calls wait for each other.
std::vector<std::byte> link_shared_object(std::span<const std::byte> object, const LinkOptions& options);

}  // namespace tessera
