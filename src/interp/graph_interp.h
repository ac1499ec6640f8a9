// The meaning of the graph level: every node is evaluated from its operator's body, one after the other. Nothing here
// knows an operator; only views, constants and nodes with regions are treated by kind. Layouts are ignored: values are
// logical, row-major tensors. States are inputs and outputs like others (graph_session.h hands them on).
//
// Values that no later node needs are dropped. Not thread-safe; make one per thread.
#pragma once

#include <functional>
#include <vector>

#include "graph/evaluator.h"
#include "interp/body_interp.h"

namespace tessera::inline interp {

class GraphInterpreter : public Evaluator {
 public:
  // Called for every value as it is computed, graph inputs and the values of regions included (a region's values while
  // its node is evaluated, in each iteration of a loop; `graph` is then the region).
  using Observer = std::function<void(const Graph& graph, ValueId value, const Tensor& tensor)>;

  explicit GraphInterpreter(Observer observer = {}) : observer_(std::move(observer)) {}

  void set_observer(Observer observer) { observer_ = std::move(observer); }

  // UserError TSR-2050 when the inputs do not fit the graph's (number, element type, extents, range of a symbol).
  // InternalError, naming the node, when a result does not have its declared type or a load leaves its buffer.
  std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) override;

 private:
  std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs, SymbolValues symbols);
  // A node that binds a size adds its value to `symbols`.
  std::vector<Tensor> run_node(const Graph& graph, const Node& node, const std::vector<const Tensor*>& inputs,
                               SymbolValues& symbols);
  std::vector<Tensor> run_region(const Graph& region, const std::vector<Tensor>& operands, const SymbolValues& symbols);
  std::vector<Tensor> run_loop(const Graph& graph, const Node& node, const std::vector<const Tensor*>& inputs,
                               const SymbolValues& symbols);

  Observer observer_;
};

}  // namespace tessera::inline interp
