// Functions that more than one reader writes as nodes.
#pragma once

#include <string>
#include <vector>

#include "import/common/emitter.h"

namespace tessera::inline import_common {

// The angle of the point (x, y): atan(y / x), moved by half a turn left of the y axis. Zeros and infinities have the
// signs that they have: a point on the left end of the x axis may lie just below it.
ValueId angle_of(Emitter& c, ValueId y, ValueId x);
// e^x - 1 and log(1 + x), exact near 0, too.
ValueId exp_minus_one(Emitter& c, ValueId x);
ValueId log_one_plus(Emitter& c, ValueId x);

// x with dimension `axis` put to the end, and the order that does it; it is its own inverse.
std::vector<int64_t> axis_last(int rank, int64_t axis);
// x without the dimension `axis`, of one element.
ValueId without(Emitter& c, ValueId x, int64_t axis);
// What has an order: bools as bytes.
ValueId comparable(Emitter& c, ValueId x);
// The first place along `axis` of what `extremum` has there (a reduction of x that keeps dimensions); a NaN is one.
ValueId place_of_extremum(Emitter& c, ValueId x, ValueId extremum, int64_t axis);
// The places of the first `count` elements of each line of x along `axis`, in order.
ValueId first_places(Emitter& c, ValueId x, int64_t axis, int64_t count, bool descending);
// x [..., n, I] with updates [..., m, I] at places [..., m] of the dimension before the last; what is outside of it is
// left out. `join`: "none" (the update replaces what is there), "add", "mul", "min", "max".
ValueId scattered(Emitter& c, ValueId x, ValueId places, ValueId updates, const std::string& join);

}  // namespace tessera::inline import_common
