#include "driver/training/train_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "driver/compile_options.h"
#include "driver/engine/output_guard.h"
#include "driver/pipeline_plan.h"
#include "driver/training/learner.h"
#include "driver/training/pruning.h"
#include "driver/training/tensor_parallel.h"
#include "driver/training/trained_bundle.h"
#include "driver/training/whole_states.h"
#include "graph/hash.h"
#include "graph/printer.h"
#include "ops/op_table.h"
#include "package/atomic_file.h"
#include "program/rematerialize.h"
#include "support/error.h"
#include "support/refuse.h"
#include "train/shards.h"
#include "train/training_step.h"
#include "train/weights.h"

namespace tessera::inline driver {

namespace {

constexpr int64_t kMostEpochs = 1'000'000'000;  // times the steps of one fits 64 bits

void check_numbers(const TrainSettings& settings) {
  if (!(settings.rate > 0) || !std::isfinite(settings.rate))
    refuse("TSR-4080", fmt::format("--lr {}", settings.rate), "a finite learning rate above 0", "0.001 is a usual one");
  if (settings.batch < 1) refuse("TSR-4080", fmt::format("--batch {}", settings.batch), "at least one sample");
  if (settings.epochs < 1 || settings.epochs > kMostEpochs)
    refuse("TSR-4080", fmt::format("--epochs {}", settings.epochs), fmt::format("1 to {} epochs", kMostEpochs));
  if (settings.leaves < 0) refuse("TSR-4080", fmt::format("--leaves {}", settings.leaves), "0 leaves or more");
  if (settings.warmup < 0) refuse("TSR-4080", fmt::format("--warmup {}", settings.warmup), "0 steps or more");
  if (settings.qat_bits < 2 || settings.qat_bits > 8)
    refuse("TSR-4080", fmt::format("--qat-bits {}", settings.qat_bits), "2 to 8 bits");
  if (settings.zero < 0 || settings.zero > 3)
    refuse("TSR-4080", fmt::format("--zero {}", settings.zero), "0 to 3, the stages of ZeRO");
}

// The place of a word.
template <size_t kWords>
size_t word(const char* flag, const std::string& value, const std::array<const char*, kWords>& words) {
  const auto found = std::find(words.begin(), words.end(), value);
  if (found == words.end())
    refuse("TSR-4080", fmt::format("{} {}", flag, value), fmt::format("{}", fmt::join(words, ", ")));
  return static_cast<size_t>(found - words.begin());
}

RateSchedule schedule_of(const TrainSettings& settings) {
  static constexpr std::array<const char*, 3> kNames = {"constant", "cosine", "linear"};
  RateSchedule schedule;
  schedule.rate = settings.rate;
  schedule.warmup = settings.warmup;
  schedule.kind = static_cast<RateSchedule::Kind>(word("--schedule", settings.schedule, kNames));
  return schedule;
}

TrainingOptions step_options(const TrainSettings& settings) {
  static constexpr std::array<const char*, 3> kProducts = {"f32", "bf16", "f16"};
  static constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kBF16, DType::kF16};
  TrainingOptions options;
  options.loss = loss_kind(settings.loss);
  options.optimizer.kind = optimizer_kind(settings.optimizer);
  options.optimizer.momentum = settings.momentum;
  options.optimizer.nesterov = settings.nesterov;
  options.optimizer.weight_decay = settings.weight_decay;
  options.clip_norm = settings.clip_norm;
  options.label_smoothing = settings.label_smoothing;
  options.classes_last = settings.classes_last;
  options.ignored = settings.ignored;
  options.guarded = true;
  options.frozen = settings.frozen;
  options.seed = settings.seed;
  options.loss_scale = settings.loss_scale;
  options.master_weights = true;
  options.products = kTypes[word("--products", settings.products, kProducts)];
  options.distillation.weight = settings.distill_weight;
  options.distillation.temperature = settings.temperature;
  for (const auto& [teacher, student] : settings.features) options.distillation.features.push_back({teacher, student});
  options.distillation.feature_weight = settings.feature_weight;
  if (!settings.features.empty() && settings.teacher.empty())
    refuse("TSR-4080", "--distill-features without a teacher", "--distill TEACHER beside it");
  check_optimizer(options.optimizer);
  return options;
}

void check_bundle(const TrainingRequest& request, const ProcessRank& process) {
  if (!request.settings.with_step) return;
  const auto refuse_with = [](const std::string& what, const std::string& legal) {
    refuse("TSR-4080", what, legal, "--with-step keeps the model that learns as it is");
  };
  if (request.output.empty() || request.output.ends_with(".onnx") || request.output.ends_with(".graph"))
    refuse_with("--with-step without a module to write", "-o FILE.so");
  if (process.ranks > 1) refuse_with("--with-step in several processes", "one process");
  if (request.settings.prune.starts_with("channels"))
    refuse_with("--with-step with --prune channels", "--prune 0.8, or 2:4");
}

int64_t batch_of(const TensorType& input) {
  const auto batch = input.shape.empty() ? std::optional<int64_t>(1) : as_int(input.shape[0]);
  return batch.value_or(1);
}

// How this process shares batches with others, and the samples of one part.
DataParallel shared_with(const TrainingGroup& group, const TrainSettings& settings) {
  const auto& [process, stages, tensor] = group;
  const int64_t of_batch = stages.stages * tensor;  // that have the same samples
  PipelineShape pipeline = stages;
  // The parts of a rank are the micro-batches of one stage then: ranks share what no loop hides.
  if (tensor > 1 && settings.leaves > 0 && !pipeline.is_used())
    pipeline.micro_batches = std::max<int64_t>(settings.leaves / (process.ranks / of_batch), 1);
  const DataParallel parallel{process.ranks / of_batch, settings.leaves, settings.zero,
                              process.rank / of_batch,  pipeline,        tensor,
                              process.rank % tensor};
  check_data_parallel(parallel);
  if (settings.batch % parallel.parts() != 0)
    refuse("TSR-4080", fmt::format("--batch {}", settings.batch),
           fmt::format("a multiple of {}, the number of parts", parallel.parts()));
  const bool has_parts = parallel.is_cut() && settings.zero > 2;
  if ((has_parts || pipeline.is_used() || tensor > 1) && settings.prune.starts_with("channels"))
    refuse("TSR-4080", "--prune channels of layers that processes have parts of", "--prune 0.8, or 2:4",
           "or share batches alone, with --zero 0 to 2");
  return parallel;
}

std::vector<std::string> unfrozen(std::vector<std::string> names, const std::vector<std::string>& frozen) {
  std::erase_if(names,
                [&](const std::string& name) { return std::find(frozen.begin(), frozen.end(), name) != frozen.end(); });
  return names;
}

// Bytes of states of this process: of parameters, the first ones of `learnt`, and of what the optimizer keeps.
std::pair<int64_t, int64_t> kept_bytes(const Model& step, const std::vector<std::string>& learnt,
                                       size_t num_parameters) {
  std::pair<int64_t, int64_t> bytes;
  for (const TensorInfo& info : step.states()) {
    const int64_t size = dtype_bytes(info.dtype, elements_of(info));
    const auto place = std::find(learnt.begin(), learnt.end(), info.name) - learnt.begin();
    if (place < static_cast<std::ptrdiff_t>(num_parameters)) bytes.first += size;
    else if (place == std::ssize(learnt)) bytes.second += size;
  }
  return bytes;
}

std::string hash_text(const Graph& graph) { return fmt::format("{:016x}", structural_hash(graph)); }

std::string settings_text(const TrainSettings& settings, const TrainingData& data, const DataParallel& how,
                          const Graph& model, const TrainingStep& made) {
  return fmt::format(
      "batch {} x {}, seed {}, epochs {}, loss {}, optimizer {}, lr {}, schedule {} {}, step {}, {} samples{}{}",
      how.parts(), model.type(model.inputs[0]).to_string(), settings.seed, settings.epochs, settings.loss,
      settings.optimizer, settings.rate, settings.schedule, settings.warmup, hash_text(made.graph), data.train.size(),
      settings.in_order ? " in order" : "",
      settings.prune.empty()
          ? ""
          : ", prune " + settings.prune + (settings.importance == "l1" ? "" : " by " + settings.importance));
}

// One training: what its parts share.
class Training {
 public:
  Training(const TrainingRequest& request, const TrainingData& data, const TrainingGroup& group)
      : request_(request),
        settings_(request.settings),
        data_(data),
        process_(group.process),
        parallel_(shared_with(group, settings_)),
        options_(step_options(settings_)),
        started_(std::chrono::steady_clock::now()) {
    loop_options_ = {.epochs = settings_.epochs,
                     .seed = settings_.seed,
                     .shuffled = !settings_.in_order,
                     .schedule = schedule_of(settings_),
                     .checkpoint = settings_.checkpoint,
                     .checkpoint_steps = settings_.checkpoint_steps,
                     .writes = process_.is_first(),
                     .model_hash = {},
                     .settings = {},
                     .classes = 0,
                     .ignored = settings_.ignored,
                     .classes_last = settings_.classes_last,
                     .find_not_finite = nullptr,
                     .parallel = parallel_};
  }

