// LSTMs in integers, for one step or for sequences, with 8 bits for values and weights and 16 for gates and the cell:
// with an input gate that is what the forget gate leaves, and with a projection or gates that see the cell.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

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
  int64_t inputs = 0, cells = 0, outputs = 0;
  std::vector<int> gates;  // in the order of operands
  FixedScale from_input[kGates], from_hidden[kGates], from_cell[kGates], hidden, projection;
  int cell_exponent = 0;  // the cell's unit is 2 to it
  int64_t cell_clip = 0, projection_clip = 0;
  int64_t input_zero = 0, hidden_zero = 0, hidden_state_zero = 0;
};

struct Options {
  float cell_clip = 0, projection_clip = 0;
  bool time_major = true;
};

float scale_of(OperatorContext& c, const TfliteTensor& tensor) { return c.scale(tensor); }

// The operand by which a gate sees the cell; -1 for the candidate.
int peephole_of(int gate) { return gate == kCandidate ? -1 : kPeepholes + (gate == kOut ? 2 : gate); }

// What `limit` is in units of a number with so many bits; 0: there is none.
int64_t clip_of(float limit, float unit, int bits) {
  if (!(limit > 0)) return 0;
  const double most = std::ldexp(1, bits - 1);
  return static_cast<int64_t>(std::clamp(static_cast<double>(limit / unit), -most, most - 1));
}

void require_operand(OperatorContext& c, int place, DType dtype, const Ints& dims) {
  const ValueId value = c.in(place);
  if (c.dtype(value) != dtype || c.dims(value) != dims)
    c.malformed(fmt::format("operand {} of type {}", place, c.type(value).to_string()),
                fmt::format("{}[{}]", dtype_name(dtype), fmt::join(dims, ",")));
}

void require_operands(OperatorContext& c, const IntegerLstm& lstm) {
  for (const int gate : lstm.gates) {
    require_operand(c, kInputWeights + gate, DType::kI8, {lstm.cells, lstm.inputs});
    require_operand(c, kRecurrentWeights + gate, DType::kI8, {lstm.cells, lstm.outputs});
    require_operand(c, kBiases + gate, DType::kI32, {lstm.cells});
    if (const int place = peephole_of(gate); place >= 0 && c.has(place))
      require_operand(c, place, DType::kI16, {lstm.cells});
  }
  if (!c.has(kProjection)) return;
  require_operand(c, kProjection, DType::kI8, {lstm.outputs, lstm.cells});
  if (c.has(kProjection + 1)) require_operand(c, kProjection + 1, DType::kI32, {lstm.outputs});
}

IntegerLstm integer_lstm(OperatorContext& c, const Options& options) {
  IntegerLstm lstm;
  const Ints weights = c.dims(c.in(kInputWeights + kForget)), recurrent = c.dims(c.in(kRecurrentWeights + kForget));
  if (weights.size() != 2 || recurrent.size() != 2 || weights[0] < 1 ||
      (!c.has(kProjection) && recurrent[1] != weights[0]))
    c.malformed("weights that do not fit one another", "matrices [cells,inputs] and [cells,outputs]");
  lstm.cells = weights[0];
  lstm.inputs = weights[1];
  lstm.outputs = recurrent[1];
  lstm.gates = {kForget, kCandidate, kOut};
  if (c.has(kInputWeights + kInGate)) lstm.gates.insert(lstm.gates.begin(), kInGate);
  require_operands(c, lstm);
  lstm.input_zero = c.zero_point(c.tensor(kInput));
  lstm.hidden_state_zero = c.zero_point(c.tensor(kHidden));
  // Gates are sums with 12 digits behind the point.
  const double gate_unit = std::ldexp(1, -12);
  const auto scaled = [&](int values, int w) {
    return fixed_scale(static_cast<double>(scale_of(c, c.tensor(w)) * scale_of(c, c.tensor(values))) / gate_unit);
  };
  for (const int gate : lstm.gates) {
    lstm.from_input[gate] = scaled(kInput, kInputWeights + gate);
    lstm.from_hidden[gate] = scaled(kHidden, kRecurrentWeights + gate);
    if (const int place = peephole_of(gate); place >= 0 && c.has(place)) lstm.from_cell[gate] = scaled(kCell, place);
  }
  const double cell_unit = static_cast<double>(scale_of(c, c.tensor(kCell)));
  lstm.cell_exponent = static_cast<int>(std::round(std::log2(cell_unit)));
  if (std::abs(std::log2(cell_unit) - lstm.cell_exponent) > 1e-3 || lstm.cell_exponent > -9 || lstm.cell_exponent < -15)
    c.malformed(fmt::format("a cell of the unit {}", cell_unit), "a power of two, 2^-15 to 2^-9");
  const float hidden_state_unit = scale_of(c, c.tensor(kHidden));
  lstm.cell_clip = clip_of(options.cell_clip, static_cast<float>(cell_unit), 16);
  lstm.projection_clip = clip_of(options.projection_clip, hidden_state_unit, 8);
  // The last of five tensors that no operator makes has the scale of what the output gate lets through.
  const auto* between = c.node().intermediates();
  float hidden_unit = hidden_state_unit;
  lstm.hidden_zero = lstm.hidden_state_zero;
  if (between && between->size() == 5 && between->Get(4) >= 0) {
    const TfliteTensor& info = c.state().tensors[static_cast<size_t>(between->Get(4))];
    hidden_unit = c.scale(info);
    // LiteRT's kernel takes the zero point off where a projection follows, and adds it where none does.
    lstm.hidden_zero = c.has(kProjection) ? -c.zero_point(info) : c.zero_point(info);
  }
  lstm.hidden =
      fixed_scale(static_cast<double>(static_cast<float>(std::ldexp(1, -30) / static_cast<double>(hidden_unit))));
  if (c.has(kProjection))
    lstm.projection =
        fixed_scale(static_cast<double>(scale_of(c, c.tensor(kProjection)) * hidden_unit / hidden_state_unit));
  return lstm;
}

