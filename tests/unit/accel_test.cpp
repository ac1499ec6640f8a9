// Accelerators of random descriptions: streams of random layers are proven, coded, decoded and run beside the plain
// loops, also with queues that race; every fault that is planted in a stream is found.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "accel/simulate.h"
#include "accel_streams.h"
#include "support/error.h"

namespace tessera {
namespace {

using namespace accel_streams;
using testing::HasSubstr;

// The instructions in an order that queues which race might finish in.
std::vector<StreamInstruction> raced(Random& random, const Accelerator& unit, const InstructionStream& stream) {
  const size_t queues = unit.queues.size();
  std::vector<std::vector<const StreamInstruction*>> of_queue(queues);
  for (const StreamInstruction& i : stream.instructions)
    of_queue[static_cast<size_t>(unit.instructions[static_cast<size_t>(i.kind)].queue)].push_back(&i);
  std::vector<size_t> next(queues, 0);
  std::vector<std::vector<int>> tokens(queues, std::vector<int>(queues, 0));
  std::vector<StreamInstruction> order;
  while (order.size() < stream.instructions.size()) {
    std::vector<size_t> ready;
    for (size_t q = 0; q < queues; ++q) {
      if (next[q] == of_queue[q].size()) continue;
      bool has_all = true;
      for (size_t other = 0; other < queues; ++other)
        has_all = has_all && (!(of_queue[q][next[q]]->waits >> other & 1) || tokens[other][q] > 0);
      if (has_all) ready.push_back(q);
    }
    if (ready.empty()) return {};
    const size_t q = ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)];
    const StreamInstruction& i = *of_queue[q][next[q]++];
    for (size_t other = 0; other < queues; ++other) {
      if (i.waits >> other & 1) --tokens[other][q];
      if (i.signals >> other & 1) ++tokens[q][other];
    }
    order.push_back(i);
  }
  return order;
}

TEST(Accelerator, StreamsComputeWhatTheLoopsDo) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const Made made = make_random(random);
    EXPECT_THAT(check_stream(made.unit, made.stream), testing::IsEmpty()) << print(made.unit, made.stream);
    const std::vector<StreamInstruction> decoded = decode(made.unit, encode(made.unit, made.stream));
    ASSERT_EQ(decoded, made.stream.instructions);
    EXPECT_TRUE(equal(result_of(made, decoded), made.want.back()));
    for (int race = 0; race < 3; ++race) {
      const auto order = raced(random, made.unit, made.stream);
      ASSERT_EQ(order.size(), made.stream.instructions.size());
      EXPECT_TRUE(equal(result_of(made, order), made.want.back()));
    }
  }
}

TEST(Accelerator, CyclesAreThoseOfTheBusiestQueueAtLeast) {
  Random random(2);
  for (int round = 0; round < 20; ++round) {
    const Made made = make_random(random);
    const SimulatedRun run = simulate(made.unit, made.stream);
    ASSERT_EQ(run.problem, "");
    for (const SimulatedQueue& queue : run.queues) EXPECT_LE(queue.busy, run.cycles);
    EXPECT_GE(run.cycles, run.dram_busy);
    EXPECT_LE(run.utilisation(), 1);
    // With a token from each instruction to the next, nothing runs beside anything.
    InstructionStream serial = made.stream;
    for (size_t i = 0; i < serial.instructions.size(); ++i) {
      serial.instructions[i].waits = serial.instructions[i].signals = 0;
      const auto queue = [&](size_t n) {
        return static_cast<uint32_t>(made.unit.instructions[static_cast<size_t>(serial.instructions[n].kind)].queue);
      };
      if (i == 0 || queue(i) == queue(i - 1)) continue;
      serial.instructions[i].waits = 1u << queue(i - 1);
      serial.instructions[i - 1].signals |= 1u << queue(i);
    }
    EXPECT_THAT(check_stream(made.unit, serial), testing::IsEmpty());
    const SimulatedRun slow = simulate(made.unit, serial);
    int64_t sum = 0;
    for (const SimulatedQueue& queue : slow.queues) sum += queue.busy;
    EXPECT_GE(slow.cycles, sum);
    EXPECT_GE(slow.cycles, run.cycles);
  }
}

