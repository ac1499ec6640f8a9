#include "labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "support/error.h"

namespace tessera {

std::vector<std::string> read_labels(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    labels.push_back(std::move(line));
  }
  if (labels.empty())
    throw UserError({.id = "TSR-6204",
                     .message = fmt::format("'{}' has no labels, or cannot be read", path),
                     .node = {},
                     .legal = "a text with the name of one class on each line",
                     .hint = {}});
  return labels;
}

std::vector<LabelledScore> best_labels(const Tensor& scores, const std::vector<std::string>& labels, size_t count) {
  if (scores.dtype() == DType::kString || scores.num_elements() != static_cast<int64_t>(labels.size())) return {};
  std::vector<int64_t> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](int64_t a, int64_t b) {
                      const double x = scores.get_double(a), y = scores.get_double(b);
                      return x != y ? x > y : a < b;
                    });
  std::vector<LabelledScore> best;
  for (size_t i = 0; i < count; ++i)
    best.push_back({order[i], scores.get_double(order[i]), labels[static_cast<size_t>(order[i])]});
  return best;
}

}  // namespace tessera
