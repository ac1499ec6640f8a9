// Recurrent layers in floats, with weights in floats or in 8 bits: LSTMs, plain ones and SVDF, for one step or for
// sequences, in one direction or in both.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "graph/subgraph.h"
#include "import/tflite/operators/handlers.h"
#include "import/tflite/operators/region_emitter.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// An operand in the graph that nodes are added to: that of the operator, or a loop's body.
using Operand = std::function<ValueId(int place)>;

// x [rows,n] times matrices [units,n] that are beside each other in the result. Weights of 8 bits: x is quantised row
// by row while running.
ValueId times(Emitter& e, OperatorContext& c, const Operand& get, ValueId x, const std::vector<int>& places,
              bool asymmetric) {
  std::vector<ValueId> matrices;
  std::vector<float> scales;
  for (const int place : places) {
    const TfliteTensor& info = c.tensor(place);
    if (info.dtype != c.tensor(places[0]).dtype)
      c.malformed(
          fmt::format("weights of types {} and {}", dtype_name(c.tensor(places[0]).dtype), dtype_name(info.dtype)),
          "one type");
    const ValueId w = get(place);
    if (e.rank(w) != 2 || e.dims(w)[1] != e.dims(x)[1])
      c.malformed(fmt::format("weights of type {} for {}", e.type(w).to_string(), e.type(x).to_string()),
                  "rows as long as those of the operand");
    matrices.push_back(w);
    if (info.dtype == DType::kF32) continue;
    if (info.dtype != DType::kI8) c.unsupported(fmt::format("weights of type {}", dtype_name(info.dtype)));
    if (c.zero_point(info) != 0) c.unsupported("weights with a zero point");
    scales.insert(scales.end(), static_cast<size_t>(e.dims(w)[0]), c.scale(info));
  }
  const ValueId all = matrices.size() == 1 ? matrices[0] : e.op("concat", matrices, {{"axis", int64_t{0}}});
  const auto product = [&](ValueId a, ValueId b) { return e.op("matmul", {a, b}, {{"transpose_b", true}}); };
  if (scales.empty()) return product(x, all);
  const DynamicallyQuantized q = dynamically_quantized(e, x, asymmetric);
  ValueId wide = e.cast(q.values, DType::kI32);
  if (q.zero >= 0) wide = e.sub(wide, q.zero);
  Tensor units(DType::kF32, {1, static_cast<int64_t>(scales.size())});
  std::copy(scales.begin(), scales.end(), units.as_mutable<float>().begin());
  const ValueId scale = e.mul(q.scale, e.constant_value(std::move(units)));
  return e.mul(e.cast(product(wide, e.cast(all, DType::kI32)), DType::kF32), scale);
}

ValueId vector_of(Emitter& e, OperatorContext& c, const Operand& get, int place, int64_t count) {
  ValueId v = get(place);
  if (e.num_elements(v) != count)
    c.malformed(fmt::format("an operand of type {}", e.type(v).to_string()), fmt::format("{} elements", count));
  if (e.dtype(v) != DType::kF32) {
    const TfliteTensor& info = c.tensor(place);
    v = e.mul(e.cast(e.cast(v, DType::kI32), DType::kF32), e.scalar(DType::kF32, static_cast<double>(c.scale(info))));
  }
  return e.reshape(v, {1, count});
}

// A layer: what it makes of a step's input alone, and what of that and of its states.
struct Layer {
  std::vector<int> states;                                                          // operands
  std::function<ValueId(Emitter& e, const Operand& get, ValueId rows)> from_input;  // [rows,...] of [rows,n]
  // The states after a step; the first one is the step's result.
  std::function<std::vector<ValueId>(Emitter& e, const Operand& get, ValueId given, std::vector<ValueId> states)> step;
};

