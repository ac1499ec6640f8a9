// tessera train MODEL --data FILE.npz
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/analysis/trace_file.h"
#include "driver/compile.h"
#include "driver/engine/compiled_evaluator.h"
#include "driver/engine/input_sizes.h"
#include "driver/engine/native_model.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/quantization.h"
#include "graph/hash.h"
#include "graph/printer.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "loss_curve.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "package/atomic_file.h"
#include "process_rank.h"
#include "progress.h"
#include "pruning.h"
#include "refuse.h"
#include "stop_on_interrupt.h"
#include "support/error.h"
#include "terminal.h"
#include "train/fake_quantization.h"
#include "train/not_finite.h"
#include "train/shards.h"
#include "train/training_step.h"
#include "train/weights.h"
#include "training_loop.h"

namespace tessera {

namespace {

struct TrainCommand {
  CompileFlags compile;
  std::string model, output, curve, step, checkpoint, resume, profile,
      loss = "cross_entropy", optimizer = "adam", schedule = "constant", products = "f32", teacher, prune,
      importance = "l1";
  TrainingDataOptions data;
  OptimizerOptions numbers;
  double rate = 1e-3, clip_norm = 0, label_smoothing = 0, loss_scale = 0, distill_weight = 0.9, temperature = 4,
         feature_weight = 1;
  int64_t batch = 32, epochs = 20, warmup = 0, leaves = 0, zero = 0;
  uint64_t seed = 0;
  std::vector<std::string> frozen, features;
  std::optional<int64_t> ignored;
  int qat_bits = 8;
  bool qat = false, classes_last = false, in_order = false, json = false, quiet = false;
};

constexpr int64_t kMostEpochs = 1'000'000'000;  // times the steps of one fits 64 bits

void check_numbers(const TrainCommand& command) {
  if (!(command.rate > 0) || !std::isfinite(command.rate))
    refuse("TSR-4080", fmt::format("--lr {}", command.rate), "a finite learning rate above 0", "0.001 is a usual one");
  if (command.batch < 1) refuse("TSR-4080", fmt::format("--batch {}", command.batch), "at least one sample");
  if (command.epochs < 1 || command.epochs > kMostEpochs)
    refuse("TSR-4080", fmt::format("--epochs {}", command.epochs), fmt::format("1 to {} epochs", kMostEpochs));
  if (command.leaves < 0) refuse("TSR-4080", fmt::format("--leaves {}", command.leaves), "0 leaves or more");
  if (command.warmup < 0) refuse("TSR-4080", fmt::format("--warmup {}", command.warmup), "0 steps or more");
  if (!(command.data.scale > 0) || !std::isfinite(command.data.scale))
    refuse("TSR-4080", fmt::format("--scale {}", command.data.scale), "a finite number above 0");
}

RateSchedule schedule_of(const TrainCommand& command) {
  RateSchedule schedule;
  schedule.rate = command.rate;
  schedule.warmup = command.warmup;
  if (command.schedule == "cosine") schedule.kind = RateSchedule::Kind::kCosine;
  if (command.schedule == "linear") schedule.kind = RateSchedule::Kind::kLinear;
  return schedule;
}

// The options with a value for the first open dimension of the first input, the batch, where there is none.
// Answers the dimension's name; empty: it is not open, or the user chose.
std::string set_batch(const std::string& path, DimBounds batch, CompileOptions& options) {
  const auto declared = declarations_of_file(path);
  if (!declared || declared->inputs.empty() || declared->inputs[0].dims.empty()) return "";
  const DeclaredTensor& input = declared->inputs[0];
  if (input.dims[0].value >= 0) return "";
  const std::string name = input.dim_name(0);
  if (options.dims.count(name) || options.shapes.count(input.name)) return "";
  options.dims[name] = batch;
  return name;
}

DriverOptions reading_options(const TrainCommand& command) {
  DriverOptions options = driver_options(command.compile);
  options.for_training = true;
  return options;
}

Graph read_graph(const std::string& path, const TrainCommand& command, int64_t batch) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  DriverOptions options = reading_options(command);
  set_batch(path, {batch, batch, 1}, options.compile);
  ImportedModel model = read_model(path, options, unwatched);
  refuse_ranges(model, "train");
  return graph_alone(std::move(model));
}

QuantizeOptions quantisation_of(const TrainCommand& command) {
  QuantizeOptions options;
  options.weight_bits = command.qat_bits;
  return options;
}

// The model whose weights learn, of the graph of a reader: training makes what it needs of it, and what has learnt goes
// back into it.
Graph learner(const Graph& graph, const TrainCommand& command) {
  if (!command.qat) return with_own_statistics(graph, standard_ops());
  DriverOptions options = driver_options(command.compile);
  return with_own_statistics(quantizable(graph, options), standard_ops());
}

std::unique_ptr<Model> compiled(Graph graph, const TrainCommand& command) {
  DriverOptions options = driver_options(command.compile);
  options.compile.dims.clear();  // the graph has no open sizes any more
  options.compile.shapes.clear();
  options.emit = Emit::kModule;
  PassRunner runner(options);
  const std::string name = graph.name;
  return load_module(module_in_memory(compile_graph(std::move(graph), options, runner)), name, command.compile.threads);
}

// What in the step first gave numbers that are not finite, of its inputs and states; empty: not found.
std::string cause_of(const Graph& step, const std::vector<Tensor>& inputs, const TrainCommand& command) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_real(inputs[i].dtype()))
      for (int64_t e = 0; e < inputs[i].num_elements(); ++e)
        if (const double number = inputs[i].get_double(e); !std::isfinite(number))
          return fmt::format("'{}' has {} before the step", step.value(step.inputs[i]).name, number);
  DriverOptions options = driver_options(command.compile);
  options.compile.dims.clear();
  options.compile.shapes.clear();
  try {
    const FiniteProbe probe = finite_probe(step, standard_ops());
    CompiledEvaluator evaluator(options, 1);
    std::vector<int64_t> found;
    for (const Tensor& answer : evaluator.evaluate(probe.graph, inputs)) found.push_back(answer.get_int(0));
    return first_not_finite(step, probe, found);
  } catch (const UserError&) {
    return "";  // the loss is what there is to tell of
  }
}

