// What a TFLite model says of one of its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/dtype.h"

namespace tessera::inline tflite_import {

// value = (stored - zero point) * scale. One of each, or one for each entry of dimension `axis`; none: the tensor is
// not quantised.
struct TfliteQuantization {
  std::vector<float> scales;
  std::vector<int64_t> zero_points;
  int64_t axis = 0;
  bool is_blockwise = false;

  bool empty() const { return scales.empty(); }
};

struct TfliteTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // open ones with the value that the model declares for them
  std::vector<bool> open;     // by dimension; empty: none is
  TfliteQuantization quantization;
  bool is_variable = false;
  bool is_string = false;
  bool is_resource = false;  // the handle of one
  bool is_complex = false;   // pairs of `dtype`
};

}  // namespace tessera::inline tflite_import
