// Sessions: what they check, what they hand to compiled code, and running several at once.
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <thread>

#include <gmock/gmock.h>

#include "module_fixture.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tessera {
namespace {

// Sums of rows: x f32[rows, 8], out y f32[rows]; symbols rows; and what the code was given, in `seen` i64[8].
constexpr char kRowsSource[] = R"(
#include "abi/module_abi.h"
struct rows { const float* x; float* y; uint8_t* scratch; };
static void body(const void* arg, int64_t begin, int64_t end, int32_t worker) {
  const struct rows* r = arg;
  float* sums = (float*)(r->scratch + worker * 4096);
  for (int64_t i = begin; i < end; ++i) {
    for (int k = 0; k < 1000; ++k) sums[k] = (float)i;
    for (int k = 0; k < 8; ++k) sums[k] = r->x[i * 8 + k];
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum += sums[k];
    r->y[i] = sum;
  }
}
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  const tsr_host* host = call->host;
  struct rows r = {call->inputs[0], call->outputs[0], call->scratch};
  if (host->size != sizeof(tsr_host) || host->abi_version != TSR_ABI_VERSION) return 1;
  if (((uintptr_t)call->arena | (uintptr_t)call->scratch | (uintptr_t)call->weights) % TSR_BUFFER_ALIGN) return 2;
  for (int i = 0; i < 100000; ++i) call->arena[i] = (uint8_t)i;  /* all of it is ours */
  for (int repeat = 0; repeat < 5; ++repeat) {
    if (host->trace) host->trace(host->self, repeat, 0);
    host->parallel_for(host->self, body, &r, call->symbols[0], 3);
    if (host->trace) host->trace(host->self, repeat, 1);
  }
  for (int i = 0; i < 100000; ++i) if (call->arena[i] != (uint8_t)i) return 3;
  int64_t* seen = call->outputs[1];
  seen[0] = call->symbols[0];
  seen[1] = host->num_workers;
  volatile float tiny = 1e-38f;
  seen[2] = tiny / 1024 != 0;  /* denormals are kept */
  return call->symbols[0] == 13 ? 77 : 0;
}
)";

ModuleSpec rows_spec() {
  ModuleSpec spec;
  spec.source = kRowsSource;
  spec.inputs = {{"x", TSR_F32, {-1, 8}}};
  spec.outputs = {{"y", TSR_F32, {-1}}, {"seen", TSR_I64, {3}}};
  spec.symbols = {{"rows", 0, 5000}};
  spec.kernels = std::vector<KernelSpec>(5, KernelSpec{"Rows", -1, -1});
  spec.arena_bytes = 100000;
  spec.scratch_bytes = 4096;
  return spec;
}

// The tensors of one run of the module above.
struct Rows {
  explicit Rows(int64_t count) : n(count), x(static_cast<size_t>(count * 8)), y(static_cast<size_t>(count)) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000);
  }
  std::string run(const SessionPtr& session) {
    std::fill(y.begin(), y.end(), -1.0f);
    return run_outcome(session, {tensor(x.data(), TESSERA_F32, {n, 8})},
                       {tensor(y.data(), TESSERA_F32, {n}), tensor(seen, TESSERA_I64, {3})});
  }
  void check() const {
    for (size_t i = 0; i < y.size(); ++i) {
      float sum = 0;
      for (size_t k = 0; k < 8; ++k) sum += x[i * 8 + k];
      ASSERT_EQ(y[i], sum) << i;
    }
  }
  int64_t n;
  std::vector<float> x, y;
  int64_t seen[3] = {};
};

// Two states: `sum` f32[2] in its place, += x; `calls` i64 in two places, + 1. y = sum. Fails for x[0] == 13.
constexpr char kStatesSource[] = R"(
#include "abi/module_abi.h"
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  const float* x = call->inputs[0];
  float* sum = call->outputs[1];
  const float* old_sum = call->inputs[1];
  const int64_t* old_calls = call->inputs[2];
  int64_t* calls = call->outputs[2];
  if (sum != old_sum || calls == old_calls) return 1;
  float* y = call->outputs[0];
  calls[0] = old_calls[0] + 1;
  for (int i = 0; i < 2; ++i) y[i] = sum[i] = old_sum[i] + x[i];
  return x[0] == 13 ? 77 : 0;
}
)";

