// Values of a graph under construction that do not depend on its inputs: found and evaluated on demand, so that shape
// arithmetic written as nodes (Shape, Gather, Concat, ...) becomes attributes.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "import/common/known_sizes.h"

namespace tessera::inline import_common {

class ConstantFinder {
 public:
  // Both must outlive the finder; `graph` may grow.
  ConstantFinder(const Graph& graph, Evaluator& evaluator) : graph_(graph), evaluator_(evaluator), sizes_(graph) {}

  // True when nothing that `value` is computed from is a graph input or depends on a symbol.
  bool is_constant(ValueId value);
  // The value of a constant; empty when it depends on a graph input, or when one of the tensors that it is computed
  // from has more than kMaxElements elements (constants themselves may be of any size), or when kTotalElements have
  // been computed already: no file may keep the importer busy for long.
  // With symbols also a value of at most KnownSizes::kMaxElements numbers that are the same for all values of them.
  std::optional<Tensor> find(ValueId value);
  // The elements of integers as expressions of the graph's symbols; empty when one of them depends on more than sizes.
  std::optional<Shape> find_sizes(ValueId value);

  // The same for each element by itself; null where it depends on more. Empty when nothing is known of any.
  std::optional<Shape> find_some_sizes(ValueId value);

  // An input of a region that is this constant of the graph around it: find() knows it, and it is no constant.
  void remember(ValueId input, Tensor value) { known_.insert_or_assign(input, std::move(value)); }

  static constexpr int64_t kMaxElements = 1 << 16;
  static constexpr int64_t kTotalElements = 1 << 26;

 private:
  void update();
  std::optional<Tensor> decided(ValueId value);

  const Graph& graph_;
  Evaluator& evaluator_;
  KnownSizes sizes_;
  std::vector<bool> constant_;  // by value, for the nodes seen so far
  size_t nodes_seen_ = 0;
  std::unordered_map<ValueId, Tensor> known_;
  int64_t computed_ = 0;  // elements so far
};

}  // namespace tessera::inline import_common
