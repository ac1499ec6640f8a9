// Several modules, and what belongs to them, in one file (abi/module_abi.h: tsr_bundle_footer).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "package/anonymous_file.h"

namespace tessera::inline package {

struct BundlePart {
  std::string name;                     // shorter than TSR_ENTRY_NAME, of no other part
  std::optional<AnonymousFile> module;  // none: `data` is the part
  std::string data;
};

// REQUIRES: 1 to TSR_MAX_ENTRIES parts, the first of them a module. The file appears whole or not at all; UserError
// TSR-61xx.
void write_bundle_file(const std::string& path, const std::vector<BundlePart>& parts);

}  // namespace tessera::inline package
