#include "dist/node_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "dist/redistribute.h"

namespace tessera::inline dist {
namespace {

std::vector<int64_t> dims_of(const Graph& graph, ValueId value) { return *static_dims(graph.type(value).shape); }

}  // namespace

bool is_combined(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || (is_int(dtype) && dtype_bits(dtype) >= 8);
}

bool is_cut(DType dtype) { return dtype_bits(dtype) >= 8; }

NodePlan NodeChoices::whole(const Node& node) const {
  NodePlan plan;
  for (const ValueId input : node.inputs)
    plan.operands.push_back(Sharding::replicated(graph_.type(input).shape.size()));
  for (const ValueId output : node.outputs)
    plan.results.push_back(Sharding::replicated(graph_.type(output).shape.size()));
  return plan;
}

std::string NodeChoices::why_not(const Node& node, const NodeFactors& factors, const Factor& factor,
                                 const MeshAxis& axis, const NodePlan& plan) const {
  if (factor.extent % axis.extent != 0 || factor.extent == 0)
    return fmt::format("{} is not divided evenly by {}", factor.extent, axis.extent);
  if (factor.result_dim < 0 && !factor.looked_up && factors.combiner == CollectiveCombiner::kNone)
    return "nothing combines the parts";
  const DType result = graph_.type(node.outputs[0]).dtype;
  if (factor.result_dim < 0 && !is_combined(result)) return fmt::format("ranks do not combine {}", dtype_name(result));
  if (factor.result_dim >= 0 && !is_cut(result)) return fmt::format("{} is not cut", dtype_name(result));
  if (factor.result_dim >= 0 && !plan.results[0].dims[static_cast<size_t>(factor.result_dim)].empty())
    return "another mesh axis divides it";
  if (std::all_of(factor.operand_dims.begin(), factor.operand_dims.end(), [](int d) { return d < 0; }) &&
      factor.result_dim < 0)
    return "no operand has it";
  for (size_t o = 0; o < factor.operand_dims.size(); ++o)
    if (const DType operand = graph_.type(node.inputs[o]).dtype; factor.operand_dims[o] >= 0 && !is_cut(operand))
      return fmt::format("{} is not cut", dtype_name(operand));
  for (size_t o = 0; o < factor.operand_dims.size(); ++o)
    if (factor.operand_dims[o] >= 0 && !plan.operands[o].dims[static_cast<size_t>(factor.operand_dims[o])].empty())
      return "another mesh axis divides it";
  if (factor.reach) {
    const auto d = static_cast<size_t>(factor.result_dim);
    const int64_t rows = dims_of(graph_, node.inputs[0])[d];
    if (!tessera::halo_of(*factor.reach, rows, factor.extent, axis.extent))
      return fmt::format("{} rows are not divided so that windows end at neighbours", rows);
  }
  NodePlan divided = plan;
  apply(factors, axis, {&factor}, divided);
  if (!local_attrs(graph_, node, divided, mesh_)) return "its attributes say whole sizes";
  return "";
}

CollectiveCombiner NodeChoices::combiner_of(const NodeFactors& factors, const Factor& factor) {
  return factor.looked_up ? CollectiveCombiner::kSum : factors.combiner;
}

void NodeChoices::apply(const NodeFactors& factors, const MeshAxis& axis, const MeshChoice& choice, NodePlan& plan) {
  if (choice.passes >= 0) {
    for (Sharding* s : {&plan.operands[static_cast<size_t>(choice.passes)], &plan.results[0]})
      s->partial.push_back({axis.name, CollectiveCombiner::kSum});
    return;
  }
  if (!choice.factor) return;
  for (size_t o = 0; o < choice.factor->operand_dims.size(); ++o)
    if (const int d = choice.factor->operand_dims[o]; d >= 0)
      plan.operands[o].dims[static_cast<size_t>(d)].push_back(axis.name);
  if (const int d = choice.factor->result_dim; d >= 0)
    plan.results[0].dims[static_cast<size_t>(d)].push_back(axis.name);
  else plan.results[0].partial.push_back({axis.name, combiner_of(factors, *choice.factor)});
  if (choice.factor->looked_up) plan.looked_up.push_back(axis.name);
  if (choice.factor->reach) plan.windows.push_back({axis.name, choice.factor->result_dim, *choice.factor->reach});
}

double NodeChoices::sending(int64_t bytes) const {
  return bytes == 0 ? 0 : speed_.latency_seconds + static_cast<double>(bytes) / speed_.bytes_per_second;
}

double NodeChoices::working(const Node& node, const NodeFactors& factors, const NodePlan& plan, double sharers) const {
  int64_t touched = local_bytes(graph_.type(node.outputs[0]), plan.results[0], mesh_);
  for (size_t o = 0; o < node.inputs.size(); ++o)
    touched += local_bytes(graph_.type(node.inputs[o]), plan.operands[o], mesh_);
  double operations = 2 / sharers;
  for (const Factor& factor : factors.factors)
    if (!factor.looked_up) operations *= static_cast<double>(std::max<int64_t>(factor.extent, 1));
  return static_cast<double>(touched) / speed_.memory_bytes_per_second + operations / speed_.operations_per_second;
}

}  // namespace tessera::inline dist
