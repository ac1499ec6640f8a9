// The names of a classifier's classes, one a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/tensor.h"

namespace tessera {

struct LabelledScore {
  int64_t index = 0;
  double score = 0;  // as the model gives it
  std::string label;
};

// UserError TSR-6204 when the file cannot be read or has no lines.
std::vector<std::string> read_labels(const std::string& path);

// The `count` classes of most score, the first of equal ones first; none when the tensor has not one number for each
// label.
std::vector<LabelledScore> best_labels(const Tensor& scores, const std::vector<std::string>& labels, size_t count);

}  // namespace tessera
