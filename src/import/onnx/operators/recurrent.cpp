// LSTM, GRU, RNN: the products with the input for all times at once, then the steps one after the other, written out.
// What the steps share (weights, kernels) exists once in the compiled module.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Steps are written out, so that their number must stay moderate.
constexpr int64_t kMostSteps = 1024;

struct Kind {
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
  Ints sizes = c.dims(x), starts(sizes.size(), 0);
  starts[0] = d;
  sizes[0] = 1;
  const Ints rest(sizes.begin() + 1, sizes.end());
  return c.reshape(c.slice(x, starts, sizes, Ints(sizes.size(), 1)), rest);
}

ValueId zeros(NodeContext& c, ValueId like, const Ints& dims) { return c.zeros(c.dtype(like), dims); }

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
  Ints starts(c.dims(x).size(), 0), sizes = c.dims(x);
  starts.back() = first * hidden;
  sizes.back() = count * hidden;
  return c.slice(x, starts, sizes, Ints(sizes.size(), 1));
}

// One direction of one layer.
struct Direction {
  NodeContext& c;
  const Kind& kind;
  ValueId x, w, r, bias;                  // [T, B, I], [gates * H, I], [gates * H, H], [2 * gates * H]
  std::vector<ValueId> states = {};       // [B, H]: the output's, and the cell's
  std::optional<ValueId> peepholes = {};  // [3 * H]: input, output, forget
  std::optional<ValueId> lengths = {};    // i64 [B, 1]
  std::vector<std::string> functions = {};
  std::vector<double> alphas = {}, betas = {};
  double clip = 0;
  bool reverse = false, input_forget = false, linear_before_reset = false;
  int64_t hidden = 0;

  ValueId apply(size_t i, ValueId v, bool clipped = true) {
    if (clip > 0 && clipped) v = c.op("min", {c.op("max", {v, c.scalar_like(v, -clip)}), c.scalar_like(v, clip)});
    return activation(c, functions[i], alphas[i], betas[i], v);
  }
  ValueId one_minus(ValueId v) { return c.sub(c.scalar_like(v, 1), v); }

  void require(ValueId v, const Ints& dims, const char* what) {
    if (c.dims(v) != dims)
      c.malformed(fmt::format("{} of type {} for each direction", what, c.type(v).to_string()),
                  fmt::format("the shape [{}]", fmt::join(dims, ",")));
  }
  void check_shapes() {
    const int64_t rows = kind.gates * hidden, batch = c.dims(x)[1];
    require(w, {rows, c.dims(x)[2]}, "input weights");
    require(r, {rows, hidden}, "recurrent weights");
    require(bias, {2 * rows}, "a bias");
    for (const ValueId state : states) require(state, {batch, hidden}, "a state");
    if (peepholes) require(*peepholes, {3 * hidden}, "peepholes");
  }

  // The next states from the old ones and the products with the input at this time.
  std::vector<ValueId> lstm(const std::vector<ValueId>& old, ValueId from_input, ValueId weights) {
    const ValueId gates = c.add(c.op("matmul", {old[0], weights}), from_input);
    const auto with_cell = [&](int64_t which, ValueId cell) {  // ONNX's order: input, output, forget, cell
      const ValueId g = gate(c, gates, hidden, which);
      return peepholes ? c.add(g, c.mul(gate(c, *peepholes, hidden, which), cell)) : g;
    };
    const ValueId input = apply(0, with_cell(0, old[1]));
    const ValueId forget = input_forget ? one_minus(input) : apply(0, with_cell(2, old[1]));
    const ValueId candidate = apply(1, gate(c, gates, hidden, 3));
    const ValueId cell = c.add(c.mul(forget, old[1]), c.mul(input, candidate));
    const ValueId output = apply(0, with_cell(1, cell));
    return {c.mul(output, apply(2, cell, false)), cell};
  }
  std::vector<ValueId> gru(const std::vector<ValueId>& old, ValueId from_input, ValueId weights) {
    const ValueId h = old[0];
    const ValueId product = c.op("matmul", {h, linear_before_reset ? weights : gate(c, weights, hidden, 0, 2)});
    const auto sum = [&](int64_t which) {
      return c.add(gate(c, from_input, hidden, which), gate(c, product, hidden, which));
    };
    const ValueId update = apply(0, sum(0)), reset = apply(0, sum(1));
    ValueId from_state;
    if (linear_before_reset) {
      from_state = c.mul(reset, c.add(gate(c, product, hidden, 2), gate(c, bias, hidden, 5)));
    } else {
      from_state = c.op("matmul", {c.mul(reset, h), gate(c, weights, hidden, 2)});
    }
    const ValueId candidate = apply(1, c.add(from_state, gate(c, from_input, hidden, 2)));
    return {c.add(c.mul(one_minus(update), candidate), c.mul(update, h))};
  }
  std::vector<ValueId> step(const std::vector<ValueId>& old, ValueId from_input, ValueId weights) {
    if (kind.gates == 4) return lstm(old, from_input, weights);
    if (kind.gates == 3) return gru(old, from_input, weights);
    return {apply(0, c.add(c.op("matmul", {old[0], weights}), from_input))};
  }

