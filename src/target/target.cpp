#include "target/target.h"

#include <algorithm>

namespace tessera::inline target {

bool Target::has_all(std::string_view names) const {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (!has(std::string(names.substr(0, end)))) return false;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return true;
}

const VectorFile& Target::vectors() const {
  const auto& files = architecture().vectors;
  return *std::find_if(files.begin(), files.end() - 1, [&](const VectorFile& file) { return has_all(file.needs); });
}

const MatrixUnit* Target::matrix_unit() const {
  const auto& units = matrix_units();
  const auto it = std::find_if(units.begin(), units.end(), [&](const MatrixUnit& unit) { return has_all(unit.needs); });
  return it == units.end() ? nullptr : &*it;
}

std::vector<MemorySpace> memory_spaces(const Target& target) {
  const VectorFile& file = target.vectors();
  return {{"registers", int64_t{file.bits} / 8 * file.registers},
          {"L1", target.l1_bytes},
          {"L2", target.l2_bytes},
          {"L3", target.l3_bytes, true},
          {"memory", 0, true}};
}

Target reference_machine() {
  Target machine;
  machine.triple = machine.cpu = kReferenceTriple;
  machine.num_threads = 4;
  return machine;
}

}  // namespace tessera::inline target
