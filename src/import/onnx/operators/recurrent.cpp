// LSTM, GRU, RNN: the products with the input for all times at once, then the steps one after the other: a loop, or,
// where the import asks for no regions, written out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "arith/simplify.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/helpers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Steps are written out, so that their number must stay moderate.

struct CellKind {
  int64_t gates;
  std::vector<std::string> functions;  // by default
  bool has_cell;
};

// ONNX's defaults of alpha and beta.
std::pair<double, double> default_constants(const std::string& function) {
  if (function == "Affine") return {1, 0};
  if (function == "LeakyRelu") return {0.01, 0};
  if (function == "ThresholdedRelu") return {1, 0};
  if (function == "ScaledTanh") return {1, 1};
  if (function == "HardSigmoid") return {0.2, 0.5};
  if (function == "Elu") return {1, 0};
  return {0, 0};
}

bool has_alpha(const std::string& function) {
  static constexpr std::array kNames = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"};
  return std::find(kNames.begin(), kNames.end(), function) != kNames.end();
}

bool has_beta(const std::string& function) {
  return function == "Affine" || function == "ScaledTanh" || function == "HardSigmoid";
}

// The standard writes the names in any case.
std::string canonical(NodeContext& c, const std::string& name) {
  static constexpr std::array kNames = {
      "Relu",       "Tanh",        "Sigmoid", "Affine",   "LeakyRelu", "ThresholdedRelu",
      "ScaledTanh", "HardSigmoid", "Elu",     "Softsign", "Softplus"};
  const auto same = [&](std::string_view known) {
    return std::equal(name.begin(), name.end(), known.begin(), known.end(),
                      [](char a, char b) { return std::tolower(a) == std::tolower(b); });
  };
  for (const char* known : kNames)
    if (same(known)) return known;
  c.malformed(fmt::format("activation {}", name), fmt::format("{}", fmt::join(kNames, ", ")));
}

// One operand cut to direction `d`: its first dimension dropped.
ValueId of_direction(NodeContext& c, ValueId x, int64_t d) {
  Shape sizes = c.shape(x);
  const Shape rest(sizes.begin() + 1, sizes.end());
  Ints starts(sizes.size(), 0);
  starts[0] = d;
  sizes[0] = 1;
  return c.reshape(c.slice(x, starts, sizes, Ints(sizes.size(), 1)), rest);
}

ValueId zeros(NodeContext& c, ValueId like, const Shape& sizes) { return c.zeros(c.dtype(like), sizes); }
// What a state begins with that the model does not give. No constant of its own: it is nothing to learn, and its size
// is the batch's.
ValueId no_state(NodeContext& c, ValueId like, const Shape& sizes) {
  return c.op("broadcast", {zeros(c, like, {})}, {{"shape", sizes}});
}

ValueId activation(NodeContext& c, const std::string& name, double alpha, double beta, ValueId x) {
  const auto scaled = [&](ValueId v, double factor) { return c.mul(v, c.scalar_like(v, factor)); };
  const auto plus = [&](ValueId v, double more) { return c.add(v, c.scalar_like(v, more)); };
  const ValueId zero = c.scalar_like(x, 0);
  if (name == "Relu") return c.op("max", {x, zero});
  if (name == "Tanh") return c.op("tanh", {x});
  if (name == "Sigmoid") return c.composite("sigmoid", {x});
  if (name == "Affine") return plus(scaled(x, alpha), beta);
  if (name == "LeakyRelu") return c.op("select", {c.op("lt", {x, zero}), scaled(x, alpha), x});
  if (name == "ThresholdedRelu") return c.op("select", {c.op("ge", {x, c.scalar_like(x, alpha)}), x, zero});
  if (name == "ScaledTanh") return scaled(c.op("tanh", {scaled(x, beta)}), alpha);
  if (name == "HardSigmoid")
    return c.op("min", {c.op("max", {plus(scaled(x, alpha), beta), zero}), c.scalar_like(x, 1)});
  if (name == "Elu") {
    const ValueId below = plus(c.op("exp", {c.op("min", {x, zero})}), -1);
    return c.op("select", {c.op("lt", {x, zero}), scaled(below, alpha), x});
  }
  if (name == "Softsign") return c.div(x, plus(c.op("abs", {x}), 1));
  return c.composite("softplus", {x});
}

