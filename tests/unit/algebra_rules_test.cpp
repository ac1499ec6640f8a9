// Every rule of simplify_algebra and of sink_casts alone, on graphs made from its own pattern: random shapes (zero and
// one included), element types and values (NaN, infinities, zeros of both signs, subnormals, the ends of the integers).
// What the interpreter says before and after differs at most by what the rule declares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/rewrite/algebra_rules.h"
#include "graph_passes/rewrite/simplify_algebra.h"
#include "graph_passes/rewrite/sink_casts.h"
#include "graph_passes/support/graph_util.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

constexpr int kWanted = 25;      // applications of each rule
constexpr int kMaxTries = 8000;  // graphs made to get them

class Instance {
 public:
  explicit Instance(uint64_t seed, bool tame) : random_(seed), tame_(tame), builder_(graph_) {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF64,  DType::kF16, DType::kBF16, DType::kI32,
                                       DType::kI64, DType::kI8,  DType::kBool, DType::kU8,  DType::kU32};
    dtype_ = kTypes[in(0, std::size(kTypes) - 1)];
    builder_.set_loc("made");
  }

  // Throws UserError where the operators do not take the types that were drawn.
  Graph run(const Term& pattern) {
    Ints shape;
    for (int64_t rank = in(0, 4); rank > 0; --rank) shape.push_back(in(0, 19) == 0 ? 0 : in(1, 4));
    graph_.outputs = {make(pattern, dtype_, shape, true)};
    return std::move(graph_);
  }

  std::vector<Tensor> inputs(const Graph& graph) {
    std::vector<Tensor> tensors;
    for (const ValueId input : graph.inputs)
      tensors.push_back(tensor(graph.type(input).dtype, graph.type(input).dims()));
    return tensors;
  }

 private:
  int64_t in(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(random_); }
  bool chance(int percent) { return in(0, 99) < percent; }

  double number(DType dtype) {
    if (dtype == DType::kBool) return static_cast<double>(in(0, 1));
    if (is_int(dtype)) {
      if (chance(30)) return static_cast<double>(in(-3, 3));
      return static_cast<double>(in(-1000000, 1000000));
    }
    const double plain = static_cast<double>(in(-64, 64)) / 8 + static_cast<double>(in(-99, 99)) / 1000;
    if (tame_) return chance(5) ? std::numeric_limits<double>::quiet_NaN() : plain;
    static const double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, std::nan(""), 1e-41, -1e-41, 3e38, -3e38, 1, -1};
    return chance(40) ? kSpecial[in(0, std::size(kSpecial) - 1)] : plain;
  }

  Tensor tensor(DType dtype, const Ints& shape) {
    Tensor result(dtype, shape);
    for (int64_t i = 0; i < result.num_elements(); ++i) {
      result.set_double(i, number(dtype));
      if (is_int(dtype) && chance(10)) result.set_int(i, in(0, 1) ? INT64_MAX : INT64_MIN);
    }
    return result;
  }

  ValueId constant(Tensor value) {
    return builder_.add(standard_ops().get("constant"), {},
                        {{"value", std::make_shared<const Tensor>(std::move(value))}});
  }

  Ints stretched_to(Ints shape) {
    for (int64_t& d : shape)
      if (chance(30)) d = 1;
    while (!shape.empty() && shape[0] == 1 && chance(50)) shape.erase(shape.begin());
    return chance(30) ? Ints{} : shape;
  }

  ValueId add_input(DType dtype, const Ints& shape) { return graph_.add_input("in", {dtype, make_shape(shape), {}}); }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }

  ValueId leaf(DType dtype, Ints shape, bool exact) {
    if (!exact && chance(40)) shape = stretched_to(shape);
    const ValueId x = add_input(dtype, shape);
    if (!is_float(dtype) || chance(60)) return x;
    switch (in(0, 3)) {
      case 0: return op("abs", {x});
      case 1: return op("mul", {x, x});
      case 2: return op("exp", {x});
      default: return op("max", {x, constant(tensor(dtype, {}))});
    }
  }

  Tensor constant_tensor(DType dtype, const Ints& shape) {
    Tensor result = tensor(dtype, shape);
    const bool splat = chance(50), power = chance(40), small = chance(60);
    const double same = small ? static_cast<double>(in(-3, 9)) : number(dtype);
    for (int64_t i = 0; i < result.num_elements(); ++i) {
      if (splat) result.set_double(i, same);
      if (power && is_float(dtype)) result.set_double(i, std::ldexp(chance(50) ? 1 : -1, static_cast<int>(in(-9, 9))));
    }
    return result;
  }

  ValueId make(const Term& term, DType dtype, const Ints& shape, bool exact) {
    switch (term.kind) {
      case Term::Kind::kValue: {
        const auto bound = values_.find(term.name);
        if (bound != values_.end()) return bound->second;
        return values_[term.name] = leaf(dtype, shape, exact);
      }
      case Term::Kind::kConstant: return constant(constant_tensor(dtype, exact ? shape : stretched_to(shape)));
      case Term::Kind::kNumber: {
        Tensor value(dtype, stretched_to(shape));
        for (int64_t i = 0; i < value.num_elements(); ++i) value.set_double(i, term.number);
        return constant(std::move(value));
      }
      case Term::Kind::kNode: return node(term, dtype, shape);
    }
    return -1;
  }

  ValueId node(const Term& term, DType dtype, const Ints& shape) {
    const std::string& name = term.name;
    const auto operand = [&](size_t i, DType type, const Ints& dims, bool exact = true) {
      return make(term.operands[i], type, dims, exact);
    };
    if (name == "*") {
      const ValueId stretched = op("broadcast", {leaf(dtype, stretched_to(shape), true)}, {{"shape", shape}});
      return op(chance(50) ? "add" : "max", {stretched, leaf(dtype, shape, false)});
    }
    if (name == "transpose") {
      Ints perm(shape.size()), from(shape.size());
      for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
      if (chance(30) && perm.size() > 1) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      else if (chance(70)) std::shuffle(perm.begin(), perm.end(), random_);
      for (size_t i = 0; i < perm.size(); ++i) from[static_cast<size_t>(perm[i])] = shape[i];
      return op(name, {operand(0, dtype, from)}, {{"perm", perm}});
    }
    if (name == "reshape") {
      int64_t count = 1;
      for (const int64_t d : shape) count *= d;
      const Ints flat = {count}, split = count % 2 == 0 ? Ints{2, count / 2} : Ints{count, 1};
      return op(name, {operand(0, dtype, chance(30) ? shape : (chance(50) ? flat : split))}, {{"shape", shape}});
    }
    if (name == "broadcast")
      return op(name, {operand(0, dtype, chance(30) ? shape : stretched_to(shape))}, {{"shape", shape}});
    if (name == "relayout") {
      const Layout layout = shape.size() == 4 && chance(70) ? Layout::blocked(4, 1, 2) : Layout();
      Node relayout;
      relayout.op = &standard_ops().get(name);
      relayout.inputs = {operand(0, dtype, shape)};
      relayout.attrs.set("layout", layout);
      return graph_.node(graph_.add_node(std::move(relayout), {{dtype, make_shape(shape), layout}})).outputs[0];
    }
    if (name == "slice") {
      const bool whole = chance(30);
      Ints starts, steps, from;
      for (const int64_t d : shape) {
        const int64_t step = whole ? 1 : (chance(70) ? 1 : (chance(50) ? 2 : -1));
        const int64_t span = d == 0 ? 0 : (d - 1) * std::abs(step);
        const int64_t before = whole ? 0 : in(0, 2), after = whole ? 0 : in(0, 2);
        starts.push_back(step < 0 ? before + span : before);
        steps.push_back(step);
        from.push_back(std::max<int64_t>(before + span + 1 + after - (d == 0), d));
      }
      return op(name, {operand(0, dtype, from)}, {{"starts", starts}, {"sizes", shape}, {"steps", steps}});
    }
    if (name == "pad") {
      Ints low, high, from;
      const bool nothing = chance(30), value = term.operands.size() == 2;
      for (const int64_t d : shape) {
        low.push_back(nothing ? 0 : in(0, d / 2));
        high.push_back(nothing ? 0 : in(0, d - low.back()));
        if (!nothing && chance(10)) high.back() = -1;
        from.push_back(d - low.back() - high.back());
      }
      std::vector<ValueId> operands = {operand(0, dtype, from)};
      if (value) operands.push_back(operand(1, dtype, {}));
      return op(name, operands, {{"low", low}, {"high", high}, {"mode", std::string(value ? "constant" : "edge")}});
    }
    if (name == "concat") {
      if (shape.empty()) return op(name, {leaf(dtype, shape, true)}, {{"axis", int64_t{0}}});  // refused
      const auto axis = static_cast<size_t>(in(0, static_cast<int64_t>(shape.size()) - 1));
      if (!term.any_operands) return op(name, {operand(0, dtype, shape)}, {{"axis", static_cast<int64_t>(axis)}});
      return op(name, pieces(dtype, shape, axis, true), {{"axis", static_cast<int64_t>(axis)}});
    }
    if (name == "gather") {
      const auto axis = static_cast<size_t>(in(0, static_cast<int64_t>(shape.size())));
      Ints from = shape;
      const bool vector = axis < shape.size() && shape[axis] == 1;
      const int64_t extent = in(1, 4);
      if (vector) from[axis] = extent;
      else from.insert(from.begin() + static_cast<std::ptrdiff_t>(axis), extent);
      Tensor index(chance(50) ? DType::kI64 : DType::kI32, vector ? Ints{1} : Ints{});
      index.set_int(0, in(-extent - 1, extent + 1));
      const ValueId x = operand(0, dtype, from);
      return op(name, {x, constant(std::move(index))}, {{"axis", static_cast<int64_t>(axis)}});
    }
    if (name == "reduce") {
      Ints from = shape, axes;
      for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i] == 1 && chance(70)) axes.push_back(static_cast<int64_t>(i));
      static constexpr const char* kKinds[] = {"sum", "prod", "min", "max"};
      return op(name, {operand(0, dtype, from)},
                {{"kind", std::string(kKinds[in(0, 3)])}, {"axes", axes}, {"keepdims", true}});
    }
    if (name == "matmul") {
      Ints a = shape, b = shape;
      if (shape.size() < 2) return op(name, {leaf(dtype, {1}, true), leaf(dtype, {1}, true)});  // refused
      const int64_t inner = in(1, 4);
      a[a.size() - 1] = b[b.size() - 2] = inner;
      const bool transposed = chance(50);
      if (transposed) std::swap(b[b.size() - 1], b[b.size() - 2]);
      const bool first_transposed = chance(50);
      if (first_transposed) std::swap(a[a.size() - 1], a[a.size() - 2]);
      const ValueId left = operand(0, dtype, a);
      return op(name, {left, operand(1, dtype, b)}, {{"transpose_a", first_transposed}, {"transpose_b", transposed}});
    }
    if (name == "cast") {
      static constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kI32,  DType::kI64,
                                         DType::kI8,  DType::kU8,  DType::kU16, DType::kBool, DType::kBF16};
      const DType from = chance(20) ? dtype : kTypes[in(0, std::size(kTypes) - 1)];
      return op(name, {operand(0, from, shape)}, {{"to", dtype}});
    }
    static const std::vector<std::string> kCompare = {"eq", "ne", "lt", "gt"};
    const bool compares = std::find(kCompare.begin(), kCompare.end(), name) != kCompare.end();
    const DType type = compares ? (chance(40) ? DType::kBool : (chance(50) ? DType::kI32 : DType::kF32)) : dtype;
    std::vector<ValueId> operands;
    for (size_t i = 0; i < term.operands.size(); ++i)
      operands.push_back(
          operand(i, name == "select" && i == 0 ? DType::kBool : type, shape, term.operands.size() == 1 || chance(60)));
    if (operands.size() == 2 && is_commutative(name) && chance(50)) std::swap(operands[0], operands[1]);
    return op(name, operands);
  }

  // Tensors that make up `shape` along `axis`: values, neighbouring slices of one, concatenations.
  std::vector<ValueId> pieces(DType dtype, Ints shape, size_t axis, bool outer) {
    std::vector<ValueId> result;
    for (int64_t left = shape[axis]; left > 0;) {
      Ints piece = shape;
      piece[axis] = in(1, left);
      left -= piece[axis];
      if (outer && chance(30) && dtype == DType::kF32) {
        result.push_back(op("cast", {leaf(DType::kF16, piece, true)}, {{"to", dtype}}));
      } else if (outer && chance(30)) {
        result.push_back(op("concat", pieces(dtype, piece, axis, false), {{"axis", static_cast<int64_t>(axis)}}));
      } else if (piece[axis] > 1 && chance(50)) {
        const ValueId whole = leaf(dtype, piece, true);
        for (int64_t i = 0; i < piece[axis]; ++i) {
          Ints starts(shape.size(), 0), sizes = piece;
          starts[axis] = i;
          sizes[axis] = 1;
          result.push_back(
              op("slice", {whole}, {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(shape.size(), 1)}}));
        }
      } else {
        result.push_back(leaf(dtype, piece, true));
      }
    }
    if (result.empty()) result.push_back(leaf(dtype, shape, true));
    return result;
  }

  std::mt19937_64 random_;
  bool tame_;  // no values that overflow
  DType dtype_;
  Graph graph_;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
};

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-52;
    case DType::kF32: return 0x1p-23;
    case DType::kF16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

