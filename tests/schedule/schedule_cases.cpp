#include "schedule_cases.h"

#include <algorithm>

#include "graph/op_def.h"
#include "graph/printer.h"
#include "ops/op_table.h"
#include "types/tensor.h"

namespace tessera {
namespace {

class CaseBuilder {
 public:
  CaseBuilder(int64_t block, std::mt19937& random) : block_(block), random_(random), builder_(graph_) {}

  int64_t pick(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + below(static_cast<int64_t>(choices.size())));
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  int64_t block() const { return block_; }
  Layout blocked_channels(size_t rank = 4) const { return Layout::blocked(static_cast<int>(rank), 1, block_); }
  Layout maybe_blocked(size_t rank = 4) { return chance(60) ? blocked_channels(rank) : Layout(); }

  ValueId input(const std::vector<int64_t>& dims, const Layout& layout = {}, DType dtype = DType::kF32) {
    return graph_.add_input("x" + std::to_string(graph_.inputs.size()), {dtype, make_shape(dims), layout});
  }
  ValueId constant(const std::vector<int64_t>& dims, DType dtype = DType::kF32) {
    Tensor tensor(dtype, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, static_cast<double>(below(33) - 16) / 8);
    return builder_.add(op("constant"), {}, {{"value", std::make_shared<const Tensor>(tensor)}});
  }
  ValueId add(const std::string& name, std::vector<ValueId> operands, Attrs attrs = {}, const Layout& layout = {}) {
    const ValueId id = builder_.add(op(name), std::move(operands), std::move(attrs));
    graph_.value(id).type.layout = layout;
    return id;
  }
  std::vector<int64_t> dims(ValueId id) const { return graph_.type(id).dims(); }

  // Elementwise operators in the layout of `x`, which the fusion pass makes its epilogue.
  ValueId epilogue(ValueId x) {
    const Layout layout = graph_.type(x).layout;
    const DType dtype = graph_.type(x).dtype;
    const std::vector<int64_t> shape = dims(x);
    if (chance(50)) {
      std::vector<int64_t> bias(shape.size(), 1);
      const size_t axis = shape.size() == 4 ? 1 : shape.size() - 1;
      bias[axis] = shape[axis];
      x = add("add", {x, constant(bias, dtype)}, {}, layout);
    }
    if (chance(30)) x = add("mul", {x, constant({1}, dtype)}, {}, layout);
    if (chance(30)) x = add("add", {x, input(shape, layout, dtype)}, {}, layout);
    if (chance(50)) x = add("max", {x, constant({}, dtype)}, {}, layout);
    if (chance(20)) x = add("mul", {x, add("min", {x, constant({1}, dtype)}, {}, layout)}, {}, layout);
    return x;
  }

  Graph finish(ValueId result) {
    graph_.outputs = {result};
    return std::move(graph_);
  }
  static const OpDef& op(const std::string& name) { return standard_ops().get(name); }

