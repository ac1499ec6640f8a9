// LSTMs over sequences: those in integers, with 8 bits for values and weights and 16 for the cell.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/subgraph.h"
#include "import/tflite/fixed_functions.h"
#include "import/tflite/operators/handlers.h"
#include "import/tflite/operators/region_emitter.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// The operands' places.
constexpr int kInput = 0, kInputWeights = 1, kRecurrentWeights = 5, kPeepholes = 9, kBiases = 12, kProjection = 16,
              kHidden = 18, kCell = 19, kNormalization = 20;
// Gates in the order of operands.
constexpr int kInGate = 0, kForget = 1, kCandidate = 2, kOut = 3, kGates = 4;

// What an integer LSTM is made of.
struct IntegerLstm {
  int64_t inputs = 0, cells = 0;
  FixedScale from_input[kGates], from_hidden[kGates], hidden;
  int cell_exponent = 0;  // the cell's unit is 2 to it
  int64_t cell_clip = 0, input_zero = 0, hidden_zero = 0, hidden_state_zero = 0;
};

float scale_of(OperatorContext& c, const TfliteTensor& tensor) { return c.scale(tensor); }

IntegerLstm integer_lstm(OperatorContext& c, float cell_clip) {
  IntegerLstm lstm;
  const Ints weights = c.dims(c.in(kInputWeights + kForget)), recurrent = c.dims(c.in(kRecurrentWeights + kForget));
  if (weights.size() != 2 || recurrent != Ints{weights[0], weights[0]})
    c.malformed("weights that do not fit one another", "matrices [cells,inputs] and [cells,cells]");
  lstm.cells = weights[0];
  lstm.inputs = weights[1];
  lstm.input_zero = c.zero_point(c.tensor(kInput));
  lstm.hidden_state_zero = c.zero_point(c.tensor(kHidden));
  // Gates are sums with 12 digits behind the point.
  const double gate_unit = std::ldexp(1, -12);
  const auto scaled = [&](int values, int w) {
    return fixed_scale(static_cast<double>(scale_of(c, c.tensor(w)) * scale_of(c, c.tensor(values))) / gate_unit);
  };
  for (int gate = 0; gate < kGates; ++gate) {
    lstm.from_input[gate] = scaled(kInput, kInputWeights + gate);
    lstm.from_hidden[gate] = scaled(kHidden, kRecurrentWeights + gate);
  }
  const double cell_unit = static_cast<double>(scale_of(c, c.tensor(kCell)));
  lstm.cell_exponent = static_cast<int>(std::round(std::log2(cell_unit)));
  if (std::abs(std::log2(cell_unit) - lstm.cell_exponent) > 1e-3 || lstm.cell_exponent > -9 || lstm.cell_exponent < -15)
    c.malformed(fmt::format("a cell of the unit {}", cell_unit), "a power of two, 2^-15 to 2^-9");
  if (cell_clip > 0)
    lstm.cell_clip = static_cast<int64_t>(std::clamp(static_cast<double>(cell_clip) / cell_unit, -32768.0, 32767.0));
  // The last of five tensors that no operator makes has the scale of what the output gate lets through.
  const auto* between = c.node().intermediates();
  double hidden_unit = static_cast<double>(scale_of(c, c.tensor(kHidden)));
  lstm.hidden_zero = lstm.hidden_state_zero;
  if (between && between->size() == 5 && between->Get(4) >= 0) {
    const TfliteTensor& info = c.state().tensors[static_cast<size_t>(between->Get(4))];
    hidden_unit = static_cast<double>(c.scale(info));
    lstm.hidden_zero = info.quantization.zero_points[0];
  }
  lstm.hidden = fixed_scale(std::ldexp(1, -30) / hidden_unit);
  return lstm;
}

ValueId kept_in_16(Emitter& c, ValueId x) {
  return c.op("min", {c.op("max", {x, c.scalar(DType::kI32, -32768)}), c.scalar(DType::kI32, 32767)});
}

// x * w of bytes less their zero points, plus a bias, scaled: [rows,cells].
ValueId gate_sum(Emitter& c, ValueId x, int64_t zero, ValueId w, std::optional<ValueId> bias, FixedScale scale) {
  ValueId sum = c.op("matmul", {centred(c, x, zero), c.cast(w, DType::kI32)}, {{"transpose_b", true}});
  if (bias) sum = c.add(sum, *bias);
  return kept_in_16(c, multiply(c, sum, scale, FixedRounding::kTwice));
}

// Halves away from zero.
ValueId divided(Emitter& c, ValueId x, int bits) {
  const ValueId half = c.scalar(DType::kI32, std::ldexp(1, bits - 1));
  const ValueId less =
      c.op("select", {c.op("lt", {x, c.scalar(DType::kI32, 0)}), c.sub(half, c.scalar(DType::kI32, 1)), half});
  return c.op("shift_right", {c.add(x, less), c.scalar(DType::kI32, bits)});
}

// A function of 16 bits, as a table; x is i32 within them.
template <typename Function>
ValueId words(Emitter& c, ValueId x, const Function& f) {
  const auto of_word = [&](int64_t stored) { return int64_t{f(static_cast<int16_t>(stored))}; };
  return c.cast(of_each_word(c, x, DType::kI16, of_word), DType::kI32);
}

struct Step {
  ValueId hidden = -1, cell = -1;  // i8 and i16
};