double largest(const Tensor& tensor) {
  double result = 0;
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    if (const double v = std::fabs(tensor.get_double(i)); std::isfinite(v)) result = std::max(result, v);
  return result;
}

// The largest finite operand, constant or result, by which roundings are measured.
double scale_of(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) {
  double scale = 0;
  for (const auto* list : {&inputs, &results})
    for (const Tensor& tensor : *list) scale = std::max(scale, largest(tensor));
  for (const Node& node : graph.nodes())
    if (const Tensor* tensor = node.outputs.empty() ? nullptr : constant_value(graph, node.outputs[0]))
      scale = std::max(scale, largest(*tensor));
  return scale;
}

void expect_agreement(const Tensor& got, const Tensor& want, Numerics error, double scale, const std::string& what) {
  ASSERT_EQ(got.dims(), want.dims()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    if (!is_float(want.dtype())) {
      ASSERT_EQ(got.get_int(i), want.get_int(i)) << what;
      continue;
    }
    const double g = got.get_double(i), w = want.get_double(i);
    if (std::isnan(g) && std::isnan(w)) continue;
    if (error == Numerics::kRounding && std::isfinite(g) && std::isfinite(w)) {
      ASSERT_LE(std::fabs(g - w), 8 * epsilon_of(want.dtype()) * scale) << what;
      continue;
    }
    ASSERT_EQ(g, w) << what << ", element " << i;
    if (error == Numerics::kExact) {
      ASSERT_EQ(std::signbit(g), std::signbit(w)) << what << ", element " << i;
    }
  }
}

