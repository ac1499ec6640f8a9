#include "codegen/common/object_code.h"

#include <algorithm>

namespace tessera {

std::vector<std::string> symbol_order(const Program& program) {
  std::vector<std::string> names;
  for (const Kernel& kernel : program.kernels)
    for (const Var& symbol : kernel.program.symbols)
      if (std::find(names.begin(), names.end(), symbol->name) == names.end()) names.push_back(symbol->name);
  return names;
}

}  // namespace tessera
