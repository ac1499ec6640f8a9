#include "quantize/quantize_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "quantize/byte_nodes.h"
#include "support/error.h"

namespace tessera::inline quantize {
namespace {

const Tensor* constant_of(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!node || node->op->kind != OpKind::kConstant) return nullptr;
  const TensorPtr& value = node->attrs.get<TensorPtr>("value");
  return value->has_data() ? value.get() : nullptr;
}

double count_of(const Shape& shape) {
  double count = 1;
  for (const Expr& extent : shape) count *= static_cast<double>(as_int(extent).value_or(0));
  return count;
}

int64_t power_of_two_from(int64_t least) {
  int64_t power = 16;
  while (power < least) power *= 2;
  return power;
}

class Quantizer {
 public:
  Quantizer(const Graph& graph, const QuantizeOptions& options, const OpTable& ops)
      : graph_(graph), options_(options), ops_(ops), rewriter_(graph), builder_(rewriter_.target()) {}

  Graph run(const std::vector<QuantizedProduct>& products) {
    std::map<const Node*, const QuantizedProduct*> chosen;
    for (const QuantizedProduct& product : products) chosen[&graph_.node(product.product.node)] = &product;
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      const auto found = chosen.find(&node);
      if (found == chosen.end()) return with_bias(node, inputs);
      const QuantizedProduct& product = *found->second;
      std::vector<ValueId> results;
      switch (options_.scheme) {
        case Scheme::kStatic: results = static_form(product, node, inputs); break;
        case Scheme::kDynamic: results = {dynamic_form(product, node, inputs)}; break;
        case Scheme::kWeightOnly: results = {weight_only_form(product, node, inputs)}; break;
      }
      if (product.correction.empty()) return results;
      if (const Node* bias = bias_behind(node, product)) biases_[bias] = &product;
      else results[0] = corrected(product, results[0]);
      return results;
    });
  }

 private:
  std::vector<ValueId> static_form(const QuantizedProduct& product, const Node& node, std::vector<ValueId> operands) {
    at_data(product, node);
    operands[0] = data(product, operands[0]);
    builder_.set_loc(node.loc);
    operands[1] = real_weights(product);
    return rewriter_.copy(node, operands);
  }

  ValueId dynamic_form(const QuantizedProduct& product, const Node& node, const std::vector<ValueId>& inputs) {
    const WeightedProduct& p = product.product;
    builder_.set_loc(node.loc);  // its range is part of what it costs
    auto& bytes = dynamic_[p.data];
    if (bytes.empty()) bytes = add_composite(builder_, ops_, "dynamic_quantize", {inputs[0]});
    const IntegerConstants weights = integer_weights(product);
    std::vector<ValueId> operands = {bytes[0], weights.integers, bytes[2]};
    Attrs attrs;
    if (p.is_conv)
      for (const char* name : {"strides", "pads_begin", "pads_end", "dilations", "groups"})
        attrs.set(name, node.attrs.all().at(name));
    const ValueId sums = add_composite(builder_, ops_, p.is_conv ? "conv_integer" : "matmul_integer",
                                       std::move(operands), std::move(attrs))[0];
    const ValueId real = builder_.add(ops_.get("cast"), {sums}, {{"to", DType::kF32}});
    const ValueId scale = builder_.add(ops_.get("mul"), {bytes[1], along_outputs(p, weights.scale_numbers)});
    return builder_.add(ops_.get("mul"), {real, scale});
  }

  ValueId weight_only_form(const QuantizedProduct& product, const Node& node, const std::vector<ValueId>& inputs) {
    const WeightedProduct& p = product.product;
    builder_.set_loc(node.loc);
    const auto [known, is_new] = groups_.try_emplace(std::make_tuple(p.weights, p.outputs_axis, product.weights), -1);
    if (is_new) {
      const std::shared_ptr<const IntegerRows> rows = rows_for(product);
      PackedRows packed = packed_rows(*rows, options_.weight_bits);
      const std::string name = graph_.value(p.weights).name;
      std::vector<ValueId> operands = {constant(std::move(packed.bytes), name + ".groups"),
                                       constant(std::move(packed.scales), name + ".scales")};
      if (options_.has_zeros) operands.push_back(constant(std::move(packed.zeros), name + ".zeros"));
      known->second = builder_.add(
          ops_.get("dequantize_blocks"), std::move(operands),
          {{"format", fmt::format("u{}", options_.weight_bits)}, {"group", rows->group}, {"elements", rows->terms}});
    }
    return builder_.add(ops_.get("matmul"), {inputs[0], known->second}, {{"transpose_b", true}});
  }

  static size_t bias_operand(const Graph& graph, const Node& add) { return constant_of(graph, add.inputs[0]) ? 0 : 1; }

  // The addition of a number for each output that alone reads the product.
  const Node* bias_behind(const Node& node, const QuantizedProduct& product) {
    if (users_.empty()) users_ = graph_.users();
    const ValueId value = node.outputs[0];
    const auto& users = users_[static_cast<size_t>(value)];
    if (users.size() != 1 || std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end())
      return nullptr;
    const Node& add = graph_.node(users[0]);
    if (add.op->name != "add") return nullptr;
    const Tensor* bias = constant_of(graph_, add.inputs[bias_operand(graph_, add)]);
    const bool fits =
        bias && bias->dtype() == DType::kF32 &&
        bias->num_elements() == static_cast<int64_t>(product.correction.size()) &&
        bias->dims().size() ==
            (product.product.is_conv ? constant_tensor(graph_, product.product.weights).dims().size() - 1 : 1);
    const bool has_channels_first = fits && bias->dims()[0] == bias->num_elements();
    return has_channels_first ? &add : nullptr;
  }

  std::vector<ValueId> with_bias(const Node& node, const std::vector<ValueId>& inputs) {
    const auto found = biases_.find(&node);
    if (found == biases_.end()) return {};
    const size_t operand = bias_operand(graph_, node);
    const Tensor& given = constant_tensor(graph_, node.inputs[operand]);
    Tensor sum(DType::kF32, given.dims());
    for (size_t i = 0; i < found->second->correction.size(); ++i)
      sum.as_mutable<float>()[i] = given.as<float>()[i] + found->second->correction[i];
    builder_.set_loc(node.loc);
    std::vector<ValueId> operands = inputs;
    operands[operand] = constant(std::move(sum), name_of(node.inputs[operand]) + ".corrected");
    return rewriter_.copy(node, operands);
  }

  ValueId corrected(const QuantizedProduct& product, ValueId value) {
    return builder_.add(ops_.get("add"), {value, along_outputs(product.product, product.correction)});
  }

  // Numbers, one for all or one for each output, as a constant that broadcasts to the product.
  ValueId along_outputs(const WeightedProduct& p, const std::vector<float>& numbers) {
    std::vector<int64_t> dims;
    if (numbers.size() != 1 || !p.is_conv) dims = {static_cast<int64_t>(numbers.size())};
    if (numbers.size() == 1) dims.clear();
    else if (p.is_conv) dims.resize(constant_tensor(graph_, p.weights).dims().size() - 1, 1);
    Tensor tensor(DType::kF32, std::move(dims));
    std::copy(numbers.begin(), numbers.end(), tensor.as_mutable<float>().begin());
    return constant(std::move(tensor), p.name);
  }

  // Bytes are made where the numbers are, as a rule in the same kernel.
  void at_data(const QuantizedProduct& product, const Node& node) {
    const Node* producer = graph_.producer(product.product.data);
    builder_.set_loc(producer ? producer->loc : node.loc);
  }

  ValueId constant(Tensor tensor, const std::string& name) {
    return constant_node(builder_, ops_, std::move(tensor), name);
  }
  std::string name_of(ValueId id) const { return graph_.value(id).name; }

  // One pair for each value and range.
  ValueId data(const QuantizedProduct& product, ValueId mapped) {
    const auto key = std::make_tuple(product.product.data, product.range.low, product.range.high);
    if (const auto known = data_.find(key); known != data_.end()) return known->second;
    return data_[key] = through_bytes(builder_, ops_, product, options_, mapped, name_of(product.product.data));
  }

  std::shared_ptr<const IntegerRows> rows_for(const QuantizedProduct& product) const {
    if (product.weights) return product.weights;
    const WeightedProduct& p = product.product;
    const WeightRows rows = rows_of(constant_tensor(graph_, p.weights), p.outputs_axis);
    return std::make_shared<const IntegerRows>(nearest_integers(rows, weight_grid(rows.terms, options_), p.name));
  }

  struct IntegerConstants {
    ValueId integers = -1;
    std::vector<float> scale_numbers;
  };

  const IntegerConstants& integer_weights(const QuantizedProduct& product) {
    const WeightedProduct& p = product.product;
    const auto [known, is_new] = integers_.try_emplace(std::make_tuple(p.weights, p.outputs_axis, product.weights));
    if (!is_new) return known->second;
    const std::shared_ptr<const IntegerRows> rows = rows_for(product);
    const std::string name = name_of(p.weights);
    known->second.integers =
        constant(integer_tensor(*rows, constant_tensor(graph_, p.weights).dims(), p.outputs_axis), name + ".integers");
    known->second.scale_numbers = rows->scales;
    if (options_.weights == Granularity::kTensor && !rows->scales.empty()) known->second.scale_numbers.resize(1);
    return known->second;
  }

  ValueId real_weights(const QuantizedProduct& product) {
    const WeightedProduct& p = product.product;
    const IntegerConstants& integers = integer_weights(product);
    const auto [known, is_new] = weights_.try_emplace(integers.integers, -1);
    if (!is_new) return known->second;
    Attrs attrs;
    const bool has_axis = options_.weights != Granularity::kTensor;
    if (has_axis) attrs.set("axis", static_cast<int64_t>(p.outputs_axis));
    const std::vector<float>& numbers = integers.scale_numbers;
    Tensor scales(DType::kF32,
                  has_axis ? std::vector<int64_t>{static_cast<int64_t>(numbers.size())} : std::vector<int64_t>{});
    std::copy(numbers.begin(), numbers.end(), scales.as_mutable<float>().begin());
    Tensor zeros(DType::kI8, scales.dims());
    const std::string name = name_of(p.weights);
    const ValueId s = constant(std::move(scales), name + ".scale");
    const ValueId z = constant(std::move(zeros), name + ".zero");
    return known->second = add_composite(builder_, ops_, "dequantize", {integers.integers, s, z}, std::move(attrs))[0];
  }

  const Graph& graph_;
  const QuantizeOptions& options_;
  const OpTable& ops_;
  GraphRewriter rewriter_;
  GraphBuilder builder_;
  std::map<std::tuple<ValueId, double, double>, ValueId> data_;
  std::vector<std::vector<NodeId>> users_;
  std::map<const Node*, const QuantizedProduct*> biases_;  // additions that take a correction in
  std::map<ValueId, std::vector<ValueId>> dynamic_;        // bytes, scale, zero point
  std::map<std::tuple<ValueId, size_t, std::shared_ptr<const IntegerRows>>, IntegerConstants> integers_;
  std::map<ValueId, ValueId> weights_;  // of integers: the real numbers
  // Of weights: the real numbers.
  std::map<std::tuple<ValueId, size_t, std::shared_ptr<const IntegerRows>>, ValueId> groups_;
};

