#include "graph_passes/support/graph_util.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline graph_passes {

bool is_op(const Node* node, std::string_view name) { return node && node->op->name == name; }

bool is_composite(const Node* node, std::string_view name) {
  return node && node->op->kind == OpKind::kComposite && node->attrs.get_or<std::string>("name", "") == name;
}

Attrs composite_attrs(const Node& node) {
  Attrs attrs;
  for (const auto& [name, value] : node.attrs.all())
    if (name != "name") attrs.set(name, value);
  return attrs;
}

const Tensor* constant_value(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!node || node->op->kind != OpKind::kConstant) return nullptr;
  const Tensor* tensor = node->attrs.get<TensorPtr>("value").get();
  return tensor->has_data() ? tensor : nullptr;
}

ValueId add_constant(Graph& graph, const OpTable& ops, Tensor value, const std::string& name, const std::string& loc) {
  TensorType type{value.dtype(), make_shape(value.dims()), {}};
  Node node;
  node.op = &ops.get("constant");
  node.attrs.set("value", std::make_shared<const Tensor>(std::move(value)));
  node.loc = loc;
  return graph.node(graph.add_node(std::move(node), {std::move(type)}, {name})).outputs[0];
}

bool has_symbolic_attrs(const Node& node) {
  for (const auto& [name, attr] : node.attrs.all())
    if (std::holds_alternative<Shape>(attr)) return true;
  return false;
}

bool is_one_element(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](const Expr& dim) { return is_const_int(dim, 1); });
}

bool equal_shapes(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal_sizes);
}

std::optional<double> splat_value(const Tensor& tensor) {
  const int64_t count = tensor.num_elements();
  if (count == 0) return std::nullopt;
  const double first = tensor.get_double(0);
  for (int64_t i = 1; i < count; ++i)
    if (tensor.get_double(i) != first) return std::nullopt;
  return first;
}

std::vector<ValueId> inline_region(Graph& target, const Graph& region, const std::vector<ValueId>& operands,
                                   const std::string& prefix, const std::string& loc) {
  check(operands.size() == region.inputs.size(), "operands and region inputs differ in number");
  std::vector<ValueId> map(region.values().size(), -1);
  for (size_t i = 0; i < operands.size(); ++i) map[static_cast<size_t>(region.inputs[i])] = operands[i];
  for (const Node& node : region.nodes()) {
    Node clone = node;
    clone.loc = loc;
    for (ValueId& input : clone.inputs) input = map[static_cast<size_t>(input)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(region.type(output));
      const bool sole_result = region.outputs.size() == 1 && region.outputs[0] == output;
      names.push_back(sole_result ? prefix : prefix + "." + region.value(output).name);
    }
    const auto outputs = target.node(target.add_node(std::move(clone), std::move(types), std::move(names))).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = outputs[i];
  }
  std::vector<ValueId> results;
  for (const ValueId output : region.outputs) results.push_back(map[static_cast<size_t>(output)]);
  return results;
}

std::string join_locs(const std::vector<std::string>& locs) {
  constexpr size_t kMaxShown = 6;
  // Locations may be joined ones already; their parts are compared one by one.
  std::vector<std::string> parts;
  int64_t more = 0;
  for (const std::string& loc : locs)
    for (size_t start = 0; start < loc.size();) {
      const size_t end = std::min(loc.find('+', start), loc.size());
      const std::string part = loc.substr(start, end - start);
      start = end + 1;
      int64_t count = 0;
      const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), count);
      if (error == std::errc() && std::string_view(stop) == " more") {
        more += count;
      } else if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
        parts.push_back(part);
      }
    }
  if (parts.size() > kMaxShown + 1) {
    more += static_cast<int64_t>(parts.size() - kMaxShown);
    parts.resize(kMaxShown);
  }
  return fmt::format("{}{}", fmt::join(parts, "+"), more ? fmt::format("+{} more", more) : "");
}

std::vector<int64_t> swap_of_last_two(int rank) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return perm;
}

std::vector<bool> output_mask(const Graph& graph) {
  std::vector<bool> mask(graph.values().size(), false);
  for (const ValueId output : graph.outputs) mask[static_cast<size_t>(output)] = true;
  return mask;
}

bool all_of_list(const Node& node, const char* name, int64_t value) {
  const std::vector<int64_t>& list = node.attrs.get_ints(name);
  return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == value; });
}

ConvPadding take_padding(const Node& conv) {
  ConvPadding result{{0, 0}, {0, 0}, conv.attrs};
  for (const auto& [name, into] : {std::pair("pads_begin", &result.low), std::pair("pads_end", &result.high)}) {
    const std::vector<int64_t>& amounts = conv.attrs.get_ints(name);
    into->insert(into->end(), amounts.begin(), amounts.end());
    result.others.set(name, std::vector<int64_t>(amounts.size(), 0));
  }
  return result;
}

bool suits_minimal_filtering(const Graph& graph, const Node& conv) {
  constexpr int64_t kLeastPlaces = 14 * 14;  // of a picture from which on it is faster
  constexpr int64_t kLeastExtent = 4;        // of each of its dimensions
  constexpr int64_t kBlock = 16;             // of channels, which those of a group should fill
  const auto w = static_dims(graph.type(conv.inputs[1]).shape);
  const Shape& y = graph.type(conv.outputs[0]).shape;
  if (!w || w->size() < 4 || !all_of_list(conv, "input_dilations", 1)) return false;
  const int64_t groups = conv.attrs.get_int("groups");
  if ((*w)[1] % kBlock != 0 || (*w)[0] < kBlock || (groups != 1 && (*w)[0] / groups % kBlock != 0)) return false;
  // Of a volume's window, each frame.
  const int64_t window = w->back();
  if ((window != 3 && window != 5) || (*w)[w->size() - 2] != window) return false;
  int64_t places = 1;  // of the picture that one place of a window with gaps meets
  const auto &strides = conv.attrs.get_ints("strides"), &gaps = conv.attrs.get_ints("dilations");
  for (size_t i = 1; i <= 2; ++i) {
    if (strides[strides.size() - i] != 1) return false;
    const int64_t extent = typical_size(y[y.size() - i]) / gaps[gaps.size() - i];
    if (extent < kLeastExtent) return false;
    places *= extent;
  }
  return places >= kLeastPlaces;
}

std::vector<int> use_counts(const Graph& graph) {
  std::vector<int> counts(graph.values().size(), 0);
  for (const Node& node : graph.nodes())
    for (const ValueId input : node.inputs) ++counts[static_cast<size_t>(input)];
  for (const ValueId output : graph.outputs) ++counts[static_cast<size_t>(output)];
  return counts;
}

}  // namespace tessera::inline graph_passes