// Of a sequence [time,batch,n], the results [time,batch,units]; the states are set.
ValueId run_layer(OperatorContext& c, const Layer& layer, ValueId x, ValueId aux, bool backwards,
                  const std::function<ValueId(Emitter&, const Operand&, ValueId)>& from_aux) {
  const Operand own = [&](int place) { return c.in(place); };
  const Ints dims = c.dims(x);
  const int64_t time = dims[0], batch = dims[1];
  ValueId given = layer.from_input(c, own, c.reshape(x, {time * batch, dims[2]}));
  if (aux >= 0) {
    const Ints aux_dims = c.dims(aux);
    if (aux_dims.size() != 3 || aux_dims[0] != time || aux_dims[1] != batch)
      c.malformed(fmt::format("a second input of type {}", c.type(aux).to_string()), "as many steps");
    given = c.add(given, from_aux(c, own, c.reshape(aux, {time * batch, aux_dims[2]})));
  }
  const int64_t width = c.dims(given)[1];
  std::vector<ValueId> states;
  for (const int place : layer.states) states.push_back(c.in(place));
  const auto check_states = [&](const auto& type_of, const std::vector<ValueId>& after) {
    for (size_t i = 0; i < states.size(); ++i)
      if (static_dims(type_of(after[i]).shape) != static_dims(c.type(states[i]).shape))
        c.malformed(fmt::format("a state of type {} that becomes {}", c.type(states[i]).to_string(),
                                type_of(after[i]).to_string()),
                    "states [batch,units]");
  };
  ValueId result = -1;
  if (time == 1) {
    states = layer.step(c, own, given, states);
    result = c.reshape(states[0], {1, batch, c.dims(states[0])[1]});
  } else {
    RegionGraph region(c, "step");
    Graph& body = region.graph;
    RegionEmitter& in = region.emit;
    body.add_input("number", {DType::kI64, {}, {}});
    std::vector<ValueId> before;
    for (size_t i = 0; i < states.size(); ++i)
      before.push_back(body.add_input(fmt::format("state_{}", i), c.type(states[i])));
    const ValueId slice = body.add_input("from_input", {DType::kF32, make_shape({batch, width}), {}});
    std::map<int, ValueId> constants;
    const Operand inside = [&](int place) {
      const auto found = constants.find(place);
      if (found != constants.end()) return found->second;
      const auto known = c.constant(c.in(place));
      if (!known) c.unsupported("weights that depend on the model's inputs");
      return constants[place] = in.constant_value(*known);
    };
    const std::vector<ValueId> after = layer.step(in, inside, slice, before);
    check_states([&](ValueId v) { return body.type(v); }, after);
    body.outputs = after;
    body.outputs.push_back(in.op("reshape", {after[0]}, {{"shape", in.shape(after[0])}}));
    std::vector<ValueId> operands = states;
    operands.push_back(c.reshape(given, {time, batch, width}));
    Attrs attrs = {{"num_carried", static_cast<int64_t>(states.size())}, {"num_scanned", int64_t{1}}};
    if (backwards) {
      attrs.set("scan_reversed", Ints{1});
      attrs.set("stack_reversed", Ints{1});
    }
    const std::vector<ValueId> results =
        c.with_regions("loop", operands, std::move(attrs), {std::make_shared<const Graph>(needed_part(body))});
    for (size_t i = 0; i < states.size(); ++i) states[i] = results[i];
    result = results.back();
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const ValueId before = c.in(layer.states[i]);
    if (static_dims(c.shape(states[i])) != static_dims(c.shape(before)))
      c.malformed(
          fmt::format("a state of type {} that becomes {}", c.type(before).to_string(), c.type(states[i]).to_string()),
          "states [batch,units]");
    c.set_state(layer.states[i], states[i]);
  }
  return result;
}

// ---- LSTMs ----

// Operands' places; -1: there is none. Gates in the order of operands.
constexpr int kInGate = 0, kForget = 1, kCandidate = 2, kOut = 3, kGates = 4;
struct LstmPlaces {
  int weights = 1, recurrent = 5, peepholes = 9, biases = 12, projection = 16, hidden = 18, cell = 19,
      normalization = 20, aux = -1;
};
struct LstmOptions {
  int8_t activation = 0;
  float cell_clip = 0, projection_clip = 0;
  bool asymmetric = false, diagonal = false;
};

ValueId clipped(Emitter& e, ValueId x, float limit) {
  if (!(limit > 0)) return x;
  const auto most = static_cast<double>(limit);
  return e.op("min", {e.op("max", {x, e.scalar_like(x, -most)}), e.scalar_like(x, most)});
}