// Virtual threads hide what loads take.
TEST(Accelerator, VirtualThreadsHideLatency) {
  Random random(3);
  const Layer layer{4, 2, 16, 3, 1, 1, 4};
  const Made one = make(random, layer, 5, 8, 1, false), two = make(random, layer, 5, 8, 2, false);
  const SimulatedRun without = simulate(one.unit, one.stream), with = simulate(two.unit, two.stream);
  EXPECT_EQ(without.multiply_adds, with.multiply_adds);
  EXPECT_LT(static_cast<double>(with.cycles), 0.9 * static_cast<double>(without.cycles));
}

TEST(Accelerator, PlantedFaultsAreFound) {
  Random random(4);
  int tokens = 0, others = 0;
  for (int round = 0; round < 30; ++round) {
    const Made made = make_random(random, false);  // a weight that meets zeros would not matter
    std::vector<std::pair<std::string, InstructionStream>> faults;
    const auto some = [&](auto changes) {  // an instruction that the change changes
      std::vector<InstructionStream> all;
      for (size_t i = 0; i < made.stream.instructions.size(); ++i) {
        InstructionStream copy = made.stream;
        if (changes(copy.instructions[i], made.unit.instructions[static_cast<size_t>(copy.instructions[i].kind)]))
          all.push_back(std::move(copy));
      }
      if (all.empty()) return std::optional<InstructionStream>();
      return std::optional(all[std::uniform_int_distribution<size_t>(0, all.size() - 1)(random)]);
    };
    const auto plant = [&](const char* what, auto changes) {
      if (auto stream = some(changes)) faults.emplace_back(what, std::move(*stream));
    };
    plant("a token that is not waited for", [](StreamInstruction& i, const UnitInstruction&) {
      if (!i.waits) return false;
      i.waits &= i.waits - 1;
      return true;
    });
    plant("a token that is not given", [](StreamInstruction& i, const UnitInstruction&) {
      if (!i.signals) return false;
      i.signals &= i.signals - 1;
      return true;
    });
    plant("a token too many", [&](StreamInstruction& i, const UnitInstruction& kind) {
      const uint32_t bit = 1u << (static_cast<size_t>(kind.queue + 1) % made.unit.queues.size());
      if (i.signals & bit) return false;
      i.signals |= bit;
      return true;
    });
    const size_t of_tokens = faults.size();
    plant("a weight off by one", [](StreamInstruction& i, const UnitInstruction& kind) {
      if (kind.name != "dot") return false;
      i.operands[1].base += core_bytes(kind, 1);
      return true;
    });
    plant("a pad too wide", [](StreamInstruction& i, const UnitInstruction& kind) {
      if (kind.name != "in" || i.operands[0].inside.back().second < 2) return false;
      --i.operands[0].inside.back().second;
      return true;
    });
    plant("a shift by one more", [](StreamInstruction& i, const UnitInstruction& kind) {
      if (kind.name != "shift") return false;
      ++i.immediates[0];
      return true;
    });
    plant("a step less", [](StreamInstruction& i, const UnitInstruction& kind) {
      if (kind.name != "out" || i.extents.back() < 2) return false;
      --i.extents.back();
      return true;
    });
    for (size_t f = 0; f < faults.size(); ++f) {
      const auto& [what, stream] = faults[f];
      bool found = !check_stream(made.unit, stream).empty();
      if (f < of_tokens) {
        EXPECT_TRUE(found) << what << "\n" << print(made.unit, stream);
        ++tokens;
        continue;
      }
      if (!found) found = !equal(result_of(made, stream.instructions), made.want.back());
      EXPECT_TRUE(found) << what << "\n" << print(made.unit, stream);
      ++others;
    }
  }
  EXPECT_GT(tokens, 60);
  EXPECT_GT(others, 60);
}

