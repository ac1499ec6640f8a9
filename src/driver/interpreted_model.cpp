#include "driver/interpreted_model.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "graph/op_def.h"
#include "interp/graph_interp.h"
#include "support/error.h"

namespace tessera {

namespace {

std::vector<TensorInfo> infos_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<TensorInfo> infos;
  for (const ValueId id : values) {
    const Value& value = graph.value(id);
    infos.push_back({value.name, value.type.dtype, value.type.dims()});
  }
  return infos;
}

// The runtime's words for a check that does not hold (runtime/core/session.cpp), so that both engines say the same.
void require(const RuntimeCheck& check, const Tensor& values) {
  if (values.get_int(0) != 0) return;
  constexpr int64_t kShown = 12;
  const int64_t count = values.num_elements() - 1;
  std::string text;
  for (int64_t i = 0; i < std::min(count, kShown); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", values.get_int(i + 1));
  if (count > kShown) text += ", ...";
  if (count != 1) text = "[" + text + "]";
  throw UserError({.id = "TSR-7040",
                   .message = fmt::format("{} is {}; this module was compiled for {}; the outputs are not valid",
                                          check.what, text, check.legal),
                   .node = {},
                   .legal = {},
                   .hint = {}});
}

// Ends an evaluation whose watcher needs no more.
struct SeenEnough {};

class InterpretedModel : public Model {
 public:
  InterpretedModel(Graph graph, std::string name)
      : name_(std::move(name)),
        graph_(std::move(graph)),
        inputs_(infos_of(graph_, graph_.inputs)),
        outputs_(infos_of(graph_, std::span(graph_.outputs).first(graph_.num_own_outputs()))) {}

  const std::string& name() const override { return name_; }
  const std::vector<TensorInfo>& inputs() const override { return inputs_; }
  const std::vector<TensorInfo>& outputs() const override { return outputs_; }
  const std::vector<Tensor>& results() const override { return results_; }
  int num_threads() const override { return 1; }
  const std::vector<KernelInfo>& kernels() const override { return kernels_; }
  std::vector<KernelSpan> run_traced() override {
    run();
    return {};
  }

  void bind(std::vector<Tensor> inputs) override { bound_ = fitting_inputs(inputs_, std::move(inputs)); }
  void run() override { run_watched({}, {}); }

  std::vector<std::string> watchable() const override {
    std::vector<std::string> names;
    for (const Value& value : graph_.values()) {
      const bool constant = value.producer >= 0 && graph_.node(value.producer).op->kind == OpKind::kConstant;
      if (!constant) names.push_back(value.name);
    }
    return names;
  }

  void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) override {
    GraphInterpreter::Observer observer;
    if (watcher) {
      observer = [&](const Graph& graph, ValueId id, const Tensor& tensor) {
        if (&graph != &graph_ || !wanted(graph.value(id).name)) return;
        if (!watcher(graph.value(id).name, tensor)) throw SeenEnough{};
      };
    }
    results_.clear();
    try {
      results_ = GraphInterpreter(std::move(observer)).evaluate(graph_, bound_);
    } catch (const SeenEnough&) {
      return;
    }
    const size_t own = graph_.num_own_outputs();
    for (size_t i = 0; i < graph_.checks.size(); ++i) require(graph_.checks[i], results_[own + i]);
    results_.resize(own);
  }

 private:
  std::string name_;
  Graph graph_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<KernelInfo> kernels_;  // none
  std::vector<Tensor> bound_, results_;
};

}  // namespace

std::unique_ptr<Model> interpret_graph(Graph graph, const std::string& name) {
  return std::make_unique<InterpretedModel>(std::move(graph), name);
}

}  // namespace tessera
