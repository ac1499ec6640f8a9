// WebAssembly as a target.
#pragma once

#include <string_view>

#include "target/target.h"

namespace tessera::inline target {

inline constexpr std::string_view kWasmTriple = "wasm32";

inline bool is_wasm(const Target& target) { return target.triple.starts_with(kWasmTriple); }

}  // namespace tessera::inline target
