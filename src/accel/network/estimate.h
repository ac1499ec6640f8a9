// How many cycles a tiling takes, by what the description says and without its stream: for choosing, not for telling.
// Each group of a tile's instructions (loading x, multiplying, storing ..) is one step of its queue, of average length,
// and waits for the buffers that it reads and writes; a few tiles are run, and the rest take as long as the last ones.
#pragma once

#include <vector>

#include "accel/description.h"
#include "accel/network/unit_kernel.h"

namespace tessera::inline network {

class CycleEstimate {
 public:
  // All four must outlive it.
  CycleEstimate(const Accelerator& unit, const UnitRoles& roles, const Contraction& of, const Cover& cover)
      : unit_(unit), roles_(roles), of_(of), cover_(cover) {}

  // What the busiest queue, or DRAM's port, takes alone: quick, and nearly a bound.
  double busiest(const UnitTiling& tiling) const;
  // With waiting.
  double cycles(const UnitTiling& tiling) const;

 private:
  const Accelerator& unit_;
  const UnitRoles& roles_;
  const Contraction& of_;
  const Cover& cover_;
};

}  // namespace tessera::inline network
