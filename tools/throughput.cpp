#include "throughput.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

TimedRuns time_runs(const std::vector<Model*>& sessions, const RunBudget& budget) {
  std::vector<std::vector<double>> samples(sessions.size());
  std::vector<std::exception_ptr> failures(sessions.size());
  std::atomic<int> started = 0;
  const Clock::time_point begin = Clock::now();
  const auto work = [&](size_t number) {
    try {
      while (true) {
        const int run = started++;
        const bool over = budget.runs >= 0 ? run >= budget.runs
                                           : run >= budget.at_least && milliseconds_since(begin) >= budget.budget_ms;
        if (over) return;
        const Clock::time_point before = Clock::now();
        sessions[number]->run();
        samples[number].push_back(milliseconds_since(before));
      }
    } catch (...) {
      failures[number] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < sessions.size(); ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  TimedRuns result;
  result.wall_ms = milliseconds_since(begin);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  for (const std::vector<double>& list : samples)
    result.samples_ms.insert(result.samples_ms.end(), list.begin(), list.end());
  std::sort(result.samples_ms.begin(), result.samples_ms.end());
  return result;
}

}  // namespace tessera