class Lstm {
 public:
  Lstm(OperatorContext& c, LstmPlaces places, LstmOptions options) : c_(c), at_(places), options_(options) {
    const Ints dims = c.dims(c.in(at_.weights + kForget));
    if (dims.size() != 2 || dims[0] < 1) c.malformed("weights that are no matrix", "matrices [cells,inputs]");
    cells_ = dims[0];
    coupled_ = !c.has(at_.weights + kInGate);
    normalized_ = at_.normalization >= 0 && c.has(at_.normalization + kForget);
  }

  Layer layer() {
    return {{at_.hidden, at_.cell},
            [this](Emitter& e, const Operand& get, ValueId rows) { return from_input(e, get, rows); },
            [this](Emitter& e, const Operand& get, ValueId given, std::vector<ValueId> states) {
              return step(e, get, given, states[0], states[1]);
            }};
  }
  ValueId from_aux(Emitter& e, const Operand& get, ValueId rows) {
    return times(e, c_, get, rows, places(at_.aux), options_.asymmetric);
  }

 private:
  std::vector<int> gates() const {
    return coupled_ ? std::vector<int>{kForget, kCandidate, kOut}
                    : std::vector<int>{kInGate, kForget, kCandidate, kOut};
  }
  std::vector<int> places(int first) const {
    std::vector<int> result;
    for (const int gate : gates()) result.push_back(first + gate);
    return result;
  }

  ValueId from_input(Emitter& e, const Operand& get, ValueId rows) {
    const ValueId sums = times(e, c_, get, rows, places(at_.weights), options_.asymmetric);
    if (normalized_) return sums;
    std::vector<ValueId> biases;
    for (const int gate : gates()) biases.push_back(vector_of(e, c_, get, at_.biases + gate, cells_));
    return e.add(sums, e.op("concat", biases, {{"axis", int64_t{1}}}));
  }

  // Of the values of each row their distance to the mean, in standard deviations.
  ValueId normalized(Emitter& e, ValueId x) {
    const auto mean = [&](ValueId v) {
      return e.composite("reduce_mean", {v}, {{"axes", Ints{1}}, {"keepdims", true}});
    };
    const ValueId centred = e.sub(x, mean(x));
    const ValueId variance = e.add(mean(e.mul(centred, centred)), e.scalar_like(x, 1e-8));
    return e.div(centred, e.op("sqrt", {variance}));
  }

  std::vector<ValueId> step(Emitter& e, const Operand& get, ValueId given, ValueId hidden, ValueId cell) {
    const int64_t batch = e.dims(given)[0];
    ValueId sums = given;
    if (!options_.diagonal) {
      sums = e.add(given, times(e, c_, get, hidden, places(at_.recurrent), options_.asymmetric));
    } else {
      std::vector<ValueId> own;
      for (const int place : places(at_.recurrent)) own.push_back(e.mul(hidden, vector_of(e, c_, get, place, cells_)));
      sums = e.add(given, e.op("concat", own, {{"axis", int64_t{1}}}));
    }
    const std::vector<int> all = gates();
    const auto gate = [&](int number, ValueId seen) {
      const auto place = std::find(all.begin(), all.end(), number) - all.begin();
      ValueId sum = e.slice(sums, Ints{0, static_cast<int64_t>(place) * cells_}, Ints{batch, cells_}, {1, 1});
      const int peephole = number == kInGate ? 0 : number == kForget ? 1 : number == kOut ? 2 : -1;
      if (peephole >= 0 && c_.has(at_.peepholes + peephole))
        sum = e.add(sum, e.mul(seen, vector_of(e, c_, get, at_.peepholes + peephole, cells_)));
      if (normalized_) {
        const ValueId scaled = e.mul(normalized(e, sum), vector_of(e, c_, get, at_.normalization + number, cells_));
        sum = e.add(scaled, vector_of(e, c_, get, at_.biases + number, cells_));
      }
      return number == kCandidate ? activated(e, sum, options_.activation) : e.composite("sigmoid", {sum});
    };
    const ValueId forget = gate(kForget, cell);
    const ValueId in = coupled_ ? e.sub(e.scalar(DType::kF32, 1), forget) : gate(kInGate, cell);
    const ValueId next = clipped(e, e.add(e.mul(forget, cell), e.mul(in, gate(kCandidate, cell))), options_.cell_clip);
    ValueId shown = e.mul(gate(kOut, next), activated(e, next, options_.activation));
    if (c_.has(at_.projection)) {
      shown = times(e, c_, get, shown, {at_.projection}, options_.asymmetric);
      if (c_.has(at_.projection + 1)) shown = e.add(shown, vector_of(e, c_, get, at_.projection + 1, e.dims(shown)[1]));
      shown = clipped(e, shown, options_.projection_clip);
    }
    return {shown, next};
  }

