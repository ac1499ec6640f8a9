// The ways in which ranks may share the work of one node: for each mesh axis a factor that it divides (factors.h), an
// operand that stays a partial sum, or nothing.
#pragma once

#include <string>
#include <vector>

#include "dist/factors.h"
#include "dist/propagate.h"

namespace tessera::inline dist {

// Of a type that ranks add, multiply and compare (runtime/comm).
bool is_combined(DType dtype);
// Parts of tensors are whole bytes.
bool is_cut(DType dtype);

// A way to give a node's work to the places of one mesh axis.
struct MeshChoice {
  const Factor* factor = nullptr;  // null: every place does all
  int passes = -1;                 // instead: this operand stays partial, and so does the result
};

class NodeChoices {
 public:
  // All outlive this.
  NodeChoices(const Graph& graph, const Mesh& mesh, const RankSpeed& speed)
      : graph_(graph), mesh_(mesh), speed_(speed) {}

  // Every rank does all of it.
  NodePlan whole(const Node& node) const;
  // Why the axis may not divide the factor, beside what `plan` has of other axes; empty: it may.
  std::string why_not(const Node& node, const NodeFactors& factors, const Factor& factor, const MeshAxis& axis,
                      const NodePlan& plan) const;
  // REQUIRES: it may.
  static void apply(const NodeFactors& factors, const MeshAxis& axis, const MeshChoice& choice, NodePlan& plan);
  static CollectiveCombiner combiner_of(const NodeFactors& factors, const Factor& factor);

  double sending(int64_t bytes) const;
  // What a rank touches, and computes when so many share it.
  double working(const Node& node, const NodeFactors& factors, const NodePlan& plan, double sharers) const;

 private:
  const Graph& graph_;
  const Mesh& mesh_;
  const RankSpeed& speed_;
};

}  // namespace tessera::inline dist
