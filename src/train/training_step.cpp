#include "train/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "autodiff/gradients.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline train {
namespace {

// What a parameter's update is computed in, and its moments are kept in: squares of gradients, and an epsilon of 1e-8,
// are zeros in 16 bits.
DType updated_in(DType parameter) { return dtype_bits(parameter) < 32 ? DType::kF32 : parameter; }

// Of the running statistics, per step; that of torch.nn.BatchNorm.
constexpr double kStatisticsMomentum = 0.9;

bool is_composite(const Node* node, std::string_view name) {
  return node && node->op->kind == OpKind::kComposite && node->attrs.get_or<std::string>("name", "") == name;
}

size_t index(ValueId v) { return static_cast<size_t>(v); }

[[noreturn]] void refuse(const std::string& id, const std::string& found, const std::string& legal,
                         const std::string& hint = "") {
  throw UserError({.id = id, .message = found, .node = {}, .legal = legal, .hint = hint});
}

// The constants that are running mean or variance of a batch normalisation.
std::set<ValueId> statistics_of(const Graph& model) {
  std::set<ValueId> found;
  for (const Node& node : model.nodes())
    if (is_composite(&node, "batch_norm"))
      for (const size_t i : {3, 4}) {
        const Node* producer = model.producer(node.inputs[i]);
        if (producer && producer->op->kind == OpKind::kConstant) found.insert(node.inputs[i]);
      }
  return found;
}

// Which constants are one: those of these numbers in memory.
using Numbers = std::tuple<const std::byte*, int64_t, DType>;

// Of constants of rank 1 or more; others are numbers of the operators.
std::optional<Numbers> numbers_of(const Node& node) {
  if (node.op->kind != OpKind::kConstant) return std::nullopt;
  const TensorPtr value = node.attrs.get<TensorPtr>("value");
  if (value->dims().empty() || value->num_elements() == 0) return std::nullopt;
  return Numbers{value->bytes(), value->num_elements(), value->dtype()};
}

std::vector<ValueId> parameters_of(const Graph& model) {
  if (model.num_own_outputs() == 0) return {};
  const DType dtype = model.type(model.outputs[0]).dtype;
  std::vector<bool> needed(model.values().size(), false);
  needed[index(model.outputs[0])] = true;
  for (size_t n = model.nodes().size(); n-- > 0;) {
    const Node& node = model.nodes()[n];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[index(v)]; })) continue;
    for (const ValueId input : node.inputs) needed[index(input)] = true;
  }
  const std::set<ValueId> statistics = statistics_of(model);
  std::vector<ValueId> found;
  for (const Node& node : model.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const ValueId value = node.outputs[0];
    const TensorType& type = model.type(value);
    if (needed[index(value)] && type.dtype == dtype && type.rank() > 0 && !statistics.count(value))
      found.push_back(value);
  }
  return found;
}

class StepBuilder {
 public:
  StepBuilder(const Graph& model, const TrainingOptions& options, const OpTable& ops)
      : model_(model), options_(options), ops_(ops), map_(model.values().size(), -1) {}

  TrainingStep build() {
    check_optimizer(options_.optimizer);
    if (!(options_.clip_norm >= 0)) refuse("TSR-2081", fmt::format("clip_norm = {}", options_.clip_norm), "0 or more");
    if (!(options_.label_smoothing >= 0 && options_.label_smoothing < 1))
      refuse("TSR-2081", fmt::format("label_smoothing = {}", options_.label_smoothing), "0 or more, and below 1");
    if (options_.label_smoothing > 0 && options_.loss == LossKind::kMeanSquaredError)
      refuse("TSR-2081", "label_smoothing of the loss mse", "a loss of classes");
    if (!model_.states.empty())
      refuse("TSR-2082", fmt::format("the model has states: {}", model_.states[0].name),
             "a model whose weights are constants");
    if (model_.num_own_outputs() == 0) refuse("TSR-2082", "the model has no outputs", "a model with an output");
    choose_parameters();
    forward();
    return update();
  }

