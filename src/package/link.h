// Object code -> ELF shared object, in process with lld as a library: no linker is needed on the machine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera::inline package {

struct LinkOptions {
  std::string soname = "tessera_module.so";
  // Patterns of the symbols that it exports; empty: those of a module (TSR_ENTRY_SYMBOL, TSR_PREPARE_SYMBOL, with any
  // suffix).
  std::vector<std::string> exports;
  std::vector<std::string> files;  // objects and archives that become part of it, libraries that it then depends on
};

// Links relocatable ELF objects into a shared object that exports what the options say and nothing else and depends
// on no library but those of `files`. The same objects give the same bytes. When one is unusable or refers to a
// symbol that nothing defines: UserError TSR-6110 with lld's own words when there are files, else InternalError.
// Thread safety: may be called from several threads; lld itself is not re-entrant, so calls wait for each other.
std::vector<std::byte> link_shared_object(std::span<const std::span<const std::byte>> objects,
                                          const LinkOptions& options);
std::vector<std::byte> link_shared_object(std::span<const std::byte> object, const LinkOptions& options);

}  // namespace tessera::inline package
