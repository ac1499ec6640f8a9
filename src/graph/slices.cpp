#include "graph/slices.h"

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "support/error.h"
#include "te/index_map.h"

namespace tessera::inline graph {

std::optional<Expr> contiguous_part(const TensorType& whole, const TensorType& part, int axis, const Expr& start) {
  if (!(whole.layout == part.layout) || whole.dtype != part.dtype || dtype_bits(whole.dtype) < 8) return std::nullopt;
  const Shape physical = physical_shape(whole.shape, whole.layout);
  const Shape &dims = whole.shape, &sizes = part.shape;
  if (sizes.size() != dims.size()) return std::nullopt;
  for (size_t d = 0; d < dims.size(); ++d)
    if (static_cast<int>(d) != axis && !equal_sizes(dims[d], sizes[d])) return std::nullopt;
  const auto from = static_cast<size_t>(axis);
  for (size_t p = 0; p < physical.size(); ++p) {
    const LayoutDim dim =
        whole.layout.row_major() ? LayoutDim{static_cast<int>(p), LayoutDim::Part::kWhole, 1} : whole.layout.dims[p];
    if (dim.axis != axis) {
      if (!is_const_int(physical[p], 1)) return std::nullopt;
      continue;
    }
    if (dim.part == LayoutDim::Part::kRemainder) return std::nullopt;
    const int64_t block = dim.part == LayoutDim::Part::kQuotient ? dim.block : 1;
    const auto in_blocks = [&](const Expr& size) { return equal_sizes(floormod(size, block), 0); };
    if (!in_blocks(start) || (!in_blocks(sizes[from]) && !equal_sizes(start + sizes[from], dims[from])))
      return std::nullopt;
    Expr elements = floordiv(start, block);
    for (size_t inner = p + 1; inner < physical.size(); ++inner) elements = elements * physical[inner];
    return normalize_size(elements * Expr(dtype_bytes(whole.dtype, 1)));
  }
  return std::nullopt;
}

std::optional<Expr> contiguous_slice(const Graph& graph, const Node& slice) {
  const TensorType& whole = graph.type(slice.inputs.at(0));
  const TensorType& part = graph.type(slice.outputs.at(0));
  const Body body = node_body(graph, slice);
  const std::vector<IndexMap> maps = index_maps(body);
  if (body.is_reduction() || maps.size() != 1 || !maps[0].load.same_node(body.value)) return std::nullopt;
  const std::vector<IndexDim>& dims = maps[0].dims;
  int axis = -1;
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto size = as_int(part.shape[d]);
    const AxisUse* use = dims[d].use_of({false, d});
    if (!dims[d].is_linear() || dims[d].uses.size() != (use ? 1 : 0)) return std::nullopt;
    if ((!use || use->coefficient != 1) && !(size && *size <= 1)) return std::nullopt;
    if (equal_sizes(part.shape[d], whole.shape[d])) continue;
    if (axis >= 0) return std::nullopt;
    axis = static_cast<int>(d);
  }
  if (axis < 0) return std::nullopt;
  return contiguous_part(whole, part, axis, dims[static_cast<size_t>(axis)].offset(body));
}

bool is_in_place(const Node& node) { return node.attrs.get_or<int64_t>("in_place", 0) != 0; }

ValueId storage_value(const Graph& graph, ValueId id) {
  const Node* producer = graph.producer(id);
  while (producer && producer->op->kind == OpKind::kView) {
    id = producer->inputs[0];
    producer = graph.producer(id);
  }
  return id;
}

std::vector<std::vector<PlacedOperand>> place_operands(const Graph& graph) {
  std::vector<std::vector<PlacedOperand>> result(graph.nodes().size());
  std::vector<bool> taken(graph.values().size(), false);
  for (const ValueId output : graph.outputs) taken[static_cast<size_t>(storage_value(graph, output))] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.op->name != "concat" || !is_in_place(node)) continue;
    const auto axis = static_cast<int>(node.attrs.get_int("axis"));
    Expr start = 0;
    for (const ValueId operand : node.inputs) {
      const auto offset = contiguous_part(graph.type(node.outputs[0]), graph.type(operand), axis, start);
      check(offset.has_value(), "an in-place concat of parts that are not contiguous: " + node.loc);
      start = normalize_size(start + graph.type(operand).shape[static_cast<size_t>(axis)]);
      PlacedOperand placed{-1, *offset};
      const ValueId storage = storage_value(graph, operand);
      const Node* producer = graph.producer(storage);
      const bool computed = producer && producer->outputs.size() == 1 &&
                            (producer->op->kind == OpKind::kGroup || producer->op->kind == OpKind::kExpression) &&
                            !(producer->op->name == "slice" && is_in_place(*producer));
      if (computed && !taken[static_cast<size_t>(storage)]) {
        taken[static_cast<size_t>(storage)] = true;
        placed.storage = storage;
      }
      result[i].push_back(placed);
    }
  }
  return result;
}

}  // namespace tessera::inline graph
