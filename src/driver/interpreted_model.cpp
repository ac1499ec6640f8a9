#include "driver/interpreted_model.h"

#include "interp/graph_interp.h"

namespace tessera {

namespace {

std::vector<TensorInfo> infos_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<TensorInfo> infos;
  for (const ValueId id : values) {
    const Value& value = graph.value(id);
    infos.push_back({value.name, value.type.dtype, value.type.dims()});
  }
  return infos;
}

class InterpretedModel : public Model {
 public:
  InterpretedModel(Graph graph, std::string name)
      : name_(std::move(name)),
        graph_(std::move(graph)),
        inputs_(infos_of(graph_, graph_.inputs)),
        outputs_(infos_of(graph_, graph_.outputs)) {}

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

  void bind(std::vector<Tensor> inputs) override {
    check_inputs(inputs_, inputs);
    bound_ = std::move(inputs);
  }
  void run() override { results_ = GraphInterpreter().evaluate(graph_, bound_); }

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
