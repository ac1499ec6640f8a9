// Values between the C API (tessera.h) and this side of it.
#pragma once

#include <deque>
#include <vector>

#include "driver/engine/model.h"
#include "tessera/tessera.h"
#include "types/run_value.h"

namespace tessera::inline driver {

TensorInfo info_of(const tessera_value_info& info);
// The name is that of `info`, which must live as long.
tessera_value_info api_info_of(const TensorInfo& info);

// Values as the C API has them. What they point to lies here and in the values that were added.
class ApiValues {
 public:
  // Lives as long as this object and the value's tensors.
  const tessera_value* add(const RunValue& value);

 private:
  std::deque<tessera_value> values_;
  std::deque<std::vector<const tessera_value*>> items_;
  std::deque<std::vector<tessera_string>> texts_;
};

// A copy. UserError TSR-7042 for an unsound value (a null pointer, a negative dimension), TSR-7044 for a string
// that is not UTF-8; `name` is the input's.
RunValue from_api(const tessera_value* value, const std::string& name);

}  // namespace tessera::inline driver
