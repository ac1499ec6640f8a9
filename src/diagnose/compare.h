// Comparing an output with what was expected.
#pragma once

#include <functional>
#include <string>

#include "types/run_value.h"

namespace tessera::inline diagnose {

// Floats agree when |got - want| <= atol + rtol * |want| + mtol * max|want|, the maximum being over the whole tensor;
// NaN agrees with NaN, and infinities with themselves. Everything else must be equal.
struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-4;
  double mtol = 0;
};

struct Comparison {
  bool agrees = false;
  // "max|d| 1.2e-06 (1.1e-07 of max|ref|)"; for a mismatch also how many elements and the worst of them.
  std::string text = {};
  // The same as figures: 0 and empty where dtypes or shapes differ.
  int64_t differing = 0;                         // elements out of tolerance
  double max_difference = 0, max_reference = 0;  // of finite elements
  std::string where = {}, got = {}, want = {};   // of the worst element out of tolerance: "[0,3]", "1.5", "2"
};

// Dtypes and shapes must be equal too.
Comparison compare(const Tensor& got, const Tensor& want, const Tolerance& tolerance);

// The same for values, part by part.
Comparison compare_values(const RunValue& got, const RunValue& want,
                          const std::function<Comparison(const Tensor& got, const Tensor& want)>& compare_tensors);
Comparison compare(const RunValue& got, const RunValue& want, const Tolerance& tolerance);

std::string value_type_text(const RunValue& value);  // "f32[1,3]", "a sequence of 3"
std::string value_summary(const RunValue& value);

std::string tensor_type_text(const Tensor& tensor);  // "f32[1,3]"
// The range and the first elements, in one line.
std::string tensor_summary(const Tensor& tensor);

}  // namespace tessera::inline diagnose
