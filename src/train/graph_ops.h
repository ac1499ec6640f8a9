// Arithmetic on values of a graph, for graphs that are built by hand.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline train {

struct GraphOps {
  GraphBuilder& builder;
  const OpTable& ops;

  ValueId op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {}) const {
    return builder.add(ops.get(name), std::move(inputs), std::move(attrs));
  }
  const TensorType& type(ValueId v) const { return builder.graph().type(v); }
  ValueId add(ValueId a, ValueId b) const { return op("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) const { return op("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) const { return op("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) const { return op("div", {a, b}); }
  ValueId sqrt(ValueId a) const { return op("sqrt", {a}); }
  ValueId cast(ValueId v, DType dtype) const { return type(v).dtype == dtype ? v : op("cast", {v}, {{"to", dtype}}); }
  ValueId scalar(double value, DType dtype) const {
    Tensor tensor(dtype, {});
    tensor.set_double(0, value);
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId zero(DType dtype) const { return scalar(0, dtype); }
  ValueId integer(int64_t value) const {
    Tensor tensor(DType::kI64, {});
    tensor.set_int(0, value);
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  // v with a number, in v's type.
  ValueId plus(ValueId v, double number) const { return number == 0 ? v : add(v, scalar(number, type(v).dtype)); }
  ValueId times(ValueId v, double number) const { return number == 1 ? v : mul(v, scalar(number, type(v).dtype)); }
  ValueId reduce(const char* kind, ValueId v, std::vector<int64_t> axes, bool keepdims) const {
    return op("reduce", {v}, {{"axes", std::move(axes)}, {"keepdims", keepdims}, {"kind", std::string(kind)}});
  }
  std::vector<int64_t> all_axes(ValueId v) const {
    std::vector<int64_t> axes(type(v).shape.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    return axes;
  }
  // Of all elements.
  ValueId over_all(const char* kind, ValueId v) const {
    return type(v).shape.empty() ? v : reduce(kind, v, all_axes(v), false);
  }
  ValueId total(ValueId v) const { return over_all("sum", v); }
};

// Appends the nodes of `from` to `to`; `map` has the values that its inputs are, and receives the others. Locations get
// `prefix` in front.
inline void append_nodes(Graph& to, const Graph& from, std::vector<ValueId>& map, const std::string& prefix = "") {
  for (const Node& node : from.nodes()) {
    Node copy = node;
    if (!prefix.empty()) copy.loc = prefix + copy.loc;
    for (ValueId& input : copy.inputs) input = map[static_cast<size_t>(input)];
    copy.outputs.clear();
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(from.type(output));
      names.push_back(prefix + from.value(output).name);
    }
    const NodeId id = to.add_node(std::move(copy), std::move(types), std::move(names));
    for (size_t i = 0; i < node.outputs.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = to.node(id).outputs[i];
  }
}

}  // namespace tessera::inline train
