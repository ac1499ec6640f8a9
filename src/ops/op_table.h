// The operators of the product: the one list.
#pragma once

#include "graph/op_def.h"

namespace tessera::inline ops {

// Built on first use, immutable afterwards; safe to call from any thread.
const OpTable& standard_ops();

}  // namespace tessera::inline ops
