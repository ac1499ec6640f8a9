#include "train/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "arith/simplify.h"
#include "autodiff/gradients.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "train/dropout.h"
#include "train/fake_quantization.h"
#include "train/gather_parameters.h"
#include "train/pipeline.h"
#include "train/shards.h"
#include "train/weights.h"

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

// The operands that follow what a step sees: running mean and variance of a batch normalisation, the range of a fake
// quantisation.
std::vector<size_t> statistic_operands(const Node& node) {
  if (is_composite(&node, "batch_norm")) return {3, 4};
  if (is_composite(&node, "fake_quantize")) return {1, 2};
  return {};
}

// The constants that are such.
std::set<ValueId> statistics_of(const Graph& model) {
  std::set<ValueId> found;
  for (const Node& node : model.nodes())
    for (const size_t i : statistic_operands(node)) {
      const Node* producer = model.producer(node.inputs[i]);
      if (producer && producer->op->kind == OpKind::kConstant) found.insert(node.inputs[i]);
    }
  return found;
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

  ModelWithLoss with_loss() {
    prepare();
    return {std::move(graph_), num_batched()};
  }

  TrainingStep build() {
    prepare();
    return update();
  }

 private:
  void prepare() {
    check_optimizer(options_.optimizer);
    if (!(options_.clip_norm >= 0)) refuse("TSR-2081", fmt::format("clip_norm = {}", options_.clip_norm), "0 or more");
    if (!(options_.label_smoothing >= 0 && options_.label_smoothing < 1))
      refuse("TSR-2081", fmt::format("label_smoothing = {}", options_.label_smoothing), "0 or more, and below 1");
    if (!(options_.loss_scale >= 0) || !std::isfinite(options_.loss_scale))
      refuse("TSR-2081", fmt::format("loss_scale = {}", options_.loss_scale), "a finite number, 0 or more");
    if (options_.label_smoothing > 0 && options_.ignored)
      refuse("TSR-2081", "label_smoothing of targets some of which are ignored", "one of the two");
    if (options_.label_smoothing > 0 && options_.loss == LossKind::kMeanSquaredError)
      refuse("TSR-2081", "label_smoothing of the loss mse", "a loss of classes");
    if (options_.parallel.is_cut() && options_.parallel.leaves > 0 && options_.clip_norm > 0)
      refuse("TSR-2085", "the norm of gradients of which ranks have parts, and leaves",
             "no clip_norm, or no zero, where all numbers of ranks are to give the same bits");
    if (!model_.states.empty())
      refuse("TSR-2082", fmt::format("the model has states: {}", model_.states[0].name),
             "a model whose weights are constants");
    if (model_.num_own_outputs() == 0) refuse("TSR-2082", "the model has no outputs", "a model with an output");
    if (options_.parallel.is_cut() && (!options_.weighed.empty() || !options_.distillation.features.empty()))
      refuse("TSR-2085", "importance of channels, or features of a teacher, of gradients that ranks have parts of",
             "zero = 0");
    if (options_.parallel.pipeline.is_used()) refuse_in_pipeline();
    choose_parameters();
    forward();
  }

  void refuse_in_pipeline() const {
    const char* found = !options_.weighed.empty()                 ? "importance of weights"
                        : !options_.distillation.features.empty() ? "features of a teacher"
                        : options_.loss_scale > 0                 ? "a scaled loss"
                                                                  : nullptr;
    if (found) refuse("TSR-2086", fmt::format("{} in a pipeline", found), "a step without it, or one stage");
  }

  size_t num_batched() const { return model_.inputs.size() + 1; }

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
  }

  TensorPtr initial(ValueId constant) const {
    const TensorPtr value = model_.producer(constant)->attrs.get<TensorPtr>("value");
    return has_master(constant) ? as_dtype(value, DType::kF32) : value;
  }

  void forward() {
    graph_.name = model_.name;
    graph_.symbols = model_.symbols;
    GraphBuilder builder(graph_);
    const GraphOps o{builder, ops_};
    for (const ValueId input : model_.inputs)
      map_[index(input)] = graph_.add_input(model_.value(input).name, model_.type(input));
    const ValueId scores_of_model = scores();
    const ValueId target = graph_.add_input(graph_.unique_name("target"), target_type(scores_of_model));
    graph_.add_input(graph_.unique_name("learning_rate"), TensorType{DType::kF64, {}, {}});
    for (const auto* values : {&parameters_, &statistics_})
      for (const ValueId value : *values) {
        TensorType type = model_.type(value);
        const DType read = type.dtype;
        if (has_master(value)) type.dtype = DType::kF32;
        state_of_[value] = graph_.add_input(model_.value(value).name, type);
        map_[index(value)] = o.cast(state_of_[value], read);
      }
    make_projections();
    reads_step_ = has_dropouts(model_);
    dropouts_.seed = options_.seed;
    if (reads_step_) done_ = graph_.add_input(graph_.unique_name("training.step"), {DType::kI64, {}, {}});
    if (reads_step_ && options_.parallel.is_used()) {
      part_input_ = std::ssize(graph_.inputs);
      part_ = graph_.add_input(graph_.unique_name("training.part"), {DType::kI64, {}, {}});
    }
    for (const Node& node : model_.nodes()) copy(builder, node);
    builder.set_loc("loss");
    const auto [y, wanted] = with_classes_second(o, map_[index(scores_of_model)], target);
    ValueId loss = loss_of(o, options_.loss, options_.label_smoothing, options_.ignored, y, wanted);
    const ValueId correct = has_classes() ? count_right(o, y, wanted) : o.zero(DType::kI64);
    if (options_.distillation.teacher) loss = distilled(o, loss, y);
    if (is_scaled()) {
      const ValueId scale = graph_.add_input(graph_.unique_name("training.loss_scale"), {DType::kF32, {}, {}});
      scaled_loss_ = o.mul(loss, o.cast(scale, o.type(loss).dtype));
    }
    graph_.rename(loss, graph_.unique_name("loss"));
    graph_.rename(correct, graph_.unique_name("correct"));
    graph_.outputs = {loss, correct};
    for (const ValueId value : statistics_) graph_.outputs.push_back(next_statistics_.at(value));
  }

  // The loss with the teacher's part.
  ValueId distilled(const GraphOps& o, ValueId loss, ValueId student) {
    const Distillation& how = options_.distillation;
    const Graph& teacher = *how.teacher;
    const auto types = [](const Graph& graph) {
      return fmt::format("{} -> {}", graph.type(graph.inputs[0]).to_string(), graph.type(graph.outputs[0]).to_string());
    };
    if (!(how.weight >= 0 && how.weight <= 1))
      refuse("TSR-2081", fmt::format("distill_weight = {}", how.weight), "0 to 1");
    if (!(how.temperature > 0) || !std::isfinite(how.temperature))
      refuse("TSR-2081", fmt::format("temperature = {}", how.temperature), "a finite number above 0");
    if (teacher.inputs.size() != 1 || model_.inputs.size() != 1 || teacher.outputs.empty() ||
        types(teacher) != types(model_))
      refuse("TSR-2082", fmt::format("the teacher is {}", teacher.inputs.empty() ? "without inputs" : types(teacher)),
             fmt::format("a teacher with one input and the types of the model: {}", types(model_)));
    std::vector<ValueId> map(teacher.values().size(), -1);
    map[index(teacher.inputs[0])] = graph_.inputs[0];
    append_nodes(graph_, teacher, map, "teacher/");
    const ValueId scores = with_classes_second(o, map[index(scores_in(teacher))], graph_.inputs[0]).first;
    const ValueId part = distillation_loss(o, options_.loss, how.temperature, student, scores);
    ValueId sum = o.add(o.times(loss, 1 - how.weight), o.times(part, how.weight));
    for (size_t i = 0; i < how.features.size(); ++i) {
      const ValueId wanted = map[index(named(teacher, how.features[i].teacher, "the teacher"))];
      const ValueId given = projected(o, map_[index(named(model_, how.features[i].student, "the model"))], i);
      const ValueId apart = o.sub(o.cast(given, o.type(loss).dtype), o.cast(wanted, o.type(loss).dtype));
      const double share = how.feature_weight / static_cast<double>(std::max<int64_t>(o.type(apart).num_elements(), 1));
      sum = o.add(sum, o.times(o.total(o.mul(apart, apart)), share));
    }
    return sum;
  }

  static ValueId named(const Graph& graph, const std::string& name, const std::string& whose) {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes())
      for (const ValueId output : node.outputs) {
        if (node.op->kind == OpKind::kConstant || !is_real(graph.type(output).dtype)) continue;
        if (graph.value(output).name == name) return output;
        names.push_back(graph.value(output).name);
      }
    constexpr size_t kShown = 12;
    const bool more = names.size() > kShown;
    if (more) names.resize(kShown);
    refuse("TSR-2082", fmt::format("{} has no value '{}' to distill", whose, name),
           fmt::format("{}{}", fmt::join(names, ", "), more ? ", ..." : ""));
  }

  // The dimension in which two features differ, where a linear map makes one of the other; none: they are alike.
  std::optional<size_t> projected_dim(const FeaturePair& pair, const Shape& teacher, const Shape& student) const {
    std::vector<size_t> apart;
    for (size_t d = 0; d < std::min(teacher.size(), student.size()); ++d)
      if (!equal_extents(teacher[d], student[d])) apart.push_back(d);
    const bool can_be =
        teacher.size() == student.size() &&
        (apart.empty() || (apart.size() == 1 && apart[0] > 0 && (apart[0] == 1 || apart[0] + 1 == teacher.size())));
    if (!can_be)
      refuse("TSR-2082",
             fmt::format("'{}' of the teacher is {}, and '{}' of the model {}", pair.teacher, to_string(teacher),
                         pair.student, to_string(student)),
             "values of one shape, or with another number of channels (dimension 1 or the last)");
    return apart.empty() ? std::nullopt : std::optional(apart[0]);
  }

  // States of the maps between features of different widths: uniform numbers to begin with, as a layer's are.
  void make_projections() {
    const Distillation& how = options_.distillation;
    if (!(how.feature_weight >= 0) || !std::isfinite(how.feature_weight))
      refuse("TSR-2081", fmt::format("feature_weight = {}", how.feature_weight), "a finite number, 0 or more");
    if (!how.teacher) return;
    for (size_t i = 0; i < how.features.size(); ++i) {
      const FeaturePair& pair = how.features[i];
      const TensorType &teacher = how.teacher->type(named(*how.teacher, pair.teacher, "the teacher")),
                       &student = model_.type(named(model_, pair.student, "the model"));
      projected_dims_.push_back(projected_dim(pair, teacher.shape, student.shape));
      if (!projected_dims_.back()) continue;
      const size_t d = *projected_dims_.back();
      const int64_t to = teacher.dims()[d], from = student.dims()[d];
      std::vector<int64_t> dims = {to, from};
      if (d + 1 < student.shape.size()) dims.resize(student.shape.size(), 1);  // a convolution of single pixels
      const DType dtype = updated_in(student.dtype);
      std::mt19937_64 random(options_.seed + i);
      const double bound = 1 / std::sqrt(static_cast<double>(from));
      const auto state = [&](const char* part, const std::vector<int64_t>& of_dims) {
        Tensor initial(dtype, of_dims);
        for (int64_t e = 0; e < initial.num_elements(); ++e)
          initial.set_double(e, bound * (2 * static_cast<double>(random() >> 11) * 0x1p-53 - 1));
        const std::string name = fmt::format("distill.{}.{}", pair.student, part);
        const ValueId input = graph_.add_input(graph_.unique_name(name), TensorType{dtype, make_shape(of_dims), {}});
        projections_.push_back({name, input, std::make_shared<const Tensor>(std::move(initial))});
      };
      state("weight", dims);
      state("bias", {to});
    }
  }

  ValueId projected(const GraphOps& o, ValueId feature, size_t pair) const {
    if (!projected_dims_[pair]) return feature;
    const size_t d = *projected_dims_[pair];
    size_t place = 0;
    for (size_t i = 0; i < pair; ++i) place += projected_dims_[i] ? 2 : 0;
    const ValueId weight = projections_[place].input, bias = projections_[place + 1].input;
    const ValueId x = o.cast(feature, o.type(weight).dtype);
    const size_t rank = o.type(x).shape.size();
    if (d + 1 == rank) return o.add(o.op("matmul", {x, weight}, {{"transpose_a", false}, {"transpose_b", true}}), bias);
    const std::vector<int64_t> ones(rank - 2, 1), zeros(rank - 2, 0);
    std::vector<int64_t> channels(rank - 1, 1);
    channels[0] = o.type(bias).dims()[0];
    const ValueId y = o.op("conv", {x, weight},
                           {{"strides", ones},
                            {"pads_begin", zeros},
                            {"pads_end", zeros},
                            {"dilations", ones},
                            {"input_dilations", ones},
                            {"groups", int64_t{1}}});
    return o.add(y, o.op("reshape", {bias}, {{"shape", make_shape(channels)}}));
  }

  bool has_master(ValueId parameter) const {
    const bool learns = std::find(parameters_.begin(), parameters_.end(), parameter) != parameters_.end();
    return learns && options_.master_weights && dtype_bits(model_.type(parameter).dtype) < 32;
  }

  // A product of numbers of 16 bits in place of one of f32.
  bool is_narrowed(const Node& node) const {
    if (options_.products == DType::kF32) return false;
    const bool is_product = node.op->name == "conv" || node.op->name == "matmul" || is_composite(&node, "gemm") ||
                            is_composite(&node, "conv_transpose");
    return is_product && std::all_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId v) { return model_.type(v).dtype == DType::kF32; });
  }
  ValueId narrowed(GraphBuilder& builder, const Node& node, std::vector<ValueId> operands) const {
    const GraphOps o{builder, ops_};
    for (ValueId& operand : operands) operand = o.cast(operand, options_.products);
    Attrs attrs = node.attrs;
    if (node.op->kind != OpKind::kComposite) return o.cast(o.op(node.op->name, operands, attrs), DType::kF32);
    const auto name = attrs.get<std::string>("name");
    attrs.erase("name");
    return o.cast(add_composite(builder, ops_, name, operands, attrs)[0], DType::kF32);
  }

  void copy(GraphBuilder& builder, const Node& node) {
    if (node.outputs.size() == 1 && map_[index(node.outputs[0])] >= 0) return;  // a parameter
    std::vector<ValueId> operands;
    for (const ValueId input : node.inputs) operands.push_back(map_[index(input)]);
    builder.set_loc(node.loc);
    if (is_composite(&node, "batch_norm") && is_statistic(node.inputs[3]) && is_statistic(node.inputs[4])) {
      const double epsilon = node.attrs.get<double>("epsilon");
      const std::vector<ValueId> results =
          sees_all_ranks()
              ? shared_batch_norm({builder, ops_}, operands, epsilon)
              : add_composite(builder, ops_, "batch_norm_training", operands,
                              {{"epsilon", epsilon}, {"momentum", kStatisticsMomentum}, {"unbiased", true}});
      map_[index(node.outputs[0])] = results[0];
      next_statistics_[node.inputs[3]] = results[1];
      next_statistics_[node.inputs[4]] = results[2];
      return;
    }
    if (is_composite(&node, "dropout")) {
      map_[index(node.outputs[0])] = dropped({builder, ops_}, operands[0], node.attrs.get<double>("ratio"),
                                             seed_of(node, dropouts_), {done_, part_}, dropouts_.next++);
      return;
    }
    if (is_narrowed(node)) {
      map_[index(node.outputs[0])] = narrowed(builder, node, operands);
      return;
    }
    if (is_composite(&node, "fake_quantize") && is_statistic(node.inputs[1]) && is_statistic(node.inputs[2])) {
      const GraphOps o{builder, ops_};
      const ValueId low = moved_range(o, operands[0], operands, "min"),
                    high = moved_range(o, operands[0], operands, "max");
      next_statistics_[node.inputs[1]] = low;
      next_statistics_[node.inputs[2]] = high;
      map_[index(node.outputs[0])] = add_composite(builder, ops_, "fake_quantize", {operands[0], low, high},
                                                   {{"to", node.attrs.get<DType>("to")}})[0];
      return;
    }
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(model_.value(output).name);
    const std::vector<ValueId> results =
        dropped_in_regions(builder, ops_, node, operands, names, {done_, part_}, dropouts_);
    for (size_t i = 0; i < results.size(); ++i) map_[index(node.outputs[i])] = results[i];
  }

  // Statistics are of all ranks' samples; of leaves and micro-batches, of each part's.
  bool sees_all_ranks() const {
    const DataParallel& how = options_.parallel;
    return how.ranks > 1 && how.leaves == 0 && !how.pipeline.is_used();
  }

  // The sum (or greatest) of all ranks' v.
  ValueId over_ranks(const GraphOps& o, const char* kind, ValueId v) const {
    return collective(o, "all_reduce", v, options_.parallel, kind);
  }

  // One end of a range: the batch's own at first (both ends are equal: nothing was seen), then moved towards it.
  ValueId moved_range(const GraphOps& o, ValueId x, const std::vector<ValueId>& operands, const char* end) const {
    const ValueId old = operands[end == std::string_view("min") ? 1 : 2];
    ValueId seen = o.over_all(end, x);
    if (sees_all_ranks()) seen = o.times(over_ranks(o, "sum", seen), 1 / static_cast<double>(options_.parallel.ranks));
    const ValueId moved = o.add(old, o.times(o.sub(seen, old), 1 - kRangeMomentum));
    return o.op("select", {o.op("eq", {operands[1], operands[2]}), seen, moved});
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
    const auto total = [&](ValueId v) { return over_ranks(o, "sum", o.reduce("sum", v, axes, true)); };
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
    return scores_in(model_);
  }

  // Without the softmax that a classifier ends with.
  ValueId scores_in(const Graph& model) const {
    const ValueId output = model.outputs[0];
    const Node* producer = model.producer(output);
    if (options_.loss == LossKind::kCrossEntropy && is_composite(producer, "softmax") &&
        producer->attrs.get_int("axis") == static_cast<int64_t>(class_axis(model.type(output))))
      return producer->inputs[0];
    return output;
  }

  bool has_classes() const { return options_.loss != LossKind::kMeanSquaredError; }
  size_t class_axis(const TensorType& scores) const { return options_.classes_last ? scores.shape.size() - 1 : 1; }

  TensorType target_type(ValueId scores) const {
    TensorType type = model_.type(scores);
    type.layout = {};
    if (!has_classes()) return type;
    type.shape.erase(type.shape.begin() + static_cast<std::ptrdiff_t>(class_axis(type)));
    return {DType::kI64, type.shape, {}};
  }

  // Scores and targets as [N, classes, ...] and [N, ...].
  std::pair<ValueId, ValueId> with_classes_second(const GraphOps& o, ValueId y, ValueId target) const {
    const Shape shape = o.type(y).shape;
    if (!has_classes() || !options_.classes_last || shape.size() == 2) return {y, target};
    Expr places = 1;
    for (size_t d = 0; d + 1 < shape.size(); ++d) places = normalize_size(places * shape[d]);
    return {o.op("reshape", {y}, {{"shape", Shape{places, shape.back()}}}),
            o.op("reshape", {target}, {{"shape", Shape{places}}})};
  }

  // A state: what it is before the step and after it.
  struct Moving {
    std::string name;
    ValueId before = -1, after = -1;
    TensorPtr initial;  // null: zeros
  };

  TrainingStep update() {
    std::vector<ValueId> wrt;
    for (const ValueId value : parameters_) wrt.push_back(state_of_.at(value));
    for (const Projection& projection : projections_) wrt.push_back(projection.input);
    const size_t num_own = model_.inputs.size() + 2;
    const PipelineShape& pipeline = options_.parallel.pipeline;
    const std::vector<ValueId> all_parameters = parameters_, all_statistics = statistics_;
    std::vector<std::vector<int64_t>> stages;  // of parameters, then of statistics
    Graph graph;
    if (pipeline.is_used()) {
      stages = stages_of_parameters(graph_, num_batched(), pipeline);
      for (std::vector<int64_t>& of_one : stages)
        if (of_one.empty()) of_one = {0};
      graph = pipeline_step(graph_, num_batched(), wrt, options_.parallel, ops_, part_input_).graph;
      size_t place = 0;
      const auto is_elsewhere = [&](ValueId) {
        const std::vector<int64_t>& of_one = stages[place++];
        return std::find(of_one.begin(), of_one.end(), pipeline.stage) == of_one.end();
      };
      for (size_t i = 0; i < parameters_.size(); ++i)
        if (std::find(stages[i].begin(), stages[i].end(), pipeline.stage) != stages[i].end())
          is_first_.push_back(stages[i].front() == pipeline.stage);
      std::erase_if(parameters_, is_elsewhere);
      std::erase_if(statistics_, is_elsewhere);
    } else {
      graph = share_batch(gradients(graph_, scaled_loss_ >= 0 ? scaled_loss_ : graph_.outputs[0], wrt, ops_),
                          num_batched(), statistics_.size(), options_.parallel, ops_, part_input_);
    }
    ValueId messages = -1;
    if (pipeline.is_used()) {
      messages = graph.outputs.back();
      graph.outputs.pop_back();
    }
    std::vector<TensorType> whole;  // of the parameters
    for (size_t i = 0; i < parameters_.size(); ++i) whole.push_back(graph.type(graph.inputs[num_own + i]));
    if (has_parts() && options_.parallel.leaves == 0)
      graph = gather_parameters(graph, num_own, parameters_.size(), statistics_.size(), options_.parallel, ops_);
    else if (has_parts()) graph = of_parts(graph, num_own);
    GraphBuilder builder(graph);
    const GraphOps o{builder, ops_};
    const ValueId rate = graph.inputs[num_own - 1];
    const auto begin = graph.outputs.begin() + 2;
    std::vector<ValueId> given(begin + std::ssize(statistics_), graph.outputs.end());
    const std::vector<ValueId> statistics(begin, begin + std::ssize(statistics_));
    graph.outputs.resize(2);

    TrainingStep step;
    std::vector<Moving> states;
    size_t input = num_own;
    for (const auto& [values, names] :
         {std::pair{&parameters_, &step.parameters}, std::pair{&statistics_, &step.statistics}})
      for (const ValueId value : *values) {
        names->push_back(model_.value(value).name);
        taken_.insert(names->back());
        const bool is_part = has_parts() && values == &parameters_;
        if (is_part) step.cut.push_back({names->back(), whole[states.size()]});
        const TensorPtr first = initial(value);
        states.push_back({names->back(), graph.inputs[input++], -1,
                          is_part ? std::make_shared<const Tensor>(own_shard(*first, options_.parallel)) : first});
      }
    for (const Projection& projection : projections_)
      states.push_back({free_name(projection.name), graph.inputs[input++], -1, projection.initial});
    std::vector<Moving> last;  // what counts steps
    const auto number_state = [&](const char* name, DType dtype, bool is_there, TensorPtr initial) {
      const ValueId before =
          is_there ? graph.inputs[input++] : graph.add_input(graph.unique_name(name), {dtype, {}, {}});
      last.push_back({free_name(name), before, before, std::move(initial)});
      return before;
    };
    const ValueId done = number_state("training.step", DType::kI64, reads_step_, nullptr);

    ok_ = -1;
    ValueId updates = done;  // that were done before
    builder.set_loc("training.step");
    if (options_.guarded) require(o, finite(o, graph.outputs[0]));
    if (is_scaled()) {
      const ValueId scale = number_state("training.loss_scale", DType::kF32, true, first_scale());
      const ValueId grown = number_state("training.scaled_steps", DType::kI64, false, nullptr);
      updates = number_state("training.updates", DType::kI64, false, nullptr);
      unscale(o, given, scale);
      last[1].after = next_scale(o, scale, grown);
      last[2].after =
          o.op("select", {has_grown(o, grown), o.integer(0), o.op("select", {ok_, o.plus(grown, 1), o.integer(0)})});
    }
    std::vector<Moving> weighed = weigh(o, states, given);
    if (options_.clip_norm > 0) clip(o, given);

    builder.set_loc("training.step");
    const ValueId number = o.plus(updates, 1);
    const StepNumbers numbers{rate, o.cast(number, DType::kF64), ok_};
    std::vector<Moving> moments, masks;
    std::vector<size_t> learnt;  // numbers of states
    for (size_t i = 0; i < states.size(); ++i)
      if (i < parameters_.size() || i >= parameters_.size() + statistics_.size()) learnt.push_back(i);
    for (size_t g = 0; g < learnt.size(); ++g) {
      const size_t i = learnt[g];
      builder.set_loc(states[i].name + ".update");
      const Shards shards(o, options_.parallel);
      const TensorType type = i < whole.size() ? whole[i] : graph.type(states[i].before);
      const bool is_cut = options_.parallel.is_cut();
      const ValueId own = is_cut && !has_parts() ? shards.own(shards.row(states[i].before)) : states[i].before;
      const TensorType wide = {updated_in(type.dtype), graph.type(own).shape, {}};
      const size_t first = moments.size();
      std::vector<ValueId> before;
      for (const std::string& name : moment_names(options_.optimizer)) {
        const std::string wanted = free_name(fmt::format("{}.{}", states[i].name, name));
        before.push_back(graph.add_input(graph.unique_name(wanted), wide));
        moments.push_back({wanted, before.back(), -1, nullptr});
        if (is_cut) step.cut.push_back({wanted, {wide.dtype, type.shape, {}}});
      }
      const std::vector<ValueId> next =
          optimizer_step(o, options_.optimizer, numbers, o.cast(own, wide.dtype), o.cast(given[g], wide.dtype), before);
      ValueId after = o.cast(next[0], type.dtype);
      if (is_cut && !has_parts()) after = shards.whole(after, type.shape);
      if (is_masked(states[i].name)) {
        const std::string wanted = free_name(states[i].name + ".mask");
        const ValueId mask = graph.add_input(graph.unique_name(wanted), type);
        masks.push_back({wanted, mask, mask, ones(type)});
        after = o.mul(after, has_parts() ? shards.own(shards.row(mask)) : mask);
      }
      states[i].after = after;
      for (size_t m = 0; m < before.size(); ++m) moments[first + m].after = next[m + 1];
    }
    builder.set_loc("training.step");
    for (size_t i = 0; i < statistics.size(); ++i) {
      Moving& statistic = states[parameters_.size() + i];
      statistic.after = kept_unless_ok(o, statistics[i], statistic.before);
    }
    if (ok_ >= 0) {
      graph.outputs.push_back(o.cast(ok_, DType::kI64));
      graph.rename(graph.outputs.back(), graph.unique_name("finite"));
    }
    // With a scaled loss, steps that changed nothing count, too: they have seen their samples.
    if (is_scaled()) {
      last[3].after = kept_unless_ok(o, number, updates);
      last[0].after = o.plus(done, 1);
    } else {
      last[0].after = kept_unless_ok(o, number, done);
    }
    if (messages >= 0) graph.outputs.push_back(messages);
    std::rotate(last.begin(), last.begin() + 1, last.end());  // the number of steps is the last of all
    for (const auto* more : {&moments, &masks, &weighed, &last})
      states.insert(states.end(), more->begin(), more->end());
    if (pipeline.is_used()) {
      step.parameters.clear();
      step.statistics.clear();
      for (const ValueId value : all_parameters) step.parameters.push_back(model_.value(value).name);
      for (const ValueId value : all_statistics) step.statistics.push_back(model_.value(value).name);
      step.placed = placed_states(all_parameters, all_statistics, stages);
    }
    finish(graph, num_own, states);
    step.graph = std::move(graph);
    return step;
  }

  // Of a pipeline: what update() makes, of all stages.
  std::vector<PlacedState> placed_states(const std::vector<ValueId>& parameters, const std::vector<ValueId>& statistics,
                                         const std::vector<std::vector<int64_t>>& stages) const {
    std::vector<PlacedState> placed;
    for (const std::vector<ValueId>* values : {&parameters, &statistics})
      for (const ValueId value : *values)
        placed.push_back({model_.value(value).name, graph_.type(state_of_.at(value)), stages[placed.size()]});
    for (size_t i = 0; i < parameters.size(); ++i)
      for (const std::string& name : moment_names(options_.optimizer)) {
        const TensorType type = placed[i].type;
        placed.push_back({fmt::format("{}.{}", placed[i].name, name),
                          {updated_in(type.dtype), type.shape, {}},
                          stages[i],
                          options_.parallel.is_cut()});
      }
    for (size_t i = 0; i < parameters.size(); ++i)
      if (is_masked(placed[i].name)) placed.push_back({placed[i].name + ".mask", placed[i].type, stages[i]});
    placed.push_back({"training.step", {DType::kI64, {}, {}}, {}});
    return placed;
  }

  // How much the loss changes without what one entry of a parameter's dimension makes.
  std::vector<Moving> weigh(const GraphOps& o, const std::vector<Moving>& states, const std::vector<ValueId>& given) {
    std::vector<Moving> result;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto found = std::find_if(options_.weighed.begin(), options_.weighed.end(),
                                      [&](const WeighedDim& dim) { return dim.parameter == states[i].name; });
      if (found == options_.weighed.end()) continue;
      o.builder.set_loc(states[i].name + ".importance");
      std::vector<int64_t> axes = o.all_axes(given[i]);
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(found->dim));
      const auto f32 = [&](ValueId v) { return o.cast(v, DType::kF32); };
      ValueId change = o.mul(f32(states[i].before), f32(given[i]));
      if (!axes.empty()) change = o.reduce("sum", change, axes, false);
      const std::string name = free_name(states[i].name + ".importance");
      const TensorType type = o.type(change);  // adding an input moves the graph's own
      const ValueId before = o.builder.graph().add_input(o.builder.graph().unique_name(name), type);
      const ValueId moved =
          o.add(o.times(before, kImportanceMomentum), o.times(o.mul(change, change), 1 - kImportanceMomentum));
      result.push_back({name, before, kept_unless_ok(o, moved, before), nullptr});
    }
    return result;
  }

  static void finish(Graph& graph, size_t num_own, const std::vector<Moving>& states) {
    graph.inputs.resize(num_own);
    for (const Moving& state : states) {
      graph.states.push_back({state.name, state.initial});
      graph.inputs.push_back(state.before);
      graph.outputs.push_back(state.after);
    }
  }

  // Ranks keep parts of the parameters, and put them together in each step; for leaves, which are parts of a loop,
  // before all else.
  bool has_parts() const { return options_.parallel.is_cut() && options_.parallel.zero > 2; }

  // The graph of whole parameters, whose inputs stand behind the first `num_own`, as one of this rank's parts.
  Graph of_parts(const Graph& graph, size_t num_own) const {
    Graph result;
    result.copy_header(graph);
    GraphBuilder builder(result);
    const GraphOps o{builder, ops_};
    std::vector<ValueId> map(graph.values().size(), -1);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const ValueId input = graph.inputs[i];
      TensorType type = graph.type(input);
      const bool is_part = i >= num_own && i < num_own + parameters_.size();
      const Shape shape = type.shape;
      if (is_part) type.shape = {shard_size(type.num_elements(), options_.parallel.ranks)};
      map[index(input)] = result.add_input(graph.value(input).name, type);
      builder.set_loc("all_gather " + graph.value(input).name);
      if (is_part) map[index(input)] = Shards(o, options_.parallel).whole(map[index(input)], shape);
    }
    append_nodes(result, graph, map);
    for (const ValueId output : graph.outputs) result.outputs.push_back(map[index(output)]);
    return result;
  }

  bool is_scaled() const { return options_.loss_scale > 0; }
  bool is_masked(const std::string& name) const {
    return std::find(options_.masked.begin(), options_.masked.end(), name) != options_.masked.end();
  }

  static TensorPtr ones(const TensorType& type) {
    Tensor tensor(type.dtype, type.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, 1);
    return std::make_shared<const Tensor>(std::move(tensor));
  }
  TensorPtr first_scale() const {
    return std::make_shared<const Tensor>(Tensor::scalar_f32(static_cast<float>(options_.loss_scale)));
  }

  void require(const GraphOps& o, ValueId condition) {
    ok_ = ok_ < 0 ? condition : o.op("logical_and", {ok_, condition});
  }

  // Gradients of a loss that was multiplied by the scale become its own, and are held to be finite.
  void unscale(const GraphOps& o, std::vector<ValueId>& given, ValueId scale) {
    const ValueId inverse = o.div(o.scalar(1, DType::kF32), scale);
    for (ValueId& g : given) {
      g = o.mul(g, o.cast(inverse, o.type(g).dtype));
      const ValueId wrong = o.op("logical_or", {o.op("is_nan", {g}), o.op("is_inf", {g})});
      ValueId any = o.over_all("max", o.cast(wrong, DType::kI32));
      if (options_.parallel.is_cut()) any = over_ranks(o, "max", any);
      require(o, o.op("eq", {any, o.zero(DType::kI32)}));
    }
  }
  ValueId has_grown(const GraphOps& o, ValueId grown) const {
    return o.op("logical_and", {ok_, o.op("ge", {o.plus(grown, 1), o.integer(kScaleGrowth)})});
  }
  ValueId next_scale(const GraphOps& o, ValueId scale, ValueId grown) const {
    const ValueId more = o.op("select", {has_grown(o, grown), o.times(scale, 2), scale});
    return o.op("select", {ok_, more, o.times(scale, 0.5)});
  }

  static ValueId finite(const GraphOps& o, ValueId number) {
    const DType dtype = o.type(number).dtype;
    return o.op("lt", {o.op("abs", {number}), o.scalar(std::numeric_limits<double>::infinity(), dtype)});
  }

  ValueId kept_unless_ok(const GraphOps& o, ValueId after, ValueId before) const {
    return ok_ >= 0 ? o.op("select", {ok_, after, before}) : after;
  }

  // A name of a state, which weights of the model may have already.
  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  // Gradients of which this rank has some: a norm is a sum over the others', too.
  ValueId of_all(const GraphOps& o, ValueId sum) const {
    if (options_.parallel.is_cut()) sum = over_ranks(o, "sum", sum);
    if (options_.parallel.pipeline.stages < 2) return sum;
    return collective(o, "all_reduce", sum, options_.parallel, "sum", "", "stage");
  }

  // All gradients times min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does.
  void clip(const GraphOps& o, std::vector<ValueId>& given) {
    o.builder.set_loc("training.clip_norm");
    ValueId sum = -1;
    for (size_t i = 0; i < given.size(); ++i) {
      if (i < is_first_.size() && !is_first_[i]) continue;
      const ValueId g = given[i];
      // As a product of one long row with itself: sums over the short rows of filters are no vectors.
      const ValueId row = o.op("reshape", {g}, {{"shape", Shape{1, o.type(g).num_elements()}}});
      const ValueId product = o.op("matmul", {row, row}, {{"transpose_a", false}, {"transpose_b", true}});
      const ValueId squares = o.op("reshape", {product}, {{"shape", Shape{}}});
      sum = sum < 0 ? squares : o.add(sum, squares);
    }
    if (sum < 0) sum = o.zero(model_.type(model_.outputs[0]).dtype);
    sum = of_all(o, sum);
    const DType dtype = o.type(sum).dtype;
    if (options_.guarded) require(o, finite(o, sum));
    const ValueId part = o.div(o.scalar(options_.clip_norm, dtype), o.plus(o.sqrt(sum), 1e-6));
    const ValueId factor = o.op("min", {part, o.scalar(1, dtype)});
    for (ValueId& g : given) g = o.mul(g, factor);
  }

  const Graph& model_;
  const TrainingOptions& options_;
  const OpTable& ops_;
  std::vector<ValueId> parameters_, statistics_;  // of the model
  std::map<ValueId, ValueId> next_statistics_;
  struct Projection {
    std::string name;
    ValueId input;
    TensorPtr initial;
  };
  std::vector<Projection> projections_;                // a weight and a bias for each
  std::vector<std::optional<size_t>> projected_dims_;  // by pair of features
  std::set<std::string> taken_;                        // names of states
  Graph graph_;
  std::vector<ValueId> map_;
  std::map<ValueId, ValueId> state_of_;  // by the constant of the model
  bool reads_step_ = false;              // for its random numbers
  DropoutNumbers dropouts_;
  std::vector<bool> is_first_;  // of a pipeline, by parameter: no stage before this one has it, too
  ValueId done_ = -1, part_ = -1, scaled_loss_ = -1;
  std::ptrdiff_t part_input_ = -1;  // the place of `part_` among the inputs
  ValueId ok_ = -1;                 // bool[]: what is watched is finite; -1: nothing is
};

}  // namespace

std::vector<std::string> parameter_names(const Graph& model, const OpTable&) {
  std::vector<std::string> names;
  for (const ValueId value : parameters_of(model)) names.push_back(model.value(value).name);
  return names;
}

ModelWithLoss model_with_loss(const Graph& model, const TrainingOptions& options, const OpTable& ops) {
  return StepBuilder(model, options, ops).with_loss();
}

TrainingStep training_step(const Graph& model, const TrainingOptions& options, const OpTable& ops) {
  return StepBuilder(model, options, ops).build();
}

}  // namespace tessera::inline train
