// Places of values (program/value_locations.h) as a module's metadata keeps them, under "values".
#pragma once

#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "program/value_locations.h"

namespace tessera::inline package {

nlohmann::json values_to_json(const std::vector<ValuePlace>& places);

// Of a module's metadata; without places when it has none or they are not sound: a place is inside an arena of
// `arena_bytes`, or in an output, which `output_bytes` gives the sizes of.
std::vector<ValuePlace> values_from_metadata(std::string_view metadata, int64_t arena_bytes,
                                             const std::vector<int64_t>& output_bytes);

}  // namespace tessera::inline package
