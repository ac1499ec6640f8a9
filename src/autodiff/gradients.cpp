#include "autodiff/gradients.h"

#include "arith/simplify.h"
#include "autodiff/reverse.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline autodiff {
namespace {

class Differentiation {
 public:
  Differentiation(const Graph& source, const OpTable& ops, const SweepOptions& options)
      : source_(source), known_(source.symbols), ops_(ops), options_(options), builder_(graph_) {}

  Graph run(ValueId output, const std::vector<ValueId>& wrt) {
    for (const ValueId value : wrt) require_real(value);
    require_real(output);
    graph_.copy_header(source_);
    for (const ValueId input : source_.inputs) graph_.add_input(source_.value(input).name, source_.type(input));
    ReverseSweep sweep(builder_, ops_, options_);
    map_ = sweep.copy(source_, graph_.inputs, {output}, wrt);
    for (const ValueId value : source_.outputs) {
      graph_.outputs.push_back(mapped(value));
      take_name(graph_, mapped(value), source_.value(value).name);
    }
    std::vector<ValueId> own;
    for (const ValueId value : wrt) own.push_back(mapped(value));
    const auto num_nodes = static_cast<NodeId>(graph_.nodes().size());
    sweep.seed(mapped(output), filled(1, mapped(output)));
    sweep.run(own, 0, num_nodes);
    if (!sweep.refused().empty()) refuse(sweep.refused());
    std::vector<ValueId> results;
    for (const ValueId value : own) {
      const ValueId found = sweep.gradient(value);
      const std::string name = graph_.value(value).name + ".gradient";
      // Each result has a name of its own, even where two gradients are one value.
      results.push_back(found == Adjoint::kNone ? filled(0, value, name)
                                                : op("reshape", {found}, {{"shape", graph_.type(value).shape}}, name));
    }
    const auto behind = graph_.outputs.begin() + static_cast<ptrdiff_t>(graph_.num_own_outputs());
    graph_.outputs.insert(behind, results.begin(), results.end());
    return std::move(graph_);
  }

 private:
  ValueId mapped(ValueId source) const { return map_[static_cast<size_t>(source)]; }

  void require_real(ValueId value) const {
    check(is_real(source_.type(value).dtype),
          "the gradient of or to a value of type " + source_.type(value).to_string());
  }

  ValueId op(std::string_view op, std::vector<ValueId> inputs, Attrs attrs, const std::string& name = "") {
    return builder_.add(ops_.get(op), std::move(inputs), std::move(attrs), name);
  }

  ValueId filled(double number, ValueId like, const std::string& name = "") {
    Tensor tensor(graph_.type(like).dtype, {});
    tensor.set_double(0, number);
    const ValueId scalar = op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
    return op("broadcast", {scalar}, {{"shape", graph_.type(like).shape}}, name);
  }

  const Graph& source_;
  const KnownSymbols known_;
  const OpTable& ops_;
  const SweepOptions options_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<ValueId> map_;  // by value of the source
};

}  // namespace

Graph gradients(const Graph& graph, ValueId output, const std::vector<ValueId>& wrt, const OpTable& ops,
                const SweepOptions& options) {
  return Differentiation(graph, ops, options).run(output, wrt);
}

}  // namespace tessera::inline autodiff
