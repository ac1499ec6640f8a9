// Local response normalisation, which several formats have.
#pragma once

#include "import/common/emitter.h"

namespace tessera::inline import_common {

// x [N,C,...] / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta.
ValueId local_response(Emitter& c, ValueId x, int64_t size, double alpha, double beta, double bias);

}  // namespace tessera::inline import_common
