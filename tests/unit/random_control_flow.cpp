#include "random_control_flow.h"

#include <algorithm>
#include <random>

#include "graph/op_def.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
constexpr int kMostDepth = 2;

const TensorType kMatrix{DType::kF32, make_shape({2, 3}), {}}, kRow{DType::kF32, make_shape({3}), {}},
    kList{DType::kI64, make_shape({3}), {}}, kNumber{DType::kI64, {}, {}}, kTruth{DType::kBool, {}, {}};

class Writer {
 public:
  Writer(std::mt19937_64& random, int depth) : random_(random), depth_(depth), builder_(graph_) {}

  ValueId input(const TensorType& type) { return graph_.add_input("x", type); }

  Graph finish(const std::vector<TensorType>& results, const char* name) {
    for (size_t i = 0; i < results.size(); ++i) {
      const auto same = std::find(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(i), results[i]);
      const auto earlier = static_cast<size_t>(same - results.begin());
      // Now and then the same value twice: what a loop carries and stacks as well.
      graph_.outputs.push_back(earlier < i && coin() ? graph_.outputs[earlier] : any(results[i]));
    }
    graph_.name = name;
    return std::move(graph_);
  }

  Graph finish_main() {
    const auto users = graph_.users();
    for (size_t i = 0; i < users.size(); ++i)
      if (users[i].empty() && graph_.values()[i].producer >= 0) graph_.outputs.push_back(static_cast<ValueId>(i));
    return std::move(graph_);
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t kind = below(10);
      if (depth_ < kMostDepth && kind == 0) add_if();
      else if (depth_ < kMostDepth && kind <= 2) add_loop();
      else if (depth_ < kMostDepth && kind == 3) add_call();
      else add_plain();
    }
  }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool coin() { return below(2) == 0; }
  TensorType any_type() { return pick({kMatrix, kRow, kList, kNumber, kTruth}); }
  TensorType pick(const std::vector<TensorType>& types) { return types[below(types.size())]; }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }

  ValueId constant(const TensorType& type) {
    auto tensor = std::make_shared<Tensor>(type.dtype, type.dims());
    for (int64_t i = 0; i < tensor->num_elements(); ++i) {
      if (is_float(type.dtype)) tensor->set_double(i, static_cast<double>(below(33)) / 16 - 1);
      else
        tensor->set_int(
            i, static_cast<int64_t>(below(type.dtype == DType::kBool ? 2 : 9)) - (type.dtype == DType::kBool ? 0 : 4));
    }
    return op("constant", {}, {{"value", TensorPtr(std::move(tensor))}});
  }

  // A value of the type, a new constant now and then.
  ValueId any(const TensorType& type) {
    std::vector<ValueId> found;
    for (size_t i = 0; i < graph_.values().size(); ++i)
      if (graph_.values()[i].type == type) found.push_back(static_cast<ValueId>(i));
    return found.empty() || below(8) == 0 ? constant(type)
                                          : found[found.size() - 1 - below(std::min<size_t>(found.size(), 6))];
  }

  void add_plain() {
    switch (below(9)) {
      case 0: op("tanh", {op("add", {any(kMatrix), any(kRow)})}); break;
      case 1: op(coin() ? "mul" : "min", {any(kMatrix), any(kMatrix)}); break;
      case 2: op(coin() ? "neg" : "abs", {any(kRow)}); break;
      case 3:
        op("tanh",
           {op("reduce", {any(kMatrix)}, {{"axes", Ints{0}}, {"kind", std::string("sum")}, {"keepdims", false}})});
        break;
      case 4: op(coin() ? "add" : "bitwise_xor", {any(kList), any(coin() ? kList : kNumber)}); break;
      case 5: op("reduce", {any(kList)}, {{"axes", Ints{0}}, {"kind", std::string("max")}, {"keepdims", false}}); break;
      case 6: op(coin() ? "lt" : "ge", {any(kNumber), any(kNumber)}); break;
      case 7: op(coin() ? "logical_and" : "logical_or", {any(kTruth), op("logical_not", {any(kTruth)})}); break;
      default: op("select", {any(kTruth), any(kMatrix), any(kRow)}); break;
    }
  }

  std::vector<ValueId> captured(std::vector<TensorType>& types) {
    std::vector<ValueId> values;
    for (uint64_t i = below(4); i > 0; --i) {
      types.push_back(any_type());
      values.push_back(any(types.back()));
    }
    return values;
  }

  GraphPtr region(const std::vector<TensorType>& inputs, const std::vector<TensorType>& results, const char* name) {
    Writer inner(random_, depth_ + 1);
    for (const TensorType& type : inputs) inner.input(type);
    inner.steps(static_cast<int>(below(6)));
    return std::make_shared<const Graph>(inner.finish(results, name));
  }

  std::vector<TensorType> any_types(uint64_t count) {
    std::vector<TensorType> types;
    for (; count > 0; --count) types.push_back(any_type());
    return types;
  }

  void add_if() {
    std::vector<TensorType> inputs;
    std::vector<ValueId> operands = captured(inputs);
    const auto results = any_types(1 + below(3));
    operands.insert(operands.begin(), any(kTruth));
    builder_.add_multi(standard_ops().get("if"), operands, {},
                       {region(inputs, results, "then"), region(inputs, results, "else")});
  }

  void add_call() {
    std::vector<TensorType> inputs;
    const std::vector<ValueId> operands = captured(inputs);
    const GraphPtr function = region(inputs, any_types(1 + below(2)), "f");
    for (uint64_t i = 1 + below(2); i > 0; --i)
      builder_.add_multi(standard_ops().get("call"), operands, {{"name", std::string("f")}}, {function});
  }

  void add_loop() {
    Attrs attrs;
    std::vector<ValueId> operands;
    const uint64_t scanned = below(3), stacked = below(3);
    const bool counted = below(3) == 0, condition = below(3) == 0;
    const bool max_trip = scanned == 0 && (stacked > 0 || (!counted && !condition) || coin());
    std::vector<TensorType> carried = any_types((stacked == 0 ? 1 : 0) + below(3));
    if (counted) {
      attrs.set("counted", true);
      operands.push_back(op("min", {any(kNumber), constant_number(5)}));
    }
    if (condition) {
      attrs.set("has_condition", true);
      operands.push_back(any(kTruth));
      // So that it ends.
      if (!counted && !max_trip && scanned == 0) attrs.set("max_trip", std::vector<int64_t>{7});
    }
    const int64_t extent = scanned > 0 ? 2 + static_cast<int64_t>(below(2)) : static_cast<int64_t>(below(4));
    if (max_trip) attrs.set("max_trip", std::vector<int64_t>{extent});
    std::vector<TensorType> inputs = {kNumber}, results;
    for (const TensorType& type : carried) {
      operands.push_back(any(type));
      inputs.push_back(type);
    }
    Ints scan_reversed, stack_reversed;
    for (uint64_t i = 0; i < scanned; ++i) {
      operands.push_back(extent == 2 ? any(kMatrix) : any(coin() ? kList : kRow));
      TensorType slice = graph_.type(operands.back());
      slice.shape.erase(slice.shape.begin());
      inputs.push_back(slice);
      scan_reversed.push_back(coin());
    }
    for (const ValueId value : captured(inputs)) operands.push_back(value);
    if (condition) results.push_back(kTruth);
    results.insert(results.end(), carried.begin(), carried.end());
    for (uint64_t i = 0; i < stacked; ++i) {
      results.push_back(any_type());
      stack_reversed.push_back(coin());
    }
    attrs.set("num_carried", static_cast<int64_t>(carried.size()));
    if (scanned > 0) attrs.set("num_scanned", static_cast<int64_t>(scanned));
    if (coin()) attrs.set("scan_reversed", scan_reversed);
    if (coin()) attrs.set("stack_reversed", stack_reversed);
    builder_.add_multi(standard_ops().get("loop"), operands, attrs, {region(inputs, results, "body")});
  }

  ValueId constant_number(int64_t value) {
    auto tensor = std::make_shared<Tensor>(DType::kI64, Ints{});
    tensor->set_int(0, value);
    return op("constant", {}, {{"value", TensorPtr(std::move(tensor))}});
  }

  std::mt19937_64& random_;
  int depth_;
  Graph graph_;
  GraphBuilder builder_;
};

}  // namespace

Graph random_control_flow(uint64_t seed) {
  std::mt19937_64 random(seed);
  Writer writer(random, 0);
  for (const TensorType& type : {kMatrix, kRow, kList, kNumber, kTruth, kTruth}) writer.input(type);
  writer.steps(10);
  return writer.finish_main();
}

std::vector<Tensor> control_flow_inputs(const Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> tensors;
  for (const ValueId input : graph.inputs) {
    Tensor& tensor = tensors.emplace_back(graph.type(input).dtype, graph.type(input).dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (is_float(tensor.dtype())) tensor.set_double(i, static_cast<double>(random() % 257) / 128 - 1);
      else tensor.set_int(i, static_cast<int64_t>(random() % (tensor.dtype() == DType::kBool ? 2 : 6)));
    }
  }
  return tensors;
}

}  // namespace tessera
