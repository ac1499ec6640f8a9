// The bytes of src/tune/pretrained/cost_model.json, which bench/cost_model.py writes; the build makes the source.
#pragma once

#include <cstddef>
#include <utility>

namespace tessera::inline tune {

std::pair<const unsigned char*, size_t> pretrained_cost_model();

}  // namespace tessera::inline tune