ModuleSpec states_spec() {
  ModuleSpec spec;
  spec.source = kStatesSource;
  spec.inputs = {{"x", TSR_F32, {2}}};
  spec.outputs = {{"y", TSR_F32, {2}}};
  spec.weights = Bytes(64);
  const int64_t first = 40;
  std::memcpy(spec.weights.data() + 8, &first, sizeof(first));
  spec.states = {{{"sum", TSR_F32, {2}}, true}, {{"calls", TSR_I64, {}}, false, 8}};
  return spec;
}

TEST(Session, KeepsItsStatesFromRunToRun) {
  const ModulePtr module = load_bytes(states_spec().build());
  EXPECT_EQ(tessera_module_num_inputs(module.get()), 1);
  EXPECT_EQ(tessera_module_num_outputs(module.get()), 1);
  ASSERT_EQ(tessera_module_num_states(module.get()), 2);
  tessera_tensor_info info = {};
  ASSERT_EQ(tessera_module_state(module.get(), 1, &info), TESSERA_OK);
  EXPECT_STREQ(info.name, "calls");
  EXPECT_EQ(info.dtype, TESSERA_I64);
  EXPECT_EQ(tessera_module_state(module.get(), 2, &info), TESSERA_NOT_FOUND);
  const SessionPtr session = make_session(module, 1), other = make_session(module, 1);
  float x[2] = {1, 2}, y[2] = {};
  const auto run = [&](const SessionPtr& in) {
    return run_outcome(in, {tensor(x, TESSERA_F32, {2})}, {tensor(y, TESSERA_F32, {2})});
  };
  const auto data = [](const SessionPtr& in, int32_t index) {
    tessera_tensor state = {};
    EXPECT_EQ(tessera_session_state(in.get(), index, &state), TESSERA_OK);
    return state.data;
  };
  for (int call = 1; call <= 3; ++call) {
    EXPECT_EQ(run(session), "ok");
    EXPECT_EQ(y[1], 2 * call);
    EXPECT_EQ(static_cast<float*>(data(session, 0))[1], 2 * call);
    EXPECT_EQ(*static_cast<int64_t*>(data(session, 1)), 40 + call);
  }
  // Each session has its own.
  EXPECT_EQ(run(other), "ok");
  EXPECT_EQ(y[1], 2);
  // What is written there is what the next run finds.
  static_cast<float*>(data(session, 0))[1] = 100;
  EXPECT_EQ(run(session), "ok");
  EXPECT_EQ(y[1], 102);
  // Their memory is no tensor of a run.
  EXPECT_THAT(run_outcome(session, {tensor(data(session, 0), TESSERA_F32, {2})}, {tensor(y, TESSERA_F32, {2})}),
              testing::StartsWith("TSR-7038: input 'x' shares memory with the states of the session"));
  EXPECT_THAT(run_outcome(session, {tensor(x, TESSERA_F32, {2})}, {tensor(data(session, 0), TESSERA_F32, {2})}),
              testing::StartsWith("TSR-7038: output 'y' shares memory with the states of the session"));
  tessera_tensor none = {};
  EXPECT_EQ(tessera_session_state(session.get(), -1, &none), TESSERA_NOT_FOUND);
  EXPECT_EQ(tessera_session_state(nullptr, 0, &none), TESSERA_INVALID_ARGUMENT);
}