// Makes what is written of a graph as it is read, whatever its sizes.
using Finish = std::function<Graph(const Graph&)>;

Finish finish_of(const TrainCommand& command, const Model& step, const WholeStates& states, const Pruner& pruner,
                 const std::vector<std::string>& names) {
  std::vector<std::string> weights, ranges;
  std::vector<TensorPtr> values, range_values;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_range = command.qat && states.info(i).dims.empty();
    (is_range ? ranges : weights).push_back(names[i]);
    (is_range ? range_values : values).push_back(std::make_shared<const Tensor>(states.get(i)));
  }
  return [=, &command, &step, &pruner](const Graph& graph) {
    Graph learnt = with_constants(learner(without_dropouts(graph), command), weights, values);
    learnt = pruner.cut(learnt, step);
    if (command.qat) learnt = with_integers(learnt, ranges, range_values, quantisation_of(command), standard_ops());
    return with_shared_constants(learnt, standard_ops());
  };
}

ImportedModel finished(ImportedModel model, const Finish& finish) {
  model.graph = finish(model.graph);
  if (model.at)
    model.at = [at = model.at, finish](const std::vector<int64_t>& sizes) -> GraphOrRefusal {
      GraphOrRefusal read = at(sizes);
      if (Graph* graph = std::get_if<Graph>(&read)) return finish(*graph);
      return read;
    };
  if (model.at_samples) model.at_samples = [samples = model.at_samples, finish] { return finished(samples(), finish); };
  model.as_flow = nullptr;
  return model;
}

// A module, or a model with the new weights in another format: with the batch open as it is in the model, where the
// format and a graph can say it.
void write_trained(const TrainCommand& command, const Finish& finish) {
  DriverOptions options = reading_options(command);
  PassRunner runner(options);
  set_batch(command.model, {1, command.batch, 1}, options.compile);
  const bool is_onnx = command.output.ends_with(".onnx");
  if (!is_onnx && !command.output.ends_with(".graph")) {
    options.emit = Emit::kModule;
    ImportedModel model = finished(read_model(command.model, options, runner), finish);
    return write_module(compile_imported(std::move(model), options, runner), command.output);
  }
  const auto write = [&](const Graph& graph) {
    if (is_onnx) export_onnx_file(graph, command.output);
    else write_file(command.output, "output", print(graph));
  };
  const ImportedModel model = read_model(command.model, options, runner);
  try {
    if (!model.flow && model.symbols.empty()) return write(finish(model.graph));
  } catch (const NoOnnxForm&) {  // of these sizes
  }
  write(finish(read_graph(command.model, command, command.batch)));
}

