#include "diagnose/gradient_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "autodiff/gradients.h"
#include "diagnose/graph_parts.h"
#include "diagnose/real_graph.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "types/collective.h"

namespace tessera::inline diagnose {
namespace {

size_t index(ValueId v) { return static_cast<size_t>(v); }

using Flags = std::vector<bool>;  // by value of a graph

// What the marked values influence through real numbers, in place.
void mark_influenced(const Graph& graph, Flags& marked) {
  for (const Node& node : graph.nodes())
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return marked[index(v)]; }))
      for (const ValueId result : node.outputs)
        marked[index(result)] = marked[index(result)] || is_real(graph.type(result).dtype);
}

// The values that outputs of real numbers need.
Flags needed_values(const Graph& graph) {
  Flags needed(graph.values().size(), false);
  for (const ValueId output : graph.outputs) needed[index(output)] = is_real(graph.type(output).dtype);
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[index(v)]; }))
      for (const ValueId input : node.inputs) needed[index(input)] = true;
  }
  return needed;
}

// A number computed from inputs, in f64, and its gradients with respect to some of them.
struct Objective {
  Graph number;             // outputs: the sum of the terms, and of their sizes; then the terms, outputs times weights
  Graph gradient;           // the two sums, then the gradients
  std::vector<size_t> wrt;  // places among the inputs
};

struct Probe {
  enum class Kind : uint8_t { kAgrees, kDiffers, kKink, kUndefined };
  Kind kind = Kind::kUndefined;
  double gradient = 0, difference = 0, relative = 0;
};

class GradientChecker {
 public:
  GradientChecker(const GradientCheckOptions& options, const OpTable& ops)
      : options_(options), ops_(ops), random_(options.seed) {}

  GradientCheck run(const Graph& model, const std::vector<Tensor>& own_inputs) {
    RealGraph real = in_f64(model, ops_);
    std::vector<Tensor> inputs;
    for (const Tensor& input : own_inputs) inputs.push_back(in_f64(input));
    for (size_t i = 0; i < model.states.size(); ++i) {
      const TensorPtr& initial = model.states[i].initial;
      inputs.push_back(
          in_f64(initial ? *initial
                         : Tensor(model.type(model.state_input(i)).dtype, model.type(model.state_input(i)).dims())));
    }
    for (const Tensor& value : real.values) inputs.push_back(value);
    const Graph& graph = real.graph;
    const KnownSymbols known(graph.symbols);

    const Flags needed = needed_values(graph);
    std::vector<size_t> wrt;
    Flags moved(graph.inputs.size(), false), influenced(graph.values().size(), false);
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (is_real(graph.type(graph.inputs[i]).dtype) && needed[index(graph.inputs[i])]) {
        influenced[index(graph.inputs[i])] = true;
        moved[i] = true;
        wrt.push_back(i);
      }
    mark_influenced(graph, influenced);
    std::vector<ValueId> outputs;
    for (const ValueId output : graph.outputs)
      if (influenced[index(output)] && std::find(outputs.begin(), outputs.end(), output) == outputs.end())
        outputs.push_back(output);
    if (wrt.empty() || outputs.empty())
      throw UserError({.id = "TSR-2084",
                       .message = "no output of real numbers depends on an input or a parameter of real numbers",
                       .node = {},
                       .legal = "a model with something to differentiate",
                       .hint = {}});
    // Their gradients are of the sum of all ranks' losses, and one process has one of them.
    for (const Node& node : graph.nodes())
      if (const auto kind = find_collective_kind(node.op->name); kind && *kind != CollectiveKind::kAllReduce)
        throw UserError({.id = "TSR-2084",
                         .message = fmt::format("{} gives each of several ranks something else", node.op->name),
                         .node = node.loc,
                         .legal = "a model that one process computes",
                         .hint = {}});
    // First, so that operators without a gradient are refused before anything is computed.
    const Objective whole = objective(graph, outputs, wrt);
    GradientCheck result;
    tell("each operator alone");
    result.wrong = first_wrong(graph, inputs, moved, &result);

    const std::vector<Tensor> found = interpreter_.evaluate(whole.gradient, inputs);
    if (!std::isfinite(found[0].get_double(0)))
      result.notes.push_back("the outputs have elements that are no finite numbers: give other inputs with --input");
    const size_t first_parameter = graph.inputs.size() - real.parameters.size();
    std::map<std::string, std::string> types;  // in the model's words
    for (const Value& value : model.values()) types[value.name] = value.type.to_string();
    for (size_t w = 0; w < wrt.size(); ++w) {
      CheckedGradient& checked = result.values.emplace_back();
      checked.name = graph.value(graph.inputs[wrt[w]]).name;
      checked.type = types[checked.name];
      checked.is_parameter = wrt[w] >= first_parameter;
      tell(checked.name);
      examine(whole, inputs, wrt[w], found[2 + w], found, checked);
    }
    const auto unfinished =
        std::count_if(result.values.begin(), result.values.end(), [](const auto& v) { return !v.complete; });
    if (unfinished > 0)
      result.notes.push_back(
          fmt::format("the time was up before {} of {} values (--budget)", unfinished, result.values.size()));
    if (!result.wrong && !result.agrees()) confirm(whole, inputs, result);
    if (!result.wrong && !result.agrees())
      result.notes.push_back(
          "every operator that was checked alone is right: the gradient is lost or added up wrongly between them");
    return result;
  }

