// A WebAssembly object -> a module, in process with lld as a library.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline package {

struct WasmLinkOptions {
  std::vector<std::string> functions;  // that it exports, where the object has them
  std::vector<std::string> globals;    // data whose addresses it exports
  std::string description;             // text of the custom section `tessera`, for whoever loads it
};

// The module imports nothing, and has its memory and 256 KiB of stack. The same object gives the same bytes.
// InternalError when the object refers to a symbol that it does not define. Thread-safe, as link_shared_object is.
std::vector<std::byte> link_wasm(std::span<const std::byte> object, const WasmLinkOptions& options);

}  // namespace tessera::inline package
