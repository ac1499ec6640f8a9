// Programs of PyTorch's ATen operators (.pt2 archives), beside what compiler.h does with every model.
#pragma once

#include <string>
#include <vector>

#include "tessera/compiler.h"

namespace tessera {

struct RefusedNode {
  std::string name;    // the program's
  std::string target;  // its operator, "aten.nonzero.default"
  std::string reason;
};
// The nodes that would not be imported, in the program's order; each is judged as if those before it were. Of the
// options only `dims` and `shapes` matter, with one value for each open size. CompileError as compile_to_memory, but
// for such nodes.
std::vector<RefusedNode> refused_nodes(const ModelBytes& program, const CompileOptions& options = {});

// The names of all operators that are read in some form, without overloads: "aten.add".
std::vector<std::string> aten_operators();

}  // namespace tessera