 private:
  void tell(const std::string& what) const {
    if (options_.step) options_.step(what);
  }
  bool time_is_up(double share = 1) const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    return taken.count() > options_.max_seconds * share;
  }
  double uniform(double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random_); }

  Objective objective(const Graph& graph, const std::vector<ValueId>& outputs, std::vector<size_t> wrt) {
    Objective result{graph, {}, std::move(wrt)};
    Graph& number = result.number;
    GraphBuilder builder(number);
    builder.set_loc("gradcheck");
    const auto op = [&](const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
      return builder.add(ops_.get(name), std::move(inputs), std::move(attrs));
    };
    ValueId sum = -1, size = -1;
    std::vector<ValueId> terms;
    for (const ValueId output : outputs) {
      const TensorType type = number.type(output);
      const ValueId term = weighted(builder, output);
      terms.push_back(term);
      const auto total = [&](ValueId v) {
        std::vector<int64_t> axes(type.shape.size());
        for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
        if (axes.empty()) return v;
        return op("reduce", {v}, {{"axes", axes}, {"keepdims", false}, {"kind", std::string("sum")}});
      };
      const ValueId part = total(term), part_size = total(op("abs", {term}));
      sum = sum < 0 ? part : op("add", {sum, part});
      size = size < 0 ? part_size : op("add", {size, part_size});
    }
    number.outputs = {sum, size};
    std::vector<ValueId> values;
    for (const size_t place : result.wrt) values.push_back(number.inputs[place]);
    result.gradient = gradients(number, sum, values, ops_);
    number.outputs.insert(number.outputs.end(), terms.begin(), terms.end());
    return result;
  }

  // Each element with a weight of its own, so that a gradient that mixes elements up is seen.
  ValueId weighted(GraphBuilder& builder, ValueId output) {
    const TensorType type = builder.graph().type(output);
    // An operator may give f32 whatever it reads.
    if (type.dtype != DType::kF64) output = builder.add(ops_.get("cast"), {output}, {{"to", DType::kF64}});
    if (!static_dims(type.shape)) {  // decided by data: y + y * y
      const ValueId square = builder.add(ops_.get("mul"), {output, output});
      return builder.add(ops_.get("add"), {output, square});
    }
    Tensor weights(DType::kF64, type.dims());
    for (double& weight : weights.as_mutable<double>()) weight = uniform(0.5, 2) * (random_() % 2 ? 1 : -1);
    const ValueId constant =
        builder.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(weights))}});
    return builder.add(ops_.get("mul"), {output, constant});
  }

  // Kinks behind which other operators mix elements can cancel by chance. So what differs although each operator is
  // right is held to differences again, a little beside the point, where ties are broken.
  void confirm(const Objective& whole, std::vector<Tensor> inputs, GradientCheck& result) {
    for (const size_t place : whole.wrt) {
      Tensor beside(DType::kF64, inputs[place].dims());
      const std::span<double> to = beside.as_mutable<double>();
      const std::span<const double> from = inputs[place].as<double>();
      const double reach = 1e-3 * std::max(root_mean_square(from), 1e-3);
      for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] + uniform(-reach, reach);
      inputs[place] = std::move(beside);
    }
    const std::vector<Tensor> found = interpreter_.evaluate(whole.gradient, inputs);
    for (size_t w = 0; w < whole.wrt.size(); ++w) {
      CheckedGradient& checked = result.values[w];
      if (checked.agrees || !std::isfinite(checked.gradient)) continue;
      CheckedGradient again;
      examine(whole, inputs, whole.wrt[w], found[2 + w], found, again);
      if (!again.agrees || again.checks == 0) continue;
      again.kinks += checked.kinks + checked.checks;
      again.name = checked.name;
      again.type = checked.type;
      again.is_parameter = checked.is_parameter;
      checked = again;
    }
  }

  // ---- one value ----

  struct Point {
    const Graph& number;
    std::vector<Tensor> inputs;
    size_t place;
    Tensor start;
    double at_start, size;  // of the number, and of its terms

    // The terms at start + step * direction, then their sum.
    std::vector<double> terms(GraphInterpreter& interpreter, const std::vector<double>& direction, double step) {
      Tensor moved(DType::kF64, start.dims());
      const std::span<double> to = moved.as_mutable<double>();
      const std::span<const double> from = start.as<double>();
      for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] + step * direction[i];
      inputs[place] = std::move(moved);
      const std::vector<Tensor> found = interpreter.evaluate(number, inputs);
      std::vector<double> result;
      for (size_t t = 2; t < found.size(); ++t)
        result.insert(result.end(), found[t].as<double>().begin(), found[t].as<double>().end());
      result.push_back(found[0].get_double(0));
      return result;
    }
  };

  static double root_mean_square(std::span<const double> elements) {
    double sum = 0;
    for (const double e : elements) sum += e * e;
    return elements.empty() ? 0 : std::sqrt(sum / static_cast<double>(elements.size()));
  }

  // `found`: what objective.gradient gives at `inputs`.
  void examine(const Objective& objective, const std::vector<Tensor>& inputs, size_t place, const Tensor& gradient,
               const std::vector<Tensor>& found, CheckedGradient& checked) {
    Point point{objective.number, inputs, place, inputs[place], found[0].get_double(0), found[1].get_double(0)};
    const auto n = static_cast<size_t>(gradient.num_elements());
    const std::span<const double> g = gradient.as<double>();
    std::vector<std::vector<double>> directions;
    if (n > 1)
      for (int d = 0; d < options_.directions; ++d)
        for (double& e : directions.emplace_back(n)) e = uniform(-1, 1);
    std::set<size_t> elements;
    if (n > 0 && options_.elements > 0)
      elements.insert(static_cast<size_t>(
          std::max_element(g.begin(), g.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }) -
          g.begin()));
    while (elements.size() < std::min(n, static_cast<size_t>(options_.elements))) elements.insert(random_() % n);
    for (const size_t element : elements) directions.emplace_back(n)[element] = 1;
    for (const std::vector<double>& direction : directions) {
      if (time_is_up()) return;
      const Probe probe = examine(point, direction, g);
      if (probe.kind == Probe::Kind::kKink) ++checked.kinks;
      else if (probe.kind == Probe::Kind::kUndefined) ++checked.undefined;
      else {
        ++checked.checks;
        const bool differs = probe.kind == Probe::Kind::kDiffers;
        if (probe.relative > checked.max_relative || (differs && checked.agrees)) {
          checked.max_relative = probe.relative;
          checked.gradient = probe.gradient;
          checked.difference = probe.difference;
        }
        if (differs) checked.agrees = false;
      }
    }
    checked.complete = true;
  }

  Probe examine(Point& point, const std::vector<double>& direction, std::span<const double> gradient) {
    const double step = 2e-6 * std::max(1.0, root_mean_square(point.start.as<double>()));
    Probe probe;
    // A smaller step leaves most kinks behind, though not those that the point is on.
    for (const double shrink : {1.0, 1.0 / 16}) {
      probe = examine(point, direction, gradient, step * shrink);
      if (probe.kind != Probe::Kind::kKink) break;
    }
    return probe;
  }

  Probe examine(Point& point, const std::vector<double>& direction, std::span<const double> gradient, double step) {
    Probe probe;
    double length = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      if (direction[i] != 0) probe.gradient += direction[i] * gradient[i];
      length += direction[i] * direction[i];
    }
    const auto at = [&](double s) { return point.terms(interpreter_, direction, s); };
    const std::vector<double> above = at(step), below = at(-step);
    probe.difference = (above.back() - below.back()) / (2 * step);
    if (!std::isfinite(probe.difference) || !std::isfinite(point.at_start)) return probe;
    // A sum of terms that cancel has the rounding errors of its terms.
    const double noise = 64 * std::numeric_limits<double>::epsilon() * point.size / step;
    const double usual = root_mean_square(gradient) * std::sqrt(length);
    const double off = std::abs(probe.gradient - probe.difference);
    if (!std::isfinite(probe.gradient)) {
      probe.relative = std::numeric_limits<double>::infinity();
      probe.kind = Probe::Kind::kDiffers;
      return probe;
    }
    const double scale =
        std::max({std::abs(probe.gradient), std::abs(probe.difference), std::isfinite(usual) ? usual : 0});
    probe.relative = scale > 0 ? off / scale : 0;
    if (off <= noise || probe.relative <= options_.tolerance) {
      const bool hidden = probe.relative > options_.tolerance;  // rounding is larger than the derivative
      probe.kind = hidden ? Probe::Kind::kKink : Probe::Kind::kAgrees;
      return probe;
    }
    // They differ: is there a derivative at all?
    const std::vector<double> start = at(0), half_above = at(step / 2), half_below = at(-step / 2);
    const std::vector<double> quarter_above = at(step / 4), quarter_below = at(-step / 4);
    const bool is_kink =
        !(bend(start, {above, below}, {half_above, half_below}, {quarter_above, quarter_below}, step) <= off / 10);
    probe.kind = is_kink ? Probe::Kind::kKink : Probe::Kind::kDiffers;
    return probe;
  }

  struct Sides {
    const std::vector<double>&above, &below;
  };
  // How much derivatives by differences disagree, over all terms, so that kinks of different elements do not cancel.
  // Zero for a function with three derivatives, but for rounding. A different number of terms: infinity.
  static double bend(const std::vector<double>& start, Sides full, Sides half, Sides quarter, double step) {
    for (const Sides& sides : {full, half, quarter})
      if (sides.above.size() != start.size() || sides.below.size() != start.size())
        return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (size_t t = 0; t + 1 < start.size(); ++t) {
      const auto central = [&](const Sides& s, double h) { return (s.above[t] - s.below[t]) / (2 * h); };
      // What the slopes of both sides differ by is halved with the step where there is a second derivative.
      const auto turn = [&](const Sides& s, double h) { return (s.above[t] + s.below[t] - 2 * start[t]) / h; };
      const double first = central(full, step), second = central(half, step / 2), third = central(quarter, step / 4);
      sum += std::max({std::abs(turn(half, step / 2) - 2 * turn(quarter, step / 4)), std::abs(first - third),
                       std::abs(second - third)});
    }
    return sum;
  }

  // ---- operators alone ----

  // The first operator of `graph` whose own gradient is wrong. `moved`: for each input whether gradients pass it.
  // `count`: null inside of composites.
  std::optional<WrongOperator> first_wrong(const Graph& graph, const std::vector<Tensor>& inputs, const Flags& moved,
                                           GradientCheck* count) {
    const GraphParts parts(graph);
    std::map<std::string, Tensor> values;
    GraphInterpreter observed([&](const Graph& of, ValueId value, const Tensor& tensor) {
      if (&of == &graph) values[graph.value(value).name] = tensor;
    });
    observed.evaluate(graph, inputs);
    Flags influenced(graph.values().size(), false);
    for (size_t i = 0; i < graph.inputs.size(); ++i) influenced[index(graph.inputs[i])] = moved[i];
    mark_influenced(graph, influenced);
    const Flags needed = needed_values(graph);
    std::set<std::string> differentiated, wanted;  // names
    for (size_t v = 0; v < graph.values().size(); ++v) {
      if (influenced[v]) differentiated.insert(graph.values()[v].name);
      if (influenced[v] && needed[v]) wanted.insert(graph.values()[v].name);
    }
    for (int number = 0; number < std::ssize(parts.nodes()); ++number) {
      const PartNode& node = parts.nodes()[static_cast<size_t>(number)];
      if (std::none_of(node.gives.begin(), node.gives.end(), [&](const auto& name) { return wanted.count(name); }))
        continue;
      if (time_is_up(0.5)) {
        if (count)
          count->notes.push_back(fmt::format("the time was up before '{}' was checked alone (--budget)", node.label));
        return {};
      }
      const GraphParts::Part part = parts.part({number});
      std::map<std::string, int64_t> sizes;
      for (const auto& [symbol, value] : part.sizes) sizes[symbol] = values.at(value).get_int(0);
      const Graph alone = parts.graph_of(part, sizes);
      std::vector<Tensor> operands;
      for (const std::string& name : part.inputs) operands.push_back(values.at(name));
      if (count) ++count->operators;
      auto wrong = wrong_operand(alone, operands, differentiated, wanted, count);
      if (!wrong) continue;
      wrong->node = node.label;
      wrong->op_type = node.op_type;
      if (auto inside = wrong_inside(alone, operands, differentiated)) {
        inside->node = inside->node.empty() ? node.label : fmt::format("{}/{}", node.label, inside->node);
        inside->op_type = fmt::format("{}/{}", node.op_type, inside->op_type);
        return inside;
      }
      return wrong;
    }
    return {};
  }

  // Of a graph of one operator. Node and operator are not filled in.
  std::optional<WrongOperator> wrong_operand(const Graph& alone, const std::vector<Tensor>& operands,
                                             const std::set<std::string>& differentiated,
                                             const std::set<std::string>& wanted, GradientCheck* count) {
    std::vector<ValueId> outputs;
    for (const ValueId output : alone.outputs)
      if (wanted.count(alone.value(output).name)) outputs.push_back(output);
    std::vector<size_t> wrt;
    for (size_t i = 0; i < alone.inputs.size(); ++i)
      if (is_real(alone.type(alone.inputs[i]).dtype) && differentiated.count(alone.value(alone.inputs[i]).name))
        wrt.push_back(i);
    if (outputs.empty() || wrt.empty()) return {};
    const Objective number = objective(alone, outputs, wrt);
    const std::vector<Tensor> found = interpreter_.evaluate(number.gradient, operands);
    for (size_t w = 0; w < wrt.size(); ++w) {
      CheckedGradient checked;
      examine(number, operands, wrt[w], found[2 + w], found, checked);
      if (count) count->operator_kinks += checked.kinks;
      if (checked.agrees) continue;
      const ValueId operand = alone.inputs[wrt[w]];
      return WrongOperator{{},
                           {},
                           alone.value(operand).name,
                           alone.type(operand).to_string(),
                           checked.gradient,
                           checked.difference,
                           checked.max_relative};
    }
    return {};
  }

  // Inside of a composite that has no rule of its own.
  std::optional<WrongOperator> wrong_inside(const Graph& alone, const std::vector<Tensor>& operands,
                                            const std::set<std::string>& differentiated) {
    for (const Node& node : alone.nodes()) {
      if (node.op->kind != OpKind::kComposite && node.op->kind != OpKind::kCall) continue;
      const CompositeDef* def = node.op->kind == OpKind::kComposite ? definition_of(alone, node, ops_) : nullptr;
      if (def && def->gradient) return {};
      std::vector<Tensor> values(alone.values().size());
      GraphInterpreter observed([&](const Graph& of, ValueId value, const Tensor& tensor) {
        if (&of == &alone) values[index(value)] = tensor;
      });
      observed.evaluate(alone, operands);
      std::vector<Tensor> inputs;
      Flags moved;
      for (const ValueId input : node.inputs) {
        inputs.push_back(values[index(input)]);
        moved.push_back(differentiated.count(alone.value(input).name) != 0);
      }
      return first_wrong(*node.regions[0], inputs, moved, nullptr);
    }
    return {};
  }

  const GradientCheckOptions& options_;
  const OpTable& ops_;
  std::mt19937_64 random_;
  GraphInterpreter interpreter_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

bool GradientCheck::agrees() const {
  return !wrong && std::all_of(values.begin(), values.end(), [](const auto& value) { return value.agrees; });
}

GradientCheck check_gradients(const Graph& model, const std::vector<Tensor>& inputs,
                              const GradientCheckOptions& options, const OpTable& ops) {
  return GradientChecker(options, ops).run(model, inputs);
}

}  // namespace tessera::inline diagnose
