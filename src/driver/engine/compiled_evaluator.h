// Graphs evaluated by code that is compiled for them, in process: the fast counterpart of GraphInterpreter, for whoever
// evaluates large graphs, or one graph on many inputs. A small graph that is evaluated once is faster interpreted:
// compiling takes some tens of milliseconds.
//
// Compiled graphs are kept by their structural hash, the least recently used one leaving first. Hashing reads every
// constant once a call.
// Results are those of the interpreter up to rounding (docs/style.md has the bound), integers exactly.
// Thread safety: any number of threads may evaluate and measure at once. One graph is compiled once, and runs on one
// thread at a time; different graphs run side by side. Whoever measures sees to it that nothing else runs.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "driver/options.h"
#include "graph/evaluator.h"
#include "graph/graph_timer.h"

namespace tessera::inline driver {

class CompiledEvaluator : public Evaluator, public GraphTimer {
 public:
  // `options` for every graph: level, target (which must run on this machine), precision, passes; of its threads 0
  // means one. At most `capacity` compiled graphs are kept, at least one.
  explicit CompiledEvaluator(DriverOptions options = {}, size_t capacity = 64);
  ~CompiledEvaluator() override;

  // REQUIRES: static shapes, and a graph as readers make it: no groups, no layouts. Checks (runtime_check.h) are
  // outputs like others. UserError for what the compiler refuses.
  std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) override;
  Duration time(const Graph& graph, const std::vector<Tensor>& inputs, double seconds) override;
  // Not kept: a kernel is compiled at each call.
  Duration time(const LoopProgram& kernel, const std::vector<Tensor>& inputs, double seconds) override;

  // How many graphs have been compiled so far.
  size_t num_compiled() const;

 private:
  struct Entry;
  std::shared_ptr<Entry> entry_of(const Graph& graph);

  const DriverOptions options_;
  const size_t capacity_;
  mutable std::mutex mutex_;                   // of what follows; never held while compiling or running
  std::list<std::shared_ptr<Entry>> entries_;  // the most recently used first
  size_t num_compiled_ = 0;
};

}  // namespace tessera::inline driver