TEST(Session, AFailedRunLeavesStatesWhatTheyWereOrVoid) {
  for (const bool in_place : {false, true}) {
    ModuleSpec spec = states_spec();
    if (!in_place) {
      spec.source.replace(spec.source.find("sum != old_sum"), std::strlen("sum != old_sum"), "sum == old_sum");
      spec.states[0].in_place = false;
    }
    const ModulePtr module = load_bytes(spec.build());
    const SessionPtr session = make_session(module, 1);
    float x[2] = {1, 2}, y[2] = {};
    const auto run = [&] { return run_outcome(session, {tensor(x, TESSERA_F32, {2})}, {tensor(y, TESSERA_F32, {2})}); };
    EXPECT_EQ(run(), "ok");
    x[0] = 13;
    EXPECT_THAT(run(), testing::HasSubstr("reported error 77"));
    x[0] = 1;
    if (in_place) {
      EXPECT_THAT(run(), testing::StartsWith("TSR-7025: the states of the session hold nothing"));
      tessera_error error = {};
      EXPECT_EQ(tessera_session_reset(session.get(), &error), TESSERA_OK);
      EXPECT_EQ(run(), "ok");
      EXPECT_EQ(y[1], 2);
    } else {
      EXPECT_EQ(run(), "ok");
      EXPECT_EQ(y[1], 4);
    }
  }
}

// y = x, and checks that all of x is 4, and that x[1] and x[2] are equal.
constexpr char kCheckedSource[] = R"(
#include "abi/module_abi.h"
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  const int64_t* x = call->inputs[0];
  int64_t* y = call->outputs[0];
  int64_t *all = call->outputs[1], *pair = call->outputs[2];
  all[0] = 1;
  for (int i = 0; i < 14; ++i) {
    y[i] = all[i + 1] = x[i];
    if (x[i] != 4) all[0] = 0;
  }
  pair[0] = x[1] == x[2];
  pair[1] = x[1] - x[2];
  return 0;
}
)";

TEST(Session, AFailedCheckMakesTheOutputsVoid) {
  ModuleSpec spec;
  spec.source = kCheckedSource;
  spec.inputs = {{"x", TSR_I64, {14}}};
  spec.outputs = {{"y", TSR_I64, {14}}};
  spec.checks = {{"Sum 's': 'axes'", "fours", 15}, {"Tile 't': x[1] - x[2]", "0", 2}};
  const ModulePtr module = load_bytes(spec.build());
  EXPECT_EQ(tessera_module_num_outputs(module.get()), 1);
  const SessionPtr session = make_session(module, 1);
  std::vector<int64_t> x(14, 4), y(14);
  const auto run = [&] {
    return run_outcome(session, {tensor(x.data(), TESSERA_I64, {14})}, {tensor(y.data(), TESSERA_I64, {14})});
  };
  EXPECT_EQ(run(), "ok");
  EXPECT_EQ(y, x);
  x[13] = 5;
  const std::string end = "; the outputs are not valid";
  EXPECT_EQ(run(),
            "TSR-7040: Sum 's': 'axes' is [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, ...]; this module was compiled for "
            "fours" +
                end);
  std::fill(x.begin(), x.end(), INT64_MIN);  // the longest numbers
  const std::string least = "-9223372036854775808, ";
  std::string list;
  for (int i = 0; i < 12; ++i) list += least;
  EXPECT_EQ(run(), "TSR-7040: Sum 's': 'axes' is [" + list + "...]; this module was compiled for fours" + end);
  std::fill(x.begin(), x.end(), 4);
  EXPECT_EQ(run(), "ok");  // a check of an earlier run leaves nothing behind
  spec.checks = {{"Sum 's': 'axes'", "fours", 15}, {"Tile 't': x[1] - x[2]", "0", 2}};
  spec.source.replace(spec.source.find("all[0] = 0"), 10, "all[0] = 2");
  const ModulePtr other = load_bytes(spec.build());
  const SessionPtr second = make_session(other, 1);
  x[1] = 7;
  EXPECT_EQ(run_outcome(second, {tensor(x.data(), TESSERA_I64, {14})}, {tensor(y.data(), TESSERA_I64, {14})}),
            "TSR-7040: Tile 't': x[1] - x[2] is 3; this module was compiled for 0" + end);
}

