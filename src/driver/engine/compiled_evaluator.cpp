#include "driver/engine/compiled_evaluator.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "driver/compile.h"
#include "driver/engine/loop_kernel.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "graph/hash.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

constexpr size_t kLeastRuns = 3;

DriverOptions on_one_thread(DriverOptions options) {
  options.emit = Emit::kModule;
  options.compile.num_threads = std::max(options.compile.num_threads, 1);
  return options;
}

double seconds_of_a_run(Model& model) {
  const auto begin = std::chrono::steady_clock::now();
  model.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// REQUIRES: bound inputs.
Duration measure(Model& model, double seconds) {
  // Warm: caches, pages and the clock of the processor.
  double warmed = seconds_of_a_run(model);
  while (warmed < seconds / 10) warmed += seconds_of_a_run(model);
  std::vector<double> times;
  for (double sum = 0; sum < seconds || times.size() < kLeastRuns; sum += times.back())
    times.push_back(seconds_of_a_run(model));
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  return {median, times.front(), static_cast<int64_t>(times.size())};
}

}  // namespace

struct CompiledEvaluator::Entry {
  explicit Entry(uint64_t key) : hash(key) {}

  const uint64_t hash;
  std::mutex mutex;              // of the model
  std::unique_ptr<Model> model;  // null until somebody has compiled it
};

CompiledEvaluator::CompiledEvaluator(DriverOptions options, size_t capacity)
    : options_(on_one_thread(std::move(options))), capacity_(std::max<size_t>(capacity, 1)) {}

CompiledEvaluator::~CompiledEvaluator() = default;

std::shared_ptr<CompiledEvaluator::Entry> CompiledEvaluator::entry_of(const Graph& graph) {
  Graph plain = graph;
  plain.checks.clear();  // what fails is the caller's affair, and so are states: inputs and outputs like the others
  plain.states.clear();
  const uint64_t hash = structural_hash(plain);
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& other) { return other->hash == hash; });
    if (known != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, known);
    } else {
      entries_.push_front(std::make_shared<Entry>(hash));
      if (entries_.size() > capacity_) entries_.pop_back();  // whoever runs it keeps it
    }
    entry = entries_.front();
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->model) return entry;
  PassRunner runner(options_);
  const Compiled compiled = compile_graph(std::move(plain), options_, runner);
  entry->model = load_module(module_in_memory(compiled), graph.name, options_.compile.num_threads);
  const std::lock_guard count(mutex_);
  ++num_compiled_;
  return entry;
}

std::vector<Tensor> CompiledEvaluator::evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  const std::shared_ptr<Entry> entry = entry_of(graph);
  const std::lock_guard lock(entry->mutex);
  entry->model->bind(inputs);
  entry->model->run();
  std::vector<Tensor> results;
  for (const Tensor& result : entry->model->results()) results.push_back(copy_of(result));
  check(results.size() == graph.outputs.size(), "a compiled graph with another number of outputs");
  return results;
}

Duration CompiledEvaluator::time(const Graph& graph, const std::vector<Tensor>& inputs, double seconds) {
  const std::shared_ptr<Entry> entry = entry_of(graph);
  const std::lock_guard lock(entry->mutex);
  entry->model->bind(inputs);
  return measure(*entry->model, seconds);
}

Duration CompiledEvaluator::time(const LoopProgram& kernel, const std::vector<Tensor>& inputs, double seconds) {
  const std::unique_ptr<Model> model =
      load_loops(kernel, resolve_target(options_.compile), options_.compile.num_threads);
  model->bind(inputs);
  return measure(*model, seconds);
}

size_t CompiledEvaluator::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

}  // namespace tessera::inline driver