// The model's own name: what was folded into a node stands behind it, after a '+'.
std::string name_of_product(const Graph& graph, const Node& node) {
  return node.loc.empty() ? graph.value(node.outputs[0]).name : node.loc.substr(0, node.loc.find('+'));
}

}  // namespace

std::vector<WeightedProduct> weighted_products(const Graph& graph) {
  std::vector<WeightedProduct> products;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    const bool conv = node.op->name == "conv";
    if (!conv && node.op->name != "matmul") continue;
    const Tensor* weights = constant_of(graph, node.inputs[1]);
    if (!weights || weights->dtype() != DType::kF32 || weights->num_elements() == 0) continue;
    if (graph.type(node.inputs[0]).dtype != DType::kF32 || constant_of(graph, node.inputs[0])) continue;
    if (!conv && weights->dims().size() != 2) continue;
    const bool transposed = !conv && node.attrs.get_or<bool>("transpose_b", false);
    const size_t axis = conv || transposed ? 0 : 1;
    const double outputs = count_of(graph.type(node.outputs[0]).shape);
    products.push_back({.node = static_cast<NodeId>(n),
                        .is_conv = conv,
                        .name = name_of_product(graph, node),
                        .data = node.inputs[0],
                        .weights = node.inputs[1],
                        .outputs_axis = axis,
                        .multiply_adds = outputs * static_cast<double>(weights->num_elements()) /
                                         static_cast<double>(weights->dims()[axis])});
  }
  return products;
}