TEST(Session, RunsOnAnyNumberOfThreads) {
  const ModulePtr module = load_bytes(rows_spec().build());
  for (const int threads : {1, 2, 3, 7}) {
    const SessionPtr session = make_session(module, threads);
    EXPECT_EQ(tessera_session_num_threads(session.get()), threads);
    for (const int64_t n : {1, 2, 100, 5000, 0}) {
      Rows rows(n);
      ASSERT_EQ(rows.run(session), "ok");
      rows.check();
      EXPECT_EQ(rows.seen[0], n);
      EXPECT_EQ(rows.seen[1], threads);
    }
  }
}

TEST(Session, DefaultNumberOfThreads) {
  const ModulePtr module = load_bytes(rows_spec().build());
  const SessionPtr session = make_session(module, 0);
  EXPECT_EQ(tessera_session_num_threads(session.get()), tessera_default_num_threads());
  tessera_session* without_options = nullptr;
  ASSERT_EQ(tessera_session_create(module.get(), nullptr, &without_options, nullptr), TESSERA_OK);
  EXPECT_EQ(tessera_session_num_threads(without_options), tessera_default_num_threads());
  tessera_session_free(without_options);
}

TEST(Session, SessionsRunAtTheSameTime) {
  const ModulePtr module = load_bytes(rows_spec().build());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      const SessionPtr session = make_session(module, 2 + caller % 2);
      Rows rows(700 + caller);
      for (int i = 0; i < 60; ++i) {
        ASSERT_EQ(rows.run(session), "ok");
        rows.check();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Session, TraceSeesEveryKernel) {
  const ModulePtr module = load_bytes(rows_spec().build());
  const SessionPtr session = make_session(module, 2);
  std::vector<std::pair<int, int>> events;
  const auto record = [](void* user, int32_t kernel, int32_t phase) {
    static_cast<std::vector<std::pair<int, int>>*>(user)->emplace_back(kernel, phase);
  };
  tessera_session_set_trace(session.get(), record, &events);
  Rows rows(10);
  ASSERT_EQ(rows.run(session), "ok");
  ASSERT_EQ(events.size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(events[static_cast<size_t>(i)], std::make_pair(i / 2, i % 2));
  tessera_session_set_trace(session.get(), nullptr, nullptr);
  ASSERT_EQ(rows.run(session), "ok");
  EXPECT_EQ(events.size(), 10u);
}

TEST(Session, WorkerTraceSeesEveryPieceOnItsOwnThread) {
  const ModulePtr module = load_bytes(rows_spec().build());
  for (const int threads : {1, 4}) {
    const SessionPtr session = make_session(module, threads);
    struct Seen {
      std::atomic<int> begins{0}, ends{0}, wrong{0};
      std::atomic<int> depth[4] = {};
    } seen;
    const auto record = [](void* user, int32_t kernel, int32_t worker, int32_t phase) {
      Seen& all = *static_cast<Seen*>(user);
      if (kernel < 0 || kernel >= 5 || worker < 0 || worker >= 4) {
        ++all.wrong;
        return;
      }
      (phase == 0 ? all.begins : all.ends)++;
      // A worker does one piece at a time.
      const int before = phase == 0 ? all.depth[worker]++ : all.depth[worker]--;
      if (before != phase) ++all.wrong;
    };
    tessera_session_set_worker_trace(session.get(), record, &seen);
    Rows rows(500);
    ASSERT_EQ(rows.run(session), "ok");
    rows.check();
    EXPECT_GE(seen.begins, 5);  // at least one piece for each of the five loops
    EXPECT_EQ(seen.begins, seen.ends);
    EXPECT_EQ(seen.wrong, 0);
    const int before = seen.begins;
    tessera_session_set_worker_trace(session.get(), nullptr, nullptr);
    ASSERT_EQ(rows.run(session), "ok");
    EXPECT_EQ(seen.begins, before);
  }
}

TEST(Session, RunsInsideAnotherRunsTrace) {
  // The inner session finds the pool taken and works alone; the outer one goes on undisturbed.
  const ModulePtr module = load_bytes(rows_spec().build());
  const SessionPtr outer = make_session(module, 2), inner = make_session(module, 2);
  struct Inner {
    const SessionPtr& session;
    Rows rows;
    int runs;
  } state{inner, Rows(300), 0};
  const auto run_inner = [](void* user, int32_t, int32_t) {
    Inner& self = *static_cast<Inner*>(user);
    EXPECT_EQ(self.rows.run(self.session), "ok");
    self.rows.check();
    ++self.runs;
  };
  tessera_session_set_trace(outer.get(), run_inner, &state);
  Rows rows(500);
  ASSERT_EQ(rows.run(outer), "ok");
  rows.check();
  EXPECT_EQ(state.runs, 10);
}

TEST(Session, RefusesASecondCallAtOnce) {
  const ModulePtr module = load_bytes(rows_spec().build());
  const SessionPtr session = make_session(module, 2);
  struct Again {
    const SessionPtr& session;
    std::string result;
  } state{session, ""};
  const auto run_again = [](void* user, int32_t, int32_t) {
    Again& self = *static_cast<Again*>(user);
    self.result = Rows(1).run(self.session);
  };
  tessera_session_set_trace(session.get(), run_again, &state);
  Rows rows(20);
  EXPECT_EQ(rows.run(session), "ok");
  EXPECT_EQ(state.result,
            "TSR-7024: the session is already running; a session runs one call at a time: create one "
            "for each thread (they share the module)");
}

TEST(Session, ReportsTheCodesError) {
  const SessionPtr session = make_session(load_bytes(rows_spec().build()), 1);
  const ModulePtr module = load_bytes(rows_spec().build());
  EXPECT_EQ(Rows(13).run(make_session(module, 1)),
            "TSR-7039: the code of 'module in memory' reported error 77, which its metadata explains; the outputs are "
            "not valid");
}

#if defined(__x86_64__)
TEST(Session, ComputesInDefaultFloatModesAndRestoresTheCallers) {
  const ModulePtr module = load_bytes(rows_spec().build());
  const SessionPtr session = make_session(module, 1);
  Rows rows(3);
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;  // flush to zero, denormals are zero
  _mm_setcsr(flushing);
  const std::string result = rows.run(session);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(result, "ok");
  EXPECT_EQ(after & 0xffc0, flushing & 0xffc0);
  EXPECT_EQ(rows.seen[2], 1) << "denormals were kept";
}
#endif

// ---- what a run refuses -----------------------------------------------------------------------------------------

class SessionErrors : public testing::Test {
 protected:
  SessionErrors() {
    ModuleSpec spec;
    spec.source = R"(#include "abi/module_abi.h"
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  for (int i = 0; i < 3; ++i) ((float*)call->outputs[0])[i] = ((const float*)call->inputs[0])[i];
  (void)((const volatile uint8_t*)call->inputs[1])[0];  // read even where there are no elements
  return 0;
})";
    spec.inputs = {{"image", TSR_F32, {-1, 3}}, {"mask", TSR_U4, {-1, 2, -2}}};
    spec.outputs = {{"boxes", TSR_F32, {3}}, {"count", TSR_I64, {-1}}};
    spec.symbols = {{"batch", 1, 8}, {"width", 0, 100}};
    module_ = load_bytes(spec.build());
    session_ = make_session(module_, 1);
    inputs_ = {tensor(image_, TESSERA_F32, {2, 3}), tensor(mask_, TESSERA_U4, {2, 2, 5})};
    outputs_ = {tensor(boxes_, TESSERA_F32, {3}), tensor(count_, TESSERA_I64, {2})};
  }
  std::string run() { return run_outcome(session_, inputs_, outputs_); }

  alignas(8) float image_[64] = {};
  alignas(8) uint8_t mask_[512] = {};
  alignas(8) float boxes_[16] = {};
  int64_t count_[16] = {};
  ModulePtr module_;
  SessionPtr session_;
  std::vector<tessera_tensor> inputs_, outputs_;
};

