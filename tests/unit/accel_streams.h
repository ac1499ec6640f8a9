// Units of random sizes, and streams of random layers for them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "accel/expand.h"
#include "accel/tokens.h"
#include "interp/loop_interp.h"
#include "loop/parser.h"
#include "schedule/primitives/schedule.h"
#include "schedule/primitives/trace.h"

namespace tessera::accel_streams {

using Random = std::mt19937;

inline int pick(Random& random, std::vector<int> values) {
  return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random)];
}

// A unit of `tile` x `tile` multiply-adds.
inline std::string description(int tile, int loops, int64_t inp, int64_t wgt, int64_t acc) {
  const std::string t = std::to_string(tile);
  std::string product = "1";
  for (int l = 0; l < loops; ++l) product += fmt::format(" * n{}", l);
  const auto entry = [&](const char* name, const char* queue, const char* operands, const std::string& more,
                         const std::string& kernel) {
    return fmt::format(
        R"({{"name": "{}", "queue": "{}", "loops": {}, "cycles": "{} + 3", "operands": {}, {}"kernel": "kernel @{}"}})",
        name, queue, loops, product, operands, more, kernel);
  };
  const std::vector<std::string> entries = {
      entry("in", "load", R"({"s": "dram", "d": "inp"})", R"("padded": ["s"], )",
            fmt::format("in(s: i8[{0}]) -> (d: i8[{0}]) {{ for l in 0..{0} {{ d[l] = s[l] }} }}", t)),
      entry(
          "weights", "load", R"({"s": "dram", "d": "wgt"})", "",
          fmt::format("weights(s: i8[{0},{0}]) -> (d: i8[{0},{0}]) {{ for o in 0..{0} {{ for l in 0..{0} {{ d[o, l] = "
                      "s[o, l] }} }} }}",
                      t)),
      entry("zero", "compute", R"({"d": "acc"})", "",
            fmt::format("zero() -> (d: i32[{0}]) {{ for l in 0..{0} {{ d[l] = 0:i32 }} }}", t)),
      entry("dot", "compute", R"({"x": "inp", "w": "wgt", "d": "acc"})", "",
            fmt::format(
                "dot(x: i8[{0}], w: i8[{0},{0}]) -> (d: i32[{0}]) {{ for o in 0..{0} {{ for k in 0..{0} {{ d[o] = "
                "d[o] + cast:i32(x[k]) * cast:i32(w[o, k]) }} }} }}",
                t)),
      entry("shift", "compute", R"({"s": "acc", "d": "acc"})", R"("immediates": {"bits": [0, 31]}, )",
            fmt::format(
                "shift<bits>(s: i32[{0}]) -> (d: i32[{0}]) {{ for l in 0..{0} {{ d[l] = shr(s[l], cast:i32(bits)) "
                "}} }}",
                t)),
      entry("out", "store", R"({"s": "acc", "d": "dram"})", "",
            fmt::format("out(s: i32[{0}]) -> (d: i8[{0}]) {{ for l in 0..{0} {{ d[l] = cast:i8(s[l]) }} }}", t))};
  return fmt::format(
      R"({{"name": "unit", "clock_mhz": 100, "dram": {{"bytes_per_cycle": 4, "latency": 20, "burst": 32}},
        "fetch": {{"cycles": 1, "queue_depth": 8}},
        "memories": [{{"name": "inp", "bytes": {0}, "element": {3}}}, {{"name": "wgt", "bytes": {1}, "element": {4}}},
                     {{"name": "acc", "bytes": {2}, "element": {5}}}],
        "queues": ["load", "compute", "store"], "instructions": [{6}]}})",
      inp / tile * tile, wgt / (tile * tile) * (tile * tile), acc / (4 * tile) * (4 * tile), tile, tile * tile,
      4 * tile, fmt::join(entries, ",\n"));
}

struct Layer {
  int in, out, size, kernel, stride, pad, tile;
  int result() const { return (size + 2 * pad - kernel) / stride + 1; }
};