// Rows of a triangle: how far a loop runs depends on the one around it.
TEST(Accelerator, LoopsThatAreNoBox) {
  const Accelerator unit = read_accelerator(description(4, 3, 4096, 4096, 4096), "test.json");
  const LoopProgram program = parse_loop_programs(R"(kernel @rows(x: i8[6,4]) -> (y: i8[6,4]) {
  alloc p: i8[6,4] local
  alloc s: i32[6,4] local
  alloc w: i8[4,4] local
  for a in 0..6 { for l in 0..4 { s[a, l] = 0:i32 } }
  for b in 0..6 { for m in 0..4 { p[b, m] = x[b, m] } }
  for i in 0..6 { for j in 0..(i + 1) { for o in 0..4 { for k in 0..4 { s[i, o] = s[i, o] + cast:i32(p[j, k]) * cast:i32(w[o, k]) } } } }
  for d in 0..6 { for n in 0..4 { y[d, n] = cast:i8(s[d, n]) } }
}
)")[0];
  LoopProgram scheduled_program = scheduled(unit, program, R"(tensorize(l, "unit.zero")
tensorize(m, "unit.in")
tensorize(o, "unit.dot")
tensorize(n, "unit.out")
)");
  int64_t dots = 0;
  for (const StreamInstruction& i : expand(unit, scheduled_program).instructions)
    if (unit.instructions[static_cast<size_t>(i.kind)].name == "dot") dots += steps_of(i);
  EXPECT_EQ(dots, 21);
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Accelerator, WhatDoesNotFitIsSaid) {
  const Layer layer{2, 2, 8, 3, 1, 1, 4};
  const LoopProgram original = parse_loop_programs(loops_of(layer))[0];
  const auto expanded = [&](const std::string& text, const std::string& schedule) {
    return error_of([&] {
      const Accelerator unit = read_accelerator(text, "test.json");
      expand(unit, scheduled(unit, original, schedule));
    });
  };
  const std::string whole = schedule_of(8, 1, false);
  EXPECT_THAT(expanded(description(4, 5, 1 << 15, 1 << 15, 512), whole),
              testing::AllOf(HasSubstr("TSR-3504"), HasSubstr("memory 'acc' has 512 bytes, and s (1024) need 1024")));
  EXPECT_EQ(expanded(description(4, 5, 1 << 15, 1 << 15, 2048), whole), "");
  std::string without = whole;
  without.erase(without.find("tensorize(ql"), std::string("tensorize(ql, \"unit.shift\")\n").size());
  EXPECT_THAT(expanded(description(4, 5, 1 << 15, 1 << 15, 1 << 15), without),
              testing::AllOf(HasSubstr("TSR-3502"), HasSubstr("is no instruction of unit")));
  const auto with_operands = [&](const std::string& from, const std::string& to) {
    std::string text = description(4, 5, 1 << 15, 1 << 15, 1 << 15);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    return expanded(text, whole);
  };
  EXPECT_THAT(
      with_operands(R"({"s": "acc", "d": "dram"})", R"({"s": "acc", "d": "inp"})"),
      testing::AllOf(HasSubstr("TSR-3503"), HasSubstr("is in DRAM, as a parameter, and operand 'd' of unit.out")));
  EXPECT_THAT(with_operands(R"({"s": "acc", "d": "acc"})", R"({"s": "inp", "d": "inp"})"),
              testing::AllOf(HasSubstr("TSR-3503"), HasSubstr("would be in two memories")));
  EXPECT_THAT(error_of([&] {
                const Accelerator unit = read_accelerator(description(4, 5, 1 << 15, 1 << 15, 1 << 15), "test.json");
                InstructionStream stream = expand(unit, scheduled(unit, original, whole));
                stream.instructions[0].extents[0] = 5000;
                encode(unit, stream);
              }),
              testing::AllOf(HasSubstr("TSR-3506"), HasSubstr("is 5000, and its field has 10 bits")));
  EXPECT_THAT(error_of([&] {
                const Accelerator unit = read_accelerator(description(4, 5, 1 << 15, 1 << 15, 1 << 15), "test.json");
                decode(unit, {~uint64_t{0}});
              }),
              HasSubstr("TSR-3507"));
}