const Tensor& constant_tensor(const Graph& graph, ValueId value) {
  const Tensor* tensor = constant_of(graph, value);
  check(tensor, "weights are constant");
  return *tensor;
}

bool has_form(const Graph& graph, const WeightedProduct& product, Scheme scheme) {
  const Attrs& attrs = graph.node(product.node).attrs;
  const auto is_set = [&](const char* name) { return attrs.get_or<bool>(name, false); };
  switch (scheme) {
    case Scheme::kStatic: return true;
    case Scheme::kDynamic: {
      if (!product.is_conv) return !is_set("transpose_a") && !is_set("transpose_b");
      const std::vector<int64_t>& gaps = attrs.get_ints("input_dilations");
      return std::all_of(gaps.begin(), gaps.end(), [](int64_t gap) { return gap == 1; });
    }
    case Scheme::kWeightOnly: return !product.is_conv && !is_set("transpose_a");
  }
  return false;
}

IntegerGrid weight_grid(int64_t terms, const QuantizeOptions& options) {
  IntegerGrid grid;
  grid.one_scale = options.weights == Granularity::kTensor;
  if (options.scheme != Scheme::kWeightOnly) {
    grid.high = (int64_t{1} << (options.weight_bits - 1)) - 1;
    grid.low = -grid.high;
    return grid;
  }
  grid.low = 0;
  grid.high = (int64_t{1} << options.weight_bits) - 1;
  grid.group = options.weights == Granularity::kGroup ? options.group : power_of_two_from(terms);
  grid.has_zero = options.has_zeros;
  grid.fits_scale = true;
  return grid;
}

