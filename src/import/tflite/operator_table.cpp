#include "import/tflite/operator_table.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "import/tflite/operators/handlers.h"
#include "support/error.h"

namespace tessera::inline tflite_import {
namespace {

// Sorted by number.
const std::vector<TfliteOperator>& all_operators() {
  static const std::vector<TfliteOperator> table = [] {
    std::vector<TfliteOperator> all;
    for (const auto family :
         {arithmetic_operators(), contraction_operators(), flow_operators(), fourier_operators(), indexing_operators(),
          normalization_operators(), pooling_operators(), quantization_operators(), recurrent_operators(),
          reduction_operators(), resizing_operators(), shape_operators(), slicing_operators(), unary_operators()})
      all.insert(all.end(), family.begin(), family.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.code < b.code; });
    for (size_t i = 1; i < all.size(); ++i) check(all[i - 1].code != all[i].code, "two rows for an operator");
    return all;
  }();
  return table;
}

}  // namespace

const TfliteOperator* find_operator(tflite::BuiltinOperator code) {
  const auto& all = all_operators();
  const auto it =
      std::lower_bound(all.begin(), all.end(), code,
                       [](const TfliteOperator& row, tflite::BuiltinOperator key) { return row.code < key; });
  return it != all.end() && it->code == code ? &*it : nullptr;
}

CustomHandler find_custom_operator(std::string_view name) {
  return name == "TFLite_Detection_PostProcess" ? detection_operator() : mediapipe_operator(name);
}

}  // namespace tessera::inline tflite_import
