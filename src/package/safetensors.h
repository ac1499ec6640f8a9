// Tensors by name in one file, in the form that Python's library safetensors reads and writes: the length of a header
// (u64, little endian), the header as JSON, then the bytes of all tensors without gaps. A tensor may be called
// "__metadata__", which the form keeps for itself: in the file it has a further underscore.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline package {

struct NamedTensors {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, std::string> metadata;  // texts that whoever writes the file keeps with it
};

// The file appears whole or not at all. UserError TSR-6101, TSR-6102. REQUIRES: names that differ, and element types
// that the form has: all but string and those of fewer than 8 bits.
void write_safetensors(const std::string& path, const NamedTensors& contents);
// UserError TSR-6214 for a file that cannot be read or is not in this format.
NamedTensors read_safetensors(const std::string& path);

}  // namespace tessera::inline package