// Copies of `tile` bytes by way of one memory, addressed in `element` bytes; sums in DRAM; each of five queues has one
// or two instructions.
std::string copies(int tile, int element) {
  std::vector<std::string> entries;
  const auto add = [&](const char* name, const char* queue, const char* operands, const char* parameters,
                       const char* result, const char* value) {
    const std::string kernel =
        fmt::format("kernel @{0}({1}) -> (d: {2}[{3}]) {{ for l in 0..{3} {{ d[l] = {4} }} }}", name,
                    *parameters ? fmt::format("s: {}[{}]", parameters, tile) : "", result, tile, value);
    entries.push_back(fmt::format(
        R"({{"name": "{}", "queue": "{}", "loops": 2, "cycles": "n0 * n1", "operands": {}, "kernel": "{}"}})", name,
        queue, operands, kernel));
  };
  add("load", "a", R"({"s": "dram", "d": "buf"})", "i8", "i8", "s[l]");
  add("store", "b", R"({"s": "buf", "d": "dram"})", "i8", "i8", "s[l]");
  add("widen", "c", R"({"s": "buf", "d": "buf"})", "i8", "i32", "cast:i32(s[l]) * 3:i32");
  add("narrow", "b", R"({"s": "buf", "d": "dram"})", "i32", "i8", "cast:i8(s[l])");
  add("clear", "d", R"({"d": "dram"})", "", "i8", "0:i8");
  add("sum", "e", R"({"s": "buf", "d": "dram"})", "i8", "i8", "d[l] + s[l]");
  return fmt::format(
      R"({{"name": "copies", "clock_mhz": 1, "dram": {{"bytes_per_cycle": 1, "latency": 3, "burst": 4}},
        "fetch": {{"cycles": 1, "queue_depth": 2}}, "memories": [{{"name": "buf", "bytes": {}, "element": {}}}],
        "queues": ["a", "b", "c", "d", "e"], "instructions": [{}]}})",
      4096 / element * element, element, fmt::join(entries, ",\n"));
}

// What the stream of a kernel computes, in the order of the list and in others, beside what its loops do.
void expect_computes(const std::string& text, const std::string& schedule, int tile, int element,
                     size_t* instructions = nullptr) {
  Random random(8);
  Made made;
  made.unit = read_accelerator(copies(tile, element), "test.json");
  made.original = parse_loop_programs(text)[0];
  made.stream = expand(made.unit, scheduled(made.unit, made.original, schedule));
  order_by_need(made.unit, made.stream);
  place_tokens(made.unit, made.stream);
  for (const BufferPtr& param : made.original.params) {
    std::vector<int64_t> dims;
    for (const Expr& extent : param->shape) dims.push_back(*as_int(extent));
    made.segments.push_back(random_bytes(random, dims));
  }
  made.want = made.segments;
  interpret(made.original, std::span<Tensor* const>(pointers(made.want)));
  ASSERT_THAT(check_stream(made.unit, made.stream), testing::IsEmpty()) << print(made.unit, made.stream);
  EXPECT_EQ(simulate(made.unit, made.stream).problem, "");
  const auto decoded = decode(made.unit, encode(made.unit, made.stream));
  EXPECT_TRUE(equal(result_of(made, decoded), made.want.back())) << print(made.unit, made.stream);
  for (int race = 0; race < 3; ++race)
    EXPECT_TRUE(equal(result_of(made, raced(random, made.unit, made.stream)), made.want.back()));
  if (instructions) *instructions = made.stream.instructions.size();
}

// Loops whose ends depend on one around them: each iteration of that one is an instruction.
TEST(Accelerator, Triangles) {
  size_t instructions = 0;
  expect_computes(R"(kernel @triangle(x: i8[5,5,4]) -> (y: i8[5,5,4]) {
  alloc p: i8[5,5,4] local
  for a in 0..5 { for b in 0..5 { for c in 0..4 { p[a, b, c] = x[a, b, c] } } }
  for i in 0..5 { for j in 0..(i + 1) { for l in 0..4 { y[i, j, l] = p[i, j, l] } } }
  for u in 0..5 { for v in 0..(4 - u) { for m in 0..4 { y[u, ((u + 1) + v), m] = p[u, ((u + 1) + v), m] } } }
}
)",
                  "tensorize(c, \"copies.load\")\ntensorize(l, \"copies.store\")\ntensorize(m, \"copies.store\")\n", 4,
                  4, &instructions);
  EXPECT_EQ(instructions, 1u + 5 + 4);
}

// A buffer of wide elements behind one of an odd number of bytes.
TEST(Accelerator, WideElementsLieAtTheirMultiples) {
  for (const int element : {1, 3})
    expect_computes(R"(kernel @wide(x: i8[1,3]) -> (y: i8[1,3]) {
  alloc p: i8[1,3] local
  for a in 0..1 { for b in 0..3 { p[a, b] = x[a, b] } }
  alloc w: i32[1,3] local
  for c in 0..1 { for d in 0..3 { w[c, d] = (cast:i32(p[c, d]) * 3:i32) } }
  for i in 0..1 { for j in 0..3 { y[i, j] = cast:i8(w[i, j]) } }
}
)",
                    "tensorize(b, \"copies.load\")\ntensorize(d, \"copies.widen\")\ntensorize(j, \"copies.narrow\")\n",
                    3, element);
}

TEST(Accelerator, SumsInDram) {
  expect_computes(R"(kernel @sums(x: i8[6,5,4]) -> (y: i8[5,4]) {
  for i in 0..5 { for j in 0..4 { y[i, j] = 0:i8 } }
  for k in 0..6 {
    alloc p: i8[5,4] local
    for a in 0..5 { for b in 0..4 { p[a, b] = x[k, a, b] } }
    for c in 0..5 { for d in 0..4 { y[c, d] = (y[c, d] + p[c, d]) } }
  }
}
)",
                  "tensorize(j, \"copies.clear\")\ntensorize(b, \"copies.load\")\ntensorize(d, \"copies.sum\")\n", 4,
                  4);
}

// Every step is looked at when a stream is proven.
TEST(Accelerator, InstructionsWithoutAnEndAreRefused) {
  const Accelerator unit = read_accelerator(description(4, 3, 4096, 4096, 4096), "test.json");
  const LoopProgram original = parse_loop_programs(R"(kernel @again(x: i8[4]) -> (y: i8[4]) {
  alloc s: i32[4] local
  for a in 0..1000 { for b in 0..1000 { for c in 0..100 { for d in 0..4 { s[d] = 0:i32 } } } }
  for l in 0..4 { y[l] = cast:i8(s[l]) }
}
)")[0];
  const std::string schedule = "tensorize(d, \"unit.zero\")\ntensorize(l, \"unit.out\")\n";
  EXPECT_THAT(error_of([&] { expand(unit, scheduled(unit, original, schedule)); }),
              testing::AllOf(HasSubstr("TSR-3505"), HasSubstr("one 'zero' would take more than 16777216 steps")));
  InstructionStream stream;
  stream.instructions = {{2, {1000, 1000, 1000}, {{0, {0, 0, 0}}}, {}}};
  EXPECT_THAT(check_stream(unit, stream), testing::ElementsAre(HasSubstr("takes more than 16777216 steps")));
}

TEST(Accelerator, RowsBetweenElementsAreRefused) {
  EXPECT_THAT(error_of([&] {
                expect_computes(R"(kernel @rows(x: i8[5,4]) -> (y: i8[5,4]) {
  alloc p: i8[5,6] local
  for a in 0..5 { for b in 0..4 { p[a, b] = x[a, b] } }
  for i in 0..5 { for j in 0..4 { y[i, j] = p[i, j] } }
}
)",
                                "tensorize(b, \"copies.load\")\ntensorize(j, \"copies.store\")\n", 4, 4);
              }),
              testing::AllOf(HasSubstr("TSR-3506"), HasSubstr("elements of 4")));
}

// A queue that is full holds up the fetching of what it waits for.
TEST(Accelerator, StreamsThatAreNeverFetchedDoNotPass) {
  Random random(6);
  const Made made = make(random, {2, 2, 4, 1, 1, 0, 4}, 3, 1, 1, false);
  InstructionStream stream;
  stream.segments = made.stream.segments;
  const auto first = [&](const char* name) {
    for (StreamInstruction i : made.stream.instructions)
      if (made.unit.instructions[static_cast<size_t>(i.kind)].name == name) {
        i.waits = i.signals = 0;
        return i;
      }
    return StreamInstruction();
  };
  StreamInstruction load = first("in"), zero = first("zero");
  load.waits = 1u << 1;
  zero.signals = 1u << 0;
  for (int64_t loads : {made.unit.queue_depth, made.unit.queue_depth + 1}) {
    stream.instructions.assign(static_cast<size_t>(loads), first("in"));
    stream.instructions[0] = load;
    stream.instructions.push_back(zero);
    const bool ends = loads == made.unit.queue_depth;
    EXPECT_EQ(simulate(made.unit, stream).problem.empty(), ends);
    const std::vector<std::string> problems = check_stream(made.unit, stream);
    EXPECT_EQ(problems.empty(), ends);
    if (!ends) EXPECT_THAT(problems, testing::Contains(HasSubstr("queue 'load' waits for ever at instruction 0 (in)")));
  }
}

