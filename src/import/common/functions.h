// Functions that more than one reader writes as nodes.
#pragma once

#include "import/common/emitter.h"

namespace tessera::inline import_common {

// The angle of the point (x, y): atan(y / x), moved by half a turn left of the y axis. Zeros and infinities have the
// signs that they have: a point on the left end of the x axis may lie just below it.
ValueId angle_of(Emitter& c, ValueId y, ValueId x);

}  // namespace tessera::inline import_common