  void compile(const TrainingWatch& watch);
  // What there is to say before the first step; goes on from a checkpoint, where there is one.
  TrainingPlan begin();
  TrainingOutcome run(const TrainingWatch& watch, bool keep_interrupted);

 private:
  bool has_classes() const { return options_.loss != LossKind::kMeanSquaredError; }
  // The model for one part, with the teacher for as many samples.
  Graph prepared(const DataParallel& how);

  const TrainingRequest& request_;
  const TrainSettings& settings_;
  const TrainingData& data_;
  const ProcessRank process_;
  DataParallel parallel_;
  TrainingOptions options_;
  const std::chrono::steady_clock::time_point started_;
  Graph teacher_;
  std::optional<Pruner> pruner_;
  LoopOptions loop_options_;
  Graph step_graph_;  // its states without values
  std::unique_ptr<Model> step_, inference_;
  std::optional<WholeStates> whole_;
  std::optional<TrainingLoop> loop_;
  std::vector<std::string> learnt_;  // and statistics
  TrainingPlan plan_;
};

Graph Training::prepared(const DataParallel& how) {
  const int64_t batch = settings_.batch / how.parts();
  const Graph model =
      with_shared_constants(learner(read_graph(request_.model, request_, batch), request_), standard_ops());
  const std::vector<std::string> learn = parameter_names(model, standard_ops());
  pruner_.emplace(model, unfrozen(learn, settings_.frozen), prune_spec(settings_.prune),
                  importance_named(settings_.importance));
  options_.masked = pruner_->masked();
  options_.weighed = pruner_->weighed();
  options_.parallel = how;
  if (!settings_.teacher.empty()) {
    teacher_ = without_dropouts(read_graph(settings_.teacher, request_, batch));
    options_.distillation.teacher = &teacher_;
  }
  return with_fake_integers(model, request_);
}

void Training::compile(const TrainingWatch& watch) {
  // What a checkpoint is made with is said of one process: any number of them goes on.
  const bool tells = (parallel_.ranks > 1 || parallel_.tensor > 1 || parallel_.pipeline.is_used()) &&
                     !(settings_.checkpoint + settings_.resume).empty();
  const auto describe = [&](const DataParallel& how, const Graph& model, const TrainingStep& made) {
    loop_options_.settings = settings_text(settings_, data_, how, model, made);
    loop_options_.model_hash = hash_text(model);
  };
  if (tells) {
    const DataParallel alone{1, parallel_.leaves};
    const Graph model = prepared(alone);
    describe(alone, model, training_step(model, options_, standard_ops()));
  }
  const Graph model = prepared(parallel_);
  if (parallel_.pipeline.is_used() && parallel_.pipeline.cuts.empty()) {
    parallel_.pipeline.cuts = choose_cuts(model, options_, {}, options_of_graph(request_));
    options_.parallel = loop_options_.parallel = parallel_;
  }
  if (model.num_own_inputs() != 1)
    refuse("TSR-6231", fmt::format("the model has {} inputs", model.num_own_inputs()), "a model with one input");
  require_batch(data_, batch_of(model.type(model.inputs[0])) * parallel_.parts());
  TrainingStep made = training_step(model, options_, standard_ops());
  if (!tells) describe(parallel_, model, made);
  const NumericsMode numerics = numerics_of(request_.driver.compile);
  share_layers(made, parallel_, numerics == NumericsMode::kDeterministic || numerics == NumericsMode::kStrict);
  if (pruner_->is_used())
    loop_options_.at_epoch = [this](int64_t epoch) { pruner_->at_epoch(*whole_, epoch, settings_.epochs); };
  loop_options_.skips = settings_.loss_scale > 0;
  learnt_ = made.parameters;
  learnt_.insert(learnt_.end(), made.statistics.begin(), made.statistics.end());
  plan_.num_parameters = made.parameters.size();
  if (!settings_.step.empty() && process_.is_first()) write_file(settings_.step, "output", print(made.graph));
  if (has_classes()) {
    const std::vector<int64_t> scores = model.type(model.outputs[0]).dims();
    loop_options_.classes = settings_.classes_last ? scores.back() : scores.at(1);
  }
  if (!data_.test.empty()) inference_ = compiled(with_states(model, learnt_), request_);
  std::vector<State> states;
  for (State& state : made.graph.states) states.push_back({state.name, std::exchange(state.initial, nullptr)});
  step_graph_ = made.graph;
  loop_options_.find_not_finite = [this](const std::vector<Tensor>& inputs) {
    return cause_of(step_graph_, inputs, request_);
  };
  made.graph.states = std::move(states);
  std::unique_ptr<Model> gather;
  if (!WholeStates::has_everything(made, parallel_))
    gather = compiled(gathering(gathered_bytes(made, parallel_), parallel_, standard_ops()), request_);
  {
    const Compiled code = compiled_code(std::move(made.graph), request_);
    plan_.memory_bytes = session_bytes(code.program);
    if (watch.compiles) watch.compiles();
    step_ = loaded(code, request_);
  }
  whole_.emplace(*step_, made, parallel_, std::move(gather));
}

TrainingPlan Training::begin() {
  loop_.emplace(*step_, *whole_, inference_.get(), data_, loop_options_);
  if (!settings_.resume.empty()) loop_->resume(settings_.resume);
  for (size_t i = 0; i < plan_.num_parameters; ++i) plan_.num_numbers += elements_of(whole_->info(i));
  std::tie(plan_.parameter_bytes, plan_.optimizer_bytes) = kept_bytes(*step_, learnt_, plan_.num_parameters);
  plan_.train = data_.train.size();
  plan_.test = data_.test.size();
  plan_.steps_per_epoch = loop_->steps_per_epoch();
  plan_.batch = loop_->batch();
  plan_.steps_done = loop_->steps_done();
  plan_.has_classes = has_classes();
  plan_.parallel = parallel_;
  plan_.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  return plan_;
}

TrainingOutcome Training::run(const TrainingWatch& watch, bool keep_interrupted) {
  TrainingOutcome outcome;
  const std::atomic<bool> never = false;
  outcome.loop = loop_->run(watch.stop ? *watch.stop : never, [&](const EpochReport& report) {
    outcome.last = report;
    if (watch.on_epoch) watch.on_epoch(report);
  });
  outcome.plan = plan_;
  outcome.steps_done = loop_->steps_done();
  if (outcome.loop.interrupted && !keep_interrupted) return outcome;
  if (outcome.loop.losses.empty()) loop_->test(outcome.last);  // there was nothing left to do
  std::optional<Finish> finish;
  if (settings_.with_step) write_bundle(request_, step_graph_, *whole_, learnt_);
  else if (!request_.output.empty() &&
           (process_.is_first() || whole_->any_is_shared()))  // all ranks have parts of what is written
    finish = finish_of(request_, *step_, *whole_, *pruner_, learnt_);
  if (process_.is_first() && finish) write_trained(request_, *finish);
  if (pruner_->is_used()) outcome.sparsity = pruner_->sparsity(*whole_);
  if (watch.ends) watch.ends(*step_);
  return outcome;
}

}  // namespace