inline std::string loops_of(const Layer& c) {
  const int padded = c.size + 2 * c.pad, last = c.size - 1 + c.pad;
  return fmt::format(
      R"(kernel @conv(x: i8[{ci},{hw},{hw},{t}], w: i8[{co},{ci},{k},{k},{t},{t}]) -> (y: i8[{co},{r},{r},{t}]) {{
  alloc p: i8[{ci},{hp},{hp},{t}] local
  for pc in 0..{ci} {{ for ph in 0..{hp} {{ for pw in 0..{hp} {{ for pl in 0..{t} {{
    p[pc, ph, pw, pl] = select((({pad} <= ph) & (ph <= {last})) & (({pad} <= pw) & (pw <= {last})), x[pc, ph - {pad}, pw - {pad}, pl], 0:i8)
  }} }} }} }}
  alloc s: i32[{co},{r},{r},{t}] local
  for o in 0..{co} {{ for h in 0..{r} {{ for v in 0..{r} {{ for l in 0..{t} {{
    s[o, h, v, l] = 0:i32
    for c in 0..{ci} {{ for kh in 0..{k} {{ for kw in 0..{k} {{ for i in 0..{t} {{
      s[o, h, v, l] = s[o, h, v, l] + cast:i32(p[c, h * {st} + kh, v * {st} + kw, i]) * cast:i32(w[o, c, kh, kw, l, i])
    }} }} }} }}
  }} }} }} }}
  alloc q: i32[{co},{r},{r},{t}] local
  for qo in 0..{co} {{ for qh in 0..{r} {{ for qv in 0..{r} {{ for ql in 0..{t} {{
    q[qo, qh, qv, ql] = shr(s[qo, qh, qv, ql], 6:i32) }} }} }} }}
  for yo in 0..{co} {{ for yh in 0..{r} {{ for yv in 0..{r} {{ for yl in 0..{t} {{
    y[yo, yh, yv, yl] = cast:i8(q[yo, yh, yv, yl]) }} }} }} }}
}}
)",
      fmt::arg("ci", c.in), fmt::arg("co", c.out), fmt::arg("hw", c.size), fmt::arg("hp", padded),
      fmt::arg("t", c.tile), fmt::arg("k", c.kernel), fmt::arg("pad", c.pad), fmt::arg("last", last),
      fmt::arg("r", c.result()), fmt::arg("st", c.stride));
}

inline std::string schedule_of(int rows, int threads, bool by_rows) {
  return fmt::format(
             R"(o0, o1 = split(yo, [_, {0}])
h0, h2, h1 = split(yh, [_, {2}, {1}])
reorder([o0, h0, {3}, h1, yv, yl])
compute_at(q, {4})
compute_at(s, {4})
decompose_reduction(s, o)
reorder([c, kh, kw, h, v, l, i])
w_l = cache_read(w, local)
compute_at(w_l, c)
compute_at(p, c)
tensorize(pl, "unit.in")
tensorize(w_l_4, "unit.weights")
tensorize(l_init, "unit.zero")
tensorize(l, "unit.dot")
tensorize(ql, "unit.shift")
tensorize(yl, "unit.out")
)",
             by_rows ? 1 : threads, rows, by_rows ? threads : 1, by_rows ? "o1, h2" : "h2, o1", by_rows ? "h2" : "o1") +
         (threads > 1 ? fmt::format("virtual_thread({})\n", by_rows ? "h2" : "o1") : "");
}

struct Made {
  Accelerator unit;
  LoopProgram original;
  InstructionStream stream;
  std::vector<Tensor> segments, want;
};

inline LoopProgram scheduled(const Accelerator& unit, const LoopProgram& original, const std::string& text) {
  Schedule schedule(original, std::nullopt, unit.intrinsics());
  replay(schedule, parse_trace(text, "test.sched"));
  schedule.check_finished();
  return schedule.program();
}