  OperatorContext& c_;
  LstmPlaces at_;
  LstmOptions options_;
  int64_t cells_ = 0;
  bool coupled_ = false, normalized_ = false;
};

// ---- plain layers ----

class PlainLayer {
 public:
  // Places of weights, of recurrent weights, of the bias, of the state, and of weights for a second input.
  struct Places {
    int weights = 1, recurrent = 2, bias = 3, hidden = 4, aux = -1;
  };
  PlainLayer(OperatorContext& c, Places places, int8_t activation, bool asymmetric)
      : c_(c), at_(places), activation_(activation), asymmetric_(asymmetric) {}

  Layer layer() {
    return {{at_.hidden},
            [this](Emitter& e, const Operand& get, ValueId rows) {
              const ValueId sums = times(e, c_, get, rows, {at_.weights}, asymmetric_);
              return e.add(sums, vector_of(e, c_, get, at_.bias, e.dims(sums)[1]));
            },
            [this](Emitter& e, const Operand& get, ValueId given, std::vector<ValueId> states) {
              const ValueId own = times(e, c_, get, states[0], {at_.recurrent}, asymmetric_);
              return std::vector<ValueId>{activated(e, e.add(given, own), activation_)};
            }};
  }
  ValueId from_aux(Emitter& e, const Operand& get, ValueId rows) {
    return times(e, c_, get, rows, {at_.aux}, asymmetric_);
  }

 private:
  OperatorContext& c_;
  Places at_;
  int8_t activation_;
  bool asymmetric_;
};

void require_float(OperatorContext& c) {
  if (c.dtype(c.in(0)) != DType::kF32) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(c.in(0)))));
}

// A sequence with time in front.
ValueId time_first(OperatorContext& c, int i, bool time_major) {
  const ValueId x = c.in(i);
  if (c.rank(x) != 3 || c.num_elements(x) == 0)
    c.malformed(fmt::format("an input of type {}", c.type(x).to_string()), "a sequence [time,batch,n]");
  return time_major ? x : c.transpose(x, {1, 0, 2});
}
ValueId as_before(OperatorContext& c, ValueId y, bool time_major) {
  return time_major ? c.op("reshape", {y}, {{"shape", c.shape(y)}}) : c.transpose(y, {1, 0, 2});
}

ValueId one_step(OperatorContext& c) {
  const ValueId x = c.in(0);
  if (c.rank(x) != 2 || c.num_elements(x) == 0)
    c.malformed(fmt::format("an input of type {}", c.type(x).to_string()), "[batch,n]");
  return c.reshape(x, {1, c.dims(x)[0], c.dims(x)[1]});
}
ValueId without_time(OperatorContext& c, ValueId y) {
  return c.op("reshape", {y}, {{"shape", Ints{c.dims(y)[1], c.dims(y)[2]}}});
}

ValueId run_forward(OperatorContext& c, const Layer& layer, ValueId x) { return run_layer(c, layer, x, -1, false, {}); }

void import_sequence_lstm(OperatorContext& c) {
  c.require_inputs(20, 24);
  const auto& options = c.options<tflite::UnidirectionalSequenceLSTMOptions>();
  if (c.dtype(c.in(0)) == DType::kI8 && c.dtype(c.in(2)) == DType::kI8) return import_integer_lstm(c);
  require_float(c);
  Lstm lstm(c, {},
            {options.fused_activation_function(), options.cell_clip(), options.proj_clip(),
             options.asymmetric_quantize_inputs(), options.diagonal_recurrent_tensors()});
  const ValueId y = run_forward(c, lstm.layer(), time_first(c, 0, options.time_major()));
  c.out(0, as_before(c, y, options.time_major()));
}