void refuse_one_file_twice(std::vector<std::string> written) {
  std::sort(written.begin(), written.end());
  for (size_t i = 1; i < written.size(); ++i)
    if (!written[i].empty() && written[i] == written[i - 1])
      refuse("TSR-4062", fmt::format("'{}' would be written twice", written[i]), "a file of its own for each output");
}

int64_t batch_of(const TensorType& input) {
  const auto batch = input.shape.empty() ? std::optional<int64_t>(1) : as_int(input.shape[0]);
  return batch.value_or(1);
}

// How this process shares batches with others, and the samples of one part.
DataParallel shared_with(const ProcessRank& process, const TrainCommand& command) {
  const DataParallel parallel{process.ranks, command.leaves, command.zero, process.rank};
  check_data_parallel(parallel);
  if (command.batch % parallel.parts() != 0)
    refuse("TSR-4080", fmt::format("--batch {}", command.batch),
           fmt::format("a multiple of {}, the number of parts", parallel.parts()));
  if (command.zero > 2 && !command.prune.empty())
    refuse("TSR-4080", "--prune with --zero 3", "--zero 1 or 2", "masks follow from whole parameters");
  return parallel;
}

// "TEACHER=STUDENT" each.
std::vector<FeaturePair> feature_pairs(const TrainCommand& command) {
  std::vector<FeaturePair> pairs;
  for (const std::string& text : command.features) {
    const size_t equal = text.find('=');
    if (equal == std::string::npos || equal == 0 || equal + 1 == text.size())
      refuse("TSR-4080", fmt::format("--distill-features {}", text), "TEACHER_TENSOR=STUDENT_TENSOR");
    pairs.push_back({text.substr(0, equal), text.substr(equal + 1)});
  }
  if (!pairs.empty() && command.teacher.empty())
    refuse("TSR-4080", "--distill-features without a teacher", "--distill TEACHER beside it");
  return pairs;
}

// Of this process, since it began, or since reset_peak_memory().
double peak_memory_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}
void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::vector<std::string> unfrozen(std::vector<std::string> names, const std::vector<std::string>& frozen) {
  std::erase_if(names,
                [&](const std::string& name) { return std::find(frozen.begin(), frozen.end(), name) != frozen.end(); });
  return names;
}

// Bytes of states of this process: of parameters, the first ones, and of what the optimizer keeps, behind `num_learnt`.
std::pair<int64_t, int64_t> kept_bytes(const Model& step, size_t num_parameters, size_t num_learnt) {
  std::pair<int64_t, int64_t> bytes;
  for (size_t i = 0; i < step.states().size(); ++i) {
    const TensorInfo& info = step.states()[i];
    const int64_t size = dtype_bytes(info.dtype, elements_of(info));
    if (i < num_parameters) bytes.first += size;
    else if (i >= num_learnt) bytes.second += size;
  }
  return bytes;
}

std::string hash_text(const Graph& graph) { return fmt::format("{:016x}", structural_hash(graph)); }