TEST_F(SessionErrors, GoodTensorsPass) {
  EXPECT_EQ(run(), "ok");
  inputs_[1].dims[2] = 0;  // no elements: no data needed
  inputs_[1].data = nullptr;
  EXPECT_EQ(run(), "ok");
}

TEST_F(SessionErrors, Count) {
  inputs_.pop_back();
  EXPECT_EQ(run(), "TSR-7030: the run was given 1 inputs; the module has 2; give them all, in the module's order");
  inputs_.push_back(inputs_[0]);
  outputs_.push_back(outputs_[0]);
  EXPECT_EQ(run(), "TSR-7030: the run was given 3 outputs; the module has 2; give them all, in the module's order");
  tessera_error error = {};
  EXPECT_EQ(tessera_session_run(session_.get(), inputs_.data(), -1, outputs_.data(), 2, &error),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the run was given -1 inputs; the module has 2; give them all, in the module's order");
}

TEST_F(SessionErrors, Dtype) {
  inputs_[0].dtype = TESSERA_F64;
  EXPECT_EQ(run(), "TSR-7031: input 'image' has dtype f64; the module takes f32; convert the data before the call");
  inputs_[0].dtype = TESSERA_F32;
  const int32_t no_dtype = 99;  // as a C program might have it
  std::memcpy(&outputs_[1].dtype, &no_dtype, sizeof(no_dtype));
  EXPECT_EQ(run(), "TSR-7031: output 'count' has dtype ?; the module takes i64; convert the data before the call");
}

TEST_F(SessionErrors, Rank) {
  inputs_[0] = tensor(image_, TESSERA_F32, {1, 2, 3});
  EXPECT_EQ(run(),
            "TSR-7032: input 'image' has rank 3 [1,2,3]; the module takes rank 2 [batch,3]; reshape the data "
            "before the call");
  inputs_[0].rank = -5;
  EXPECT_EQ(run(),
            "TSR-7032: input 'image' has rank -5 []; the module takes rank 2 [batch,3]; reshape the data "
            "before the call");
  inputs_[0].rank = INT32_MAX;
  EXPECT_EQ(run(),
            "TSR-7032: input 'image' has rank 2147483647 []; the module takes rank 2 [batch,3]; reshape the "
            "data before the call");
}

TEST_F(SessionErrors, Dims) {
  inputs_[0].dims[1] = 4;
  EXPECT_EQ(run(),
            "TSR-7033: input 'image' has shape [2,4]; the module takes [batch,3] (they differ at axis 1); "
            "resize the data, or compile the model for this shape");
  inputs_[0].dims[1] = INT64_MAX;
  EXPECT_EQ(run().substr(0, 58), "TSR-7033: input 'image' has shape [2,9223372036854775807];");
  inputs_[0].dims[1] = 3;
  inputs_[0].dims[0] = -2;
  EXPECT_EQ(run().substr(0, 8), "TSR-7033") << "a negative dim is never legal";
  inputs_[0].dims[0] = 2;
  outputs_[0].dims[0] = 2;
  EXPECT_EQ(run(),
            "TSR-7033: output 'boxes' has shape [2]; the module takes [3] (they differ at axis 0); resize the "
            "data, or compile the model for this shape");
}

TEST_F(SessionErrors, SymbolRange) {
  for (const int64_t batch : {int64_t{0}, int64_t{9}, INT64_MAX}) {
    inputs_[0].dims[0] = batch;
    EXPECT_EQ(run(), "TSR-7034: input 'image' has " + std::to_string(batch) +
                         " at axis 0; the module was compiled for 'batch' in 1..8; compile the model for a wider "
                         "range (--dim batch=LO..HI)");
  }
}

TEST_F(SessionErrors, SymbolConflict) {
  inputs_[1].dims[0] = 3;
  EXPECT_EQ(run(),
            "TSR-7035: input 'mask' has 3 at axis 0; 'batch' is 2 by an earlier input; all dimensions of that "
            "name must agree");
  inputs_[1].dims[0] = 2;
  outputs_[1].dims[0] = 1;
  EXPECT_EQ(run(),
            "TSR-7035: output 'count' has 1 at axis 0; 'batch' is 2 by an earlier input; all dimensions of that "
            "name must agree");
}

TEST_F(SessionErrors, Null) {
  inputs_[1].data = nullptr;
  EXPECT_EQ(run(), "TSR-7036: input 'mask' has no data (null pointer); 20 elements of u4 are needed");
  inputs_[1].data = mask_;
  outputs_[0].data = nullptr;
  EXPECT_EQ(run(), "TSR-7036: output 'boxes' has no data (null pointer); 3 elements of f32 are needed");
}

TEST_F(SessionErrors, Alignment) {
  inputs_[1].data = mask_ + 1;  // elements of at most one byte may stand anywhere
  EXPECT_EQ(run(), "ok");
  inputs_[0].data = reinterpret_cast<uint8_t*>(image_) + 2;
  EXPECT_EQ(run(),
            "TSR-7037: input 'image' has data at an address that is not a multiple of 4, the size of its f32 "
            "elements; copy the data to aligned memory");
}

TEST_F(SessionErrors, Overlap) {
  outputs_[0].data = image_ + 6;  // right behind the 6 elements of the input
  EXPECT_EQ(run(), "ok");
  outputs_[0].data = image_ + 5;
  EXPECT_EQ(run(),
            "TSR-7038: output 'boxes' shares memory with input 'image'; it may have all of the memory of an input of "
            "its type and shape, "
            "or memory of its own");
  outputs_[0].data = reinterpret_cast<float*>(count_ + 1);
  EXPECT_EQ(run(), "TSR-7038: output 'count' shares memory with output 'boxes'; give every output memory of its own");
  outputs_[0].data = reinterpret_cast<float*>(mask_ + 8);  // 20 elements of 4 bits: 10 bytes
  EXPECT_EQ(run(),
            "TSR-7038: output 'boxes' shares memory with input 'mask'; it may have all of the memory of an input of "
            "its type and shape, "
            "or memory of its own");
  outputs_[0].data = reinterpret_cast<float*>(mask_ + 12);
  EXPECT_EQ(run(), "ok");
}

TEST_F(SessionErrors, ARefusedRunLeavesTheSessionUsable) {
  inputs_[0].data = nullptr;
  EXPECT_NE(run(), "ok");
  inputs_[0].data = image_;
  EXPECT_EQ(run(), "ok");
}

TEST_F(SessionErrors, ErrorMayBeNull) {
  inputs_[0].data = nullptr;
  EXPECT_EQ(tessera_session_run(session_.get(), inputs_.data(), 2, outputs_.data(), 2, nullptr),
            TESSERA_INVALID_ARGUMENT);
}

TEST(SessionCreateErrors, NullArguments) {
  tessera_error error = {};
  tessera_module* module = nullptr;
  tessera_session* session = nullptr;
  const std::string rest = " is null; only options and error may be";
  EXPECT_EQ(outcome(tessera_module_load(nullptr, nullptr, &module, &error), error),
            "TSR-7020: tessera_module_load: path" + rest);
  EXPECT_EQ(outcome(tessera_module_load("m.so", nullptr, nullptr, &error), error),
            "TSR-7020: tessera_module_load: module" + rest);
  EXPECT_EQ(outcome(tessera_module_load_memory(nullptr, 1, nullptr, &module, &error), error),
            "TSR-7020: tessera_module_load_memory: data" + rest);
  EXPECT_EQ(outcome(tessera_module_check(nullptr, &error), error), "TSR-7020: tessera_module_check: path" + rest);
  EXPECT_EQ(outcome(tessera_session_create(nullptr, nullptr, &session, &error), error),
            "TSR-7020: tessera_session_create: module" + rest);
  EXPECT_EQ(outcome(tessera_session_run(nullptr, nullptr, 0, nullptr, 0, &error), error),
            "TSR-7020: tessera_session_run: session" + rest);
  const ModulePtr good = load_bytes(ModuleSpec().build());
  const SessionPtr made = make_session(good, 1);
  EXPECT_EQ(outcome(tessera_session_run(made.get(), nullptr, 1, nullptr, 1, &error), error),
            "TSR-7020: tessera_session_run: inputs" + rest);
  tessera_module_free(nullptr);
  tessera_session_free(nullptr);
}

TEST(SessionCreateErrors, OptionsAndThreads) {
  const ModulePtr module = load_bytes(ModuleSpec().build());
  tessera_error error = {};
  tessera_module* loaded = nullptr;
  tessera_session* session = nullptr;
  const tessera_load_options load_options = {};
  EXPECT_EQ(outcome(tessera_module_load("m.so", &load_options, &loaded, &error), error),
            "TSR-7021: the load options say they have 0 bytes; set size to sizeof(tessera_load_options), at least 8");
  tessera_session_options options = {4, 1};
  EXPECT_EQ(outcome(tessera_session_create(module.get(), &options, &session, &error), error),
            "TSR-7021: the session options say they have 4 bytes; set size to sizeof(tessera_session_options), at "
            "least 8");
  for (const int32_t threads : {-1, 513}) {
    options = {sizeof(options), threads};
    EXPECT_EQ(outcome(tessera_session_create(module.get(), &options, &session, &error), error),
              "TSR-7022: a session with " + std::to_string(threads) +
                  " threads was asked for; legal are 1..512, or 0 for the default");
  }
  EXPECT_EQ(session, nullptr);
}

TEST(SessionCreateErrors, Memory) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers end the program on such requests";
  const auto create = [](uint64_t arena, uint64_t scratch) {
    ModuleSpec spec;
    spec.arena_bytes = arena;
    spec.scratch_bytes = scratch;
    const ModulePtr module = load_bytes(spec.build());
    tessera_error error = {};
    tessera_session* session = nullptr;
    const tessera_session_options options = {sizeof(options), 2};
    const tessera_status status = tessera_session_create(module.get(), &options, &session, &error);
    tessera_session_free(session);
    return outcome(status, error);
  };
  const auto expected = [](const char* arena, const char* scratch) {
    return std::string("TSR-7016: not enough memory for a session: the module needs ") + arena + " bytes and " +
           scratch + " for each of 2 threads; free memory, or use fewer threads";
  };
  EXPECT_EQ(create(uint64_t{1} << 55, 64), expected("36028797018963968", "64"));
  EXPECT_EQ(create(~uint64_t{0}, 64), expected("18446744073709551615", "64"));
  EXPECT_EQ(create(0, uint64_t{1} << 63), expected("0", "9223372036854775808"));
  EXPECT_EQ(create(uint64_t{1} << 63, uint64_t{1} << 62), expected("9223372036854775808", "4611686018427387904"));
}

TEST(SessionCreateErrors, ThreadsThatCannotBeStarted) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers need the address space themselves";
  const Bytes bytes = ModuleSpec().build();
  // In a child: a process whose address space has no room for the stacks of 500 threads.
  const auto create = [&bytes] {
    const ModulePtr module = load_bytes(bytes);
    const rlimit limit = {rlim_t{1} << 30, rlim_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    tessera_error error = {};
    tessera_session* session = nullptr;
    const tessera_session_options options = {sizeof(options), 500};
    tessera_session_create(module.get(), &options, &session, &error);
    fprintf(stderr, "%s: %s\n", error.id, error.message);
    _exit(session ? 0 : 1);
  };
  EXPECT_EXIT(create(), testing::ExitedWithCode(1),
              "TSR-7023: cannot start the threads of a session with 500 threads: Resource temporarily unavailable; use "
              "fewer threads \\(TESSERA_NUM_THREADS, --threads\\), or raise the limit of threads");
}

}  // namespace
}  // namespace tessera
