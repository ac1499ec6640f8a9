#include "import/tflite/operator_table.h"

#include <string_view>
#include <vector>

#include "import/common/operator_rows.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

// Sorted by number.
const std::vector<TfliteOperator>& all_operators() {
  static const std::vector<TfliteOperator> table =
      sorted_rows({arithmetic_operators(), contraction_operators(), data_size_operators(), flow_operators(),
                   fourier_operators(), indexing_operators(), normalization_operators(), pooling_operators(),
                   quantization_operators(), recurrent_operators(), reduction_operators(), resizing_operators(),
                   shape_operators(), slicing_operators(), unary_operators()},
                  &TfliteOperator::code);
  return table;
}

}  // namespace

const TfliteOperator* find_operator(tflite::BuiltinOperator code) {
  return find_row<TfliteOperator>(all_operators(), &TfliteOperator::code, code);
}

CustomHandler find_custom_operator(std::string_view name) {
  return name == "TFLite_Detection_PostProcess" ? detection_operator() : mediapipe_operator(name);
}

}  // namespace tessera::inline tflite_import