ValueId kept_in_16(Emitter& c, ValueId x) {
  return c.op("min", {c.op("max", {x, c.scalar(DType::kI32, -32768)}), c.scalar(DType::kI32, 32767)});
}

// x * w of bytes less their zero points: [rows,units].
ValueId product(Emitter& c, ValueId x, int64_t zero, ValueId w) {
  return c.op("matmul", {centred(c, x, zero), c.cast(w, DType::kI32)}, {{"transpose_b", true}});
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

// A constant operand in a loop's body; -1 where there is none.
using Constants = std::function<ValueId(int place)>;

// One step; `from_input` is i16 [batch,gates*cells].
Step step(Emitter& c, const IntegerLstm& lstm, ValueId from_input, Step before, const Constants& constant) {
  const int64_t batch = c.dims(before.cell)[0];
  const auto gate = [&](int number, ValueId seen) {
    const auto place = std::ranges::find(lstm.gates, number) - lstm.gates.begin();
    const ValueId given = c.slice(from_input, Ints{0, place * lstm.cells}, Ints{batch, lstm.cells}, {1, 1});
    const ValueId own = product(c, before.hidden, lstm.hidden_state_zero, constant(kRecurrentWeights + number));
    ValueId sum = kept_in_16(
        c, c.add(c.cast(given, DType::kI32), multiply(c, own, lstm.from_hidden[number], FixedRounding::kTwice)));
    if (const ValueId weights = number == kCandidate ? -1 : constant(peephole_of(number)); weights >= 0) {
      const ValueId from_cell = c.mul(c.reshape(c.cast(weights, DType::kI32), {1, lstm.cells}), seen);
      sum = kept_in_16(c, c.add(sum, multiply(c, from_cell, lstm.from_cell[number], FixedRounding::kTwice)));
    }
    if (number == kCandidate) return words(c, sum, [](int16_t x) { return fixed_tanh(x, 3); });
    return words(c, sum, fixed_logistic);
  };
  const ValueId old = c.cast(before.cell, DType::kI32), forget = gate(kForget, old);
  const ValueId in = lstm.gates.front() == kInGate ? gate(kInGate, old) : c.sub(c.scalar(DType::kI32, 32767), forget);
  const ValueId kept = divided(c, c.mul(forget, old), 15);
  const ValueId added = divided(c, c.mul(in, gate(kCandidate, old)), 30 + lstm.cell_exponent);
  ValueId cell = kept_in_16(c, c.add(kept, added));
  if (lstm.cell_clip > 0) {
    const auto limit = static_cast<double>(lstm.cell_clip);
    cell = c.op("min", {c.op("max", {cell, c.scalar(DType::kI32, -limit)}), c.scalar(DType::kI32, limit)});
  }
  const int bits = 15 + lstm.cell_exponent;
  const ValueId shown = words(c, cell, [bits](int16_t x) { return fixed_tanh(x, bits); });
  ValueId hidden = requantize(c, c.mul(gate(kOut, cell), shown), {lstm.hidden}, 0, FixedRounding::kTwice,
                              {-128, 127, lstm.hidden_zero}, DType::kI8);
  if (const ValueId weights = constant(kProjection); weights >= 0) {
    ValueId sum = product(c, hidden, lstm.hidden_zero, weights);
    if (const ValueId bias = constant(kProjection + 1); bias >= 0) sum = c.add(sum, c.reshape(bias, {1, lstm.outputs}));
    StoredRange range{-128, 127, lstm.hidden_state_zero};
    if (lstm.projection_clip > 0) range.low = -lstm.projection_clip, range.high = lstm.projection_clip;
    hidden = requantize(c, sum, {lstm.projection}, 0, FixedRounding::kTwice, range, DType::kI8);
  }
  return {hidden, c.cast(cell, DType::kI16)};
}

Options options_of(OperatorContext& c, bool is_step) {
  if (is_step) {
    const auto& options = c.options<tflite::LSTMOptions>();
    return {options.cell_clip(), options.proj_clip(), true};
  }
  const auto& options = c.options<tflite::UnidirectionalSequenceLSTMOptions>();
  return {options.cell_clip(), options.proj_clip(), options.time_major()};
}

}  // namespace