void refuse_files_of_training(const std::string& model, const std::string& output, const TrainSettings& settings,
                              const std::vector<std::string>& data, const std::vector<std::string>& more) {
  std::vector<std::string> read = files_of_model(model);
  if (!settings.teacher.empty())
    for (const std::string& file : files_of_model(settings.teacher)) read.push_back(file);
  read.insert(read.end(), data.begin(), data.end());
  if (!settings.checkpoint.empty()) refuse_to_overwrite(settings.checkpoint, read);
  if (!settings.resume.empty()) read.push_back(settings.resume);  // which checkpoints may replace
  std::vector<std::string> written = more;
  written.insert(written.end(), {output, settings.step});
  for (const std::string& file : written)
    if (!file.empty()) refuse_to_overwrite(file, read);
  written.push_back(settings.checkpoint);
  std::sort(written.begin(), written.end());
  for (size_t i = 1; i < written.size(); ++i)
    if (!written[i].empty() && written[i] == written[i - 1])
      refuse("TSR-4062", fmt::format("'{}' would be written twice", written[i]), "a file of its own for each output");
}

TrainingOutcome train_model(const std::string& model, const std::string& output, const TrainSettings& settings,
                            const TrainingData& data, const DriverOptions& driver, const TrainingGroup& group,
                            const TrainingWatch& watch, bool keep_interrupted) {
  check_numbers(settings);
  const TrainingRequest request{model, output, settings, driver, group.process.communicator};
  check_bundle(request, group.process);
  Training training(request, data, group);
  training.compile(watch);
  const TrainingPlan plan = training.begin();
  if (watch.begins) watch.begins(plan);
  return training.run(watch, keep_interrupted);
}

}  // namespace tessera::inline driver
