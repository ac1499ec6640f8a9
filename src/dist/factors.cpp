#include "dist/factors.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "graph/op_def.h"
#include "te/index_map.h"

namespace tessera::inline dist {
namespace {

std::optional<std::vector<int64_t>> dims_of(const Graph& graph, ValueId value) {
  return static_dims(graph.type(value).shape);
}

// Whether the value depends on `var` beside the indices of loads.
bool depends_on(const Expr& e, const Expr& var) {
  if (e.same_node(var)) return true;
  if (e->kind == ExprKind::kLoad) return false;
  for (const Expr& operand : e->operands)
    if (depends_on(operand, var)) return true;
  return false;
}

CollectiveCombiner combiner_of(const Body& body) {
  switch (body.combiner) {
    case Combiner::kNone: return CollectiveCombiner::kNone;
    case Combiner::kSum: return CollectiveCombiner::kSum;
    case Combiner::kProd: return CollectiveCombiner::kProd;
    case Combiner::kMin: return CollectiveCombiner::kMin;
    case Combiner::kMax: return CollectiveCombiner::kMax;
  }
  return CollectiveCombiner::kNone;
}

class BodyFactors {
 public:
  BodyFactors(const Graph& graph, const Node& node)
      : graph_(graph), node_(node), body_(node_body(graph, node)), maps_(index_maps(body_)) {}

  std::optional<NodeFactors> run() {
    NodeFactors result;
    result.combiner = combiner_of(body_);
    for (const BufferPtr& operand : body_.inputs) result.linear.push_back(is_linear_in(body_, operand.get()));
    for (size_t a = 0; a < body_.axes.size(); ++a) add(result, {false, a}, static_cast<int>(a));
    for (size_t a = 0; a < body_.reduce_axes.size(); ++a) add(result, {true, a}, -1);
    return result;
  }

 private:
  void add(NodeFactors& result, AxisRef ref, int result_dim) const {
    const Axis& axis = axis_of(body_, ref);
    const auto extent = as_int(axis.extent);
    Factor factor{axis.var->name, extent.value_or(0), result_dim, std::vector<int>(body_.inputs.size(), -1), {}};
    if (!extent) factor.refused = "its extent is no number";
    else if (depends_on(body_.value, axis.var)) factor.refused = "what is computed depends on the place along it";
    else find_operands(factor, ref, *extent);
    result.factors.push_back(std::move(factor));
  }

  void find_operands(Factor& factor, AxisRef ref, int64_t extent) const {
    for (size_t o = 0; o < body_.inputs.size(); ++o) {
      const auto dims = dims_of(graph_, node_.inputs[o]);
      bool reads_all = false;
      for (const IndexMap& map : maps_) {
        if (map.operand != body_.inputs[o]) continue;
        int found = -1;
        for (size_t d = 0; d < map.dims.size(); ++d) {
          const IndexDim& dim = map.dims[d];
          // What an index that is data depends on, is how that data is read: a load of its own.
          if (!dim.use_of(ref) || (dim.by_data && !depends_on(dim.index, axis_of(body_, ref).var))) continue;
          const bool follows = dim.sole == ref && dims && (*dims)[d] == extent && found < 0;
          if (!follows) {
            factor.refused = fmt::format("operand {} is read at {} along dimension {}", o + 1, to_string(dim.index), d);
            return;
          }
          found = static_cast<int>(d);
        }
        if (found < 0) reads_all = true;
        else if (factor.operand_dims[o] >= 0 && factor.operand_dims[o] != found) reads_all = true;
        else factor.operand_dims[o] = found;
      }
      if (reads_all && factor.operand_dims[o] >= 0) {
        factor.refused = fmt::format("operand {} is read in two ways", o + 1);
        return;
      }
    }
  }

  const Graph& graph_;
  const Node& node_;
  const Body body_;
  const std::vector<IndexMap> maps_;
};

// Dimensions of both sides that have the same elements, group by group; in each, the outermost ones that are not 1 are
// cut together.
NodeFactors factors_of_view(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  NodeFactors result;
  result.linear = {true};
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    int first_from = -1, first_to = -1;
    int64_t a = 1, b = 1;
    const auto take = [](const std::vector<int64_t>& dims, size_t& at, int64_t& product, int& first) {
      if (first < 0 && dims[at] != 1) first = static_cast<int>(at);
      product *= dims[at++];
    };
    if (i < from.size()) take(from, i, a, first_from);
    if (j < to.size()) take(to, j, b, first_to);
    while (a != b) {
      if (a < b && i < from.size()) take(from, i, a, first_from);
      else if (b < a && j < to.size()) take(to, j, b, first_to);
      else break;
    }
    if (a != b) break;  // no elements, or a rest of ones
    if (first_from < 0 || first_to < 0) continue;
    const auto f = static_cast<size_t>(first_from), t = static_cast<size_t>(first_to);
    result.factors.push_back({fmt::format("i{}", t), std::gcd(from[f], to[t]), first_to, {first_from}, {}});
  }
  return result;
}

}  // namespace

std::optional<NodeFactors> factors_of(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || !dims_of(graph, node.outputs[0])) return std::nullopt;
  for (const ValueId input : node.inputs)
    if (!dims_of(graph, input)) return std::nullopt;
  if (node.op->kind == OpKind::kView) {
    const std::vector<int64_t> from = *dims_of(graph, node.inputs[0]), to = *dims_of(graph, node.outputs[0]);
    if (graph.type(node.inputs[0]).dtype != graph.type(node.outputs[0]).dtype) return std::nullopt;
    return factors_of_view(from, to);
  }
  if (node.op->kind != OpKind::kExpression) return std::nullopt;
  return BodyFactors(graph, node).run();
}

}  // namespace tessera::inline dist
