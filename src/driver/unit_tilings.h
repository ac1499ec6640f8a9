// Tilings of an accelerator's kernels as points of a space, with a knob for each number: what the tuner searches, and
// what its records hold. Text form: unit_tiling{place0=7,place1=28,out=4,in=1,inner=1,x=2,w=2,sums=2}.
#pragma once

#include <optional>
#include <string_view>

#include "accel/network/unit_kernel.h"
#include "schedule/kernel/knobs.h"

namespace tessera::inline driver {

inline constexpr std::string_view kUnitTiling = "unit_tiling";  // in place of a rule's name

KnobPoint to_point(const UnitTiling& tiling);
// Nothing for points of rules. Whether it is one of a kernel says cycles_of (accel/network/offload.h).
std::optional<UnitTiling> tiling_at(const KnobPoint& point);

// All tilings of a kernel, those included that memories do not hold: every way to cut its places into equal parts, any
// number of blocks of channels, either order, and up to the unit's threads of each operand.
KnobSpace tiling_space(const Accelerator& unit, const UnitRoles& roles, const Contraction& of,
                       const UnitTiling& preferred);

}  // namespace tessera::inline driver
