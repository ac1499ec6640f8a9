// Elements of small tensors that are computed from sizes and constants alone, as expressions of the graph's symbols:
// what a model computes from Shape (Gather, Concat, Mul, Floor, Where, ...) becomes an extent again.
//
// An element is known only where the expression has its value for all values of the symbols: comparisons count when the
// symbols' ranges decide them, and floats when they are computed exactly. Nothing is assumed.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline import_common {

// One element. Of an integer or a bool `value`, an i64; of a float value / divisor, with a positive divisor. `value` is
// null when the element is not known.
struct KnownElement {
  Expr value;
  Expr divisor = 1;
  bool rounded = false;  // a float that is the nearest to value / divisor, where that is not exact
};

class KnownSizes {
 public:
  // `graph` must outlive this and may grow.
  explicit KnownSizes(const Graph& graph) : graph_(graph) {}

  // The elements of a tensor of static shape in row-major order; empty when it is symbolic, or has more than
  // kMaxElements elements.
  std::optional<std::vector<KnownElement>> find(ValueId value);

  static constexpr int64_t kMaxElements = 1024;

 private:
  using Elements = std::vector<KnownElement>;

  Elements compute(const Graph& graph, const Node& node, size_t result, const std::vector<const Elements*>& operands);
  std::vector<Elements> compute_region(const Graph& region, const std::vector<const Elements*>& operands);

  const Graph& graph_;
  std::unordered_map<ValueId, Elements> known_;
};

}  // namespace tessera::inline import_common
