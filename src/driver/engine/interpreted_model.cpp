#include "driver/engine/interpreted_model.h"

#include <algorithm>
#include <atomic>
#include <span>

#include <fmt/format.h>

#include "graph/op_def.h"
#include "interp/flow_interp.h"
#include "interp/graph_interp.h"
#include "interp/graph_session.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

std::vector<TensorInfo> infos_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<TensorInfo> infos;
  for (const ValueId id : values) {
    const Value& value = graph.value(id);
    std::vector<int64_t> dims;
    for (const Expr& dim : value.type.shape) dims.push_back(as_int(dim).value_or(-1));  // data decide it
    infos.push_back({value.name, value.type.dtype, std::move(dims)});
  }
  return infos;
}

class InterpretedFlow : public Model {
 public:
  InterpretedFlow(Flow flow, std::string name) : name_(std::move(name)), flow_(std::move(flow)) {
    for (const FlowPort& port : flow_.inputs) inputs_.push_back(info_of(port));
    for (const FlowPort& port : flow_.outputs) outputs_.push_back(info_of(port));
  }

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
  bool has_values() const override { return true; }
  // Pieces are not looked into.
  std::vector<std::string> watchable() const override { return {}; }
  void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) override {
    run();
  }
  void bind(std::vector<Tensor> inputs) override { bind_values({inputs.begin(), inputs.end()}); }
  void bind_values(std::vector<RunValue> inputs) override { bound_ = fitting_values(inputs_, std::move(inputs)); }
  std::vector<RunValue> value_results() const override { return value_results_; }
  void run() override {
    value_results_ = run_flow(flow_, bound_);
    results_.clear();
    for (const RunValue& value : value_results_) results_.push_back(value.tensor);
  }

 private:
  std::string name_;
  Flow flow_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<KernelInfo> kernels_;  // none
  std::vector<RunValue> bound_, value_results_;
  std::vector<Tensor> results_;
};

// Ends an evaluation whose watcher needs no more.
struct SeenEnough {};

class InterpretedModel : public Model {
 public:
  InterpretedModel(Graph graph, std::string name)
      : name_(std::move(name)),
        graph_(std::move(graph)),
        inputs_(infos_of(graph_, std::span(graph_.inputs).first(graph_.num_own_inputs()))),
        outputs_(infos_of(graph_, std::span(graph_.outputs).first(graph_.num_own_outputs()))),
        session_(graph_, interpreter_) {
    for (size_t i = 0; i < graph_.states.size(); ++i) {
      const TensorType& type = graph_.type(graph_.state_input(i));
      states_.push_back({graph_.states[i].name, type.dtype, type.dims()});
    }
  }

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

  bool has_values() const override {
    return std::any_of(outputs_.begin(), outputs_.end(), [](const TensorInfo& info) {
      return std::any_of(info.dims.begin(), info.dims.end(), [](int64_t dim) { return dim < 0; });
    });
  }
  const std::vector<TensorInfo>& states() const override { return states_; }
  Tensor state(size_t index) const override { return copy_of(session_.states().at(index)); }
  void set_state(size_t index, const Tensor& value) override {
    require_fits_state(states_.at(index), value);
    session_.set_state(index, copy_of(value));
  }
  void reset_states() override { session_.reset(); }

  void bind(std::vector<Tensor> inputs) override { bound_ = fitting_inputs(inputs_, std::move(inputs)); }
  void run() override { run_watched({}, {}); }
  void cancel() override { cancelled_ = true; }

  std::vector<std::string> watchable() const override {
    std::vector<std::string> names;
    for (const Value& value : graph_.values()) {
      const bool constant = value.producer >= 0 && graph_.node(value.producer).op->kind == OpKind::kConstant;
      if (!constant) names.push_back(value.name);
    }
    return names;
  }

  void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) override {
    cancelled_ = false;
    GraphInterpreter::Observer observer = [&](const Graph&, ValueId, const Tensor&) { end_if_cancelled(); };
    if (watcher) {
      observer = [&](const Graph& graph, ValueId id, const Tensor& tensor) {
        end_if_cancelled();
        if (&graph != &graph_ || !wanted(graph.value(id).name)) return;
        if (!watcher(graph.value(id).name, tensor)) throw SeenEnough{};
      };
    }
    results_.clear();
    try {
      interpreter_.set_observer(std::move(observer));
      results_ = session_.call(bound_);
    } catch (const SeenEnough&) {
      return;
    }
    const size_t own = graph_.num_own_outputs();
    for (size_t i = 0; i < graph_.checks.size(); ++i) require_check(graph_.checks[i], results_[own + i]);
    results_.resize(own);
  }

 private:
  std::string name_;
  Graph graph_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<KernelInfo> kernels_;  // none
  void end_if_cancelled() const {
    if (!cancelled_) return;
    throw UserError({.id = "TSR-5111", .message = "the run was cancelled", .node = {}, .legal = {}, .hint = {}});
  }

  std::vector<TensorInfo> states_;
  std::vector<Tensor> bound_, results_;
  GraphInterpreter interpreter_;
  GraphSession session_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

std::unique_ptr<Model> interpret_flow(Flow flow, const std::string& name) {
  return std::make_unique<InterpretedFlow>(std::move(flow), name);
}

std::unique_ptr<Model> interpret_graph(Graph graph, const std::string& name) {
  return std::make_unique<InterpretedModel>(std::move(graph), name);
}

}  // namespace tessera::inline driver