inline Tensor random_bytes(Random& random, std::vector<int64_t> dims) {
  Tensor result(DType::kI8, std::move(dims));
  for (int8_t& v : result.as_mutable<int8_t>()) v = static_cast<int8_t>(random());
  return result;
}

inline std::vector<Tensor*> pointers(std::vector<Tensor>& tensors) {
  std::vector<Tensor*> result;
  for (Tensor& tensor : tensors) result.push_back(&tensor);
  return result;
}

// The description with its instructions dealt to one queue, three or five.
inline std::string with_queues(std::string text, int queues) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  const auto move = [&](const std::string& instruction, const std::string& from, const std::string& to) {
    replace(fmt::format(R"("name": "{}", "queue": "{}")", instruction, from),
            fmt::format(R"("name": "{}", "queue": "{}")", instruction, to));
  };
  if (queues == 1) {
    replace(R"(["load", "compute", "store"])", R"(["all"])");
    for (const char* name : {"load", "compute", "store"})
      replace(fmt::format(R"("queue": "{}")", name), R"("queue": "all")");
  } else if (queues == 5) {
    replace(R"(["load", "compute", "store"])", R"(["store", "load", "weights", "compute", "round"])");
    move("weights", "load", "weights");
    move("shift", "compute", "round");
  }
  return text;
}

inline Made make(Random& random, const Layer& layer, int loops, int rows, int threads, bool by_rows, int queues = 3) {
  Made made;
  made.unit =
      read_accelerator(with_queues(description(layer.tile, loops, 1 << 15, 1 << 15, 1 << 16), queues), "test.json");
  made.original = parse_loop_programs(loops_of(layer))[0];
  made.stream = expand(made.unit, scheduled(made.unit, made.original, schedule_of(rows, threads, by_rows)));
  order_by_need(made.unit, made.stream);
  place_tokens(made.unit, made.stream);
  made.segments = {random_bytes(random, {layer.in, layer.size, layer.size, layer.tile}),
                   random_bytes(random, {layer.out, layer.in, layer.kernel, layer.kernel, layer.tile, layer.tile}),
                   Tensor(DType::kI8, {layer.out, layer.result(), layer.result(), layer.tile})};
  made.want = made.segments;
  interpret(made.original, std::span<Tensor* const>(pointers(made.want)));
  return made;
}

// What a random stream is for; 0: any.
struct Wanted {
  int tile = 0, loops = 0, queues = 0;
};

inline Made make_random(Random& random, bool pads = true, const Wanted& wanted = {}) {
  Layer layer{};
  const auto any = [&](int fixed, std::vector<int> values) { return fixed ? fixed : pick(random, std::move(values)); };
  const int threads = pick(random, {1, 2, 2, 3, 4});
  do {
    const int kernel = pick(random, {1, 2, 3});
    layer = {pick(random, {1, 2, 3}), std::max(2, threads) * pick(random, {1, 2}), pick(random, {4, 5, 6, 8}), kernel,
             pick(random, {1, 2}),    pads ? pick(random, {0, kernel / 2}) : 0,    any(wanted.tile, {2, 4, 8})};
  } while (layer.result() < 2 || layer.result() % std::max(2, threads));
  const int rows = pick(random, {1, layer.result() / std::max(2, threads)});
  const int loops = any(wanted.loops, {1, 2, 3, 5});
  const bool by_rows = pick(random, {0, 1});
  return make(random, layer, loops, rows, threads, by_rows, any(wanted.queues, {1, 3, 5}));
}

inline Tensor result_of(const Made& made, const std::vector<StreamInstruction>& instructions) {
  std::vector<Tensor> segments = made.segments;
  segments.back() = Tensor(DType::kI8, made.want.back().dims());
  run_stream(made.unit, instructions, pointers(segments));
  return segments.back();
}

inline bool equal(const Tensor& a, const Tensor& b) { return a.content_hash() == b.content_hash(); }

}  // namespace tessera::accel_streams
