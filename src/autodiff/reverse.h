// The reverse sweep: gradients of values of a graph, as further nodes of the same graph.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "autodiff/control_flow.h"
#include "autodiff/taken.h"
#include "graph/adjoint.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline autodiff {

// Adds the nodes of `part`, whose inputs are `inputs`, to the builder's graph; composites without a rule of their own,
// groups and calls are opened, those of regions aside. Answers the value for each of `part`'s values.
std::vector<ValueId> copy_opened(GraphBuilder& builder, const OpTable& ops, const Graph& part,
                                 const std::vector<ValueId>& inputs);

// What `values` influence through the nodes first .. end - 1 and real numbers, by value of the graph.
std::vector<bool> influenced(const Graph& graph, const std::vector<ValueId>& values, NodeId first, NodeId end);

// One sweep, over nodes that it copies itself.
class ReverseSweep {
 public:
  ReverseSweep(GraphBuilder& builder, const OpTable& ops, SweepOptions options = {})
      : builder_(builder), ops_(ops), options_(options) {}

  // As copy_opened, for derivatives of `results` with respect to `wrt`, all values of `part`: a loop through which
  // these pass gets further stacked results, what its iterations computed, for the loop backwards.
  std::vector<ValueId> copy(const Graph& part, const std::vector<ValueId>& inputs, const std::vector<ValueId>& results,
                            const std::vector<ValueId>& wrt);
  // The derivatives of what is differentiated with respect to `value` itself; given more than once they are added.
  void seed(ValueId value, ValueId gradient) { add_gradient(value, gradient); }
  // Over the nodes first .. end - 1. REQUIRES: `copy` copied the loops among them.
  void run(const std::vector<ValueId>& wrt, NodeId first, NodeId end);
  // Adjoint::kNone where nothing that was differentiated depends on the value.
  ValueId gradient(ValueId value) const;
  // Operators without a gradient, from the last to the first.
  const std::vector<Diagnostic>& refused() const { return refused_; }

 private:
  std::vector<ValueId> answers(NodeId id, const std::vector<ValueId>& given, const std::vector<bool>& wanted);
  bool is_long(const Graph& graph, const Node& node) const;
  std::pair<Graph, std::vector<ValueId>> with_nested_loops(const Graph& graph, const std::vector<bool>& reached,
                                                           std::set<NodeId>& again) const;
  // Of a node that has not been opened: its region is computed again.
  std::vector<ValueId> through_region(const Node& node, const std::vector<ValueId>& given,
                                      const std::vector<bool>& wanted);
  void add_gradient(ValueId value, ValueId gradient, const TakenPtr& taken = {});
  TakenPtr taken(ValueId value) const;
  std::vector<ValueId> where_taken(const Node& node, const std::vector<ValueId>& given, const std::vector<bool>& wanted,
                                   Taken& where, const std::function<std::vector<ValueId>(Adjoint&)>& rule);

  GraphBuilder& builder_;
  const OpTable& ops_;
  const SweepOptions options_;
  std::vector<ValueId> gradients_;  // by value, as far as known
  // By value: where something depends on the element; none: everywhere it may. The arms of a select, and what these are
  // computed from element by element, have it, so that what is not taken has no part in gradients: 0 times an infinite
  // derivative would be NaN.
  std::vector<TakenPtr> taken_;
  std::map<NodeId, LoopPlan> loops_;
  std::vector<Diagnostic> refused_;
};

// All operators without a gradient in one error, TSR-2072. REQUIRES: some, from the last to the first.
[[noreturn]] void refuse(const std::vector<Diagnostic>& refused);

// Gives the value this name, and one of its own to the value that has it now: what comes out of a composite that was
// opened has a name of the region's.
void take_name(Graph& graph, ValueId value, const std::string& name);

}  // namespace tessera::inline autodiff
