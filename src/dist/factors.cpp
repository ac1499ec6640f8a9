#include "dist/factors.h"

#include <fmt/format.h>

#include <algorithm>
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
    for (size_t a = 0; a < body_.axes.size(); ++a)
      if (!add_window(result, a)) add(result, {false, a}, static_cast<int>(a));
    for (size_t a = 0; a < body_.reduce_axes.size(); ++a) add(result, {true, a}, -1);
    add_looked_up(result);
    return result;
  }

 private:
  void add(NodeFactors& result, AxisRef ref, int result_dim) const {
    const Axis& axis = axis_of(body_, ref);
    const auto extent = as_int(axis.extent);
    Factor factor{axis.var->name, extent.value_or(0), result_dim, std::vector<int>(body_.inputs.size(), -1), {}, false};
    if (!extent) factor.refused = "its extent is no number";
    else if (depends_on(body_.value, axis.var)) factor.refused = "what is computed depends on the place along it";
    else find_operands(factor, ref, *extent);
    result.factors.push_back(std::move(factor));
  }

  // Of an operator whose padding is an attribute, which differs from rank to rank.
  bool add_window(NodeFactors& result, size_t axis) const {
    if ((node_.op->name != "conv" && node_.op->name != "reduce_window") || axis < 2) return false;
    const size_t d = axis - 2;
    const auto extent = as_int(body_.axes[axis].extent);
    const auto laid_out = node_.attrs.get_or<std::vector<int64_t>>("input_dilations", {});
    if (!extent || (!laid_out.empty() && laid_out[d] != 1)) return false;
    const auto number = [&](const char* name) { return node_.attrs.get<std::vector<int64_t>>(name)[d]; };
    const int64_t window = node_.op->name == "conv" ? dims_of(graph_, node_.inputs[1])->at(axis) : number("window");
    const int64_t low = -number("pads_begin");
    Factor factor{body_.axes[axis].var->name,
                  *extent,
                  static_cast<int>(axis),
                  std::vector<int>(body_.inputs.size(), -1),
                  {},
                  false,
                  Reach{number("strides"), low, low + (window - 1) * number("dilations")}};
    factor.operand_dims[0] = static_cast<int>(axis);
    result.factors.push_back(std::move(factor));
    return true;
  }

  // The operator has to be one that numbers rows, so that a rank can say which of them are its own (localize.h).
  void add_looked_up(NodeFactors& result) const {
    if ((node_.op->name != "gather" && node_.op->name != "gather_elements") || body_.value->kind != ExprKind::kLoad)
      return;
    for (const IndexMap& map : maps_) {
      if (!map.load.same_node(body_.value)) continue;
      const auto operand = std::find(body_.inputs.begin(), body_.inputs.end(), map.operand) - body_.inputs.begin();
      const auto dims = dims_of(graph_, node_.inputs[static_cast<size_t>(operand)]);
      for (size_t d = 0; dims && d < map.dims.size(); ++d) {
        if (!map.dims[d].by_data) continue;
        Factor factor{"rows", (*dims)[d], -1, std::vector<int>(body_.inputs.size(), -1), {}, true};
        factor.operand_dims[static_cast<size_t>(operand)] = static_cast<int>(d);
        result.factors.push_back(std::move(factor));
      }
    }
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
    result.factors.push_back({fmt::format("i{}", t), std::gcd(from[f], to[t]), first_to, {first_from}, {}, false});
  }
  return result;
}

// What ranks do together, each place of another mesh axis does with its own part: dimensions that keep their extent. Of
// a group's sum, parts of sums give parts.
std::optional<NodeFactors> factors_of_collective(const Graph& graph, const Node& node) {
  const auto kind = find_collective_kind(node.op->name);
  if (!kind || *kind == CollectiveKind::kSend || *kind == CollectiveKind::kReceive) return std::nullopt;
  const std::vector<int64_t> from = *dims_of(graph, node.inputs[0]), to = *dims_of(graph, node.outputs[0]);
  NodeFactors result;
  result.linear = {*kind == CollectiveKind::kAllReduce && node.attrs.get<std::string>("kind") == "sum"};
  const bool has_rows = *kind != CollectiveKind::kAllReduce && *kind != CollectiveKind::kShift;
  for (size_t d = has_rows ? 1 : 0; d < to.size(); ++d)
    result.factors.push_back({fmt::format("i{}", d), to[d], static_cast<int>(d), {static_cast<int>(d)}, {}, false});
  return from.size() == to.size() ? std::optional(result) : std::nullopt;
}

}  // namespace

std::optional<Halo> halo_of(const Reach& reach, int64_t rows, int64_t iterations, int64_t ranks) {
  if (rows % ranks != 0 || iterations % ranks != 0 || rows == 0 || iterations == 0) return std::nullopt;
  const int64_t own = rows / ranks, each = iterations / ranks;
  Halo halo;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t first = std::max<int64_t>(r * each * reach.step + reach.low, 0);
    const int64_t last = std::min(((r + 1) * each - 1) * reach.step + reach.high, rows - 1);
    if (first > last || first >= (r + 1) * own || last < r * own) return std::nullopt;
    halo.before = std::max(halo.before, r * own - first);
    halo.after = std::max(halo.after, last + 1 - (r + 1) * own);
  }
  if (halo.before > own || halo.after > own) return std::nullopt;
  return halo;
}

std::optional<NodeFactors> factors_of(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || !dims_of(graph, node.outputs[0])) return std::nullopt;
  for (const ValueId input : node.inputs)
    if (!dims_of(graph, input)) return std::nullopt;
  if (node.op->kind == OpKind::kView) {
    const std::vector<int64_t> from = *dims_of(graph, node.inputs[0]), to = *dims_of(graph, node.outputs[0]);
    if (graph.type(node.inputs[0]).dtype != graph.type(node.outputs[0]).dtype) return std::nullopt;
    return factors_of_view(from, to);
  }
  if (node.op->kind == OpKind::kProcedure) return factors_of_collective(graph, node);
  if (node.op->kind != OpKind::kExpression) return std::nullopt;
  return BodyFactors(graph, node).run();
}

}  // namespace tessera::inline dist
