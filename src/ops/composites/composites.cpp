#include "ops/composites/composites.h"

#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "graph/hash.h"
#include "ops/op_util.h"

namespace tessera::inline ops {

ValueId CompositeBody::scalar(double value, DType dtype) {
  auto tensor = std::make_shared<Tensor>(dtype, std::vector<int64_t>{});
  tensor->set_double(0, value);
  return add("constant", {}, {{"value", TensorPtr(std::move(tensor))}});
}

ValueId CompositeBody::reduce(std::string_view kind, ValueId value, std::vector<int64_t> axes) {
  return add("reduce", {value}, {{"kind", std::string(kind)}, {"axes", std::move(axes)}, {"keepdims", true}});
}

ValueId CompositeBody::divide_by_count(ValueId value, ValueId of, const std::vector<int64_t>& axes, int64_t fewer) {
  Expr count = 1;
  double known = 1;
  for (const int64_t axis : axes) {
    const Expr& extent = type(of).shape[static_cast<size_t>(axis)];
    count = count * extent;
    known *= static_cast<double>(as_int(extent).value_or(0));
  }
  count = count - fewer;
  if (as_int(normalize_size(count))) return add_scalar("div", value, known - static_cast<double>(fewer));
  const ValueId sizes = add("sizes", {}, {{"sizes", Shape{normalize_size(count)}}, {"dtype", type(value).dtype}});
  return add("div", {value, type(value).rank() > 0 ? sizes : add("reshape", {sizes}, {{"shape", Shape{}}})});
}

ValueId CompositeBody::mean(ValueId x, const std::vector<int64_t>& axes, bool keepdims) {
  const DType dtype = type(x).dtype;
  const ValueId wide = is_float(dtype) && dtype_bits(dtype) < 32 ? cast(x, DType::kF32) : x;
  const ValueId sum = add("reduce", {wide}, {{"kind", std::string("sum")}, {"axes", axes}, {"keepdims", keepdims}});
  return cast(divide_by_count(sum, x, axes), dtype);
}

ValueId CompositeBody::reshape(ValueId value, Shape shape) {
  for (Expr& extent : shape) extent = normalize_size(extent);
  return same_shape(type(value).shape, shape) ? value : add("reshape", {value}, {{"shape", std::move(shape)}});
}

ValueId CompositeBody::cast(ValueId value, DType dtype) {
  return type(value).dtype == dtype ? value : add("cast", {value}, {{"to", dtype}});
}

int64_t CompositeBody::static_extent(const Expr& extent, const std::string& what) const {
  const auto known = as_int(extent);
  if (!known)
    context_.fail("TSR-2030", fmt::format("{} is {}, which is not known while compiling", what, to_string(extent)),
                  "a number", "fix the dimension with --shape or --dim");
  return *known;
}

std::span<const CompositeDef* const> all_composites() {
  static const std::vector<const CompositeDef*> list = [] {
    std::vector<const CompositeDef*> result;
    for (const auto* family :
         {&activation_composites(), &normalization_composites(), &softmax_composites(), &gemm_composites(),
          &pooling_composites(), &reduction_composites(), &conv_transpose_composites(), &attention_composites(),
          &loss_composites(), &optimizer_composites(), &resizing_composites(), &quantization_composites()})
      for (const CompositeDef& def : *family) result.push_back(&def);
    std::sort(result.begin(), result.end(), [](auto* a, auto* b) { return a->name < b->name; });
    return result;
  }();
  return list;
}

const CompositeDef* find_composite(std::string_view name) {
  for (const CompositeDef* def : all_composites())
    if (def->name == name) return def;
  return nullptr;
}

const CompositeDef* definition_of(const Graph& graph, const Node& node, const OpTable& ops) {
  const CompositeDef* def = find_composite(node.attrs.get_or<std::string>("name", ""));
  if (!def) return nullptr;
  Graph other;
  other.symbols = graph.symbols;
  std::vector<ValueId> operands;
  for (const ValueId input : node.inputs) {
    TensorType type = graph.type(input);
    type.layout = {};
    operands.push_back(other.add_input("x", type));
  }
  Attrs attrs = node.attrs;
  attrs.erase("name");
  try {
    GraphBuilder builder(other);
    add_composite(builder, ops, def->name, operands, attrs);
  } catch (const UserError&) {
    return nullptr;  // not with these operands
  }
  return structural_hash(*other.nodes().back().regions[0]) == structural_hash(*node.regions[0]) ? def : nullptr;
}

std::vector<ValueId> add_composite(GraphBuilder& builder, const OpTable& ops, std::string_view name,
                                   std::vector<ValueId> operands, Attrs attrs) {
  const CompositeDef* def = find_composite(name);
  if (!def) {
    std::vector<std::string> known;
    for (const CompositeDef* other : all_composites()) known.push_back(other->name);
    throw UserError({"TSR-2033", fmt::format("no composite is called {}", name), builder.loc(),
                     fmt::format("{}", fmt::join(known, ", ")), ""});
  }
  std::vector<TensorType> types;
  auto region = std::make_shared<Graph>();
  region->name = def->name;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    types.push_back(builder.graph().type(operands[i]));
    types.back().layout = {};
    inputs.push_back(region->add_input(fmt::format("x{}", i), types.back()));
  }
  GraphBuilder body(*region);
  body.set_loc(builder.loc());
  // The definition seen as an operator, so that the checks and messages are those of primitives.
  const OpDef facade{
      .name = def->name,
      .doc = def->doc,
      .min_inputs = def->min_operands,
      .max_inputs = def->max_operands,
      .attrs = def->attrs,
      .infer =
          [&](const OpContext& context) {
            CompositeBody composite(body, ops, context, inputs);
            region->outputs = def->build(composite);
            std::vector<TensorType> results;
            for (ValueId output : region->outputs) results.push_back(region->type(output));
            return results;
          },
      .body = {},
      .example = "",
  };
  infer_types(facade, types, attrs, {}, builder.loc());
  attrs.set("name", def->name);
  return builder.add_multi(ops.get("composite"), std::move(operands), std::move(attrs), {region});
}

}  // namespace tessera::inline ops