// One step of five operands: the input, the output and the cell of the step before, and one matrix for all.
void import_basic_lstm(OperatorContext& c) {
  require_float(c);
  const ValueId x = c.in(0), hidden = c.in(1), w = c.in(2), bias = c.in(3), cell = c.in(4);
  const auto flat = [&](ValueId v) { return c.reshape(v, {c.num_elements(v) / c.dims(v).back(), c.dims(v).back()}); };
  for (const ValueId v : {x, hidden, cell})
    if (c.rank(v) < 1 || c.num_elements(v) == 0)
      c.malformed(fmt::format("an operand of type {}", c.type(v).to_string()), "rows");
  const ValueId rows = c.op("concat", {flat(x), flat(hidden)}, {{"axis", int64_t{1}}});
  const int64_t cells = c.dims(cell).back(), batch = c.dims(rows)[0];
  if (c.rank(w) != 2 || c.dims(w) != Ints{4 * cells, c.dims(rows)[1]} || c.num_elements(bias) != 4 * cells)
    c.malformed(fmt::format("weights of type {}", c.type(w).to_string()),
                fmt::format("f32[{},{}]", 4 * cells, c.dims(rows)[1]));
  const ValueId sums = c.add(c.op("matmul", {rows, w}, {{"transpose_b", true}}), c.reshape(bias, {1, 4 * cells}));
  const auto part = [&](int64_t i) { return c.slice(sums, Ints{0, i * cells}, Ints{batch, cells}, {1, 1}); };
  const auto sigmoid = [&](int64_t i) { return c.composite("sigmoid", {part(i)}); };
  const ValueId next = c.add(c.mul(sigmoid(0), c.op("tanh", {part(1)})), c.mul(sigmoid(2), flat(cell)));
  const ValueId shown = c.mul(sigmoid(3), c.op("tanh", {next}));
  c.out(0, c.op("reshape", {shown}, {{"shape", c.shape(hidden)}}));
  if (c.num_outputs() > 1) c.out(1, c.op("reshape", {next}, {{"shape", c.shape(cell)}}));
  // Room that LiteRT's kernel works in.
  if (c.num_outputs() > 2) c.out(2, c.op("reshape", {rows}, {{"shape", c.shape(rows)}}));
  if (c.num_outputs() > 3) c.out(3, c.op("reshape", {sums}, {{"shape", c.shape(sums)}}));
}

void import_lstm(OperatorContext& c) {
  const auto& options = c.options<tflite::LSTMOptions>();
  if (options.kernel_type() != 0) {
    c.require_inputs(5, 5);
    return import_basic_lstm(c);
  }
  c.require_inputs(20, 24);
  if (c.dtype(c.in(0)) == DType::kI8 && c.dtype(c.in(2)) == DType::kI8) return import_integer_lstm(c);
  require_float(c);
  Lstm lstm(c, {},
            {options.fused_activation_function(), options.cell_clip(), options.proj_clip(),
             options.asymmetric_quantize_inputs(), false});
  c.out(0, without_time(c, run_forward(c, lstm.layer(), one_step(c))));
}

// Both directions' results, one after the other or as two.
void out_both(OperatorContext& c, ValueId forward, ValueId backward, bool merged, bool time_major) {
  if (merged) {
    const ValueId both = c.op("concat", {forward, backward}, {{"axis", int64_t{2}}});
    return c.out(0, as_before(c, both, time_major));
  }
  c.out(0, as_before(c, forward, time_major));
  c.out(1, as_before(c, backward, time_major));
}

// What two directions read. Without weights of its own the second input is what the backward direction reads.
struct BothInputs {
  ValueId x;
  int second = 0;  // the operand that is the second input, if it is there
  bool has_weights = false;
};

