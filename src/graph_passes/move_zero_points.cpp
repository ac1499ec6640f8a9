#include "graph_passes/move_zero_points.h"

#include <algorithm>

#include "graph_passes/graph_util.h"
#include "loop/intrinsic.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// What a product subtracts from bytes.
struct Shifted {
  ValueId bytes = -1;
  ValueId zero = -1;
};

std::optional<Shifted> shifted_bytes(const Graph& graph, ValueId id) {
  const Node* sub = graph.producer(id);
  if (!is_op(sub, "sub") || graph.type(id).dtype != DType::kI32) return std::nullopt;
  const Node* wide = graph.producer(sub->inputs[0]);
  if (!is_op(wide, "cast") || !is_byte(graph.type(wide->inputs[0]).dtype)) return std::nullopt;
  const auto zero = static_dims(graph.type(sub->inputs[1]).shape);
  if (!zero || std::any_of(zero->begin(), zero->end(), [](int64_t d) { return d != 1; })) return std::nullopt;
  return Shifted{wide->inputs[0], sub->inputs[1]};
}

bool fit_bytes(const Tensor& weights) {
  const auto values = weights.as<int32_t>();
  const auto within = [&](int32_t low, int32_t high) {
    return std::all_of(values.begin(), values.end(), [&](int32_t v) { return v >= low && v <= high; });
  };
  return within(-128, 127) || within(0, 255);
}

// The sums of the weights of each output channel or column, in a shape that broadcasts to the output.
std::optional<Tensor> sums_of_weights(const Graph& graph, const Node& node, const Tensor& weights) {
  const Ints& dims = weights.dims();
  const auto values = weights.as<int32_t>();
  const bool conv = is_op(&node, "conv");
  if (conv ? node.attrs.get_int("groups") != 1 : dims.size() != 2) return std::nullopt;
  const bool rows = conv || node.attrs.get_or<bool>("transpose_b", false);  // a row of weights for each output
  const int64_t outputs = rows ? dims[0] : dims[1];
  const int64_t terms = outputs == 0 ? 0 : weights.num_elements() / outputs;
  Ints shape = {outputs};
  if (conv) shape.insert(shape.begin(), 1), shape.resize(graph.type(node.outputs[0]).shape.size(), 1);
  Tensor sums(DType::kI32, shape);
  for (int64_t o = 0; o < outputs; ++o) {
    uint32_t sum = 0;
    for (int64_t k = 0; k < terms; ++k)
      sum += static_cast<uint32_t>(values[static_cast<size_t>(rows ? o * terms + k : k * outputs + o)]);
    sums.as_mutable<int32_t>()[static_cast<size_t>(o)] = static_cast<int32_t>(sum);
  }
  return sums;
}

}  // namespace

Graph move_zero_points(const Graph& graph, const PassContext& ctx) {
  if (!best_tile_intrinsic(ctx.target, DType::kU8, DType::kI8)) return graph;
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  return rewriter.run([&](GraphRewriter& r, const Node& node, const std::vector<ValueId>& inputs) {
    const std::vector<ValueId> unchanged;
    const bool conv = is_op(&node, "conv");
    if (!conv && !is_op(&node, "matmul")) return unchanged;
    const Tensor* weights = constant_value(graph, node.inputs[1]);
    const auto shifted = shifted_bytes(graph, node.inputs[0]);
    if (!weights || weights->dtype() != DType::kI32 || !shifted || !fit_bytes(*weights)) return unchanged;
    auto sums = sums_of_weights(graph, node, *weights);
    if (!sums || graph.type(shifted->zero).rank() > graph.type(node.outputs[0]).rank()) return unchanged;
    builder.set_loc(node.loc);
    ValueId bytes = r.mapped(shifted->bytes);
    const ValueId zero = r.mapped(shifted->zero);
    Attrs attrs = node.attrs;
    if (conv) {
      const auto all = [&](const char* name, int64_t value) {
        const Ints& list = node.attrs.get_ints(name);
        return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == value; });
      };
      if (!all("input_dilations", 1)) return unchanged;
      if (!all("pads_begin", 0) || !all("pads_end", 0)) {
        const Tensor* number = constant_value(graph, shifted->zero);
        const DType dtype = graph.type(shifted->bytes).dtype;
        if (!number) return unchanged;
        Tensor value(dtype, {});
        const int64_t z = number->as<int32_t>()[0];
        if (dtype == DType::kU8 ? z < 0 || z > 255 : z < -128 || z > 127) return unchanged;
        value.set_double(0, static_cast<double>(z));
        Ints low = {0, 0}, high = {0, 0};
        for (const int64_t p : node.attrs.get_ints("pads_begin")) low.push_back(p);
        for (const int64_t p : node.attrs.get_ints("pads_end")) high.push_back(p);
        const ValueId border = add_constant(rewriter.target(), ctx.ops, std::move(value), "border", node.loc);
        bytes = builder.add(ctx.ops.get("pad"), {bytes, border},
                            {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
        const Ints none(low.size() - 2, 0);
        attrs.set("pads_begin", none);
        attrs.set("pads_end", none);
      }
    }
    const ValueId wide = builder.add(ctx.ops.get("cast"), {bytes}, {{"to", DType::kI32}});
    const ValueId product = builder.add(*node.op, {wide, inputs[1]}, attrs);
    const ValueId known = add_constant(rewriter.target(), ctx.ops, std::move(*sums), "sums", node.loc);
    const ValueId share = builder.add(ctx.ops.get("mul"), {zero, known}, {});
    return std::vector<ValueId>{builder.add(ctx.ops.get("sub"), {product, share}, {})};
  });
}

}  // namespace tessera