Graph with_outputs(const Graph& graph, const std::vector<ValueId>& values, const OpTable& ops) {
  Graph result = graph;
  result.outputs.resize(graph.num_own_outputs());
  std::vector<ValueId> rest(graph.outputs.begin() + static_cast<int64_t>(graph.num_own_outputs()), graph.outputs.end());
  result.outputs.clear();
  GraphBuilder builder(result);
  for (const ValueId value : values) {
    const bool is_input = !graph.producer(value);
    const bool is_twice = std::find(result.outputs.begin(), result.outputs.end(), value) != result.outputs.end() ||
                          std::find(rest.begin(), rest.end(), value) != rest.end();
    if (!is_input && !is_twice) {
      result.outputs.push_back(value);
      continue;
    }
    auto zero = std::make_shared<Tensor>(graph.type(value).dtype, std::vector<int64_t>{});
    const ValueId none = builder.add(ops.get("constant"), {}, {{"value", TensorPtr(std::move(zero))}});
    result.outputs.push_back(builder.add(ops.get("add"), {value, none}, {}, graph.value(value).name + ".seen"));
  }
  result.outputs.insert(result.outputs.end(), rest.begin(), rest.end());
  return result;
}

Graph quantized_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                      const OpTable& ops) {
  return Quantizer(graph, options, ops).run(products);
}

namespace {

// The real number that a step of the range's integers stands for.
float step_of(double low, double high, bool has_sign) {
  return static_cast<float>(has_sign ? std::max(-low, high) / 127 : (high - low) / 255);
}

}  // namespace

bool has_byte_scale(const Range& range, DType dtype) {
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  return step_of(low, high, dtype == DType::kI8) >= std::numeric_limits<float>::min();
}

ByteScale byte_scale(const Range& range, DType dtype) {
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  const bool has_sign = dtype == DType::kI8;
  ByteScale bytes;
  if (!has_byte_scale(range, dtype)) return bytes;
  bytes.scale = step_of(low, high, has_sign);
  if (!has_sign) bytes.zero = std::clamp<int64_t>(std::llround(-low / bytes.scale), 0, 255);
  return bytes;
}

}  // namespace tessera::inline quantize