 private:
  void choose_parameters() {
    std::set<std::string> frozen(options_.frozen.begin(), options_.frozen.end());
    for (const ValueId value : parameters_of(model_))
      if (!frozen.erase(model_.value(value).name)) parameters_.push_back(value);
    if (!frozen.empty())
      refuse("TSR-2083", fmt::format("'{}' is to be frozen, and is no parameter of the model", *frozen.begin()),
             fmt::format("{}", fmt::join(parameter_names(model_, ops_), ", ")));
    if (parameters_.empty())
      refuse("TSR-2083", "the model has nothing to learn",
             "constants of the first output's element type and of rank 1 or more that are not frozen");
    const std::set<ValueId> statistics = statistics_of(model_);
    for (const Node& node : model_.nodes())
      if (node.op->kind == OpKind::kConstant && statistics.count(node.outputs[0]))
        statistics_.push_back(node.outputs[0]);
    if (options_.parallel.leaves > 0 && !statistics_.empty())
      refuse("TSR-2085",
             fmt::format("'{}' follows the whole batch, and leaves are parts of it", model_.value(statistics_[0]).name),
             "a model without batch normalisations, or no leaves");
  }

  TensorPtr initial(ValueId constant) const { return model_.producer(constant)->attrs.get<TensorPtr>("value"); }

  void forward() {
    graph_.name = model_.name;
    graph_.symbols = model_.symbols;
    GraphBuilder builder(graph_);
    const GraphOps o{builder, ops_};
    for (const ValueId input : model_.inputs)
      map_[index(input)] = graph_.add_input(model_.value(input).name, model_.type(input));
    const ValueId scores_of_model = scores();
    const ValueId target = graph_.add_input(graph_.unique_name("target"), target_type(scores_of_model));
    rate_ = graph_.add_input(graph_.unique_name("learning_rate"), TensorType{DType::kF64, {}, {}});
    for (const auto* values : {&parameters_, &statistics_})
      for (const ValueId value : *values)
        map_[index(value)] = graph_.add_input(model_.value(value).name, model_.type(value));
    for (const Node& node : model_.nodes()) copy(builder, node);
    const ValueId y = map_[index(scores_of_model)];
    builder.set_loc("loss");
    const ValueId loss = loss_of(o, y, target);
    const ValueId correct = correct_of(o, y, target);
    graph_.rename(loss, graph_.unique_name("loss"));
    graph_.rename(correct, graph_.unique_name("correct"));
    graph_.outputs = {loss, correct};
    for (const ValueId value : statistics_) graph_.outputs.push_back(next_statistics_.at(value));
  }

  void copy(GraphBuilder& builder, const Node& node) {
    if (node.outputs.size() == 1 && map_[index(node.outputs[0])] >= 0) return;  // a parameter
    std::vector<ValueId> operands;
    for (const ValueId input : node.inputs) operands.push_back(map_[index(input)]);
    builder.set_loc(node.loc);
    if (is_composite(&node, "batch_norm") && is_statistic(node.inputs[3]) && is_statistic(node.inputs[4])) {
      const double epsilon = node.attrs.get<double>("epsilon");
      const std::vector<ValueId> results =
          options_.parallel.ranks > 1
              ? shared_batch_norm({builder, ops_}, operands, epsilon)
              : add_composite(builder, ops_, "batch_norm_training", operands,
                              {{"epsilon", epsilon}, {"momentum", kStatisticsMomentum}, {"unbiased", true}});
      map_[index(node.outputs[0])] = results[0];
      next_statistics_[node.inputs[3]] = results[1];
      next_statistics_[node.inputs[4]] = results[2];
      return;
    }
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(model_.value(output).name);
    const std::vector<ValueId> results = builder.add_multi(*node.op, operands, node.attrs, node.regions, names);
    for (size_t i = 0; i < results.size(); ++i) map_[index(node.outputs[i])] = results[i];
  }

