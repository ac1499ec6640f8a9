#include "random_graph.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  // lo .. hi, both included.
  int64_t in(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(next() % static_cast<uint64_t>(hi - lo + 1)); }
  bool coin() { return in(0, 1) == 1; }
  double unit() { return static_cast<double>(next() % 4097) / 2048.0 - 1; }
  template <typename List>
  const auto& pick(const List& list) {
    return list[static_cast<size_t>(in(0, static_cast<int64_t>(std::size(list)) - 1))];
  }

 private:
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 11;
  }
  uint64_t state_;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), builder_(graph_) {}

  Graph run(int nodes) {
    const Ints channels = {1, 3, 4, 8, 16};
    const int64_t size = random_.in(2, 5);
    add_input({random_.in(1, 2), random_.pick(channels), size, size});
    add_input({random_.in(1, 3), random_.in(1, 6)});
    if (random_.coin()) add_input(dims(values_[0]));
    for (int tries = 0; static_cast<int>(values_.size()) < nodes && tries < 20 * nodes; ++tries) {
      builder_.set_loc("node_" + std::to_string(values_.size()));
      if (const auto value = random_node(); value >= 0 && elements(value) <= 20000) values_.push_back(value);
    }
    graph_.outputs = {values_.back()};
    for (size_t i = graph_.inputs.size(); i + 1 < values_.size(); ++i)
      if (random_.in(0, 7) == 0) graph_.outputs.push_back(values_[i]);
    return std::move(graph_);
  }

 private:
  Ints dims(ValueId v) const { return graph_.type(v).dims(); }
  int64_t elements(ValueId v) const { return graph_.type(v).num_elements(); }
  void add_input(Ints shape) {
    values_.push_back(graph_.add_input("x" + std::to_string(values_.size()), {DType::kF32, make_shape(shape), {}}));
  }
  ValueId any() {  // recent values more often, so that chains grow
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    return values_[static_cast<size_t>(random_.coin() ? random_.in(std::max<int64_t>(0, last - 2), last)
                                                      : random_.in(0, last))];
  }
  ValueId any_image() {
    for (int i = 0; i < 20; ++i)
      if (const ValueId v = any(); graph_.type(v).rank() == 4) return v;
    return values_[0];
  }
  ValueId op(const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId constant(Ints shape, double lo = -1, double hi = 1) {
    Tensor tensor(DType::kF32, std::move(shape));
    const bool splat = random_.in(0, 3) == 0;
    double value = random_.in(0, 5) == 0 ? 1 : lo + (random_.unit() + 1) / 2 * (hi - lo);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (!splat) value = lo + (random_.unit() + 1) / 2 * (hi - lo);
      tensor.set_double(i, value);
    }
    return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  // A shape that broadcasts to `shape`: a scalar, per channel, or with random dimensions stretched.
  Ints broadcastable(Ints shape) {
    if (random_.coin()) return random_.coin() ? Ints{} : Ints{1};
    if (shape.size() == 4 && random_.coin()) return {shape[1], 1, 1};
    for (int64_t& d : shape)
      if (random_.coin()) d = 1;
    while (!shape.empty() && shape[0] == 1 && random_.coin()) shape.erase(shape.begin());
    return shape;
  }

  ValueId random_node() {
    switch (random_.in(0, 27)) {
      case 0:
      case 1: return conv(false);
      case 2: return conv(true);
      case 3:
      case 4:
      case 5: return repeated(&Generator::with_constant);
      case 6: return between_values();
      case 7: return op(random_.pick(std::vector<const char*>{"neg", "abs", "tanh", "sin", "erf"}), {any()});
      case 8: return composite();
      case 9: return batch_norm();
      case 10: return repeated(&Generator::view_or_move);
      case 11: return reduce();
      case 12: return window();
      case 13:
      case 25: return concat_or_resize();
      case 14: return matmul();
      case 15: return hard_swish();
      case 16: return padded_window();
      case 17: return products();
      case 18: return gelu_or_norm();
      case 19: return through_f64();
      case 20:
      case 22:
      case 23: return stored_slice();
      case 21: return scaled_conv();
      case 24: return lone_pointwise_conv();
      case 26: return grouped_conv();
      default: return between_moves();
    }
  }

  // Several of a kind in a row, of which nobody else reads the inner ones: what rewrites of neighbours look for.
  ValueId repeated(ValueId (Generator::*step)(ValueId)) {
    ValueId value = random_.coin() ? any_image() : any();
    for (int64_t i = random_.in(1, 4); i > 0; --i) {
      const ValueId next = (this->*step)(value);
      if (next >= 0) value = next;
    }
    return graph_.producer(value) ? value : -1;
  }

  ValueId conv(bool transposed) {
    const ValueId x = any_image();
    const Ints shape = dims(x);
    int64_t groups = 1, out = random_.in(1, 2) * 4;
    if (!transposed && random_.in(0, 2) == 0) {
      groups = random_.coin() ? shape[1] : (shape[1] % 2 == 0 ? 2 : 1);
      out = groups * random_.in(1, 2);
    }
    const int64_t k = random_.in(1, 3);
    const int64_t gap = transposed ? (random_.coin() ? k : 2) : 1;
    const int64_t dilation = transposed || random_.in(0, 3) ? 1 : 2;
    const int64_t pad = transposed ? k - 1 : random_.in(0, k - 1);
    const int64_t stride = transposed ? 1 : random_.in(1, 2);
    if ((shape[2] - 1) * gap + 1 + 2 * pad < (k - 1) * dilation + 1 ||
        (shape[3] - 1) * gap + 1 + 2 * pad < (k - 1) * dilation + 1)
      return -1;
    const ValueId w = constant({out, shape[1] / groups, k, k});
    return op("conv", {x, random_.in(0, 5) ? w : op("tanh", {w})},
              {{"strides", Ints{stride, stride}},
               {"pads_begin", Ints{pad, pad}},
               {"pads_end", Ints{pad, pad}},
               {"dilations", Ints{dilation, dilation}},
               {"input_dilations", Ints{gap, gap}},
               {"groups", groups}});
  }

  ValueId with_constant(ValueId x) {
    const char* name = random_.pick(std::vector<const char*>{"add", "sub", "mul", "div", "min", "max"});
    if (std::string(name) == "div")
      return op("div", {x, random_.coin() ? constant(broadcastable(dims(x)), 0.5, 2) : constant({1}, 2, 2)});
    const ValueId c = random_.in(0, 5) ? constant(broadcastable(dims(x))) : constant({}, 0, 0);
    return random_.coin() ? op(name, {x, c}) : op(name, {c, x});
  }

  ValueId between_values() {
    const ValueId a = any(), b = any();
    const char* name = random_.pick(std::vector<const char*>{"add", "sub", "mul", "max"});
    if (dims(a) == dims(b)) return op(name, {a, b});
    if (dims(a).size() != dims(b).size()) return -1;
    for (size_t i = 0; i < dims(a).size(); ++i)
      if (dims(a)[i] != dims(b)[i] && dims(a)[i] != 1 && dims(b)[i] != 1) return -1;
    return op(name, {a, b});
  }

  ValueId composite() {
    const char* name = random_.pick(std::vector<const char*>{"relu", "sigmoid", "silu", "softsign"});
    if (random_.in(0, 3) == 0) {
      const ValueId x = any();
      return add_composite(builder_, standard_ops(), "softmax", {x},
                           {{"axis", random_.in(0, graph_.type(x).rank() - 1)}})[0];
    }
    return add_composite(builder_, standard_ops(), name, {any()})[0];
  }

  ValueId batch_norm() {
    const ValueId x = random_.in(0, 3) ? any_image() : any();
    if (graph_.type(x).rank() < 2) return -1;
    const Ints c = {dims(x)[1]};
    std::vector<ValueId> operands = {x, constant(c), constant(c), constant(c), constant(c, 0.25, 2)};
    if (random_.in(0, 5) == 0) operands[1] = op("tanh", {operands[1]});
    return add_composite(builder_, standard_ops(), "batch_norm", operands, {{"epsilon", 1e-3}})[0];
  }

  ValueId view_or_move(ValueId x) {
    Ints shape = dims(x);
    switch (random_.in(0, 6)) {
      case 0:
      case 1:
      case 2: {
        Ints perm;
        for (size_t i = 0; i < shape.size(); ++i) perm.push_back(static_cast<int64_t>(i));
        for (size_t i = shape.size(); i-- > 1;)
          std::swap(perm[i], perm[static_cast<size_t>(random_.in(0, static_cast<int64_t>(i)))]);
        return op("transpose", {x}, {{"perm", perm}});
      }
      case 3: {
        const int64_t count = elements(x);
        const int64_t rows = random_.pick(Ints{1, 2, 3, 4});
        if (count % rows != 0) return -1;
        return op("reshape", {x},
                  {{"shape", random_.coin() ? Ints{rows, count / rows} : Ints{1, rows, 1, count / rows}}});
      }
      case 4: {
        Ints starts, sizes, steps;
        for (const int64_t d : shape) {
          const int64_t size = random_.coin() ? d : random_.in(1, d);
          const bool back = random_.in(0, 5) == 0;
          starts.push_back(back ? d - 1 : random_.in(0, d - size));
          sizes.push_back(size);
          steps.push_back(back ? -1 : 1);
        }
        return op("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
      }
      case 5: {
        Ints low, high;
        for (size_t i = 0; i < shape.size(); ++i) {
          low.push_back(random_.in(0, 3) ? 0 : 1);
          high.push_back(random_.in(0, 3) ? 0 : 1);
        }
        if (graph_.type(x).dtype != DType::kF32) return x;
        return op("pad", {x, constant({})}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
      }
      default: {
        for (int64_t& d : shape)
          if (d == 1 && random_.coin()) d = 2;
        return op("broadcast", {x}, {{"shape", shape}});
      }
    }
  }

  ValueId reduce() {
    const ValueId x = any();
    const Ints shape = dims(x);
    Ints axes;
    if (shape.size() == 4 && random_.coin()) {
      axes = {2, 3};
    } else {
      for (size_t i = 0; i < shape.size(); ++i)
        if (random_.in(0, 2) == 0) axes.push_back(static_cast<int64_t>(i));
    }
    if (axes.empty() || (axes.size() == shape.size())) return -1;
    return op(
        "reduce", {x},
        {{"kind", std::string(random_.coin() ? "sum" : "max")}, {"axes", axes}, {"keepdims", random_.in(0, 3) != 0}});
  }

  ValueId window() {
    const ValueId x = any_image();
    const int64_t k = random_.in(1, std::min(dims(x)[2], dims(x)[3]));
    const int64_t stride = random_.in(1, 2), pad = random_.in(0, std::min<int64_t>(1, k - 1));
    if (random_.coin()) {
      // Wider than the image.
      return op("reduce_window", {x},
                {{"kind", std::string(random_.coin() ? "min" : "max")},
                 {"window", Ints{9, 7}},
                 {"strides", Ints{stride, 1}},
                 {"pads_begin", Ints{4, 3 + pad}},
                 {"pads_end", Ints{4, 3}},
                 {"dilations", Ints{1, 1}}});
    }
    return op("reduce_window", {x},
              {{"kind", std::string(random_.coin() ? "sum" : "max")},
               {"window", Ints{k, k}},
               {"strides", Ints{stride, stride}},
               {"pads_begin", Ints{pad, pad}},
               {"pads_end", Ints{pad, pad}},
               {"dilations", Ints{1, 1}}});
  }

  ValueId concat_or_resize() {
    const ValueId x = any_image();
    Ints shape = dims(x);
    if (random_.coin()) {
      std::vector<ValueId> pieces = {x};
      for (const ValueId v : values_) {
        const Ints other = graph_.type(v).rank() == 4 ? dims(v) : Ints{0, 0, 0, 0};
        if (pieces.size() < 3 && other[0] == shape[0] && other[2] == shape[2] && other[3] == shape[3])
          pieces.push_back(v);
      }
      return op("concat", pieces, {{"axis", int64_t{1}}});
    }
    shape[2] *= 2;
    shape[3] *= 2;
    return op("resize", {x},
              {{"mode", std::string(random_.coin() ? "nearest" : "linear")},
               {"coordinate", std::string("asymmetric")},
               {"nearest_mode", std::string("floor")},
               {"scales", std::vector<double>{1, 1, 2, 2}},
               {"sizes", shape}});
  }

  ValueId matmul() {
    const ValueId x = any();
    const Ints shape = dims(x);
    if (shape.size() < 2) return -1;
    return op("matmul", {x, constant({shape.back(), random_.in(1, 5)})}, {});
  }

  ValueId hard_swish() {
    const ValueId x = any();
    const ValueId gate =
        op("min", {op("max", {op("add", {x, constant({}, 3, 3)}), constant({}, 0, 0)}), constant({}, 6, 6)});
    return op("div", {op("mul", {x, gate}), constant({}, 6, 6)});
  }

  // What an exporter writes for padding that its operator does not have.
  ValueId padded_window() {
    const ValueId x = any_image();
    const int64_t low = random_.in(0, 2), high = random_.in(0, 1);
    const ValueId p =
        op("pad", {x, constant({}, 0, 0)},
           {{"low", Ints{0, 0, low, 0}}, {"high", Ints{0, 0, high, high}}, {"mode", std::string("constant")}});
    const Attrs window = {
        {"strides", Ints{1, 1}}, {"pads_begin", Ints{0, 0}}, {"pads_end", Ints{0, 0}}, {"dilations", Ints{1, 1}}};
    Attrs attrs = window;
    if (random_.coin()) {
      attrs.set("kind", std::string("sum"));
      attrs.set("window", Ints{2, 2});
      return dims(p)[2] < 2 || dims(p)[3] < 2 ? -1 : op("reduce_window", {p}, attrs);
    }
    attrs.set("input_dilations", Ints{1, 1});
    attrs.set("groups", int64_t{1});
    return op("conv", {p, constant({4, dims(x)[1], 1, 1})}, attrs);
  }

  // Several products of one value, moved apart and met again.
  ValueId products() {
    const ValueId x = any();
    const Ints shape = dims(x);
    if (shape.size() < 2) return -1;
    const int64_t n = random_.in(1, 4);
    const bool biased = random_.coin();
    std::vector<ValueId> parts;
    for (int i = 0; i < 3; ++i) {
      ValueId part = op("matmul", {x, constant({shape.back(), n})});
      if (biased) part = op("add", {part, constant({n})});
      Ints perm;
      for (size_t d = 0; d < shape.size(); ++d) perm.push_back(static_cast<int64_t>(d));
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      parts.push_back(op("transpose", {part}, {{"perm", perm}}));
    }
    return op("mul", {op("add", {parts[0], parts[1]}), parts[2]});
  }

  ValueId gelu_or_norm() {
    const ValueId x = any();
    const auto number = [&](double v) { return constant({}, v, v); };
    if (random_.coin())
      return op("mul", {op("mul", {x, number(0.5)}),
                        op("add", {op("erf", {op("div", {x, number(std::sqrt(2.0))})}), number(1)})});
    const int64_t last = graph_.type(x).rank() - 1;
    if (last < 0 || dims(x).back() < 2) return -1;
    const auto mean = [&](ValueId v) {
      return op("div", {op("reduce", {v}, {{"kind", std::string("sum")}, {"axes", Ints{last}}, {"keepdims", true}}),
                        number(static_cast<double>(dims(x).back()))});
    };
    const ValueId centred = op("sub", {x, mean(x)});
    const ValueId unit =
        op("div", {centred, op("sqrt", {op("add", {mean(op("mul", {centred, centred})), number(0.5)})})});
    // Its elements sum up to zero, of which only roundings would be left; a scale keeps numbers to compare.
    return op("add", {op("mul", {unit, constant({dims(x).back()}, 0.25, 2)}), constant({dims(x).back()}, 0.5, 1)});
  }

  // Scale and shift in front of a convolution, whose padding a shift would have to reach.
  ValueId scaled_conv() {
    ValueId x = op("tanh", {any_image()});
    const int64_t channels = dims(x)[1], pad = random_.in(0, 1), groups = random_.coin() ? channels : 1;
    x = op("mul", {x, constant({channels, 1, 1})});
    if (random_.coin()) x = op("add", {x, constant({channels, 1, 1})});
    return op("conv", {x, constant({2 * groups, channels / groups, 1, 1})},
              {{"strides", Ints{1, 1}},
               {"pads_begin", Ints{pad, 0}},
               {"pads_end", Ints{0, pad}},
               {"dilations", Ints{1, 1}},
               {"input_dilations", Ints{1, 1}},
               {"groups", groups}});
  }

  // A convolution of images of one to three dimensions, in groups that may not come out even when blocks of channels
  // are made of them.
  ValueId grouped_conv() {
    const ValueId from = any();
    Ints axes;
    for (int d = 0; d < graph_.type(from).rank(); ++d) axes.push_back(d);
    const ValueId sum = op("reduce", {from}, {{"kind", std::string("sum")}, {"axes", axes}, {"keepdims", false}});
    const int64_t groups = random_.in(1, 7), inputs = random_.pick(Ints{1, 2, 3, 4, 8}), k = random_.in(1, 3);
    const int64_t outputs = groups * random_.pick(Ints{1, 2, 4, 6});
    const Ints image = random_.pick(std::vector<Ints>{{9}, {4, 3}, {3, 2, 4}});
    const bool wide = image.size() == 1 && random_.coin();
    Ints x_shape = {random_.in(1, 2), groups * inputs}, w_shape = {outputs, inputs}, strides, begin, end, ones;
    for (const int64_t extent : image) {
      x_shape.push_back(extent);
      w_shape.push_back(std::min(k, extent));
      if (wide) w_shape.back() = 33;
      strides.push_back(random_.in(1, 2));
      begin.push_back(random_.in(0, 1) + (wide ? 16 : 0));
      end.push_back(random_.in(0, 1) + (wide ? 16 : 0));
      ones.push_back(1);
    }
    const ValueId x = op("mul", {constant(x_shape), op("tanh", {sum})});
    ValueId y = op("conv", {x, constant(w_shape)},
                   {{"strides", strides},
                    {"pads_begin", begin},
                    {"pads_end", end},
                    {"dilations", ones},
                    {"input_dilations", ones},
                    {"groups", groups}});
    for (int64_t i = random_.in(0, 3); i > 0; --i)
      y = random_.in(0, 2) ? op("add", {y, constant(broadcastable(dims(y)))}) : op("tanh", {y});
    return y;
  }

  // A 1x1 convolution of many pixels, whose images no other convolution sees.
  ValueId lone_pointwise_conv() {
    const ValueId from = any();
    Ints axes;
    for (int d = 0; d < graph_.type(from).rank(); ++d) axes.push_back(d);
    const ValueId sum = op("reduce", {from}, {{"kind", std::string("sum")}, {"axes", axes}, {"keepdims", false}});
    const int64_t channels = random_.in(1, 5), outputs = random_.in(1, 5);
    const Ints zeros = {0, 0}, ones = {1, 1};
    ValueId y = op("conv", {op("mul", {constant({1, channels, 12, 11}), sum}), constant({outputs, channels, 1, 1})},
                   {{"strides", ones},
                    {"pads_begin", zeros},
                    {"pads_end", zeros},
                    {"dilations", ones},
                    {"input_dilations", ones},
                    {"groups", int64_t{1}}});
    for (int64_t i = random_.in(0, 3); i > 0; --i)
      y = random_.in(0, 3) ? op("add", {y, constant(broadcastable(dims(y)))}) : op("tanh", {y});
    return op("reshape", {y}, {{"shape", Ints{outputs, 132}}});
  }

  // Rows of what a kernel stores, and their concatenation with another result.
  ValueId stored_slice() {
    const ValueId x = matmul();
    if (x < 0 || graph_.type(x).rank() != 2 || dims(x)[0] < 2) return -1;
    const Ints shape = dims(x);
    const ValueId rows =
        op("slice", {x}, {{"starts", Ints{1, 0}}, {"sizes", Ints{shape[0] - 1, shape[1]}}, {"steps", Ints{1, 1}}});
    const ValueId product = op("matmul", {rows, constant({shape[1], shape[1]})});
    return random_.coin() ? product : op("concat", {x, product}, {{"axis", int64_t{0}}});
  }

  // A move between a widening and a narrowing cast.
  ValueId through_f64() {
    const ValueId wide = op("cast", {any()}, {{"to", DType::kF64}});
    const ValueId moved = view_or_move(wide);
    return moved < 0 ? -1 : op("cast", {op("neg", {moved})}, {{"to", DType::kF32}});
  }

  // Elementwise between two transposes or reshapes.
  ValueId between_moves() {
    const ValueId start = any();
    ValueId x = op("tanh", {start});
    const Ints shape = dims(x);
    int64_t count = elements(x);
    const bool turns = random_.coin() && shape.size() >= 2;
    Ints perm(shape.size()), back(shape.size());
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>((i + 1) % perm.size());
    for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    x = turns ? op("transpose", {x}, {{"perm", perm}}) : op("reshape", {x}, {{"shape", Ints{1, count}}});
    x = op("mul", {op("sin", {x}), constant({}, 0.5, 2)});
    if (random_.coin()) x = op("add", {x, constant(dims(x))});
    x = turns ? op("transpose", {x}, {{"perm", back}}) : op("reshape", {x}, {{"shape", shape}});
    return op("add", {x, start});
  }

  Random random_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<ValueId> values_;  // that later nodes may read
};

}  // namespace

Graph random_graph(uint64_t seed, int nodes) { return Generator(seed).run(nodes); }

std::vector<Tensor> random_inputs(const Graph& graph, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs) {
    Tensor tensor(graph.type(input).dtype, graph.type(input).dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, random.unit());
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

}  // namespace tessera
