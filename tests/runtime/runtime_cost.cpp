// What the runtime itself costs: an empty parallel loop and an empty run, on 1 and 2 threads, hot and after a pause.
// Not a test; prints medians.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "module_builder.h"
#include "runtime/cpu/thread_pool.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;

double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// Median of the time of `calls` calls, per call, over `rounds` rounds; `pause_us` before each round.
template <typename Call>
double median_us(int rounds, int calls, unsigned pause_us, Call call) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    if (pause_us) usleep(pause_us);
    const double start = now_us();
    for (int i = 0; i < calls; ++i) call();
    times.push_back((now_us() - start) / calls);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

void empty_task(const void*, int64_t, int64_t, int32_t) {}

void measure_loops() {
  ThreadPool& pool = ThreadPool::process();
  if (pool.reserve(2) != 0 || !pool.begin_run(2)) return;
  for (const int64_t n : {1, 2, 16, 256}) {
    const double us = median_us(200, 2000, 0, [&] { pool.parallel_for(empty_task, nullptr, n, 1); });
    printf("parallel_for, 2 threads, %lld empty iterations: %.3f us\n", static_cast<long long>(n), us);
  }
  // With work: what a loop takes beyond half of its work, each half a fixed time.
  const auto ten_us = [](const void*, int64_t begin, int64_t end, int32_t) {
    const double until = now_us() + 10.0 * static_cast<double>(end - begin);
    while (now_us() < until) {
    }
  };
  const double us = median_us(500, 10, 0, [&] { pool.parallel_for(ten_us, nullptr, 2, 1); });
  printf("parallel_for, 2 threads, 2 iterations of 10 us: %.2f us (10 is ideal, 20 is serial)\n", us);
  pool.end_run();
}

// How long until a worker has come, with worker 0 waiting for it.
void measure_wake(unsigned pause_us) {
  static std::atomic<bool> other_came;
  ThreadPool& pool = ThreadPool::process();
  const auto wait_for_other = [](const void*, int64_t, int64_t, int32_t worker) {
    if (worker != 0) other_came = true;
    while (!other_came) {
    }
  };
  const double us = median_us(200, 1, pause_us, [&] {
    other_came = false;
    if (!pool.begin_run(2)) return;
    pool.parallel_for(wait_for_other, nullptr, 2, 1);
    pool.end_run();
  });
  printf("begin_run + parallel_for until the other worker takes part, %u us after the last: %.2f us\n", pause_us, us);
}

void measure_runs() {
  ModuleSpec spec;
  spec.source = R"(#include "abi/module_abi.h"
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  return call->weights == 0;
})";
  const Bytes bytes = spec.build();
  tessera_module* module = nullptr;
  tessera_error error = {};
  const double load = median_us(50, 1, 0, [&] {
    tessera_module_free(module);
    module = nullptr;
    if (tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error) != TESSERA_OK) exit(1);
  });
  printf("load (and free) a module of %zu bytes from memory: %.1f us\n", bytes.size(), load);
  const float x[4] = {};
  float y[4] = {};
  tessera_tensor input = {const_cast<float*>(x), TESSERA_F32, 1, {4}}, output = {y, TESSERA_F32, 1, {4}};
  for (const int32_t threads : {1, 2}) {
    tessera_session* session = nullptr;
    const tessera_session_options options = {sizeof(options), threads};
    if (tessera_session_create(module, &options, &session, &error) != TESSERA_OK) exit(1);
    const auto run = [&] { tessera_session_run(session, &input, 1, &output, 1, &error); };
    printf("empty run, %d threads: %.3f us; one every 5 ms: %.2f us\n", threads, median_us(200, 2000, 0, run),
           median_us(200, 1, 5000, run));
    tessera_session_free(session);
  }
  tessera_module_free(module);
}

}  // namespace

int main() {
  measure_loops();
  measure_wake(0);
  measure_wake(5000);
  measure_runs();
}