  // batch_norm_training whose mean and variance are those of all ranks' samples: the result, and both running values.
  std::vector<ValueId> shared_batch_norm(const GraphOps& o, const std::vector<ValueId>& operands,
                                         double epsilon) const {
    const DType dtype = o.type(operands[0]).dtype, wide = updated_in(dtype);
    const ValueId x = o.cast(operands[0], wide);
    const std::vector<int64_t> dims = o.type(x).dims();
    std::vector<int64_t> axes = {0}, channels(dims.size(), 1);
    channels[1] = dims[1];
    int64_t count = dims[0] * options_.parallel.ranks;
    for (size_t d = 2; d < dims.size(); ++d) {
      axes.push_back(static_cast<int64_t>(d));
      count *= dims[d];
    }
    const auto share = static_cast<double>(std::max<int64_t>(count, 1));
    const auto total = [&](ValueId v) {
      return sum_over_ranks(o.builder, o.reduce("sum", v, axes, true), options_.parallel, ops_);
    };
    const auto per_channel = [&](size_t i) {
      return o.op("reshape", {o.cast(operands[i], wide)}, {{"shape", channels}});
    };
    const ValueId mean = o.times(total(x), 1 / share);
    const ValueId centred = o.sub(x, mean);
    const ValueId squares = total(o.mul(centred, centred));
    const ValueId inverse = o.div(o.scalar(1, wide), o.sqrt(o.plus(o.times(squares, 1 / share), epsilon)));
    const ValueId y = o.add(o.mul(centred, o.mul(per_channel(1), inverse)), per_channel(2));
    const auto running = [&](size_t i, ValueId own) {
      const TensorType type = o.type(operands[i]);
      const ValueId old = o.times(o.cast(operands[i], wide), kStatisticsMomentum);
      const ValueId vector = o.op("reshape", {own}, {{"shape", type.shape}});
      return o.cast(o.add(old, o.times(vector, 1 - kStatisticsMomentum)), type.dtype);
    };
    const ValueId variance = o.times(squares, 1 / std::max(share - 1, 1.0));
    return {o.cast(y, dtype), running(3, mean), running(4, variance)};
  }

  bool is_statistic(ValueId v) const {
    return std::find(statistics_.begin(), statistics_.end(), v) != statistics_.end();
  }

  // The value of the model that the loss is computed from.
  ValueId scores() const {
    const ValueId output = model_.outputs[0];
    const TensorType& type = model_.type(output);
    if (!is_real(type.dtype))
      refuse("TSR-2082", fmt::format("output '{}' has the type {}", model_.value(output).name, type.to_string()),
             "an output of real numbers");
    if (options_.loss == LossKind::kMeanSquaredError) return output;
    if (type.rank() < 2)
      refuse("TSR-2082", fmt::format("output '{}' has the type {}", model_.value(output).name, type.to_string()),
             "scores [N, classes, ...]", "choose the loss mse for a model that does not classify");
    const Node* producer = model_.producer(output);
    if (options_.loss == LossKind::kCrossEntropy && is_composite(producer, "softmax") &&
        producer->attrs.get_int("axis") == 1)
      return producer->inputs[0];
    return output;
  }

  TensorType target_type(ValueId scores) const {
    TensorType type = model_.type(scores);
    type.layout = {};
    if (options_.loss == LossKind::kMeanSquaredError) return type;
    type.shape.erase(type.shape.begin() + 1);
    return {DType::kI64, type.shape, {}};
  }