int train_model(const TrainCommand& command) {
  check_numbers(command);
  const ProcessRank process = process_rank();
  const DataParallel parallel = shared_with(process, command);
  std::vector<std::string> read = files_of_model(command.model);
  if (!command.teacher.empty())
    for (const std::string& file : files_of_model(command.teacher)) read.push_back(file);
  read.push_back(command.data.path);
  if (!command.checkpoint.empty()) refuse_to_overwrite(command.checkpoint, read);
  if (!command.resume.empty()) read.push_back(command.resume);  // which checkpoints may replace
  for (const std::string* written : {&command.output, &command.curve, &command.step, &command.profile})
    if (!written->empty()) refuse_to_overwrite(*written, read);
  refuse_one_file_twice({command.output, command.curve, command.checkpoint, command.step, command.profile});
  TrainingOptions options;
  options.loss = loss_kind(command.loss);
  options.optimizer = command.numbers;
  options.optimizer.kind = optimizer_kind(command.optimizer);
  options.clip_norm = command.clip_norm;
  options.label_smoothing = command.label_smoothing;
  options.classes_last = command.classes_last;
  options.ignored = command.ignored;
  options.guarded = true;
  options.frozen = command.frozen;
  options.seed = command.seed;
  options.loss_scale = command.loss_scale;
  options.master_weights = true;
  options.products = command.products == "bf16" ? DType::kBF16 : command.products == "f16" ? DType::kF16 : DType::kF32;
  options.distillation.weight = command.distill_weight;
  options.distillation.temperature = command.temperature;
  options.distillation.features = feature_pairs(command);
  options.distillation.feature_weight = command.feature_weight;
  check_optimizer(options.optimizer);
  const TrainingData data = read_training_data(command.data);
  const bool has_classes = options.loss != LossKind::kMeanSquaredError;
  const bool colour = stdout_has_colour();

  const auto started = std::chrono::steady_clock::now();
  std::unique_ptr<Model> step, inference;
  std::optional<Pruner> pruner;
  std::optional<WholeStates> whole;
  std::vector<std::string> learnt;  // and statistics
  LoopOptions loop_options{.epochs = command.epochs,
                           .seed = command.seed,
                           .shuffled = !command.in_order,
                           .schedule = schedule_of(command),
                           .checkpoint = command.checkpoint,
                           .writes = process.is_first(),
                           .model_hash = {},
                           .settings = {},
                           .classes = 0,
                           .ignored = command.ignored,
                           .classes_last = command.classes_last,
                           .find_not_finite = nullptr,
                           .parallel = parallel};
  size_t num_parameters = 0;
  int64_t num_numbers = 0;
  {
    Progress progress("preparing " + std::filesystem::path(command.model).filename().string());
    Graph teacher;
    // The model for one part, with the teacher for as many samples.
    const auto prepared = [&](const DataParallel& how) {
      const int64_t batch = command.batch / how.parts();
      Graph model = with_shared_constants(learner(read_graph(command.model, command, batch), command), standard_ops());
      const std::vector<std::string> learn = parameter_names(model, standard_ops());
      pruner.emplace(model, unfrozen(learn, command.frozen), prune_spec(command.prune),
                     importance_named(command.importance));
      options.masked = pruner->masked();
      options.weighed = pruner->weighed();
      options.parallel = how;
      if (!command.teacher.empty()) {
        teacher = without_dropouts(read_graph(command.teacher, command, batch));
        options.distillation.teacher = &teacher;
      }
      return command.qat ? with_fake_quantization(model, quantisation_of(command), standard_ops()) : model;
    };
    // What a checkpoint is made with is said of one process: any number of them goes on.
    std::string settings;
    const auto describe = [&](const DataParallel& how, const Graph& model, const TrainingStep& made) {
      settings = fmt::format(
          "batch {} x {}, seed {}, epochs {}, loss {}, optimizer {}, lr {}, schedule {} {}, step {}, {} samples{}{}",
          how.parts(), model.type(model.inputs[0]).to_string(), command.seed, command.epochs, command.loss,
          command.optimizer, command.rate, command.schedule, command.warmup, hash_text(made.graph), data.train.size(),
          command.in_order ? " in order" : "",
          command.prune.empty()
              ? ""
              : ", prune " + command.prune + (command.importance == "l1" ? "" : " by " + command.importance));
      loop_options.model_hash = hash_text(model);
    };
    if (parallel.ranks > 1 && !(command.checkpoint + command.resume).empty()) {
      const DataParallel alone{1, parallel.leaves};
      const Graph model = prepared(alone);
      describe(alone, model, training_step(model, options, standard_ops()));
    }
    const Graph model = prepared(parallel);
    if (model.num_own_inputs() != 1)
      refuse("TSR-6231", fmt::format("the model has {} inputs", model.num_own_inputs()), "a model with one input");
    require_batch(data, batch_of(model.type(model.inputs[0])) * parallel.parts());
    TrainingStep made = training_step(model, options, standard_ops());
    if (settings.empty()) describe(parallel, model, made);
    loop_options.settings = settings;
    if (pruner->is_used())
      loop_options.at_epoch = [&pruner = *pruner, epochs = command.epochs](Model& model, int64_t epoch) {
        pruner.at_epoch(model, epoch, epochs);
      };
    loop_options.skips = command.loss_scale > 0;
    num_parameters = made.parameters.size();
    learnt = made.parameters;
    learnt.insert(learnt.end(), made.statistics.begin(), made.statistics.end());
    std::vector<State> states;
    if (!command.step.empty() && process.is_first()) write_file(command.step, "output", print(made.graph));
    if (has_classes) {
      const std::vector<int64_t> scores = model.type(model.outputs[0]).dims();
      loop_options.classes = command.classes_last ? scores.back() : scores.at(1);
    }
    if (!data.test.empty()) inference = compiled(with_states(model, learnt), command);
    for (State& state : made.graph.states) states.push_back({state.name, std::exchange(state.initial, nullptr)});
    loop_options.find_not_finite = [graph = made.graph, &command](const std::vector<Tensor>& inputs) {
      return cause_of(graph, inputs, command);
    };
    made.graph.states = std::move(states);
    step = compiled(std::move(made.graph), command);
    std::unique_ptr<Model> gather;
    if (!made.cut.empty())
      gather = compiled(gathering(gathered_bytes(made.cut, parallel), parallel, standard_ops()), command);
    whole.emplace(*step, made.cut, parallel, std::move(gather));
    for (size_t i = 0; i < num_parameters; ++i) num_numbers += elements_of(whole->info(i));
  }
  if (command.json) reset_peak_memory();  // compiling has its own
  TrainingLoop loop(*step, *whole, inference.get(), data, loop_options);
  if (!command.resume.empty()) loop.resume(command.resume);
  const double compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const bool talks = !command.quiet && !command.json && process.is_first();
  const std::pair<int64_t, int64_t> kept = kept_bytes(*step, num_parameters, learnt.size());
  if (talks) {
    fmt::print("{} parameters ({} numbers), {} samples for training, {} for testing, {} steps of {} an epoch\n",
               num_parameters, num_numbers, data.train.size(), data.test.size(), loop.steps_per_epoch(), loop.batch());
    if (parallel.is_used())
      fmt::print("{} process{}, {} part{} of {} samples a step\n", parallel.ranks, parallel.ranks == 1 ? "" : "es",
                 parallel.parts(), parallel.parts() == 1 ? "" : "s", loop.batch() / parallel.parts());
    if (parallel.is_cut())
      fmt::print("each process keeps {:.1f} MB of parameters and {:.1f} MB of the optimizer's states\n",
                 static_cast<double>(kept.first) / 1e6, static_cast<double>(kept.second) / 1e6);
    fmt::print("compiled in {:.1f} s\n", compile_seconds);
    if (!command.resume.empty()) fmt::print("going on after step {}\n", loop.steps_done());
    std::fflush(stdout);
  }

  EpochReport last;
  LoopResult result;
  {
    // Ranks would end after different steps: they end at once instead, and go on from the last epoch.
    std::optional<StopOnInterrupt> interrupt;
    if (process.ranks == 1) interrupt.emplace();
    result = loop.run(StopOnInterrupt::asked(), [&](const EpochReport& report) {
      last = report;
      if (!talks) return;
      std::string line = fmt::format("epoch {:3}/{}  loss {:.5f}", report.epoch, command.epochs, report.loss);
      if (has_classes) line += fmt::format("  train {:6.2f} %", 100 * report.train);
      if (report.test_total > 0)
        line += fmt::format("  test {:6.2f} % ({} of {})",
                            100.0 * static_cast<double>(report.test_right) / static_cast<double>(report.test_total),
                            report.test_right, report.test_total);
      else if (!data.test.empty()) line += fmt::format("  test loss {:.5f}", report.test_loss);
      fmt::print("{}  {:.0f} steps/s\n", line, report.steps_per_second);
      std::fflush(stdout);
    });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (result.interrupted) {
    fmt::print(stderr, "interrupted after step {}{}\n", loop.steps_done(),
               command.checkpoint.empty() ? "" : fmt::format("; go on with --resume {}", command.checkpoint));
    return kExitInterrupted;
  }
  const auto profile = [&] {
    if (command.profile.empty()) return;
    profile_run(*step, process.is_first() ? command.profile : fmt::format("{}.{}", command.profile, process.rank));
  };
  if (result.losses.empty()) loop.test(last);  // there was nothing left to do
  std::optional<Finish> finish;
  if (!command.output.empty() && (process.is_first() || whole->is_cut(0)))  // all ranks have parts of what is written
    finish = finish_of(command, *step, *whole, *pruner, learnt);
  if (!process.is_first()) {  // the first one writes what there is to write
    profile();
    return kExitOk;
  }
  if (talks && !result.losses.empty()) fmt::print("loss  {}\n", coloured(sparkline(result.losses, 72), "34", colour));
  if (!command.curve.empty())
    write_curve(command.curve, std::filesystem::path(command.model).filename().string() + ": loss", result.losses);
  if (!command.output.empty()) write_trained(command, *finish);
  profile();
  if (command.json) {
    nlohmann::json report = {{"model", command.model},
                             {"parameters", num_numbers},
                             {"parameter_bytes", kept.first},
                             {"optimizer_bytes", kept.second},
                             {"steps", loop.steps_done()},
                             {"losses", result.losses},
                             {"compile_seconds", compile_seconds},
                             {"seconds", seconds},
                             {"steps_per_second", last.steps_per_second},
                             {"step_seconds", result.seconds},
                             {"peak_rss_mb", peak_memory_mb()}};
    if (last.test_total > 0) report["test_right"] = last.test_right, report["test_total"] = last.test_total;
    else if (!data.test.empty()) report["test_loss"] = last.test_loss;
    if (pruner->is_used()) report["sparsity"] = pruner->sparsity(*step);
    if (!command.output.empty()) report["output"] = command.output;
    std::cout << json_line(report);
  } else if (talks) {
    if (pruner->is_used()) fmt::print("{:.1f} % of the masked weights are zero\n", 100 * pruner->sparsity(*step));
    fmt::print("{} steps in {:.1f} s{}\n", loop.steps_done(), seconds,
               command.output.empty() ? "" : ", written to " + command.output);
  }
  return kExitOk;
}

}  // namespace

