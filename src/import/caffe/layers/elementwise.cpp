// Functions element by element, of one operand and of several.
#include <fmt/format.h>

#include <cmath>

#include "import/caffe/layers/handlers.h"

namespace tessera::inline caffe {

ValueId along(LayerContext& c, ValueId value, ValueId x, int64_t axis) {
  Shape sizes = c.shape(value);
  const int64_t behind = c.rank(x) - axis - std::ssize(sizes);
  if (behind < 0)
    c.malformed(fmt::format("{} from dimension {} of {} on", c.type(value).to_string(), axis, c.type(x).to_string()),
                "no more dimensions than there are");
  sizes.insert(sizes.end(), static_cast<size_t>(behind), 1);
  return c.reshape(value, sizes);
}

namespace {

// One bottom through a primitive operator, or a composite without attributes.
template <const char* kName>
void import_operator(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.out(c.op(kName, {c.in()}));
}
template <const char* kName>
void import_composite(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.out(c.composite(kName, {c.in()}));
}
constexpr char kAbs[] = "abs", kTanh[] = "tanh", kSigmoid[] = "sigmoid", kSoftplus[] = "softplus";

void import_relu(LayerContext& c) {
  c.require_bottoms(1, 1);
  const double slope = static_cast<double>(c.layer().relu_param().negative_slope());
  c.out(slope == 0 ? c.composite("relu", {c.in()}) : c.composite("leaky_relu", {c.in()}, {{"alpha", slope}}));
}

void import_prelu(LayerContext& c) {
  c.require_bottoms(1, 1);
  const ValueId x = c.in();
  const bool shared = c.layer().prelu_param().channel_shared();
  if (c.rank(x) < 2) c.malformed(fmt::format("a bottom of type {}", c.type(x).to_string()), "[N,C,...]");
  const ValueId slope = shared ? c.blob(0, {1}) : c.per_channel(c.blob(0, {c.dims(x)[1]}), c.rank(x));
  c.out(c.composite("prelu", {x, slope}));
}

void import_elu(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.out(c.composite("elu", {c.in()}, {{"alpha", static_cast<double>(c.layer().elu_param().alpha())}}));
}

// scale * x + shift, without what changes nothing.
ValueId affine(LayerContext& c, double scale, double shift) {
  ValueId y = c.in();
  if (scale != 1) y = c.mul(y, c.scalar_like(y, scale));
  return shift == 0 ? y : c.add(y, c.scalar_like(y, shift));
}

void import_power(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::PowerParameter& p = c.layer().power_param();
  const ValueId y = affine(c, static_cast<double>(p.scale()), static_cast<double>(p.shift()));
  c.out(p.power() == 1 ? y : c.op("pow", {y, c.scalar_like(y, static_cast<double>(p.power()))}));
}

// The logarithm of a base, of which -1 stands for e.
double log_of_base(LayerContext& c, float base) {
  if (base == -1) return 1;
  if (!(base > 0)) c.malformed(fmt::format("base = {}", base), "-1, or more than 0");
  return std::log(static_cast<double>(base));
}

void import_exp(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::ExpParameter& p = c.layer().exp_param();
  const double factor = log_of_base(c, p.base());
  c.out(c.op("exp", {affine(c, static_cast<double>(p.scale()) * factor, static_cast<double>(p.shift()) * factor)}));
}

void import_log(LayerContext& c) {
  c.require_bottoms(1, 1);
  const proto::LogParameter& p = c.layer().log_param();
  const double factor = log_of_base(c, p.base());
  const ValueId y = c.op("log", {affine(c, static_cast<double>(p.scale()), static_cast<double>(p.shift()))});
  c.out(factor == 1 ? y : c.mul(y, c.scalar_like(y, 1 / factor)));
}

void import_threshold(LayerContext& c) {
  c.require_bottoms(1, 1);
  const ValueId limit = c.scalar_like(c.in(), static_cast<double>(c.layer().threshold_param().threshold()));
  c.out(c.cast(c.op("gt", {c.in(), limit}), DType::kF32));
}

void import_eltwise(LayerContext& c) {
  c.require_bottoms(1, 1 << 16);
  const proto::EltwiseParameter& p = c.layer().eltwise_param();
  const bool is_sum = p.operation() == proto::EltwiseParameter::SUM;
  if (p.coeff_size() > 0 && (!is_sum || static_cast<size_t>(p.coeff_size()) != c.num_bottoms()))
    c.malformed(fmt::format("{} coefficients", p.coeff_size()), "one for each bottom of a sum");
  ValueId result = -1;
  for (size_t i = 0; i < c.num_bottoms(); ++i) {
    ValueId x = c.in(i);
    if (c.dims(x) != c.dims(c.in(0)))
      c.malformed(fmt::format("{} beside {}", c.type(x).to_string(), c.type(c.in(0)).to_string()), "equal sizes");
    const double factor = p.coeff_size() > 0 ? static_cast<double>(p.coeff(static_cast<int>(i))) : 1;
    if (factor != 1) x = c.mul(x, c.scalar_like(x, factor));
    const char* name = is_sum ? "add" : p.operation() == proto::EltwiseParameter::MAX ? "max" : "mul";
    result = i == 0 ? x : c.op(name, {result, x});
  }
  c.out(result);
}

// The other operand of a layer that scales or shifts from `axis` on: its second bottom, or its own weights, of
// `num_axes` dimensions (-1: all).
ValueId second_operand(LayerContext& c, int axis_given, int num_axes) {
  const ValueId x = c.in();
  const int64_t axis = c.axis(axis_given, c.rank(x) + (num_axes == 0 ? 1 : 0));
  if (c.num_bottoms() == 2) return along(c, c.in(1), x, c.rank(c.in(1)) == 0 ? 0 : axis);
  if (num_axes < -1 || axis + std::max(num_axes, 0) > c.rank(x))
    c.malformed(fmt::format("num_axes = {} from {} on", num_axes, axis), "no more dimensions than there are");
  const Ints dims = c.dims(x);
  const auto begin = dims.begin() + axis;
  return along(c, c.blob(0, Ints(begin, num_axes < 0 ? dims.end() : begin + num_axes)), x, axis);
}

void import_scale(LayerContext& c) {
  c.require_bottoms(1, 2);
  const proto::ScaleParameter& p = c.layer().scale_param();
  const ValueId factor = second_operand(c, p.axis(), p.num_axes());
  ValueId y = c.mul(c.in(), factor);
  if (p.bias_term())
    y = c.add(y, c.reshape(c.blob(c.num_bottoms() == 1 ? 1 : 0, {c.num_elements(factor)}), c.shape(factor)));
  c.out(y);
}

void import_bias(LayerContext& c) {
  c.require_bottoms(1, 2);
  const proto::BiasParameter& p = c.layer().bias_param();
  c.out(c.add(c.in(), second_operand(c, p.axis(), p.num_axes())));
}

// What training does and inference does not.
void import_identity(LayerContext& c) {
  c.require_bottoms(1, 1);
  c.out(c.in());
}

}  // namespace

std::span<const CaffeLayer> elementwise_layers() {
  static constexpr CaffeLayer rows[] = {
      {"AbsVal", import_operator<kAbs>},
      {"BNLL", import_composite<kSoftplus>},
      {"Bias", import_bias},
      {"Dropout", import_identity},
      {"ELU", import_elu},
      {"Eltwise", import_eltwise},
      {"Exp", import_exp},
      {"Log", import_log},
      {"PReLU", import_prelu},
      {"Power", import_power},
      {"ReLU", import_relu},
      {"Scale", import_scale},
      {"Sigmoid", import_composite<kSigmoid>},
      {"TanH", import_operator<kTanh>},
      {"Threshold", import_threshold},
  };
  return rows;
}

}  // namespace tessera::inline caffe