// x[.., first gates .. first + count) of the last dimension.
ValueId gate(NodeContext& c, ValueId x, int64_t hidden, int64_t first, int64_t count = 1) {
  Shape sizes = c.shape(x);
  Ints starts(sizes.size(), 0);
  starts.back() = first * hidden;
  sizes.back() = count * hidden;
  return c.slice(x, starts, sizes, Ints(sizes.size(), 1));
}

// One direction of one layer.
struct Direction {
  NodeContext& c;
  const CellKind& kind;
  ValueId x, w, r, bias;                  // [T, B, I], [gates * H, I], [gates * H, H], [2 * gates * H]
  std::vector<ValueId> states = {};       // [B, H]: the output's, and the cell's
  std::optional<ValueId> peepholes = {};  // [3 * H]: input, output, forget
  std::optional<ValueId> lengths = {};    // i64 [B, 1]
  std::vector<std::string> functions = {};
  std::vector<double> alphas = {}, betas = {};
  double clip = 0;
  bool reverse = false, input_forget = false, linear_before_reset = false;
  int64_t hidden = 0;

  ValueId apply(NodeContext& in, size_t i, ValueId v, bool clipped = true) const {
    if (clip > 0 && clipped) v = in.op("min", {in.op("max", {v, in.scalar_like(v, -clip)}), in.scalar_like(v, clip)});
    return activation(in, functions[i], alphas[i], betas[i], v);
  }
  static ValueId one_minus(NodeContext& in, ValueId v) { return in.sub(in.scalar_like(v, 1), v); }

  void require(ValueId v, const Shape& sizes, const char* what) {
    const Shape found = c.shape(v);
    if (!std::equal(found.begin(), found.end(), sizes.begin(), sizes.end(), equal_sizes))
      c.malformed(fmt::format("{} of type {} for each direction", what, c.type(v).to_string()),
                  fmt::format("the shape {}", to_string(sizes)));
  }
  void check_shapes() {
    const int64_t rows = kind.gates * hidden;
    const Expr batch = c.shape(x)[1];
    require(w, {rows, c.shape(x)[2]}, "input weights");
    require(r, {rows, hidden}, "recurrent weights");
    require(bias, {2 * rows}, "a bias");
    for (const ValueId state : states) require(state, {batch, hidden}, "a state");
    if (peepholes) require(*peepholes, {3 * hidden}, "peepholes");
  }

  // What all steps read of the weights.
  std::vector<ValueId> shared_operands() {
    const ValueId weights = c.transpose(r, {1, 0});
    if (kind.gates == 4 && peepholes) {
      std::vector<ValueId> all = {weights};
      for (int64_t which = 0; which < 3; ++which) all.push_back(gate(c, *peepholes, hidden, which));
      return all;
    }
    if (kind.gates != 3) return {weights};
    if (linear_before_reset) return {weights, gate(c, bias, hidden, 5)};
    return {gate(c, weights, hidden, 0, 2), gate(c, weights, hidden, 2)};
  }

  // The next states, added through `in`, from the old ones, the products with the input at this time, and what
  // shared_operands gives.
  std::vector<ValueId> lstm(NodeContext& in, const std::vector<ValueId>& old, ValueId from_input,
                            const std::vector<ValueId>& shared) const {
    const ValueId gates = in.add(in.op("matmul", {old[0], shared[0]}), from_input);
    const auto with_cell = [&](int64_t which, ValueId cell) {  // ONNX's order: input, output, forget, cell
      const ValueId g = gate(in, gates, hidden, which);
      return peepholes ? in.add(g, in.mul(shared[static_cast<size_t>(which) + 1], cell)) : g;
    };
    const ValueId input = apply(in, 0, with_cell(0, old[1]));
    const ValueId forget = input_forget ? one_minus(in, input) : apply(in, 0, with_cell(2, old[1]));
    const ValueId candidate = apply(in, 1, gate(in, gates, hidden, 3));
    const ValueId cell = in.add(in.mul(forget, old[1]), in.mul(input, candidate));
    const ValueId output = apply(in, 0, with_cell(1, cell));
    return {in.mul(output, apply(in, 2, cell, false)), cell};
  }
  std::vector<ValueId> gru(NodeContext& in, const std::vector<ValueId>& old, ValueId from_input,
                           const std::vector<ValueId>& shared) const {
    const ValueId h = old[0];
    const ValueId product = in.op("matmul", {h, shared[0]});
    const auto sum = [&](int64_t which) {
      return in.add(gate(in, from_input, hidden, which), gate(in, product, hidden, which));
    };
    const ValueId update = apply(in, 0, sum(0)), reset = apply(in, 0, sum(1));
    ValueId from_state;
    if (linear_before_reset) {
      from_state = in.mul(reset, in.add(gate(in, product, hidden, 2), shared[1]));
    } else {
      from_state = in.op("matmul", {in.mul(reset, h), shared[1]});
    }
    const ValueId candidate = apply(in, 1, in.add(from_state, gate(in, from_input, hidden, 2)));
    return {in.add(in.mul(one_minus(in, update), candidate), in.mul(update, h))};
  }
  std::vector<ValueId> step(NodeContext& in, const std::vector<ValueId>& old, ValueId from_input,
                            const std::vector<ValueId>& shared) const {
    if (kind.gates == 4) return lstm(in, old, from_input, shared);
    if (kind.gates == 3) return gru(in, old, from_input, shared);
    return {apply(in, 0, in.add(in.op("matmul", {old[0], shared[0]}), from_input))};
  }
  // A sequence that has ended before time `t` keeps its states and gives zeros. Changes `next`, answers the output.
  static ValueId within_length(NodeContext& in, ValueId length, ValueId t, const std::vector<ValueId>& old,
                               std::vector<ValueId>& next) {
    const ValueId inside = in.op("gt", {length, t});
    const ValueId y = in.op("select", {inside, next[0], in.scalar_like(next[0], 0)});
    for (size_t s = 0; s < next.size(); ++s) next[s] = in.op("select", {inside, next[s], old[s]});
    return y;
  }

  // The products with the input at all times, with the biases: [T, B, gates * H].
  ValueId products() {
    const Shape sizes = c.shape(x);
    // The biases of the state go with those of the input, but where the reset gate multiplies one of them.
    const int64_t with_state = kind.gates == 3 && linear_before_reset ? 2 : kind.gates;
    ValueId of_state = gate(c, bias, hidden, kind.gates, with_state);
    if (with_state < kind.gates)
      of_state = c.op("concat", {of_state, c.zeros(c.dtype(x), {hidden})}, {{"axis", int64_t{0}}});
    const ValueId both = c.add(gate(c, bias, hidden, 0, kind.gates), of_state);
    const ValueId product = c.op("matmul", {c.reshape(x, {sizes[0] * sizes[1], sizes[2]}), w}, {{"transpose_b", true}});
    return c.reshape(c.add(product, both), {sizes[0], sizes[1], kind.gates * hidden});
  }

  // Outputs at all times [T, B, H], then the last states.
  std::vector<ValueId> run() {
    const ValueId from_input = products();
    const std::vector<ValueId> shared = shared_operands();
    if (c.state().loop_nodes && !is_const_int(c.shape(x)[0], 1)) return as_loop(from_input, shared);
    const int64_t time = c.dims(x)[0];
    if (time > kMostSteps) c.unsupported(fmt::format("more than {} time steps", kMostSteps));
    return written_out(from_input, shared);
  }

  std::vector<ValueId> written_out(ValueId from_input, const std::vector<ValueId>& shared) {
    const int64_t time = c.dims(x)[0], width = kind.gates * hidden;
    const Expr batch = c.shape(x)[1];
    std::vector<ValueId> outputs(static_cast<size_t>(time));
    for (int64_t i = 0; i < time; ++i) {
      const int64_t t = reverse ? time - 1 - i : i;
      const ValueId now = c.reshape(c.slice(from_input, {t, 0, 0}, {1, batch, width}, {1, 1, 1}), {batch, width});
      std::vector<ValueId> next = step(c, states, now, shared);
      const ValueId y = lengths ? within_length(c, *lengths, c.integer(t), states, next) : next[0];
      states = next;
      outputs[static_cast<size_t>(t)] = c.reshape(y, {1, batch, hidden});
    }
    std::vector<ValueId> results = {outputs.size() == 1 ? outputs[0] : c.op("concat", outputs, {{"axis", int64_t{0}}})};
    results.insert(results.end(), states.begin(), states.end());
    return results;
  }

  // A scan over the products with the input; what the steps share are its invariants.
  std::vector<ValueId> as_loop(ValueId from_input, const std::vector<ValueId>& shared) {
    const Expr time = c.shape(x)[0], batch = c.shape(x)[1];
    std::vector<ValueId> operands = states;
    operands.push_back(from_input);
    operands.insert(operands.end(), shared.begin(), shared.end());
    if (lengths) operands.push_back(*lengths);
    std::vector<TensorType> inputs = {{DType::kI64, {}, {}}};
    for (const ValueId operand : operands) inputs.push_back(c.type(operand));
    inputs[1 + states.size()] = {c.dtype(from_input), {batch, kind.gates * hidden}, {}};
    auto opened = c.open_region("step", inputs, [&](NodeContext& in, const std::vector<ValueId>& given) {
      const auto part = [&](size_t first, size_t count) {
        const auto begin = given.begin() + static_cast<ptrdiff_t>(first);
        return std::vector<ValueId>(begin, begin + static_cast<ptrdiff_t>(count));
      };
      const std::vector<ValueId> old = part(1, states.size());
      std::vector<ValueId> next = step(in, old, given[1 + states.size()], part(2 + states.size(), shared.size()));
      ValueId y = next[0];
      if (lengths) {
        const ValueId t = reverse ? in.sub(in.integer(time - 1), given[0]) : given[0];
        y = within_length(in, given.back(), t, old, next);
      }
      next.push_back(y);
      return next;
    });
    ImportedRegion region = std::get<ImportedRegion>(std::move(opened));
    Attrs attrs{{"num_carried", static_cast<int64_t>(states.size())}, {"num_scanned", int64_t{1}}};
    if (reverse) {
      attrs.set("scan_reversed", Ints{1});
      attrs.set("stack_reversed", Ints{1});
    }
    std::vector<ValueId> results =
        c.with_regions("loop", operands, attrs, {std::make_shared<const Graph>(std::move(region.graph))});
    std::rotate(results.begin(), results.end() - 1, results.end());
    return results;
  }
};

void import_recurrent(NodeContext& c, const CellKind& kind) {
  const ValueId w = c.in(1), r = c.in(2);
  const std::string direction = c.attrs.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    c.malformed(fmt::format("direction = {}", direction), "forward, reverse, bidirectional");
  // Before opset 7 it says whether the first result is wanted; whether it has a name says so too.
  if (c.version() < 7) c.attrs.ignore("output_sequence");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const bool batch_first = c.attrs.get_int("layout", 0) != 0;
  const ValueId x = batch_first && c.rank(c.in(0)) == 3 ? c.transpose(c.in(0), {1, 0, 2}) : c.in(0);
  if (c.rank(x) != 3 || c.rank(w) != 3 || c.rank(r) != 3 || !is_const_int(c.shape(w)[0], directions) ||
      !is_const_int(c.shape(r)[0], directions))
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(x).to_string(), c.type(w).to_string(),
                            c.type(r).to_string()),
                fmt::format("rank 3, and weights for {}", directions == 1 ? "one direction" : "two directions"));
  const Expr batch = c.shape(x)[1];
  const int64_t hidden = c.dims(r)[2];
  if (const int64_t declared = c.attrs.get_int("hidden_size", hidden); declared != hidden)
    c.malformed(fmt::format("hidden_size = {} with weights of type {}", declared, c.type(r).to_string()),
                "the last extent of the recurrent weights");

  std::vector<std::string> functions = c.attrs.get_strings("activations");
  const size_t per_direction = kind.functions.size();
  if (functions.empty())
    for (int64_t d = 0; d < directions; ++d)
      functions.insert(functions.end(), kind.functions.begin(), kind.functions.end());
  if (functions.size() != per_direction * static_cast<size_t>(directions))
    c.malformed(fmt::format("{} activations", functions.size()),
                fmt::format("{}", per_direction * static_cast<size_t>(directions)));
  // The lists of constants have entries only for the functions that take them.
  const std::vector<double> alphas = c.attrs.get_floats("activation_alpha"),
                            betas = c.attrs.get_floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  const double clip = c.attrs.get_float("clip", 0);

  // Behind x, w, r: bias, lengths, first state, and for the LSTM first cell and peepholes.
  const auto state = [&](int i) -> std::optional<ValueId> {
    if (!c.has(i)) return std::nullopt;
    if (c.rank(c.in(i)) != 3) c.malformed(fmt::format("a state of type {}", c.type(c.in(i)).to_string()), "rank 3");
    return batch_first ? c.transpose(c.in(i), {1, 0, 2}) : c.in(i);
  };
  std::vector<std::optional<ValueId>> states = {state(5)};
  if (kind.has_cell) states.push_back(state(6));
  const bool peepholes = kind.has_cell && c.has(7);
  const bool input_forget = kind.gates == 4 && c.attrs.get_int("input_forget", 0) != 0;
  const bool linear_before_reset = kind.gates == 3 && c.attrs.get_int("linear_before_reset", 0) != 0;
  if (!c.state().loop_nodes && is_const_int(c.shape(x)[0], 0)) c.unsupported("sequences without elements");

  std::vector<std::vector<ValueId>> results;  // by direction: y, the last states
  for (int64_t d = 0; d < directions; ++d) {
    std::vector<std::string> names;
    std::vector<double> direction_alphas, direction_betas;
    for (size_t i = 0; i < per_direction; ++i) {
      const std::string name = canonical(c, functions[static_cast<size_t>(d) * per_direction + i]);
      auto [alpha, beta] = default_constants(name);
      if (has_alpha(name) && next_alpha < alphas.size()) alpha = alphas[next_alpha++];
      if (has_beta(name) && next_beta < betas.size()) beta = betas[next_beta++];
      names.push_back(name);
      direction_alphas.push_back(alpha);
      direction_betas.push_back(beta);
    }
    Direction run{c,
                  kind,
                  x,
                  of_direction(c, w, d),
                  of_direction(c, r, d),
                  c.has(3) ? of_direction(c, c.in(3), d) : zeros(c, x, {2 * kind.gates * hidden})};
    for (const auto& first : states)
      run.states.push_back(first ? of_direction(c, *first, d) : no_state(c, x, {batch, hidden}));
    if (peepholes) run.peepholes = of_direction(c, c.in(7), d);
    if (c.has(4)) run.lengths = c.reshape(c.cast(c.in(4), DType::kI64), {batch, 1});
    run.functions = names;
    run.alphas = direction_alphas;
    run.betas = direction_betas;
    run.clip = clip;
    run.reverse = direction == "reverse" || d == 1;
    run.input_forget = input_forget;
    run.linear_before_reset = linear_before_reset;
    run.hidden = hidden;
    run.check_shapes();
    results.push_back(run.run());
  }

  // Directions become a dimension of their own: [T, D, B, H] and [D, B, H], with the batch first when asked for.
  const auto joined = [&](size_t i, int64_t at) {
    std::vector<ValueId> parts;
    for (const auto& of : results) {
      Shape sizes = c.shape(of[i]);
      sizes.insert(sizes.begin() + at, 1);
      parts.push_back(c.reshape(of[i], sizes));
    }
    return parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", at}});
  };
  for (size_t i = 0; i < results[0].size(); ++i) {
    const auto output = static_cast<int>(i);
    if (!c.wants(output)) continue;
    const ValueId all = joined(i, i == 0 ? 1 : 0);
    if (!batch_first) c.out(output, all);
    else c.out(output, c.transpose(all, i == 0 ? Ints{2, 0, 1, 3} : Ints{1, 0, 2}));
  }
}

void import_lstm(NodeContext& c) {
  c.require_inputs(3, 8);
  static const CellKind kind{4, {"Sigmoid", "Tanh", "Tanh"}, true};
  import_recurrent(c, kind);
}

void import_gru(NodeContext& c) {
  c.require_inputs(3, 6);
  static const CellKind kind{3, {"Sigmoid", "Tanh"}, false};
  import_recurrent(c, kind);
}

void import_rnn(NodeContext& c) {
  c.require_inputs(3, 6);
  static const CellKind kind{1, {"Tanh"}, false};
  import_recurrent(c, kind);
}

}  // namespace

OperatorFamily recurrent_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"GRU", 1, import_gru},
      OperatorImporter{"LSTM", 1, import_lstm},
      OperatorImporter{"RNN", 1, import_rnn},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