  // Outputs at all times [T, B, H], then the last states.
  std::vector<ValueId> run() {
    const Ints dims = c.dims(x);
    const int64_t time = dims[0], batch = dims[1];
    if (time > kMostSteps) c.unsupported(fmt::format("more than {} time steps", kMostSteps));
    const int64_t width = kind.gates * hidden;
    // The biases of the state go with those of the input, but where the reset gate multiplies one of them.
    const int64_t with_state = kind.gates == 3 && linear_before_reset ? 2 : kind.gates;
    ValueId of_state = gate(c, bias, hidden, kind.gates, with_state);
    if (with_state < kind.gates)
      of_state = c.op("concat", {of_state, c.zeros(c.dtype(x), {hidden})}, {{"axis", int64_t{0}}});
    const ValueId both = c.add(gate(c, bias, hidden, 0, kind.gates), of_state);
    const ValueId product = c.op("matmul", {c.reshape(x, {time * batch, dims[2]}), w}, {{"transpose_b", true}});
    const ValueId from_input = c.reshape(c.add(product, both), {time, batch, width});
    const ValueId weights = c.transpose(r, {1, 0});
    std::vector<ValueId> outputs(static_cast<size_t>(time));
    for (int64_t i = 0; i < time; ++i) {
      const int64_t t = reverse ? time - 1 - i : i;
      const ValueId now = c.reshape(c.slice(from_input, {t, 0, 0}, {1, batch, width}, {1, 1, 1}), {batch, width});
      std::vector<ValueId> next = step(states, now, weights);
      ValueId y = next[0];
      if (lengths) {  // a sequence that has ended keeps its states and gives zeros
        const ValueId inside = c.op("gt", {*lengths, c.integer(t)});
        y = c.op("select", {inside, y, c.scalar_like(y, 0)});
        for (size_t s = 0; s < next.size(); ++s) next[s] = c.op("select", {inside, next[s], states[s]});
      }
      states = next;
      outputs[static_cast<size_t>(t)] = c.reshape(y, {1, batch, hidden});
    }
    std::vector<ValueId> results = {outputs.size() == 1 ? outputs[0] : c.op("concat", outputs, {{"axis", int64_t{0}}})};
    results.insert(results.end(), states.begin(), states.end());
    return results;
  }
};

void import_recurrent(NodeContext& c, const Kind& kind) {
  const ValueId w = c.in(1), r = c.in(2);
  const std::string direction = c.attrs.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    c.malformed(fmt::format("direction = {}", direction), "forward, reverse, bidirectional");
  // Before opset 7 it says whether the first result is wanted; whether it has a name says so too.
  if (c.version() < 7) c.attrs.ignore("output_sequence");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const bool batch_first = c.attrs.get_int("layout", 0) != 0;
  const ValueId x = batch_first && c.rank(c.in(0)) == 3 ? c.transpose(c.in(0), {1, 0, 2}) : c.in(0);
  if (c.rank(x) != 3 || c.rank(w) != 3 || c.rank(r) != 3 || c.dims(w)[0] != directions || c.dims(r)[0] != directions)
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(x).to_string(), c.type(w).to_string(),
                            c.type(r).to_string()),
                fmt::format("rank 3, and weights for {}", directions == 1 ? "one direction" : "two directions"));
  const int64_t batch = c.dims(x)[1], hidden = c.dims(r)[2];
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
  const std::optional<ValueId> lengths = c.has(4) ? std::optional(c.in(4)) : std::nullopt;
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
  if (c.dims(x)[0] == 0) c.unsupported("sequences without elements");

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
      run.states.push_back(first ? of_direction(c, *first, d) : zeros(c, x, {batch, hidden}));
    if (peepholes) run.peepholes = of_direction(c, c.in(7), d);
    if (lengths) run.lengths = c.reshape(c.cast(*lengths, DType::kI64), {batch, 1});
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
      Ints dims = c.dims(of[i]);
      dims.insert(dims.begin() + at, 1);
      parts.push_back(c.reshape(of[i], dims));
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
  static const Kind kind{4, {"Sigmoid", "Tanh", "Tanh"}, true};
  import_recurrent(c, kind);
}

void import_gru(NodeContext& c) {
  c.require_inputs(3, 6);
  static const Kind kind{3, {"Sigmoid", "Tanh"}, false};
  import_recurrent(c, kind);
}

void import_rnn(NodeContext& c) {
  c.require_inputs(3, 6);
  static const Kind kind{1, {"Tanh"}, false};
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