 private:
  int64_t block_;
  std::mt19937& random_;
  Graph graph_;
  GraphBuilder builder_;
};

Attrs window(CaseBuilder& b, int64_t h, int64_t w, int64_t kh, int64_t kw, bool wide_padding) {
  const int64_t dh = b.pick({1, 1, 2});
  const int64_t dw = b.pick({1, 1, 2, 3});
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  for (const auto [extent, k, d] : {std::tuple{h, kh, dh}, std::tuple{w, kw, dw}}) {
    const int64_t span = (k - 1) * d + 1;
    // Windows must fit; pooling windows must reach the input.
    begin.push_back(std::min(b.below(4), wide_padding ? 3 : k - 1));
    end.push_back(std::min(b.below(4), wide_padding ? 3 : k - 1));
    if (extent + begin.back() + end.back() < span) {
      begin.back() += (span - extent) / 2 + 1;
      end.back() += (span - extent) / 2 + 1;
    }
  }
  return {{"strides", std::vector<int64_t>{b.pick({1, 1, 2, 3}), b.pick({1, 1, 2, 3})}},
          {"dilations", std::vector<int64_t>{dh, dw}},
          {"pads_begin", begin},
          {"pads_end", end}};
}

Graph conv(CaseBuilder& b, bool depthwise) {
  const int64_t h = b.pick({1, 3, 7, 8, 14});
  const int64_t w = b.pick({1, 2, 5, 7, 16, 29, 33});
  const int64_t kh = b.pick({1, 1, 3, 5});
  const int64_t kw = b.pick({1, 1, 3, 5, 7});
  const int64_t c =
      kh == 1 && kw == 1 && b.chance(12) ? 24 * b.block() + b.pick({0, 5}) : b.pick({1, 3, 8, 16, 17, 24, 40});
  const int64_t groups = depthwise ? c : c % 2 == 0 && b.chance(15) ? 2 : 1;
  const int64_t o = depthwise ? c : groups * b.pick({1, 4, 8, 12, 16, 33});
  Attrs attrs = window(b, h, w, kh, kw, true);
  attrs.set("input_dilations", std::vector<int64_t>{1, b.chance(5) ? int64_t{2} : int64_t{1}});
  attrs.set("groups", groups);
  const ValueId x = b.input({b.pick({1, 1, 2}), c, h, w}, b.maybe_blocked());
  const ValueId weights = b.chance(85) ? b.constant({o, c / groups, kh, kw}) : b.input({o, c / groups, kh, kw});
  return b.finish(b.epilogue(b.add("conv", {x, weights}, attrs, b.maybe_blocked())));
}

// Convolutions of images of one or of three dimensions, channels in blocks or not.
Graph conv_of(CaseBuilder& b, size_t dimensions) {
  const int64_t c = b.pick({1, 3, 8, 16, 24, 32});
  const int64_t groups = b.pick({1, 1, 1, c});
  std::vector<int64_t> x_shape{b.pick({1, 1, 2}), c},
      w_shape{groups > 1 ? groups * b.pick({1, 2}) : b.pick({1, 8, 16, 33}), c / groups};
  std::vector<int64_t> strides, dilations, begin, end;
  for (size_t d = 0; d < dimensions; ++d) {
    const bool last = d + 1 == dimensions;
    const bool row = dimensions == 1;  // the interpreter is slow
    x_shape.push_back(row ? b.pick({1, 7, 16, 37}) : last ? b.pick({1, 5, 9}) : b.pick({1, 2, 4}));
    w_shape.push_back(row ? b.pick({1, 3, 5, 40}) : b.pick({1, 1, 2, 3}));
    strides.push_back(b.pick({1, 1, 2}));
    dilations.push_back(b.pick({1, 1, 2}));
    const int64_t span = (w_shape.back() - 1) * dilations.back() + 1;
    begin.push_back(std::max(b.below(3), span - x_shape.back()));
    end.push_back(b.below(3));
  }
  const Attrs attrs{
      {"strides", strides},  {"dilations", dilations}, {"input_dilations", std::vector<int64_t>(dimensions, 1)},
      {"pads_begin", begin}, {"pads_end", end},        {"groups", groups}};
  const ValueId x = b.input(x_shape, b.maybe_blocked(x_shape.size()));
  return b.finish(b.epilogue(b.add("conv", {x, b.constant(w_shape)}, attrs, b.maybe_blocked(x_shape.size()))));
}

// Convolutions that minimal filtering takes: whole blocks of input channels, windows of three or five places along one
// or two dimensions of stride 1, with gaps between them or without, in volumes several frames of them.
Graph winograd(CaseBuilder& b, int64_t block) {
  const auto dimensions = static_cast<size_t>(b.pick({1, 2, 2, 2, 3, 3}));
  const bool flat = dimensions < 3;  // the interpreter is slow
  const int64_t groups = b.pick({1, 1, 1, 2, 3});
  const int64_t c = groups * block * (flat && groups == 1 ? b.pick({2, 3, 4}) : b.pick({1, 2}));
  const int64_t o = groups > 1 ? groups * block * b.pick({1, 2})
                    : flat     ? b.pick({16, 32, 33, 40, 64})
                               : b.pick({16, 33});
  std::vector<int64_t> window(dimensions, 3);
  if (dimensions > 1 && b.chance(50)) window[static_cast<size_t>(b.below(static_cast<int64_t>(dimensions)))] = 1;
  if (dimensions == 3 && b.chance(30)) window = {b.pick({2, 3}), 3, 3};
  if (dimensions == 3 && b.chance(30)) window = {3, 1, 1};
  for (int64_t& places : window)
    if (places == 3 && b.chance(25)) places = b.pick({5, 7});
  std::vector<int64_t> x_shape = {b.pick({1, 1, 2}), c}, w_shape = {o, c / groups};
  std::vector<int64_t> strides(dimensions, 1), dilations(dimensions, 1), begin, end;
  if (dimensions == 3 && window[1] == 3 && window[2] == 3) strides[0] = b.pick({1, 1, 2});
  for (size_t d = 0; d < dimensions; ++d)
    if (window[d] > 1) dilations[d] = b.pick({1, 1, 1, 2, 3});
  for (size_t d = 0; d < dimensions; ++d) {
    x_shape.push_back(!flat ? b.pick({3, 4, 7}) : d == 0 ? b.pick({4, 7, 8, 14, 19}) : b.pick({4, 6, 9, 14, 22}));
    w_shape.push_back(window[d]);
    const bool padded = window[d] > 1;
    begin.push_back(padded ? b.pick({dilations[d], 1, 0, 2}) : 0);
    end.push_back(padded ? b.pick({dilations[d], 1, 0, 2}) : 0);
    const int64_t span = (window[d] - 1) * dilations[d] + 1;
    begin.back() = std::max(begin.back(), span - x_shape.back());
  }
  const Attrs attrs{
      {"strides", strides},  {"dilations", dilations}, {"input_dilations", std::vector<int64_t>(dimensions, 1)},
      {"pads_begin", begin}, {"pads_end", end},        {"groups", groups}};
  const ValueId x = b.input(x_shape, b.blocked_channels(x_shape.size()));
  return b.finish(b.epilogue(b.add("conv", {x, b.constant(w_shape)}, attrs, b.blocked_channels(x_shape.size()))));
}

// What ONNX's ConvTranspose becomes: a convolution over an input with gaps.
Graph transposed(CaseBuilder& b) {
  const int64_t c = b.pick({1, 3, 16, 17});
  const int64_t o = b.pick({1, 3, 16, 24, 33});
  std::vector<int64_t> gaps, kernel, begin, end;
  std::vector<int64_t> x_shape{b.pick({1, 1, 2}), c};
  std::vector<int64_t> w_shape{o, c};
  const std::vector<int64_t> dilations{b.pick({1, 1, 3}), b.pick({1, 1, 2})};
  for (const int64_t dilation : dilations) {
    gaps.push_back(b.pick({1, 2, 2, 3}));
    kernel.push_back(b.pick({1, 2, 3, 4, 5}));
    x_shape.push_back(b.pick({1, 2, 5, 8, 15}));
    w_shape.push_back(kernel.back());
    const int64_t reach = (kernel.back() - 1) * dilation;
    begin.push_back(std::max<int64_t>(0, reach - b.below(3)));
    end.push_back(reach + b.below(2));
  }
  const Attrs attrs{{"strides", std::vector<int64_t>{1, b.chance(10) ? int64_t{2} : int64_t{1}}},
                    {"dilations", dilations},
                    {"input_dilations", gaps},
                    {"pads_begin", begin},
                    {"pads_end", end},
                    {"groups", int64_t{1}}};
  const ValueId x = b.input(x_shape, b.maybe_blocked());
  const ValueId weights = b.chance(85) ? b.constant(w_shape) : b.input(w_shape);
  return b.finish(b.epilogue(b.add("conv", {x, weights}, attrs, b.maybe_blocked())));
}

// The gradient of a convolution's weights.
Graph conv_weights(CaseBuilder& b) {
  const int64_t groups = b.pick({1, 1, 2, 3}), in = b.pick({1, 3, 8, 17}), out = b.pick({4, 16, 18, 33});
  std::vector<int64_t> x_shape{b.pick({1, 2}), groups * in}, dy_shape{x_shape[0], groups * out}, window, strides,
      dilations, begin, end;
  for (int d = 0; d < 2; ++d) {
    window.push_back(b.pick({1, 2, 3}));
    strides.push_back(b.pick({1, 1, 2}));
    dilations.push_back(b.pick({1, 1, 2}));
    begin.push_back(b.below(3));
    end.push_back(b.below(2));
    x_shape.push_back(b.pick({4, 7, 13, 16}) + 4);
    const int64_t span = (window.back() - 1) * dilations.back() + 1;
    dy_shape.push_back((x_shape.back() + begin.back() + end.back() - span) / strides.back() + 1);
  }
  const Attrs attrs{{"strides", strides},  {"dilations", dilations}, {"input_dilations", std::vector<int64_t>{1, 1}},
                    {"pads_begin", begin}, {"pads_end", end},        {"groups", groups},
                    {"window", window}};
  const bool rows = b.chance(60);
  const auto layout = [&] { return rows ? Layout() : b.maybe_blocked(); };
  const ValueId x = b.input(x_shape, layout()), dy = b.input(dy_shape, layout());
  return b.finish(b.epilogue(b.add("conv_weights", {x, dy}, attrs, layout())));
}

Graph pool(CaseBuilder& b) {
  const int64_t h = b.pick({1, 4, 7, 15});
  const int64_t w = b.pick({2, 7, 16, 30});
  const int64_t kh = std::min<int64_t>(h, b.pick({1, 2, 3}));
  const int64_t kw = b.pick({2, 3, 5});
  Attrs attrs = window(b, h, w, kh, kw, false);
  attrs.set("window", std::vector<int64_t>{kh, kw});
  attrs.set("kind", std::string(b.chance(50) ? "max" : b.chance(50) ? "sum" : "min"));
  const DType dtype = b.pick({0, 0, 1}) == 1 ? DType::kI32 : DType::kF32;
  const ValueId x = b.input({1, b.pick({1, 8, 16, 20}), h, w}, b.maybe_blocked(), dtype);
  return b.finish(b.epilogue(b.add("reduce_window", {x}, attrs, b.maybe_blocked())));
}

Graph matmul(CaseBuilder& b) {
  const int64_t m = b.pick({1, 2, 5, 14, 33});
  const int64_t n = b.pick({1, 3, 8, 16, 31, 70});
  const int64_t k = b.pick({1, 2, 7, 40});
  const bool ta = b.chance(30);
  const bool tb = b.chance(50);
  const DType dtype = b.pick({0, 0, 0, 1, 2}) == 1 ? DType::kF64 : b.chance(10) ? DType::kI32 : DType::kF32;
  std::vector<int64_t> a_dims{ta ? k : m, ta ? m : k};
  std::vector<int64_t> b_dims{tb ? n : k, tb ? k : n};
  if (b.chance(40)) a_dims.insert(a_dims.begin(), b.pick({1, 3}));
  if (b.chance(30)) b_dims.insert(b_dims.begin(), a_dims.size() == 3 ? a_dims[0] : 2);
  const ValueId x = b.input(a_dims, {}, dtype);
  const ValueId y = b.chance(60) ? b.constant(b_dims, dtype) : b.input(b_dims, {}, dtype);
  return b.finish(b.epilogue(b.add("matmul", {x, y}, {{"transpose_a", ta}, {"transpose_b", tb}})));
}

Graph reduce(CaseBuilder& b) {
  const std::vector<int64_t> shape{b.pick({1, 2}), b.pick({1, 5, 16, 24}), b.pick({1, 7, 12}), b.pick({1, 3, 17, 40})};
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < 4; ++axis)
    if (b.chance(40)) axes.push_back(axis);
  if (axes.empty()) axes.push_back(b.below(4));
  const bool keep = b.chance(60);
  const Layout layout = b.maybe_blocked();
  const DType dtype = b.pick({0, 0, 1, 2, 3}) == 1 ? DType::kI64 : b.chance(15) ? DType::kF64 : DType::kF32;
  const char* kinds[] = {"sum", "max", "min", "prod"};
  const ValueId x = b.input(shape, layout, dtype);
  const bool channels = std::find(axes.begin(), axes.end(), 1) != axes.end();
  return b.finish(b.add("reduce", {x}, {{"kind", std::string(kinds[b.below(4)])}, {"axes", axes}, {"keepdims", keep}},
                        keep && !channels ? layout : Layout()));
}

Graph elementwise(CaseBuilder& b) {
  const std::vector<int64_t> shape{b.pick({1, 2}), b.pick({1, 5, 16, 24}), b.pick({1, 7, 60}), b.pick({1, 3, 17, 150})};
  std::vector<int64_t> other = shape;
  for (int64_t& dim : other)
    if (b.chance(30)) dim = 1;
  const DType dtype = b.pick({0, 0, 0, 1}) == 1 ? DType::kI32 : DType::kF32;
  const ValueId x = b.input(shape, b.maybe_blocked(), dtype);
  const ValueId y = b.chance(50) ? b.constant(other, dtype) : b.input(other, b.maybe_blocked(), dtype);
  const char* names[] = {"add", "mul", "sub", "max"};
  return b.finish(b.epilogue(b.add(names[b.below(4)], {x, y}, {}, b.maybe_blocked())));
}

// ShuffleNet's change of channels: a part of one tensor beside another, their channels taken in turn.
Graph shuffle(CaseBuilder& b) {
  const int64_t channels = b.pick({5, 16, 18, 34}), h = b.pick({1, 4, 7}), w = b.pick({4, 9, 16});
  const ValueId x = b.input({1, 2 * channels, h, w}, b.maybe_blocked());
  const ValueId part = b.add("slice", {x},
                             {{"starts", std::vector<int64_t>{0, b.pick({0, channels}), 0, 0}},
                              {"sizes", std::vector<int64_t>{1, channels, h, w}},
                              {"steps", std::vector<int64_t>{1, 1, 1, 1}}},
                             b.chance(50) ? b.blocked_channels() : Layout());
  if (b.chance(20)) return b.finish(part);
  const ValueId both = b.add("concat", {part, b.input({1, channels, h, w}, b.maybe_blocked())}, {{"axis", int64_t{1}}});
  const ValueId pairs = b.add("reshape", {both}, {{"shape", std::vector<int64_t>{1, 2, channels, h, w}}});
  const ValueId turned = b.add("transpose", {pairs}, {{"perm", std::vector<int64_t>{0, 2, 1, 3, 4}}});
  if (b.chance(40)) return b.finish(turned);
  return b.finish(
      b.add("reshape", {turned}, {{"shape", std::vector<int64_t>{1, 2 * channels, h, w}}}, b.maybe_blocked()));
}

Graph movement(CaseBuilder& b) {
  const std::vector<int64_t> shape{b.pick({1, 2}), b.pick({1, 5, 16, 32}), b.pick({1, 7, 12}), b.pick({1, 3, 17, 40})};
  const ValueId x = b.input(shape, b.maybe_blocked());
  switch (b.below(6)) {
    case 0: {
      std::vector<int64_t> perm{0, 1, 2, 3};
      for (size_t i = 3; i > 0; --i)
        std::swap(perm[i], perm[static_cast<size_t>(b.below(static_cast<int64_t>(i) + 1))]);
      return b.finish(b.add("transpose", {x}, {{"perm", perm}}, b.maybe_blocked()));
    }
    case 1: {
      const Layout layout = b.maybe_blocked();
      return b.finish(b.add("relayout", {x}, {{"layout", layout}}, layout));
    }
    case 2: {
      const int64_t axis = b.below(4);
      std::vector<int64_t> second = shape;
      second[static_cast<size_t>(axis)] = b.pick({1, 4, 16});
      return b.finish(b.add("concat", {x, b.input(second, b.maybe_blocked()), b.input(shape, b.maybe_blocked())},
                            {{"axis", axis}}, b.maybe_blocked()));
    }
    case 3: {
      std::vector<int64_t> starts;
      std::vector<int64_t> sizes;
      std::vector<int64_t> steps;
      for (int64_t dim : shape) {
        const int64_t step = b.pick({1, 1, 2, -1});
        starts.push_back(step > 0 ? b.below(dim) : dim - 1);
        sizes.push_back(step > 0 ? (dim - starts.back() + step - 1) / step : dim);
        steps.push_back(step);
      }
      return b.finish(b.add("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}, b.maybe_blocked()));
    }
    case 4: {
      const std::vector<int64_t> low{0, b.below(3), b.below(3), b.below(3)};
      const std::vector<int64_t> high{0, b.below(3), b.below(3), b.below(3)};
      return b.finish(b.add("pad", {x, b.constant({})},
                            {{"low", low}, {"high", high}, {"mode", std::string("constant")}}, b.maybe_blocked()));
    }
    default: {
      std::vector<int64_t> wide = shape;
      wide.insert(wide.begin(), b.pick({1, 2}));
      return b.finish(b.add("broadcast", {x}, {{"shape", wide}}));
    }
  }
}

// Images at other sizes, rows and columns of many of which share the tables of the last axis.
Graph resize(CaseBuilder& b) {
  const std::vector<int64_t> shape = {b.pick({1, 2}), b.pick({1, 3, 16}), b.pick({5, 9, 17}), b.pick({3, 8, 31})};
  std::vector<int64_t> sizes = shape;
  std::vector<double> scales(4, 1);
  for (const size_t d : {2, 3}) {
    if (b.below(4) == 0) continue;
    sizes[d] = b.pick({7, 16, 40});
    scales[d] = static_cast<double>(sizes[d]) / static_cast<double>(shape[d]);
  }
  const char* modes[] = {"nearest", "linear", "cubic"};
  const char* coordinates[] = {"half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"};
  const ValueId x = b.input(shape, b.maybe_blocked());
  return b.finish(b.add("resize", {x},
                        {{"mode", std::string(modes[b.below(3)])},
                         {"coordinate", std::string(coordinates[b.below(4)])},
                         {"scales", scales},
                         {"sizes", sizes}},
                        b.maybe_blocked()));
}

}  // namespace

ScheduleCase random_case(const std::string& kind, int64_t block, std::mt19937& random) {
  CaseBuilder builder(block, random);
  ScheduleCase result;
  if (kind == "conv" || kind == "depthwise") result.graph = conv(builder, kind == "depthwise");
  else if (kind == "conv1d") result.graph = conv_of(builder, 1);
  else if (kind == "conv3d") result.graph = conv_of(builder, 3);
  else if (kind == "transposed") result.graph = transposed(builder);
  else if (kind == "winograd") result.graph = winograd(builder, block);
  else if (kind == "conv_weights") result.graph = conv_weights(builder);
  else if (kind == "pool") result.graph = pool(builder);
  else if (kind == "matmul") result.graph = matmul(builder);
  else if (kind == "reduce") result.graph = reduce(builder);
  else if (kind == "elementwise") result.graph = elementwise(builder);
  else if (kind == "resize") result.graph = resize(builder);
  else if (kind == "shuffle") result.graph = shuffle(builder);
  else result.graph = movement(builder);
  result.text = print(result.graph);
  return result;
}

}  // namespace tessera