class EveryRule : public testing::TestWithParam<AlgebraRule> {};

TEST_P(EveryRule, KeepsWhatItsPatternComputes) {
  const AlgebraRule rule = GetParam();
  const Term pattern = parse_term(rule.pattern);
  GraphInterpreter evaluator;
  const Target target;
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  int applications = 0;
  for (uint64_t seed = 0; seed < kMaxTries && applications < kWanted; ++seed) {
    Instance instance(seed * 7919 + 17, rule.numerics == Numerics::kRounding);
    Graph before;
    try {
      before = instance.run(pattern);
    } catch (const UserError&) {
      continue;  // the operators refuse this combination of types
    }
    ASSERT_TRUE(verify(before).empty()) << verify(before)[0] << print(before);
    std::vector<int> applied;
    const Graph after = apply_rules(before, ctx, {&rule, 1}, &applied);
    if (applied[0] == 0) continue;
    ++applications;
    const std::string what =
        std::string(rule.name) + " on seed " + std::to_string(seed) + "\n" + print(before) + "after\n" + print(after);
    ASSERT_TRUE(verify(after).empty()) << verify(after)[0] << what;
    const auto inputs = instance.inputs(before);
    const auto want = evaluator.evaluate(before, inputs), got = evaluator.evaluate(after, inputs);
    ASSERT_EQ(got.size(), want.size()) << what;
    expect_agreement(got[0], want[0], rule.numerics, scale_of(before, inputs, want), what);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(applications, kWanted) << rule.name << " was hardly tried";
}

INSTANTIATE_TEST_SUITE_P(Algebra, EveryRule, testing::ValuesIn(algebra_rules().begin(), algebra_rules().end()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Casts, EveryRule, testing::ValuesIn(cast_rules().begin(), cast_rules().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera
