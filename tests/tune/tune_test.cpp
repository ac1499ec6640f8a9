#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "../support/symbolic_graphs.h"
#include "codegen/llvm/target.h"
#include "diagnose/machine_probe.h"
#include "driver/compile.h"
#include "loop/printer.h"
#include "schedule/choose.h"
#include "schedule/sketches/sketch.h"
#include "support/error.h"
#include "te/canonical.h"
#include "tune/cost_model.h"
#include "tune/features.h"
#include "tune/kernel_bench.h"
#include "tune/measurer.h"
#include "tune/search.h"
#include "tune/statistics.h"
#include "tune/task_kernel.h"
#include "tune/task_scheduler.h"
#include "tune/train.h"
#include "tune/tuned_kernels.h"

namespace tessera {
namespace {

Target one_thread() {
  Target target = native_target();
  target.num_threads = 1;
  return target;
}

// y[m, n] = sum over k of x[m, k] * w[k, n]
std::shared_ptr<const TensorProgram> matmul(int64_t m, int64_t n, int64_t k, const std::string& prefix = "") {
  auto program = std::make_shared<TensorProgram>();
  program->name = prefix + "matmul";
  const BufferPtr x = make_buffer(prefix + "x", DType::kF32, {m, k});
  const BufferPtr w = make_buffer(prefix + "w", DType::kF32, {k, n});
  const BufferPtr y = make_buffer(prefix + "y", DType::kF32, {m, n});
  program->params = {{x, {}}, {w, {}, OperandKind::kConstant}};
  Body body;
  body.axes = make_axes(prefix + "i", y->shape);
  body.reduce_axes = make_axes(prefix + "k", {Expr(k)});
  body.combiner = Combiner::kSum;
  const Var r = body.reduce_axes[0].var;
  body.value = load(x, {body.axes[0].var, r}) * load(w, {r, body.axes[1].var});
  program->stages.push_back({y, {}, body});
  return program;
}

TEST(CanonicalText, DoesNotDependOnNames) {
  EXPECT_EQ(canonical_text(*matmul(4, 8, 3)), canonical_text(*matmul(4, 8, 3, "other_")));
  EXPECT_NE(canonical_text(*matmul(4, 8, 3)), canonical_text(*matmul(4, 8, 4)));
  EXPECT_EQ(structural_hash(canonical_text(*matmul(4, 8, 3))).size(), 16u);
}

TEST(Statistics, SignTest) {
  EXPECT_DOUBLE_EQ(sign_test(0, 10), 1);
  EXPECT_NEAR(sign_test(10, 10), 1.0 / 1024, 1e-12);
  EXPECT_NEAR(sign_test(8, 10), 56.0 / 1024, 1e-12);
  PairedTimes times;
  for (int i = 0; i < 10; ++i) times.rounds.emplace_back(10, 9);
  EXPECT_TRUE(is_faster(times));
  for (auto& round : times.rounds) round.second = 9.95;
  EXPECT_FALSE(is_faster(times)) << "too small a gain";
  for (int i = 0; i < 10; ++i) times.rounds[static_cast<size_t>(i)].second = i % 3 ? 8 : 12;
  EXPECT_FALSE(is_faster(times)) << "not clear enough";
  EXPECT_FALSE(is_faster({}));
}

TEST(Statistics, AVerdictNeedsEvidenceAtOneOfItsLooks) {
  PairedTimes times;
  for (int i = 0; i < 15; ++i) times.rounds.emplace_back(10, 5);
  EXPECT_EQ(verdict_of(times), Verdict::kUndecided) << "before the first look";
  times.rounds.emplace_back(10, 5);
  EXPECT_EQ(verdict_of(times), Verdict::kFaster);
  for (auto& [a, b] : times.rounds) std::swap(a, b);
  EXPECT_EQ(verdict_of(times), Verdict::kSlower);
  // What comes after a look and before the next one says nothing yet.
  times.rounds.assign(16, {10, 10});
  times.rounds.resize(31, {10, 5});
  EXPECT_EQ(verdict_of(times), Verdict::kUndecided);
  // Among equals no look may call one faster more often than kSignificance.
  std::mt19937 random(7);
  std::normal_distribution<double> noise(10, 1);
  int called = 0;
  constexpr int kGames = 1000;
  for (int game = 0; game < kGames; ++game) {
    times.rounds.clear();
    Verdict verdict = Verdict::kUndecided;
    while (verdict == Verdict::kUndecided && times.rounds.size() < static_cast<size_t>(kMostRounds)) {
      times.rounds.emplace_back(noise(random), noise(random));
      verdict = verdict_of(times);
    }
    called += verdict == Verdict::kFaster ? 1 : 0;
  }
  EXPECT_LE(called, kGames * kSignificance);
}

TEST(TaskScheduler, TimeGoesWhereItIsExpectedToPay) {
  std::vector<TaskState> tasks(3);
  tasks[0] = {.calls = 1, .best_us = 100, .bound_us = 95};
  tasks[1] = {.calls = 10, .best_us = 50, .bound_us = 5};
  tasks[2] = {.calls = 1, .best_us = 400, .bound_us = 10};
  // Everyone gets one round, most time first.
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    order.push_back(next_task(tasks));
    auto& task = tasks[static_cast<size_t>(order.back())];
    task.history.push_back(task.best_us);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(next_task(tasks), 1);
  EXPECT_LE(expected_gain(tasks, 0), 5) << "no more than the roofline leaves";
  for (TaskState& task : tasks) task.exhausted = true;
  EXPECT_EQ(next_task(tasks), -1);
}

TEST(Records, OfOtherVersionsAreRefusedWithAReason) {
  std::string why;
  const KnobPoint point{"register_tile", {{"rows", 4}, {"vectors", 1}}};
  EXPECT_EQ(usable_point(payload_of(point), why), point);
  SchedulePayload payload = payload_of(point);
  payload.knob_format = kKnobFormat + 1;
  EXPECT_FALSE(usable_point(payload, why));
  EXPECT_NE(why.find("form"), std::string::npos);
  payload = payload_of(point);
  payload.kind = "spell";
  EXPECT_FALSE(usable_point(payload, why));
  payload = payload_of({"no_such_rule", {}});
  EXPECT_FALSE(usable_point(payload, why));
  // Of another version of its rule: read, and held against the rule's knobs where it is applied.
  payload = payload_of(point);
  payload.rule_version += 1;
  EXPECT_TRUE(usable_point(payload, why));
  const Target target = one_thread();
  const auto unknown = apply_point({"register_tile", {{"no_such_knob", 1}}}, *matmul(8, 32, 16), target);
  ASSERT_TRUE(std::holds_alternative<Declined>(unknown));
  EXPECT_NE(std::get<Declined>(unknown).reason.find("no_such_knob"), std::string::npos);
  const auto illegal = apply_point({"register_tile", {{"vectors", 99}}}, *matmul(8, 32, 16), target);
  ASSERT_TRUE(std::holds_alternative<Declined>(illegal));
  EXPECT_NE(std::get<Declined>(illegal).reason.find("vectors=99"), std::string::npos);
}

// What a file or a worker may say instead of a schedule: read with a reason or refused, and never more than that.
TEST(Records, TracesAreReadBackOrRefused) {
  const Target target = one_thread();
  const auto definition = matmul(24, 40, 20);
  const SketchList list = make_sketches(*definition, target);
  ASSERT_FALSE(list.sketches.empty());
  std::string why;
  const KnobPoint point = trace_point(list.sketches[0].name, list.sketches[0].steps);
  SchedulePayload payload = payload_of(point);
  EXPECT_EQ(payload.kind, "trace");
  EXPECT_EQ(usable_point(payload, why), point);
  payload.knob_format = kTraceFormat + 1;
  EXPECT_FALSE(usable_point(payload, why));
  EXPECT_NE(why.find("trace of form"), std::string::npos);
  // Without the sketch's name it is a schedule all the same.
  const auto nameless = parse_trace_point(point.trace, why);
  ASSERT_TRUE(nameless) << why;
  EXPECT_EQ(nameless->rule, "trace");
  EXPECT_TRUE(std::holds_alternative<ScheduledKernel>(apply_trace_point(*nameless, *definition, target)));
  for (const std::string& text : {std::string(), std::string("// sketch.tile\n"), std::string("split(i0"),
                                  std::string("u = sample_categorical([1, 2])"), std::string(40000, ' '),
                                  std::string("no_such_primitive(i0)"), std::string(20000, '[')})
    EXPECT_FALSE(parse_trace_point(text, why)) << text.substr(0, 60);
  std::string long_one;
  for (int i = 0; i < 400; ++i) long_one += "set_scope(acc, register)\n";
  EXPECT_FALSE(parse_trace_point(long_one, why));
  // Legal steps that ask for too much, steps on another kernel's loops, and a schedule that is not finished.
  for (const char* text : {"unroll(i0)\nunroll(i1)\nunroll(r0)", "unroll(i9)", "parallel(r0)", "set_scope(y, register)",
                           "transform_layout(p0, (i, k) -> [k, i])", "store_at(acc, i0)", "bind(i0, threadIdx)",
                           "at = sample_compute_location(acc) decided [7]",
                           "a, b, c, d, e, f, g, h = split(i0, [_, 9999, 9999, 9999, 1, 1, 1, 1])\nunroll(b)",
                           "transform_layout(p1, (k, j) -> [floordiv(k, 7), floormod(k, 7), j, floormod(j, 3)])"}) {
    const auto read = parse_trace_point(text, why);
    ASSERT_TRUE(read) << text << ": " << why;
    const auto answer = apply_trace_point(*read, *definition, target);
    ASSERT_TRUE(std::holds_alternative<Declined>(answer)) << text;
    EXPECT_FALSE(std::get<Declined>(answer).reason.empty());
  }
  // Bytes changed at random.
  const std::string text = trace_point_text(point);
  std::mt19937 random(11);
  int taken = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = text;
    for (size_t change = 1 + random() % 3; change > 0; --change) {
      const size_t at = random() % bytes.size();
      if (random() % 3 == 0) bytes.erase(at, 1 + random() % 20);
      else bytes[at] = text[random() % text.size()];
    }
    const auto read = parse_trace_point(bytes, why);
    if (read) taken += std::holds_alternative<ScheduledKernel>(apply_trace_point(*read, *definition, target));
  }
  EXPECT_GT(taken, 0);
}

TEST(Records, AProgramTakesThePointAndSaysSo) {
  const Target target = one_thread();
  const auto definition = matmul(32, 64, 16);
  const auto schedule = [&](const TunedChoice& choice) {
    Program program;
    Kernel kernel;
    kernel.definition = definition;
    program.kernels.push_back(std::move(kernel));
    const auto add = [&](BufferKind kind, const std::vector<int64_t>& dims) {
      ProgramBuffer buffer;
      buffer.kind = kind;
      buffer.type = {DType::kF32, make_shape(dims), {}};
      buffer.bytes = dims[0] * dims[1] * 4;
      if (kind == BufferKind::kWeight) buffer.data = std::make_shared<Tensor>(DType::kF32, dims);
      program.buffers.push_back(std::move(buffer));
    };
    add(BufferKind::kInput, {32, 16});
    add(BufferKind::kWeight, {16, 64});
    add(BufferKind::kOutput, {32, 64});
    program.inputs = {0};
    program.outputs = {2};
    program.calls.push_back({0, {0, 1, 2}, "matmul"});
    schedule_program(program, target, 3, {}, {}, [&](const Kernel&) { return choice; });
    return program.kernels[0];
  };
  const auto space = std::get<KnobSpace>(knob_space(*find_schedule_rule("register_tile"), *definition, target));
  EXPECT_EQ(schedule({space.preferred(), ""}).rule, "register_tile");
  KnobPoint point = space.preferred();
  for (auto& [name, value] : point.values)
    if (name == "rows") value = value == 2 ? 3 : 2;
  const Kernel tuned = schedule({point, ""});
  EXPECT_EQ(rule_name_of(tuned.rule), "register_tile");
  EXPECT_NE(tuned.rule.find("{rows="), std::string::npos) << tuned.rule;
  EXPECT_NE(print(tuned.program), print(schedule({}).program));
  // A sketch's schedule in the place of the rule's, under the sketch's name.
  const Sketch sketch = make_sketches(*definition, target).sketches.at(0);
  const Kernel sketched = schedule({trace_point(sketch.name, sketch.steps), ""});
  EXPECT_TRUE(sketched.rule.starts_with("sketch.tile{vectors=")) << sketched.rule;
  EXPECT_NE(print(sketched.program), print(schedule({}).program));
  const Kernel unfit = schedule({KnobPoint{"trace", {}, "unroll(i77)\n"}, ""});
  EXPECT_EQ(unfit.rule, "register_tile");
  EXPECT_NE(unfit.refused_tuning.find("no loop 'i77'"), std::string::npos) << unfit.refused_tuning;
  const Kernel refused = schedule({KnobPoint{"register_tile", {{"rows", 1000}}}, ""});
  EXPECT_EQ(refused.rule, "register_tile");
  EXPECT_NE(refused.refused_tuning.find("rows=1000"), std::string::npos) << refused.refused_tuning;
}

TEST(Records, AMachineIsKnownByItsFactsAndItsPeak) {
  const Target here = native_target();
  Target elsewhere = here;
  elsewhere.triple = "aarch64-unknown-linux-gnu";
  const double peak =
      measure_machine({.seconds = 0.005, .only_floats = true, .memory = false}).fma_f32.one_thread / 1e9;
  const std::string path = testing::TempDir() + "machines.db";
  std::filesystem::remove(path);
  RecordFile records(path, RecordFile::Open::kWrite);
  std::string why;
  EXPECT_FALSE(find_machine(records, here, why));
  EXPECT_EQ(why, "it is empty");
  // An emulator's records, and those of something a thousand times as fast.
  const int64_t slow = records.add_machine({0, machine_facts(here), peak / 1000, 10});
  EXPECT_FALSE(find_machine(records, here, why));
  EXPECT_NE(why.find("a peak of"), std::string::npos) << why;
  records.add_machine({0, machine_facts(here), peak * 1000, 10});
  EXPECT_FALSE(find_machine(records, here, why));
  const int64_t same = records.add_machine({0, machine_facts(here), peak, 10});
  EXPECT_EQ(find_machine(records, here, why), same);
  EXPECT_NE(same, slow);
  // What does not run here is not measured: the fastest is the hardware.
  EXPECT_FALSE(find_machine(records, elsewhere, why));
  EXPECT_EQ(why, "its records are of another machine");
  records.add_machine({0, machine_facts(elsewhere), 1, 10});
  const int64_t hardware = records.add_machine({0, machine_facts(elsewhere), 50, 10});
  EXPECT_EQ(find_machine(records, elsewhere, why), hardware);
}

TEST(Records, AGraphsChoiceIsUsedOrRefusedWithAReason) {
  const Target here = parse_target("native");
  const std::string path = testing::TempDir() + "graphs.db";
  std::filesystem::remove(path);
  const GraphChoice choice = {{"fuse_rows"}, {"overlapped_tiles@0123456789abcdef"}};
  {
    RecordFile records(path, RecordFile::Open::kWrite);
    const int64_t machine = records.add_machine(
        {0, machine_facts(here),
         measure_machine({.seconds = 0.02, .rounds = 1, .memory = false}).fma_f32.one_thread / 1e9, 10});
    const auto add = [&](const std::string& model, SchedulePayload payload, const std::string& state) {
      records.add_kernel({model, "graph", "a model"});
      records.set_choice({{model, machine, here.num_threads}, std::move(payload), 90, 100, 16, 16, state, ""});
    };
    SchedulePayload newer = payload_of(choice), broken = payload_of(choice);
    ++newer.knob_format;
    broken.text = "without anything";
    add("won", payload_of(choice), "won");
    add("reverted", payload_of(choice), "reverted");
    add("newer", newer, "won");
    add("broken", broken, "won");
  }
  const TunedKernels tuned = tuned_kernels(path, here);
  const auto graph = [&](const char* hash) {
    return tuned.decisions->choose_graph([&] { return std::string(hash); }).value();
  };
  EXPECT_EQ(graph("won").choice, choice);
  for (const char* unknown : {"reverted", "another"}) {
    EXPECT_TRUE(graph(unknown).choice.empty());
    EXPECT_EQ(graph(unknown).refused, "");
  }
  EXPECT_TRUE(graph("newer").choice.empty());
  EXPECT_NE(graph("newer").refused.find("form 2"), std::string::npos);
  EXPECT_TRUE(graph("broken").choice.empty());
  EXPECT_NE(graph("broken").refused.find("'anything'"), std::string::npos);
}

TEST(Search, ProposesWhatIsNewAndLegal) {
  const Target target = one_thread();
  const auto definition = matmul(32, 64, 16);
  for (const SpaceKind kind : {SpaceKind::kTemplates, SpaceKind::kSketches, SpaceKind::kAll}) {
    const SearchSpace space(*definition, target, kind);
    ASSERT_TRUE(space.preferred());
    EXPECT_EQ(space.preferred()->rule, "register_tile") << "the rules' choice is the first trial in all spaces";
    EXPECT_GT(space.size(), 1000);
    EXPECT_EQ(space.spaces().empty(), kind == SpaceKind::kSketches);
    EXPECT_EQ(space.sketches().empty(), kind == SpaceKind::kTemplates);
    for (const SearchMode mode : {SearchMode::kRandom, SearchMode::kEvolutionary, SearchMode::kModel}) {
      Search search(space, mode, 5), same(space, mode, 5);
      search.told(*space.preferred(), 10);
      same.told(*space.preferred(), 10);
      const Search::Predict predict = [](const std::vector<const LoopProgram*>& programs) {
        return std::vector<double>(programs.size(), 1);
      };
      std::set<std::string> texts;
      std::set<uint64_t> hashes;
      const int rounds = kind == SpaceKind::kTemplates ? 4 : 2;  // schedules of primitives take longer
      for (int round = 0; round < rounds; ++round) {
        const auto points = search.propose(6, predict);
        const auto other = same.propose(6, predict);
        if (search.is_slow() || same.is_slow()) break;  // a busy machine: the searches end at their time limits
        EXPECT_EQ(points, other) << "the same seed proposes the same";
        for (const KnobPoint& point : points) {
          std::string why;
          const auto loops = space.loops_at(point, why);
          ASSERT_TRUE(loops) << why;
          // The hash tells programs apart as their texts do.
          EXPECT_TRUE(texts.insert(print(loops->program)).second);
          EXPECT_TRUE(hashes.insert(loops->hash).second);
          search.told(point, 10 + static_cast<double>(texts.size()));
          same.told(point, 10 + static_cast<double>(texts.size()));
        }
      }
      EXPECT_GE(static_cast<int>(texts.size()), 5 * rounds);
    }
  }
}

// A rule whose points are mostly declined must not end a search that has others left.
TEST(Search, GoesOnOneAtATime) {
  const Target target = one_thread();
  const auto definition = matmul(4, 32, 16);
  const SearchSpace space(*definition, target);
  ASSERT_GT(space.families(), 1U);
  for (const SearchMode mode : {SearchMode::kRandom, SearchMode::kEvolutionary}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Search search(space, mode, seed);
      search.told(*space.preferred(), 10);
      std::set<size_t> families;
      for (int trial = 0; trial < 20; ++trial) {
        const auto points = search.propose(1, {});
        ASSERT_EQ(points.size(), 1U) << search_mode_name(mode) << " " << seed << " behind " << trial;
        families.insert(space.family_of(points[0]).value());
        search.told(points[0], points[0].rule == space.preferred()->rule ? 9 : 20);
      }
      EXPECT_GT(families.size(), 1U) << "each rule gets a trial";
    }
  }
  // Workers that were lost say nothing about the schedules.
  Search unlucky(space, SearchMode::kEvolutionary, 1);
  for (int trial = 0; trial < 30; ++trial) {
    const auto points = unlucky.propose(1, {});
    ASSERT_EQ(points.size(), 1U) << trial;
    unlucky.told(points[0], -1);
  }
}

// The loops with larger tiles are said to be faster; the model must order others the same way.
TEST(CostModel, LearnsAnOrder) {
  const Target target = one_thread();
  const auto definition = matmul(64, 128, 64);
  const SearchSpace space(*definition, target);
  std::mt19937_64 random(9);
  CostModel model;
  EXPECT_FALSE(model.ready());
  const auto gain_of = [](const KnobPoint& point) {
    double gain = 1;
    for (const auto& [name, value] : point.values)
      if (name == "rows" || name == "vectors") gain *= static_cast<double>(value);
    return gain;
  };
  std::vector<std::pair<LoopProgram, double>> held_out;
  for (int taken = 0; taken < 160;) {
    std::string why;
    const KnobPoint point = space.random_point(random);
    auto loops = point.rule == "register_tile" ? space.loops_at(point, why) : std::nullopt;
    if (!loops) continue;
    ASSERT_EQ(program_features(loops->program).size(), num_program_features());
    if (++taken > 120) held_out.emplace_back(loops->program, gain_of(point));
    else model.add("matmul", loops->program, gain_of(point));
  }
  model.fit();
  ASSERT_TRUE(model.ready());
  std::vector<const LoopProgram*> programs;
  for (const auto& [program, gain] : held_out) programs.push_back(&program);
  const auto scores = model.predict(programs);
  int right = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (held_out[i].second == held_out[j].second) continue;
      ++pairs;
      right += (scores[i] > scores[j]) == (held_out[i].second > held_out[j].second);
    }
  EXPECT_GT(right, pairs * 3 / 4);
}

std::vector<LoopProgram> some_programs(int count) {
  const Target target = one_thread();
  const auto definition = matmul(64, 128, 64);
  const SearchSpace space(*definition, target);
  std::mt19937_64 random(9);
  std::vector<LoopProgram> programs;
  std::string why;
  while (static_cast<int>(programs.size()) < count)
    if (auto loops = space.loops_at(space.random_point(random), why)) programs.push_back(std::move(loops->program));
  return programs;
}

// What trials teach comes on top of what was loaded: without any the scores are the loaded model's, and trials that say
// the reverse turn them around.
TEST(CostModel, LearnsOnTopOfTheOneThatShips) {
  const std::vector<LoopProgram> programs = some_programs(60);
  std::vector<const LoopProgram*> all;
  for (const LoopProgram& program : programs) all.push_back(&program);
  CostModel model;
  model.load_pretrained();
  EXPECT_TRUE(model.has_base());
  const std::vector<double> before = model.predict(all);
  std::vector<double> reverse;
  for (size_t i = 0; i < all.size(); ++i) {
    reverse.push_back(1 / (1 + std::exp(before[i])));
    model.add("matmul", programs[i], reverse.back());
  }
  EXPECT_LT(spearman(before, reverse), -0.9);
  model.fit();
  EXPECT_GT(spearman(model.predict(all), reverse), 0.5);
  // Saved and loaded it says the same, and fitting again begins from the shipped model, not from the last fit.
  const std::string path = testing::TempDir() + "cost_model.json";
  model.save(path);
  CostModel loaded;
  loaded.load(path);
  EXPECT_EQ(loaded.predict(all), model.predict(all));
  const auto once = model.predict(all);
  model.fit();
  EXPECT_EQ(model.predict(all), once);
}

TEST(CostModel, FilesThatAreNoneAreRefused) {
  const std::string path = testing::TempDir() + "bad_model.json";
  CostModel good;
  good.load_pretrained();
  good.save(path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::vector<LoopProgram> programs = some_programs(1);
  const auto load = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::trunc) << bytes;
    CostModel model;
    try {
      model.load(path);
    } catch (const UserError& error) {
      EXPECT_EQ(error.diagnostic().id, "TSR-6405");
      return false;
    }
    model.predict({&programs[0]});
    return true;
  };
  EXPECT_TRUE(load(text));
  std::string other = text;
  const std::string version = "\"tessera_features\":\"";
  other[other.find(version) + version.size()] = '0';
  EXPECT_FALSE(load(other));
  EXPECT_FALSE(load(""));
  EXPECT_FALSE(load("{\"a\":" + std::string(1 << 20, '[')));
  EXPECT_FALSE(load(text.substr(0, text.size() / 2)));
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    std::string bytes = text;
    for (int change = 0; change < 4; ++change) bytes[random() % bytes.size()] = static_cast<char>(random() % 96 + 32);
    load(bytes);
  }
  try {
    good.load(testing::TempDir() + "not there");
    FAIL() << "a file that is not there";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-6405");
    EXPECT_TRUE(error.diagnostic().message.starts_with("there is no cost model '")) << error.diagnostic().message;
  }
}

TEST(CostModel, RankCorrelation) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {5, 5, 5}), 0);
  EXPECT_NEAR(spearman({1, 2, 2, 4}, {1, 3, 2, 4}), 0.9487, 1e-4);
}

TEST(KernelBench, ComparesAndHoldsResults) {
  const Target target = one_thread();
  const auto definition = matmul(24, 48, 20);
  LocalMeasurer measurer(target, {});
  const MeasuredKernel kernel{structural_hash(canonical_text(*definition)), definition};
  const SearchSpace space(*definition, target);
  std::mt19937_64 random(4);
  std::vector<KnobPoint> points;
  std::string why;
  while (points.size() < 4)
    if (KnobPoint point = space.random_point(random); space.loops_at(point, why)) points.push_back(point);
  points.push_back({"register_tile", {{"vectors", 77}}});
  const auto trials = measurer.measure(kernel, *space.preferred(), points, false);
  ASSERT_EQ(trials.size(), points.size());
  for (size_t i = 0; i + 1 < trials.size(); ++i) {
    EXPECT_EQ(trials[i].status, "ok") << trials[i].detail << " at " << to_string(points[i]);
    EXPECT_GE(trials[i].times.rounds.size(), 3u);
  }
  EXPECT_EQ(trials.back().status, "refused");
  EXPECT_NE(trials.back().detail.find("vectors=77"), std::string::npos);
}

// Rows of exponentials over their sums: two kernels, joined.
std::shared_ptr<const JoinedProgram> shares_of_rows(int64_t rows, int64_t columns) {
  const BufferPtr x = make_buffer("x", DType::kF32, {rows, columns}),
                  e = make_buffer("e", DType::kF32, {rows, columns});
  const BufferPtr s = make_buffer("s", DType::kF32, {rows}), y = make_buffer("y", DType::kF32, {rows, columns});
  TensorProgram exponentials{"exponentials", {{x, {}}}, {}}, sums{"sums", {{e, {}}}, {}};
  TensorProgram shares{"shares", {{e, {}}, {s, {}}}, {}};
  Body body;
  body.axes = make_axes("i", x->shape);
  body.value = unary(UnaryOp::kExp, load(x, body.axis_vars()));
  exponentials.stages.push_back({e, {}, body});
  body.axes = make_axes("i", s->shape);
  body.reduce_axes = make_axes("k", {Expr(columns)});
  body.combiner = Combiner::kSum;
  body.value = load(e, {body.axes[0].var, body.reduce_axes[0].var});
  sums.stages.push_back({s, {}, body});
  Body last;
  last.axes = make_axes("i", y->shape);
  last.value = binary(BinaryOp::kDiv, load(e, last.axis_vars()), load(s, {last.axes[0].var}));
  shares.stages.push_back({y, {}, last});
  return std::make_shared<const JoinedProgram>(
      join_programs("shares_rows", {{&exponentials, {0, 2}}, {&sums, {2, 3}}, {&shares, {2, 3, 1}}}, {0, 1}));
}

// Joined kernels are tasks like others, in the space of the step that joins them.
TEST(KernelBench, JoinedKernelsHaveASpace) {
  const Target target = one_thread();
  const auto joined = shares_of_rows(300, 200);
  ASSERT_EQ(problem_of(*joined), "");
  const TaskKernel task(joined);
  const SearchSpace space(task, target, SpaceKind::kAll, Fp32Products::kFma);
  ASSERT_TRUE(space.preferred());
  EXPECT_EQ(space.preferred()->rule, "fuse_rows");
  EXPECT_GT(space.size(), 4);
  EXPECT_TRUE(space.sketches().empty());
  Search search(space, SearchMode::kEvolutionary, 5);
  search.told(*space.preferred(), 10);
  const std::vector<KnobPoint> points = search.propose(3, {});
  ASSERT_EQ(points.size(), 3u);
  LocalMeasurer measurer(target, {});
  for (const MeasuredTrial& trial : measurer.measure({task.hash(), task}, *space.preferred(), points, false))
    EXPECT_EQ(trial.status, "ok") << trial.detail;
  const KnobPoint illegal{"fuse_rows", {{"block", 77}}};
  EXPECT_EQ(measurer.measure({task.hash(), task}, *space.preferred(), {illegal}, false)[0].status, "refused");
  // A record of such a point is read back.
  std::string why;
  EXPECT_EQ(usable_point(payload_of(points[0]), why), points[0]) << why;
}

// Attention of open length: measured at its usual length, as code for that; a point serves all lengths.
TEST(KernelBench, AttentionOfOpenSizesHasASpace) {
  using namespace symbolic_graphs;
  Builder b({range("l", 16, 1024)});
  const Expr l = b.symbol(0);
  const ValueId q = b.input("q", {2, l, 32}), k = b.input("k", {2, l, 32}), v = b.input("v", {2, l, 32});
  const Graph graph = b.result({b.composite("attention", {q, k, v}, {{"scale", 0.2}})});
  DriverOptions options;
  options.compile.num_threads = 1;
  PassRunner runner(options);
  const Program program = compile_graph(graph, options, runner).program;
  ASSERT_EQ(program.kernels.size(), 1U);
  EXPECT_FALSE(TaskKernel(program.kernels[0]).may_be_measured());
  const TaskKernel task(program, program.kernels[0]);
  ASSERT_TRUE(task.is_open());
  ASSERT_TRUE(task.may_be_measured());
  EXPECT_EQ(task.params()[0].buffer->shape.size(), 3U);
  EXPECT_EQ(as_int(task.result().buffer->shape[1]), 128);
  const Target target = one_thread();
  const SearchSpace space(task, target, SpaceKind::kTemplates, Fp32Products::kFma);
  ASSERT_TRUE(space.preferred());
  EXPECT_EQ(space.preferred()->rule, "fuse_rows");
  EXPECT_GT(space.size(), 20);
  LocalMeasurer measurer(target, {});
  const std::vector<KnobPoint> points = {*space.preferred(),
                                         {"fuse_rows", {{"block", 48}, {"columns", 128}}},
                                         {"fuse_rows", {{"block", 8}, {"columns", 32}}}};
  for (const MeasuredTrial& trial : measurer.measure({task.hash(), task}, *space.preferred(), points, false))
    EXPECT_EQ(trial.status, "ok") << trial.detail;
}

// How far away operands are changes what a run takes, never what it computes; in this process and in a runner.
TEST(KernelBench, OperandsMayBeFarAway) {
  Target target = one_thread();
  const auto definition = matmul(24, 48, 20);
  const SearchSpace space(*definition, target);
  const int64_t far = 3 * target.l2_bytes;
  for (const int threads : {1, 2}) {
    target.num_threads = threads;
    for (const RunnerCommand& runner : {RunnerCommand(), RunnerCommand{{TESSERA_RUNNER}}}) {
      BenchLimits limits;
      limits.run_seconds = 60;  // what moves the operands away takes seconds without optimisation
      LocalMeasurer measurer(target, limits, runner);
      for (const std::vector<int64_t>& reuse :
           {std::vector<int64_t>{}, {0, 0, 0}, {0, far, 100}, {far, 0, INT64_MAX}}) {
        const auto trial =
            measurer.measure({"x", definition, reuse}, *space.preferred(), {*space.preferred()}, true)[0];
        EXPECT_EQ(trial.status, "ok") << trial.detail;
        EXPECT_FALSE(trial.times.rounds.empty());
      }
    }
  }
  EXPECT_THROW(make_kernel_bench(definition, target, {0, 0}), InternalError);
}

// y[m] = max over k of exp(x[m, k] - t[m]), then one more: a reduction along memory, as softmax has them.
std::shared_ptr<const TensorProgram> rows(int64_t m, int64_t k) {
  auto program = std::make_shared<TensorProgram>();
  program->name = "rows";
  const BufferPtr x = make_buffer("x", DType::kF32, {m, k});
  const BufferPtr t = make_buffer("t", DType::kF32, {m});
  const BufferPtr s = make_buffer("s", DType::kF32, {m});
  const BufferPtr y = make_buffer("y", DType::kF32, {m});
  program->params = {{x, {}}, {t, {}}};
  Body sum;
  sum.axes = make_axes("i", s->shape);
  sum.reduce_axes = make_axes("k", {Expr(k)});
  sum.combiner = Combiner::kSum;
  sum.value = unary(UnaryOp::kExp, load(x, {sum.axes[0].var, sum.reduce_axes[0].var}) - load(t, {sum.axes[0].var}));
  Body last;
  last.axes = make_axes("j", y->shape);
  last.value = load(s, {last.axes[0].var}) + const_float(DType::kF32, 1);
  program->stages = {{s, {}, sum}, {y, {}, last}};
  return program;
}

// Results of code made from sketches against the default's.
TEST(KernelBench, SketchesComputeWhatTheDefaultDoes) {
  Target target = one_thread();
  for (const int threads : {1, 2}) {
    target.num_threads = threads;
    for (const auto& definition : {matmul(23, 45, 19), matmul(7, 130, 33), rows(13, 100), rows(5, 37)}) {
      LocalMeasurer measurer(target, {});
      const MeasuredKernel kernel{structural_hash(canonical_text(*definition)), definition};
      const SearchSpace space(*definition, target, SpaceKind::kSketches);
      ASSERT_FALSE(space.sketches().empty());
      std::mt19937_64 random(4);
      std::vector<KnobPoint> points = space.first_points();
      while (points.size() < 6)
        if (KnobPoint point = space.random_point(random); is_trace(point)) points.push_back(std::move(point));
      const auto trials = measurer.measure(kernel, *space.preferred(), points, false);
      for (size_t i = 0; i < trials.size(); ++i)
        EXPECT_EQ(trials[i].status, "ok") << trials[i].detail << " at " << points[i].trace;
    }
  }
}

TEST(KernelBench, ACrashOrAHangCostsOneTrial) {
  const Target target = one_thread();
  const auto definition = matmul(8, 16, 8);
  const SearchSpace space(*definition, target);
  BenchLimits limits;
  limits.run_seconds = 3;
  LocalMeasurer measurer(target, limits);
  const MeasuredKernel kernel{"x", definition};
  set_candidate_hook([] { raise(SIGSEGV); });
  EXPECT_EQ(measurer.measure(kernel, *space.preferred(), {*space.preferred()}, false)[0].status, "crash");
  set_candidate_hook([] {
    while (true) pause();
  });
  EXPECT_EQ(measurer.measure(kernel, *space.preferred(), {*space.preferred()}, false)[0].status, "timeout");
  set_candidate_hook({});
  EXPECT_EQ(measurer.measure(kernel, *space.preferred(), {*space.preferred()}, false)[0].status, "ok");
}

// The runner for this machine, started as one for another would be.
TEST(RunnerProcess, MeasuresAsThisProcessDoes) {
  const Target target = one_thread();
  const RunnerCommand command = {{TESSERA_RUNNER}};
  const RunnerPeaks peaks = check_runner(command, target, 30);
  EXPECT_GT(peaks.gflops, 0);
  EXPECT_GT(peaks.memory_gbytes, 0);
  const auto definition = matmul(32, 48, 64);
  const SearchSpace space(*definition, target);
  LocalMeasurer here(target, {}), runner(target, {}, command);
  std::mt19937_64 random(5);
  std::vector<KnobPoint> points = {*space.preferred()};
  for (int i = 0; i < 6; ++i) points.push_back(space.random_point(random));
  const MeasuredKernel kernel{"x", definition};
  const auto want = here.measure(kernel, *space.preferred(), points, false);
  const auto got = runner.measure(kernel, *space.preferred(), points, false);
  EXPECT_EQ(got[0].status, "ok") << got[0].detail;
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(got[i].status, want[i].status) << to_string(points[i]) << ": " << got[i].detail;
    EXPECT_EQ(got[i].times.rounds.empty(), got[i].status != "ok");
  }
}

TEST(RunnerProcess, WhateverItDoesCostsOneTrial) {
  const Target target = one_thread();
  const auto definition = matmul(4, 8, 8);
  const SearchSpace space(*definition, target);
  BenchLimits limits;
  limits.run_seconds = 1;
  const auto trial_with = [&](std::vector<std::string> words) {
    LocalMeasurer measurer(target, limits, {std::move(words)});
    return measurer.measure({"x", definition}, *space.preferred(), {*space.preferred()}, false)[0];
  };
  const auto shell = [&](const char* text) { return trial_with({"sh", "-c", text}); };
  EXPECT_EQ(shell("sleep 60").status, "timeout");
  EXPECT_EQ(shell("kill -SEGV $$").detail, "Segmentation fault");
  EXPECT_EQ(shell("echo no memory >&2; exit 3").detail, "the runner ended with exit code 3: no memory");
  EXPECT_EQ(shell("head -c 1000000 /dev/zero >&2; exit 3").status, "crash");
  EXPECT_EQ(shell("cat").detail, "what answers is no runner of this version");
  EXPECT_EQ(trial_with({"no-such-program"}).detail, "'no-such-program' cannot be started: No such file or directory");
}

TEST(RunnerProcess, WhatCannotRunTheTargetIsRefused) {
  const auto why = [](const RunnerCommand& command, const char* target, double seconds = 20) {
    try {
      check_runner(command, parse_target(target), seconds);
    } catch (const UserError& error) {
      EXPECT_EQ(error.diagnostic().id, "TSR-6412");
      return error.diagnostic().message;
    }
    return std::string();
  };
  const RunnerCommand own = {{TESSERA_RUNNER}};
  EXPECT_NE(why(own, "riscv64-unknown-linux-gnu").find("the target is riscv64"), std::string::npos);
  EXPECT_NE(why(own, "x86-64-v4,+avxvnniint16,+amx-fp16").find("lacks"), std::string::npos);
  EXPECT_NE(why({{"sh", "-c", "sleep 60"}}, "native", 0.3).find("timeout"), std::string::npos);
  EXPECT_NE(why({{"false"}}, "native").find("exit code 1"), std::string::npos);
}

}  // namespace
}  // namespace tessera
