#include "unit/random_loop.h"

#include "ops/op_table.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

class RegionBuilder {
 public:
  explicit RegionBuilder(Graph& graph) : graph_(graph), builder_(graph) {}

  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId number(double value, DType dtype) {
    Tensor tensor(dtype, {});
    if (dtype == DType::kI64) tensor.set_int(0, static_cast<int64_t>(value));
    else if (dtype == DType::kBool) tensor.set_int(0, value != 0);
    else tensor.set_double(0, value);
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId sum(ValueId v) {
    return op("reduce", {v}, {{"axes", Ints{0}}, {"keepdims", false}, {"kind", std::string("sum")}});
  }
  // tanh(v W + b)
  ValueId cell(ValueId v, ValueId weights, ValueId bias) {
    const ValueId row = op("reshape", {v}, {{"shape", make_shape({1, 3})}});
    const ValueId product = op("reshape", {op("matmul", {row, weights})}, {{"shape", make_shape({3})}});
    return op("tanh", {op("add", {product, bias})});
  }
  std::vector<ValueId> node(const char* name, std::vector<ValueId> inputs, Attrs attrs, std::vector<GraphPtr> regions) {
    return builder_.add_multi(standard_ops().get(name), std::move(inputs), std::move(attrs), std::move(regions));
  }
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  GraphBuilder builder_;
};

TensorType type_of(DType dtype, const Ints& dims) { return {dtype, make_shape(dims), {}}; }

// One of two formulas, by whether the number of the iteration is even. The other one of the two is not a number.
ValueId branch(RegionBuilder& body, DType dtype, ValueId number, ValueId v, ValueId bias) {
  std::vector<GraphPtr> regions;
  for (const bool even : {true, false}) {
    auto region = std::make_shared<Graph>();
    region->name = even ? "even" : "odd";
    const ValueId a = region->add_input("a", type_of(dtype, {3})), b = region->add_input("b", type_of(dtype, {3}));
    RegionBuilder r(*region);
    if (even) region->outputs = {r.op("mul", {r.op("sin", {a}), b})};
    else region->outputs = {r.op("sqrt", {r.op("exp", {r.op("add", {a, a})})})};
    regions.push_back(region);
  }
  const ValueId rest = body.op("rem", {number, body.number(2, DType::kI64)});
  const ValueId even = body.op("eq", {rest, body.number(0, DType::kI64)});
  return body.node("if", {even, v, bias}, {}, regions)[0];
}

// v twice through a cell.
ValueId inner_loop(RegionBuilder& body, DType dtype, ValueId v, ValueId weights, ValueId bias) {
  auto region = std::make_shared<Graph>();
  region->name = "inner";
  region->add_input("i", type_of(DType::kI64, {}));
  const ValueId c = region->add_input("c", type_of(dtype, {3})), w = region->add_input("w", type_of(dtype, {3, 3})),
                b = region->add_input("b", type_of(dtype, {3}));
  RegionBuilder r(*region);
  region->outputs = {r.cell(c, w, b)};
  return body.node("loop", {v, weights, bias}, {{"num_carried", int64_t{1}}, {"max_trip", make_shape({2})}},
                   {region})[0];
}

}  // namespace

RandomLoop random_form(uint64_t seed) {
  RandomLoop form;
  std::mt19937_64 random(seed);
  const auto coin = [&] { return random() % 2 == 0; };
  form.counted = coin();
  form.constant_count = coin();
  form.has_condition = coin();
  form.bounded = coin();
  form.reversed = coin();
  form.branches = coin();
  form.loops = seed % 5 == 0;
  form.uses_number = coin();
  form.trip = static_cast<int64_t>(random() % 6);
  return form;
}

std::vector<ValueId> add_loop(GraphBuilder& builder, const RandomLoop& form, ValueId state, ValueId rows,
                              ValueId weights, ValueId bias) {
  RegionBuilder outside(builder.graph());
  const DType dtype = builder.graph().type(state).dtype;
  auto region = std::make_shared<Graph>();
  region->name = "step";
  const ValueId i = region->add_input("i", type_of(DType::kI64, {})), h = region->add_input("h", type_of(dtype, {3})),
                c = region->add_input("c", type_of(dtype, {3})), total = region->add_input("total", type_of(dtype, {})),
                row = region->add_input("row", type_of(dtype, {3})), w = region->add_input("w", type_of(dtype, {3, 3})),
                b = region->add_input("b", type_of(dtype, {3}));
  RegionBuilder body(*region);
  ValueId next = body.op("add", {body.cell(h, w, b), body.op("mul", {row, c})});
  if (form.branches) next = branch(body, dtype, i, next, b);
  if (form.loops) next = inner_loop(body, dtype, next, w, b);
  ValueId cell = body.op("sin", {body.op("add", {c, next})});
  if (form.uses_number)
    cell = body.op("mul", {cell, body.op("add", {body.op("cast", {i}, {{"to", dtype}}), body.number(0.5, dtype)})});
  const ValueId sum = body.op("add", {total, body.op("mul", {body.sum(next), body.sum(row)})});
  if (form.has_condition) region->outputs = {body.op("lt", {body.sum(cell), body.number(1.1, dtype)})};
  for (const ValueId v : {next, cell, sum, next, body.op("mul", {cell, row})}) region->outputs.push_back(v);

  std::vector<ValueId> operands;
  Attrs attrs{{"num_carried", int64_t{3}}, {"num_scanned", int64_t{1}}};
  if (form.counted) {
    ValueId count = outside.number(static_cast<double>(form.trip - 1), DType::kI64);
    if (!form.constant_count) count = outside.op("add", {count, outside.number(0, DType::kI64)});
    operands.push_back(count);
    attrs.set("counted", true);
  }
  if (form.has_condition) {
    operands.push_back(outside.number(1, DType::kBool));
    attrs.set("has_condition", true);
  }
  if (form.bounded) attrs.set("max_trip", make_shape({form.trip}));
  if (form.reversed) {
    attrs.set("scan_reversed", Ints{1});
    attrs.set("stack_reversed", Ints{0, 1});
  }
  operands.insert(operands.end(), {state, bias, outside.number(0.25, dtype), rows, weights, bias});
  return outside.node("loop", operands, attrs, {region});
}

}  // namespace tessera