template <typename Cells>
void run_both(OperatorContext& c, Cells& forward, Cells& backward, const BothInputs& inputs, bool merges,
              bool time_major) {
  const ValueId aux = c.has(inputs.second) ? time_first(c, inputs.second, time_major) : -1;
  const bool both_read = aux >= 0 && inputs.has_weights;
  const auto run = [&](Cells& cells, ValueId x, bool backwards) {
    return run_layer(c, cells.layer(), x, both_read ? aux : -1, backwards,
                     [&](Emitter& e, const Operand& get, ValueId rows) { return cells.from_aux(e, get, rows); });
  };
  const ValueId y = run(forward, inputs.x, false);
  const ValueId z = run(backward, aux >= 0 && !both_read ? aux : inputs.x, true);
  out_both(c, y, z, merges, time_major);
}

void import_both_lstms(OperatorContext& c) {
  c.require_inputs(48, 48);
  require_float(c);
  const auto& options = c.options<tflite::BidirectionalSequenceLSTMOptions>();
  constexpr int kAux = 39, kForwardAux = 40, kBackwardAux = 44;
  const LstmOptions own = {options.fused_activation_function(), options.cell_clip(), options.proj_clip(),
                           options.asymmetric_quantize_inputs(), false};
  Lstm forward(c, {1, 5, 9, 12, 16, 35, 36, -1, kForwardAux}, own);
  Lstm backward(c, {18, 22, 26, 29, 33, 37, 38, -1, kBackwardAux}, own);
  const bool time_major = options.time_major();
  run_both(c, forward, backward, {time_first(c, 0, time_major), kAux, c.has(kForwardAux + kForget)},
           options.merge_outputs(), time_major);
}

void import_rnn(OperatorContext& c) {
  c.require_inputs(5, 5);
  require_float(c);
  const auto& options = c.options<tflite::RNNOptions>();
  PlainLayer layer(c, {}, options.fused_activation_function(), options.asymmetric_quantize_inputs());
  c.out(0, without_time(c, run_forward(c, layer.layer(), one_step(c))));
}

void import_sequence_rnn(OperatorContext& c) {
  c.require_inputs(5, 5);
  require_float(c);
  const auto& options = c.options<tflite::SequenceRNNOptions>();
  PlainLayer layer(c, {}, options.fused_activation_function(), options.asymmetric_quantize_inputs());
  const ValueId y = run_forward(c, layer.layer(), time_first(c, 0, options.time_major()));
  c.out(0, as_before(c, y, options.time_major()));
}

void import_both_rnns(OperatorContext& c) {
  c.require_inputs(12, 12);
  require_float(c);
  const auto& options = c.options<tflite::BidirectionalSequenceRNNOptions>();
  constexpr int kAux = 9, kForwardAux = 10, kBackwardAux = 11;
  const int8_t activation = options.fused_activation_function();
  const bool asymmetric = options.asymmetric_quantize_inputs(), time_major = options.time_major();
  PlainLayer forward(c, {1, 2, 3, 4, kForwardAux}, activation, asymmetric);
  PlainLayer backward(c, {5, 6, 7, 8, kBackwardAux}, activation, asymmetric);
  run_both(c, forward, backward, {time_first(c, 0, time_major), kAux, c.has(kForwardAux)}, options.merge_outputs(),
           time_major);
}

// ---- SVDF: filters of features, whose last results are kept and weighted by time ----

// The kept results moved by one, with the newest behind: [batch,filters,memory].
ValueId moved_memory(OperatorContext& c, ValueId state, ValueId newest, int64_t filters, int64_t memory) {
  const int64_t batch = c.dims(newest)[0];
  if (c.num_elements(state) != batch * filters * memory)
    c.malformed(fmt::format("a state of type {}", c.type(state).to_string()),
                fmt::format("[{},{}]", batch, filters * memory));
  const ValueId last = c.reshape(newest, {batch, filters, 1});
  if (memory == 1) return last;
  const ValueId kept =
      c.slice(c.reshape(state, {batch, filters, memory}), Ints{0, 0, 1}, Ints{batch, filters, memory - 1}, {1, 1, 1});
  return c.op("concat", {kept, last}, {{"axis", int64_t{2}}});
}