// One step; `from_input` is i16 [batch,gates*cells].
Step step(Emitter& c, const IntegerLstm& lstm, ValueId from_input, Step before, const std::vector<ValueId>& weights) {
  const int64_t batch = c.dims(before.cell)[0];
  const auto gate = [&](int number) {
    const ValueId given = c.slice(from_input, Ints{0, number * lstm.cells}, Ints{batch, lstm.cells}, {1, 1});
    const ValueId own = gate_sum(c, before.hidden, lstm.hidden_state_zero, weights[static_cast<size_t>(number)],
                                 std::nullopt, lstm.from_hidden[number]);
    const ValueId sum = kept_in_16(c, c.add(c.cast(given, DType::kI32), own));
    if (number == kCandidate) return words(c, sum, [](int16_t x) { return fixed_tanh(x, 3); });
    return words(c, sum, fixed_logistic);
  };
  const ValueId kept = divided(c, c.mul(gate(kForget), c.cast(before.cell, DType::kI32)), 15);
  const ValueId added = divided(c, c.mul(gate(kInGate), gate(kCandidate)), 30 + lstm.cell_exponent);
  ValueId cell = kept_in_16(c, c.add(kept, added));
  if (lstm.cell_clip > 0) {
    const auto limit = static_cast<double>(lstm.cell_clip);
    cell = c.op("min", {c.op("max", {cell, c.scalar(DType::kI32, -limit)}), c.scalar(DType::kI32, limit)});
  }
  const int bits = 15 + lstm.cell_exponent;
  const ValueId shown = words(c, cell, [bits](int16_t x) { return fixed_tanh(x, bits); });
  const ValueId hidden = requantize(c, c.mul(gate(kOut), shown), {lstm.hidden}, 0, FixedRounding::kTwice,
                                    {-128, 127, lstm.hidden_zero}, DType::kI8);
  return {hidden, c.cast(cell, DType::kI16)};
}

}  // namespace

void import_integer_lstm(OperatorContext& c) {
  const auto& options = c.options<tflite::UnidirectionalSequenceLSTMOptions>();
  for (const int part : {kPeepholes, kPeepholes + 1, kPeepholes + 2})
    if (c.has(part)) c.unsupported("gates that see the cell");
  for (int part = kNormalization; part < kNormalization + 4; ++part)
    if (c.has(part)) c.unsupported("normalised gates");
  if (c.has(kProjection)) c.unsupported("a projection");
  if (!c.has(kInputWeights)) c.unsupported("an input gate that is what the forget gate leaves");
  if (c.dtype(c.in(kCell)) != DType::kI16 || c.dtype(c.in(kHidden)) != DType::kI8)
    c.unsupported("states of other types than i8 and i16");
  const IntegerLstm lstm = integer_lstm(c, options.cell_clip());
  ValueId x = c.in(kInput);
  if (c.rank(x) != 3 || c.dims(x)[2] != lstm.inputs)
    c.malformed(fmt::format("an input of type {}", c.type(x).to_string()), fmt::format("[time,batch,{}]", lstm.inputs));
  const bool time_first = options.time_major();
  if (!time_first) x = c.transpose(x, {1, 0, 2});
  const int64_t time = c.dims(x)[0], batch = c.dims(x)[1];
  const ValueId rows = c.reshape(x, {time * batch, lstm.inputs});
  std::vector<ValueId> gates, operands = {c.in(kHidden), c.in(kCell)};
  for (int gate = 0; gate < kGates; ++gate) {
    const ValueId bias = c.reshape(c.in(kBiases + gate), {1, lstm.cells});
    gates.push_back(c.cast(gate_sum(c, rows, lstm.input_zero, c.in(kInputWeights + gate), bias, lstm.from_input[gate]),
                           DType::kI16));
  }
  operands.push_back(c.reshape(c.op("concat", gates, {{"axis", int64_t{1}}}), {time, batch, kGates * lstm.cells}));

  RegionGraph region(c, "step");
  Graph& body = region.graph;
  RegionEmitter& in = region.emit;
  body.add_input("number", {DType::kI64, {}, {}});
  Step before;
  before.hidden = body.add_input("hidden", c.type(operands[0]));
  before.cell = body.add_input("cell", c.type(operands[1]));
  const ValueId given = body.add_input("from_input", {DType::kI16, make_shape({batch, kGates * lstm.cells}), {}});
  std::vector<ValueId> weights;
  for (int gate = 0; gate < kGates; ++gate) {
    const auto known = c.constant(c.in(kRecurrentWeights + gate));
    if (!known) c.unsupported("weights that depend on the model's inputs");
    weights.push_back(in.constant_value(*known));
  }
  const Step after = step(in, lstm, given, before, weights);
  body.outputs = {after.hidden, after.cell, in.op("reshape", {after.hidden}, {{"shape", c.shape(operands[0])}})};
  const std::vector<ValueId> results =
      c.with_regions("loop", operands, {{"num_carried", int64_t{2}}, {"num_scanned", int64_t{1}}},
                     {std::make_shared<const Graph>(needed_part(body))});
  c.set_state(kHidden, results[0]);
  c.set_state(kCell, results[1]);
  c.out(0, time_first ? results[2] : c.transpose(results[2], {1, 0, 2}));
}

}  // namespace tessera::inline tflite_import
