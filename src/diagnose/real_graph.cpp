#include "diagnose/real_graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "arith/simplify.h"
#include "ops/body_text.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline diagnose {
namespace {

DType in_f64(DType dtype) { return is_real(dtype) ? DType::kF64 : dtype; }

TensorType in_f64(TensorType type) {
  type.dtype = in_f64(type.dtype);
  return type;
}

TensorPtr in_f64(const TensorPtr& tensor) {
  if (!is_real(tensor->dtype()) || tensor->dtype() == DType::kF64 || !tensor->has_data()) return tensor;
  return std::make_shared<const Tensor>(diagnose::in_f64(*tensor));
}

Attrs in_f64(const Attrs& attrs) {
  Attrs result;
  for (const auto& [name, value] : attrs.all()) {
    if (const DType* dtype = std::get_if<DType>(&value)) result.set(name, in_f64(*dtype));
    else if (const TensorPtr* tensor = std::get_if<TensorPtr>(&value)) result.set(name, in_f64(*tensor));
    else result.set(name, value);
  }
  return result;
}

// The body of a `compute` node with f64 in the place of all real types; nothing where it has bits of one as a value.
std::optional<Attrs> body_in_f64(const Graph& source, const Node& node) {
  Body body = node_body(source, node);
  bool has_bits = false;
  walk(body.value, [&](const Expr& e) { has_bits |= e->kind == ExprKind::kUnary && e->unary == UnaryOp::kBitcast; });
  if (has_bits) return std::nullopt;
  std::vector<BufferPtr> inputs;
  for (const BufferPtr& buffer : body.inputs)
    inputs.push_back(is_real(buffer->dtype) ? make_buffer(buffer->name, DType::kF64, buffer->shape) : buffer);
  body.value = transform(body.value, [&](const Expr& e) -> Expr {
    if (e->kind == ExprKind::kConst && is_real(e.dtype())) return const_float(DType::kF64, e->float_value);
    if (e->kind == ExprKind::kCast && is_real(e.dtype())) return cast(DType::kF64, e->operands[0]);
    if (e->kind != ExprKind::kLoad || !is_real(e.dtype())) return {};
    const auto at = std::find(body.inputs.begin(), body.inputs.end(), e->buffer);
    return load(inputs[static_cast<size_t>(at - body.inputs.begin())], e->operands);
  });
  body.inputs = inputs;
  return compute_attrs(body);
}

class Converter {
 public:
  explicit Converter(const OpTable& ops) : ops_(ops) {}

  // `parameters`: null where constants stay what they are.
  Graph convert(const Graph& source, RealGraph* parameters) {
    Graph graph;
    graph.copy_header(source);
    std::vector<ValueId> map(source.values().size(), -1);
    for (const ValueId input : source.inputs)
      map[index(input)] = graph.add_input(source.value(input).name, in_f64(source.type(input)));
    if (parameters)
      for (const Node& node : source.nodes()) {
        if (node.op->kind != OpKind::kConstant || !is_parameter(source.type(node.outputs[0]))) continue;
        const ValueId value = node.outputs[0];
        map[index(value)] = graph.add_input(source.value(value).name, in_f64(source.type(value)));
        parameters->parameters.push_back(source.value(value).name);
        parameters->values.push_back(diagnose::in_f64(*node.attrs.get<TensorPtr>("value")));
      }
    GraphBuilder builder(graph);
    for (const Node& node : source.nodes()) {
      if (map[index(node.outputs[0])] >= 0) continue;  // a parameter
      std::vector<ValueId> operands;
      for (const ValueId input : node.inputs) operands.push_back(map[index(input)]);
      builder.set_loc(node.loc);
      const std::vector<ValueId> results = copy(source, node, builder, operands);
      for (size_t i = 0; i < results.size(); ++i) {
        const std::string& name = source.value(node.outputs[i]).name;
        if (graph.value(results[i]).name != name && graph.unique_name(name) == name) graph.rename(results[i], name);
        map[index(node.outputs[i])] = results[i];
      }
    }
    for (const ValueId output : source.outputs) graph.outputs.push_back(map[index(output)]);
    return graph;
  }

 private:
  static size_t index(ValueId v) { return static_cast<size_t>(v); }
  static bool is_parameter(const TensorType& type) { return is_real(type.dtype) && type.rank() > 0; }

  std::vector<ValueId> copy(const Graph& source, const Node& node, GraphBuilder& builder,
                            const std::vector<ValueId>& operands) {
    if (node.op->name == "bitcast") return in_own_types(source, node, builder, operands);
    if (node.op->name == "compute") {
      const auto attrs = body_in_f64(source, node);
      if (!attrs) return in_own_types(source, node, builder, operands);
      return {builder.add(*node.op, operands, *attrs)};
    }
    try {
      // The definition's own body: its constants are exact in f64.
      if (node.op->kind == OpKind::kComposite && definition_of(source, node, ops_))
        return add_composite(builder, ops_, node.attrs.get<std::string>("name"), operands, attrs_of_composite(node));
      std::vector<GraphPtr> regions;
      for (const GraphPtr& region : node.regions)
        regions.push_back(std::make_shared<const Graph>(convert(*region, nullptr)));
      // An operator may give f32 whatever it reads.
      return values_in_f64(builder, builder.add_multi(*node.op, operands, in_f64(node.attrs), std::move(regions)));
    } catch (const UserError&) {
      return in_own_types(source, node, builder, operands);
    }
  }

  static Attrs attrs_of_composite(const Node& node) {
    Attrs attrs = in_f64(node.attrs);
    attrs.erase("name");
    return attrs;
  }

  std::vector<ValueId> in_own_types(const Graph& source, const Node& node, GraphBuilder& builder,
                                    std::vector<ValueId> operands) {
    for (size_t i = 0; i < operands.size(); ++i)
      operands[i] = cast(builder, operands[i], source.type(node.inputs[i]).dtype);
    return values_in_f64(builder, builder.add_multi(*node.op, std::move(operands), node.attrs, node.regions));
  }

  ValueId cast(GraphBuilder& builder, ValueId v, DType to) {
    if (builder.graph().type(v).dtype == to) return v;
    return builder.add(ops_.get("cast"), {v}, {{"to", to}});
  }
  std::vector<ValueId> values_in_f64(GraphBuilder& builder, std::vector<ValueId> values) {
    for (ValueId& v : values) v = cast(builder, v, in_f64(builder.graph().type(v).dtype));
    return values;
  }

  const OpTable& ops_;
};

}  // namespace

Tensor in_f64(const Tensor& tensor) {
  if (!is_real(tensor.dtype()) || tensor.dtype() == DType::kF64) return tensor;
  Tensor result(DType::kF64, tensor.dims());
  const std::span<double> elements = result.as_mutable<double>();
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = tensor.get_double(static_cast<int64_t>(i));
  return result;
}

RealGraph in_f64(const Graph& model, const OpTable& ops) {
  const KnownSymbols known(model.symbols);
  RealGraph result;
  result.graph = Converter(ops).convert(model, &result);
  result.graph.outputs.resize(result.graph.first_check());
  result.graph.checks.clear();
  result.graph.states.clear();
  return result;
}

}  // namespace tessera::inline diagnose