// Whatever the bits, decoding answers or refuses, and the checker comes to an end.
TEST(Accelerator, RandomWords) {
  std::mt19937_64 random(7);
  int decoded = 0, refused = 0, wrong = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string text = description(2 << (round % 3), 1 + round % 5, 4096, 4096, 4096);
    const Accelerator unit = read_accelerator(with_queues(text, 1 + round % 3 * 2), "test.json");
    std::vector<uint64_t> words(static_cast<size_t>(instruction_bits(unit) / 64 * (1 + round % 4)));
    for (uint64_t& word : words) word = random() & (round % 2 ? random() & random() & random() : ~uint64_t{0});
    InstructionStream stream;
    stream.segments = {{"x", 1000, false}, {"w", 1000, false}, {"y", 1000, true}};
    try {
      stream.instructions = decode(unit, words);
    } catch (const UserError&) {
      ++refused;
      continue;
    }
    ++decoded;
    EXPECT_EQ(decode(unit, encode(unit, stream)), stream.instructions);
    const bool is_proven = check_stream(unit, stream).empty();
    wrong += is_proven ? 0 : 1;
    if (is_proven) {
      EXPECT_EQ(simulate(unit, stream).problem, "");
    }
  }
  EXPECT_GT(decoded, 50);
  EXPECT_GT(refused, 50);
  EXPECT_GT(wrong, 50);
}

TEST(Accelerator, BadDescriptions) {
  const std::string good = description(4, 3, 4096, 4096, 4096);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return error_of([&] { read_accelerator(text, "test.json"); });
  };
  EXPECT_EQ(with("unit", "unit"), "");
  EXPECT_THAT(error_of([] { read_accelerator("{", "test.json"); }), HasSubstr("TSR-3501"));
  EXPECT_THAT(error_of([] { read_accelerator("[]", "test.json"); }), HasSubstr("TSR-3501"));
  EXPECT_THAT(with("\"clock_mhz\": 100", "\"clock_mhz\": 0"), HasSubstr("clock_mhz"));
  EXPECT_THAT(with("\"latency\"", "\"latencies\""), HasSubstr("dram has 'latencies'"));
  EXPECT_THAT(with("\"queue\": \"load\"", "\"queue\": \"lode\""), HasSubstr("is in no queue"));
  EXPECT_THAT(with("\"d\": \"inp\"", "\"d\": \"wgt2\""), HasSubstr("operand 'd' of instruction 'in' is in no memory"));
  EXPECT_THAT(with("\"d\": \"inp\"", "\"d\": \"dram\""), HasSubstr("2 operands in DRAM"));
  EXPECT_THAT(with("n0 *", "n9 *"), HasSubstr("TSR-31"));
  EXPECT_THAT(with("cast:i8(s[l])", "cast:i8(s[l]"), HasSubstr("TSR-3"));
  EXPECT_THAT(with("\"immediates\": {\"bits\": [0, 31]}", "\"immediates\": {}"), HasSubstr("has no range"));
  EXPECT_THAT(with("cast:i32(x[k]) * cast:i32(w[o, k])", "cast:i32(w[o, k])"),
              HasSubstr("operand 'x' of instruction 'dot' is neither read nor written by its kernel"));
  EXPECT_THAT(error_of([&] { read_accelerator(description(4, 0, 4096, 4096, 4096), "test.json"); }),
              HasSubstr("operand 's' of instruction 'in' is padded, and there is no loop"));
  EXPECT_THAT(with("\"name\": \"wgt\"", "\"name\": \"inp\""), HasSubstr("a second memory 'inp'"));
}

}  // namespace
}  // namespace tessera