  ValueId loss_of(const GraphOps& o, ValueId y, ValueId target) const {
    if (options_.loss == LossKind::kMeanSquaredError) {
      const ValueId off = o.sub(y, target);
      std::vector<int64_t> axes(o.type(y).shape.size());
      for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
      return add_composite(o.builder, ops_, "reduce_mean", {o.mul(off, off)},
                           {{"axes", std::move(axes)}, {"keepdims", false}})[0];
    }
    const char* name = options_.loss == LossKind::kCrossEntropy ? "softmax_cross_entropy" : "nll_loss";
    const std::vector<ValueId> results =
        add_composite(o.builder, ops_, name, {y, target}, {{"reduction", std::string("mean")}});
    if (options_.label_smoothing == 0) return results[0];
    // The mean over classes, too, of what the loss is where each is the target.
    const ValueId logs = options_.loss == LossKind::kCrossEntropy ? results[1] : y;
    std::vector<int64_t> axes(o.type(logs).shape.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    const ValueId mean =
        add_composite(o.builder, ops_, "reduce_mean", {logs}, {{"axes", std::move(axes)}, {"keepdims", false}})[0];
    return o.sub(o.times(results[0], 1 - options_.label_smoothing), o.times(mean, options_.label_smoothing));
  }

  // How many targets have the largest score.
  ValueId correct_of(const GraphOps& o, ValueId y, ValueId target) const {
    if (options_.loss == LossKind::kMeanSquaredError) return o.scalar(0, DType::kI64);
    const Shape shape = o.type(y).shape;
    Shape one_class = shape;
    one_class[1] = 1;
    const ValueId largest = o.reduce("max", y, {1}, true);
    const ValueId number = o.op("iota", {}, {{"shape", shape}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
    const ValueId is_target = o.op("eq", {number, o.op("reshape", {target}, {{"shape", one_class}})});
    const ValueId is_largest = o.op("eq", {y, largest});
    return o.total(o.cast(o.op("logical_and", {is_target, is_largest}), DType::kI64));
  }

  TrainingStep update() {
    std::vector<ValueId> wrt;
    for (const ValueId value : parameters_) wrt.push_back(map_[index(value)]);
    Graph graph = share_batch(gradients(graph_, graph_.outputs[0], wrt, ops_), model_.inputs.size() + 1,
                              statistics_.size(), options_.parallel, ops_);
    GraphBuilder builder(graph);
    const GraphOps o{builder, ops_};
    std::vector<ValueId> inputs(graph.inputs.begin() + static_cast<std::ptrdiff_t>(model_.inputs.size()) + 2,
                                graph.inputs.end());  // parameters, statistics
    const ValueId rate = graph.inputs[model_.inputs.size() + 1];
    std::vector<ValueId> given(graph.outputs.begin() + 2 + std::ssize(statistics_), graph.outputs.end());
    const std::vector<ValueId> statistics(graph.outputs.begin() + 2,
                                          graph.outputs.begin() + 2 + std::ssize(statistics_));
    graph.outputs.resize(2);

    TrainingStep step;
    for (const auto& [values, names] :
         {std::pair{&parameters_, &step.parameters}, std::pair{&statistics_, &step.statistics}})
      for (const ValueId value : *values) {
        names->push_back(model_.value(value).name);
        graph.states.push_back({names->back(), initial(value)});
        taken_.insert(names->back());
      }
    if (options_.clip_norm > 0) clip(o, given);

    builder.set_loc("training.step");
    std::vector<std::vector<ValueId>> moments;
    std::vector<State> moment_states;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      moments.emplace_back();
      TensorType type = graph.type(inputs[i]);
      type.dtype = updated_in(type.dtype);
      for (const std::string& name : moment_names(options_.optimizer)) {
        moment_states.push_back({free_name(fmt::format("{}.{}", step.parameters[i], name)), nullptr});
        moments.back().push_back(graph.add_input(graph.unique_name(moment_states.back().name), type));
      }
    }
    const ValueId done = graph.add_input(graph.unique_name("training.step"), TensorType{DType::kI64, {}, {}});
    const ValueId number = o.plus(done, 1);
    const StepNumbers numbers{rate, o.cast(number, DType::kF64)};
    std::vector<ValueId> after, moments_after;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      builder.set_loc(step.parameters[i] + ".update");
      const DType dtype = graph.type(inputs[i]).dtype, update = updated_in(dtype);
      const std::vector<ValueId> next = optimizer_step(o, options_.optimizer, numbers, o.cast(inputs[i], update),
                                                       o.cast(given[i], update), moments[i]);
      after.push_back(o.cast(next[0], dtype));
      moments_after.insert(moments_after.end(), next.begin() + 1, next.end());
    }
    graph.states.insert(graph.states.end(), moment_states.begin(), moment_states.end());
    graph.states.push_back({free_name("training.step"), nullptr});
    graph.outputs.insert(graph.outputs.end(), after.begin(), after.end());
    graph.outputs.insert(graph.outputs.end(), statistics.begin(), statistics.end());
    graph.outputs.insert(graph.outputs.end(), moments_after.begin(), moments_after.end());
    graph.outputs.push_back(number);
    step.graph = std::move(graph);
    return step;
  }

  // A name of a state, which weights of the model may have already.
  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  // All gradients times min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does.
  void clip(const GraphOps& o, std::vector<ValueId>& given) const {
    o.builder.set_loc("training.clip_norm");
    ValueId sum = -1;
    for (const ValueId g : given) {
      const ValueId squares = o.total(o.mul(g, g));
      sum = sum < 0 ? squares : o.add(sum, squares);
    }
    const DType dtype = o.type(sum).dtype;
    const ValueId part = o.div(o.scalar(options_.clip_norm, dtype), o.plus(o.sqrt(sum), 1e-6));
    const ValueId factor = o.op("min", {part, o.scalar(1, dtype)});
    for (ValueId& g : given) g = o.mul(g, factor);
  }

  const Graph& model_;
  const TrainingOptions& options_;
  const OpTable& ops_;
  std::vector<ValueId> parameters_, statistics_;  // of the model
  std::map<ValueId, ValueId> next_statistics_;
  std::set<std::string> taken_;  // names of states
  Graph graph_;
  std::vector<ValueId> map_;
  ValueId rate_ = -1;
};

}  // namespace