void import_svdf(OperatorContext& c) {
  c.require_inputs(5, 5);
  const auto& options = c.options<tflite::SVDFOptions>();
  constexpr int kFeature = 1, kTime = 2, kBias = 3, kState = 4;
  const ValueId x = c.in(0), feature = c.in(kFeature), time = c.in(kTime), state = c.in(kState);
  const Ints f_dims = c.dims(feature), t_dims = c.dims(time);
  const int64_t rank = options.rank();
  if (c.rank(x) != 2 || f_dims.size() != 2 || t_dims.size() != 2 || t_dims[0] != f_dims[0] || rank < 1 ||
      f_dims[0] % rank != 0 || f_dims[1] != c.dims(x)[1] || t_dims[1] < 1 || f_dims[0] < 1)
    c.malformed(fmt::format("rank {} of {}, {} and {}", rank, c.type(x).to_string(), c.type(feature).to_string(),
                            c.type(time).to_string()),
                "[batch,n], [filters,n] and [filters,memory] with filters that the rank divides");
  const int64_t batch = c.dims(x)[0], filters = f_dims[0], memory = t_dims[1], units = filters / rank;
  const Operand own = [&](int place) { return c.in(place); };
  const auto summed = [&](ValueId all) {
    const ValueId by_filter = c.reduce("sum", all, {2}, false);
    return c.reduce("sum", c.reshape(by_filter, {batch, units, rank}), {2}, false);
  };
  const auto keep = [&](ValueId all) { c.set_state(kState, c.reshape(all, c.dims(state))); };
  if (c.dtype(x) == DType::kI8) {
    const TfliteTensor &info = c.tensor(0), &y = c.output(0), &memory_info = c.tensor(kState);
    if (c.dtype(feature) != DType::kI8 || c.dtype(time) != DType::kI16 || memory_info.dtype != DType::kI16 ||
        y.dtype != DType::kI8)
      c.unsupported("values of other types than i8 with weights of i16 for time and a state of i16");
    const float first = c.scale(info) * c.scale(c.tensor(kFeature)) / c.scale(memory_info);
    const float second = c.scale(memory_info) * c.scale(c.tensor(kTime)) / c.scale(y);
    const ValueId sum = c.op("matmul", {centred(c, 0), c.cast(feature, DType::kI32)}, {{"transpose_b", true}});
    const ValueId newest = requantize(c, sum, {fixed_scale(static_cast<double>(first))}, 0, FixedRounding::kTwice,
                                      {INT16_MIN, INT16_MAX, 0}, DType::kI16);
    const ValueId all = moved_memory(c, state, newest, filters, memory);
    keep(all);
    const ValueId weights = c.reshape(c.cast(time, DType::kI32), {1, filters, memory});
    ValueId total = summed(c.mul(c.cast(all, DType::kI32), weights));
    if (c.has(kBias)) total = c.add(total, c.reshape(c.in(kBias), {1, units}));
    return c.out(0, requantize(c, total, {fixed_scale(static_cast<double>(second))}, 0, FixedRounding::kTwice,
                               stored_range(c, y), y.dtype));
  }
  require_float(c);
  const ValueId newest = times(c, c, own, x, {kFeature}, options.asymmetric_quantize_inputs());
  const ValueId all = moved_memory(c, state, newest, filters, memory);
  keep(all);
  ValueId weights = c.reshape(vector_of(c, c, own, kTime, filters * memory), {1, filters, memory});
  ValueId total = summed(c.mul(all, weights));
  if (c.has(kBias)) total = c.add(total, vector_of(c, c, own, kBias, units));
  c.out(0, activated(c, total, options.fused_activation_function()));
}

}  // namespace

std::span<const TfliteOperator> recurrent_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {BIDIRECTIONAL_SEQUENCE_LSTM, import_both_lstms},
      {BIDIRECTIONAL_SEQUENCE_RNN, import_both_rnns},
      {LSTM, import_lstm},
      {RNN, import_rnn},
      {SVDF, import_svdf},
      {UNIDIRECTIONAL_SEQUENCE_LSTM, import_sequence_lstm},
      {UNIDIRECTIONAL_SEQUENCE_RNN, import_sequence_rnn},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
