#include "support/symbolic_import.h"

#include <gmock/gmock.h>

#include <random>

#include "graph/bind_symbols.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "support/test_data.h"

namespace tessera {

ImportOptions symbolic(const Ranges& ranges) {
  ImportOptions options;
  options.loop_nodes = true;
  for (const auto& [name, range] : ranges) {
    options.dims[name] = range;
    options.symbols.push_back({make_var(name), range.lo, range.hi, 1});
  }
  return options;
}

namespace {

// Values that indices, masks and numbers may have all alike.
Tensor random_tensor(DType dtype, const std::vector<int64_t>& dims, std::mt19937& random) {
  Tensor tensor(dtype, dims);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (is_float(dtype)) tensor.set_double(i, normal(random));
    else tensor.set_int(i, static_cast<int64_t>(random() % (dtype == DType::kBool ? 2 : 3)));
  }
  return tensor;
}

Tensor ones(DType dtype, const std::vector<int64_t>& dims) {
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_int(i, 1);
  return tensor;
}

// The values of the graph's own symbols; others follow from them.
std::vector<int64_t> values_of(const Graph& graph, const Sizes& sizes) {
  std::vector<int64_t> values;
  for (const SymbolRange& symbol : graph.symbols) values.push_back(sizes.at(symbol.var->name));
  return values;
}

}  // namespace

void expect_same(const Graph& graph, const Reader& read, const Sizes& sizes, double tolerance) {
  SCOPED_TRACE(testing::PrintToString(sizes));
  ImportOptions fixed;
  for (const auto& [name, value] : sizes) fixed.dims[name] = {value, value};
  const Graph wanted = graph_alone(imported(read(fixed)));
  const Graph bound = bind_symbols(graph, values_of(graph, sizes));
  ASSERT_THAT(verify(bound), testing::IsEmpty());
  ASSERT_EQ(bound.inputs.size(), wanted.inputs.size());
  ASSERT_EQ(bound.outputs.size(), wanted.outputs.size());
  std::mt19937 random(1);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < wanted.inputs.size(); ++i) {
    const TensorType& type = wanted.type(wanted.inputs[i]);
    EXPECT_EQ(bound.type(bound.inputs[i]).to_string(), type.to_string());
    const bool mask = wanted.value(wanted.inputs[i]).name.find("mask") != std::string::npos;
    inputs.push_back(mask ? ones(type.dtype, type.dims()) : random_tensor(type.dtype, type.dims(), random));
  }
  const std::vector<Tensor> want = GraphInterpreter().evaluate(wanted, inputs);
  const std::vector<Tensor> found = GraphInterpreter().evaluate(bound, inputs);
  const std::vector<Tensor> unbound = GraphInterpreter().evaluate(graph, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(tensors_agree(found[i], want[i], tolerance)) << wanted.value(wanted.outputs[i]).name;
    EXPECT_TRUE(tensors_agree(unbound[i], want[i], tolerance)) << wanted.value(wanted.outputs[i]).name << ", unbound";
  }
}

Graph import_once(const Reader& read, const Ranges& ranges) { return sound_graph(read(symbolic(ranges))); }

Graph sound_graph(ReadOutcome outcome) {
  if (const auto* reason = std::get_if<NoGraph>(&outcome)) {
    ADD_FAILURE() << reason->to_string();
    return {};
  }
  ImportedModel model = imported(std::move(outcome));
  EXPECT_EQ(model.flow, nullptr);
  EXPECT_THAT(verify(model.graph), testing::IsEmpty());
  return std::move(model.graph);
}

}  // namespace tessera