const std::vector<std::string_view>& loss_names() {
  static const std::vector<std::string_view> names = {"cross_entropy", "nll", "mse"};
  return names;
}

LossKind loss_kind(const std::string& name) {
  const auto& names = loss_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    refuse("TSR-2080", fmt::format("there is no loss '{}'", name), fmt::format("{}", fmt::join(names, ", ")));
  return static_cast<LossKind>(found - names.begin());
}

std::vector<std::string> parameter_names(const Graph& model, const OpTable&) {
  std::vector<std::string> names;
  for (const ValueId value : parameters_of(model)) names.push_back(model.value(value).name);
  return names;
}

TrainingStep training_step(const Graph& model, const TrainingOptions& options, const OpTable& ops) {
  return StepBuilder(model, options, ops).build();
}

Graph with_states(const Graph& model, const std::vector<std::string>& names) {
  Graph result;
  result.copy_header(model);
  std::vector<ValueId> map(model.values().size(), -1);
  for (const ValueId input : model.inputs)
    map[index(input)] = result.add_input(model.value(input).name, model.type(input));
  std::vector<ValueId> states(names.size(), -1);
  std::vector<State> added(names.size());
  for (const Node& node : model.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const ValueId value = node.outputs[0];
    const auto found = std::find(names.begin(), names.end(), model.value(value).name);
    if (found == names.end()) continue;
    const auto i = static_cast<size_t>(found - names.begin());
    states[i] = value;
    added[i] = {*found, node.attrs.get<TensorPtr>("value")};
  }
  for (ValueId& state : states)
    state = map[index(state)] = result.add_input(model.value(state).name, model.type(state));
  result.states.insert(result.states.end(), added.begin(), added.end());
  for (const Node& node : model.nodes()) {
    if (map[index(node.outputs[0])] >= 0) continue;
    Node copy = node;
    for (ValueId& input : copy.inputs) input = map[index(input)];
    copy.outputs.clear();
    std::vector<TensorType> types;
    std::vector<std::string> value_names;
    for (const ValueId output : node.outputs) {
      types.push_back(model.type(output));
      value_names.push_back(model.value(output).name);
    }
    const NodeId id = result.add_node(std::move(copy), std::move(types), std::move(value_names));
    for (size_t i = 0; i < node.outputs.size(); ++i) map[index(node.outputs[i])] = result.node(id).outputs[i];
  }
  for (const ValueId output : model.outputs) result.outputs.push_back(map[index(output)]);
  result.outputs.insert(result.outputs.begin() + static_cast<std::ptrdiff_t>(model.first_check()), states.begin(),
                        states.end());
  return result;
}