Command add_train_command(CLI::App& root) {
  const auto command = std::make_shared<TrainCommand>();
  TrainCommand& c = *command;
  CLI::App* app = root.add_subcommand("train", "Train a model's weights, by compiled steps");
  app->add_option("MODEL", c.model, "An ONNX file, or a graph in text form, with weights to begin with")
      ->required()
      ->type_name("");
  app->add_option("--data", c.data.path, "An .npz file with samples and targets")->required()->type_name("FILE.npz");
  app->add_option("--samples", c.data.samples, "Its array of samples; default x, images, data, features or x_train")
      ->type_name("NAME");
  app->add_option("--targets", c.data.targets, "Its array of targets; default y, labels, target, targets or y_train")
      ->type_name("NAME");
  app->add_option("--scale", c.data.scale, "What every number of the samples is multiplied by")->capture_default_str();
  app->add_option("-o,--output", c.output, "Write the trained model: a module, FILE.onnx or FILE.graph")
      ->type_name("FILE");
  app->add_option("--loss", c.loss, "What is made smaller")
      ->check(CLI::IsMember(std::vector<std::string>(loss_names().begin(), loss_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--label-smoothing", c.label_smoothing,
                  "The share of each target that all classes have together, below 1")
      ->capture_default_str();
  app->add_option("--ignore", c.ignored,
                  "A target that counts nothing, as -100 where language models have no word to guess");
  app->add_flag("--classes-last", c.classes_last, "Scores are [N, ..., classes], as language models give them");
  app->add_option("--optimizer", c.optimizer, "How parameters follow their gradients")
      ->check(CLI::IsMember(std::vector<std::string>(optimizer_names().begin(), optimizer_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--lr", c.rate, "The learning rate")->capture_default_str();
  app->add_option("--schedule", c.schedule, "How it changes: constant, or falling to 0 as a cosine or a line")
      ->check(CLI::IsMember({"constant", "cosine", "linear"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--warmup", c.warmup, "Steps in which it grows to its value")->capture_default_str();
  app->add_option("--momentum", c.numbers.momentum, "Of sgd and rmsprop")->capture_default_str();
  app->add_flag("--nesterov", c.numbers.nesterov, "sgd: Nesterov's momentum");
  app->add_option("--weight-decay", c.numbers.weight_decay, "How much weights shrink")->capture_default_str();
  app->add_option("--clip-norm", c.clip_norm, "The largest norm of all gradients together; 0: any")
      ->capture_default_str();
  app->add_option("--freeze", c.frozen, "A constant that stays what it is")->allow_extra_args(false)->type_name("NAME");
  app->add_option("--products", c.products,
                  "Products are of numbers of this type, with sums, weights and all else in f32")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--loss-scale", c.loss_scale,
                  "Multiply the loss for gradients in 16 bits, by this at first; halved after a step whose gradients "
                  "are not finite, which is left out; 0: not")
      ->capture_default_str();
  app->add_option("--distill", c.teacher, "A model with the same input and output, whose answers are learnt, too")
      ->type_name("TEACHER");
  app->add_option("--distill-weight", c.distill_weight, "How much of the loss that is")->capture_default_str();
  app->add_option("--temperature", c.temperature, "What both models' scores are divided by for it")
      ->capture_default_str();
  app->add_option(
         "--distill-features", c.features,
         "A value of the teacher that one of the model learns to be like, by their names; where they differ in "
         "channels, a linear map that is learnt, too, is between them")
      ->allow_extra_args(false)
      ->type_name("TEACHER_TENSOR=STUDENT_TENSOR");
  app->add_option("--feature-weight", c.feature_weight, "What the mean squared difference of features is multiplied by")
      ->capture_default_str();
  app->add_option("--prune", c.prune,
                  "Make weights zero while it learns: a share (0.8), N:M (2:4), or channels:0.5, which cuts channels "
                  "out of the model that is written")
      ->type_name("HOW");
  app->add_option("--importance", c.importance,
                  "Which channels go first: those of small weights (l1), of a small first-order change of the loss "
                  "(taylor), or of small scales of batch normalisations (bn)")
      ->check(CLI::IsMember({"l1", "taylor", "bn"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_flag("--qat", c.qat, "Learn with 8 bits in mind, and write a model of integers (as 'quantize' does)");
  app->add_option("--qat-bits", c.qat_bits, "Bits of weights for --qat")
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  app->add_option("--epochs", c.epochs, "How often the samples are seen")->capture_default_str();
  app->add_option("--batch", c.batch, "Samples in a step, where the model leaves that open")->capture_default_str();
  app->add_option("--leaves", c.leaves,
                  "Sum gradients over so many parts of a batch, in a fixed order: the same bits for every number of "
                  "processes that divides it; 0: one part for each process")
      ->capture_default_str();
  app->add_option("--zero", c.zero,
                  "What each process keeps a part of only: 1 the optimizer's moments, 2 gradients, too, 3 parameters, "
                  "too; 0: nothing")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app->add_option("--seed", c.seed, "Of the order of samples")->capture_default_str();
  app->add_flag("--in-order", c.in_order, "Every epoch sees the samples in the order of the file");
  app->add_option("--checkpoint", c.checkpoint, "Keep parameters and moments here, after each epoch and on Ctrl-C")
      ->type_name("FILE.safetensors");
  app->add_option("--resume", c.resume, "Go on from a checkpoint: the same bits as without the break")
      ->type_name("FILE.safetensors");
  app->add_option("--curve", c.curve, "Draw the loss of every step")->type_name("FILE.svg");
  app->add_option("--step", c.step, "Write the training step as a graph: for explain, bench and compile")
      ->type_name("FILE.graph");
  app->add_option("--profile", c.profile,
                  "Do two more steps at the end and write what threads did in the second, collectives included, as a "
                  "Chrome trace; further processes write FILE.1, FILE.2")
      ->type_name("FILE.json");
  app->add_flag("--json", c.json, "Print one line of JSON instead of text");
  app->add_flag("-q,--quiet", c.quiet, "Print nothing on success");
  add_compile_flags(*app, c.compile);
  app->footer(
      "Examples:\n"
      "  tessera train lenet.onnx --data digits.npz --scale 0.0625 --epochs 30 -o lenet.so\n"
      "  tessera train mlp.graph --data digits.npz --optimizer sgd --momentum 0.9 --lr 0.05 --curve loss.svg\n"
      "  tessera train net.onnx --data d.npz --checkpoint net.safetensors --resume net.safetensors\n"
      "  mpirun -n 2 tessera train lenet.onnx --data digits.npz -o lenet.so");
  return {app, [command] { return train_model(*command); }};
}

}  // namespace tessera
