#include "import/common/functions.h"

#include <numbers>

namespace tessera::inline import_common {

ValueId angle_of(Emitter& c, ValueId y, ValueId x) {
  const ValueId zero = c.scalar_like(y, 0), one = c.scalar_like(y, 1), pi = c.scalar_like(y, std::numbers::pi);
  const auto both = [&](ValueId of_y, ValueId of_x) { return c.op("logical_and", {of_y, of_x}); };
  const auto is_negative = [&](ValueId v) {
    return c.op("logical_or", {c.op("lt", {v, zero}), c.op("lt", {c.div(one, v), zero})});
  };
  const ValueId diagonal = c.mul(c.op("sign", {y}), c.op("sign", {x}));
  const ValueId finite = c.op("select", {both(c.op("is_inf", {y}), c.op("is_inf", {x})), diagonal, c.div(y, x)});
  const ValueId slope = c.op("select", {both(c.op("eq", {y, zero}), c.op("eq", {x, zero})), y, finite});
  const ValueId angle = c.op("atan", {slope});
  const ValueId turned = c.op("select", {is_negative(y), c.sub(angle, pi), c.add(angle, pi)});
  return c.op("select", {is_negative(x), turned, angle});
}

}  // namespace tessera::inline import_common