Graph with_own_statistics(const Graph& model, const OpTable& ops) {
  std::map<Numbers, size_t> uses;
  const std::vector<std::vector<NodeId>> users = model.users();
  for (const Node& node : model.nodes())
    if (const auto numbers = numbers_of(node)) {
      const ValueId value = node.outputs[0];
      uses[*numbers] += users[index(value)].size() +
                        static_cast<size_t>(std::count(model.outputs.begin(), model.outputs.end(), value));
    }
  GraphRewriter rewriter(model);
  return rewriter.run([&](GraphRewriter& to, const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> own = inputs;
    if (is_composite(&node, "batch_norm"))
      for (const auto& [i, name] : {std::pair<size_t, const char*>{3, "mean"}, {4, "variance"}}) {
        const Node* producer = model.producer(node.inputs[i]);
        const auto numbers = producer ? numbers_of(*producer) : std::nullopt;
        if (!numbers || uses.at(*numbers) < 2) continue;
        const TensorPtr shared = producer->attrs.get<TensorPtr>("value");
        Tensor copy(shared->dtype(), shared->dims());
        std::memcpy(copy.mutable_bytes(), shared->bytes(), static_cast<size_t>(shared->num_bytes()));
        own[i] = GraphBuilder(to.target())
                     .add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(copy))}},
                          fmt::format("{}.running_{}", model.value(node.outputs[0]).name, name));
      }
    return to.copy(node, own);
  });
}

Graph with_shared_constants(const Graph& model, const OpTable& ops) {
  Graph result = model;
  std::map<Numbers, ValueId> first;
  for (size_t n = 0; n < result.nodes().size(); ++n) {
    Node& node = result.node(static_cast<NodeId>(n));
    const auto numbers = numbers_of(node);
    if (!numbers) continue;
    const auto [found, is_new] = first.emplace(*numbers, node.outputs[0]);
    if (is_new) continue;
    node.op = &ops.get("reshape");
    node.inputs = {found->second};
    node.attrs = Attrs{{"shape", result.type(node.outputs[0]).shape}};
  }
  return result;
}

Graph with_constants(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values) {
  Graph result = model;
  std::map<Numbers, TensorPtr> others;
  const auto named = [&](const Node& node) -> TensorPtr {
    const auto found = std::find(names.begin(), names.end(), result.value(node.outputs[0]).name);
    return found == names.end() ? nullptr : values[static_cast<size_t>(found - names.begin())];
  };
  for (const Node& node : model.nodes())
    if (const auto numbers = numbers_of(node); numbers && named(node)) others[*numbers] = named(node);
  for (size_t n = 0; n < result.nodes().size(); ++n) {
    Node& node = result.node(static_cast<NodeId>(n));
    if (node.op->kind != OpKind::kConstant) continue;
    if (const TensorPtr value = named(node)) {
      node.attrs.set("value", value);
    } else if (const auto numbers = numbers_of(node); numbers && others.count(*numbers)) {
      const TensorPtr& given = others.at(*numbers);
      const std::vector<int64_t> dims = node.attrs.get<TensorPtr>("value")->dims();
      node.attrs.set("value", TensorPtr(std::make_shared<const Tensor>(given->dtype(), dims, given, given->bytes())));
    }
  }
  return result;
}

}  // namespace tessera::inline train