void import_integer_lstm(OperatorContext& c) {
  ValueId x = c.in(kInput);
  const bool is_step = c.rank(x) == 2;
  const Options options = options_of(c, is_step);
  for (int part = kNormalization; part < kNormalization + 4; ++part)
    if (c.has(part)) c.unsupported("normalised gates");
  // LiteRT's kernel gives other bits then than either alone explains.
  if (c.has(kProjection) && c.has(kPeepholes + 1)) c.unsupported("gates that see the cell beside a projection");
  if (c.dtype(c.in(kCell)) != DType::kI16 || c.dtype(c.in(kHidden)) != DType::kI8)
    c.unsupported("states of other types than i8 and i16");
  const IntegerLstm lstm = integer_lstm(c, options);
  if (is_step) x = c.reshape(x, {1, c.dims(x)[0], c.dims(x)[1]});
  if (c.rank(x) != 3 || c.dims(x)[2] != lstm.inputs)
    c.malformed(fmt::format("an input of type {}", c.type(x).to_string()), fmt::format("[time,batch,{}]", lstm.inputs));
  if (!options.time_major) x = c.transpose(x, {1, 0, 2});
  const int64_t time = c.dims(x)[0], batch = c.dims(x)[1];
  const ValueId rows = c.reshape(x, {time * batch, lstm.inputs});
  std::vector<ValueId> gates, operands = {c.in(kHidden), c.in(kCell)};
  for (const int gate : lstm.gates) {
    const ValueId sum = c.add(product(c, rows, lstm.input_zero, c.in(kInputWeights + gate)),
                              c.reshape(c.in(kBiases + gate), {1, lstm.cells}));
    gates.push_back(c.cast(kept_in_16(c, multiply(c, sum, lstm.from_input[gate], FixedRounding::kTwice)), DType::kI16));
  }
  const int64_t width = std::ssize(lstm.gates) * lstm.cells;
  operands.push_back(c.reshape(c.op("concat", gates, {{"axis", int64_t{1}}}), {time, batch, width}));

  RegionGraph region(c, "step");
  Graph& body = region.graph;
  RegionEmitter& in = region.emit;
  body.add_input("number", {DType::kI64, {}, {}});
  Step before;
  before.hidden = body.add_input("hidden", c.type(operands[0]));
  before.cell = body.add_input("cell", c.type(operands[1]));
  const ValueId given = body.add_input("from_input", {DType::kI16, make_shape({batch, width}), {}});
  const Constants constant = [&](int place) -> ValueId {
    if (!c.has(place)) return -1;
    const auto known = c.constant(c.in(place));
    if (!known) c.unsupported("weights that depend on the model's inputs");
    return in.constant_value(*known);
  };
  const Step after = step(in, lstm, given, before, constant);
  body.outputs = {after.hidden, after.cell, in.op("reshape", {after.hidden}, {{"shape", c.shape(operands[0])}})};
  const std::vector<ValueId> results =
      c.with_regions("loop", operands, {{"num_carried", int64_t{2}}, {"num_scanned", int64_t{1}}},
                     {std::make_shared<const Graph>(needed_part(body))});
  c.set_state(kHidden, results[0]);
  c.set_state(kCell, results[1]);
  if (is_step) c.out(0, c.reshape(results[2], {batch, lstm.outputs}));
  else c.out(0, options.time_major ? results[2] : c.transpose(results[2], {1, 0, 2}));
}

}  // namespace tessera::inline tflite_import
