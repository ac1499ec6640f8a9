// tessera train MODEL --data FILE.npz
#include <chrono>
#include <filesystem>
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
#include "driver/process_rank.h"
#include "driver/training/train_model.h"
#include "driver/training/training_report.h"
#include "loss_curve.h"
#include "pipeline_flags.h"
#include "progress.h"
#include "stop_on_interrupt.h"
#include "supervise.h"
#include "support/error.h"
#include "support/peak_memory.h"
#include "support/refuse.h"
#include "terminal.h"
#include "train/loss.h"
#include "train/optimizers.h"
#include "training_file.h"
#include "types/mesh.h"

namespace tessera {

namespace {

struct TrainCommand {
  CompileFlags compile;
  std::string model, output, curve, profile;
  TrainingFile data;
  TrainSettings settings;
  std::vector<std::string> features;
  PipelineFlags pipeline;
  int64_t processes = 0, restarts = 0;
  bool goes_on = false, json = false, quiet = false;
};

// "TEACHER=STUDENT" each.
std::vector<std::pair<std::string, std::string>> feature_pairs(const std::vector<std::string>& features) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : features) {
    const size_t equal = text.find('=');
    if (equal == std::string::npos || equal == 0 || equal + 1 == text.size())
      refuse("TSR-4080", fmt::format("--distill-features {}", text), "TEACHER_TENSOR=STUDENT_TENSOR");
    pairs.emplace_back(text.substr(0, equal), text.substr(equal + 1));
  }
  return pairs;
}

void print_plan(const TrainingPlan& plan, bool resumes) {
  const DataParallel& parallel = plan.parallel;
  const int64_t processes = parallel.ranks * parallel.pipeline.stages * parallel.tensor;
  fmt::print("{} parameters ({} numbers), {} samples for training, {} for testing, {} steps of {} an epoch\n",
             plan.num_parameters, plan.num_numbers, plan.train, plan.test, plan.steps_per_epoch, plan.batch);
  if (parallel.is_used())
    fmt::print("{} process{}, {} part{} of {} samples a step\n", processes, processes == 1 ? "" : "es",
               parallel.parts(), parallel.parts() == 1 ? "" : "s", plan.batch / parallel.parts());
  if (parallel.pipeline.is_used()) fmt::print("{}\n", to_text(parallel.pipeline));
  if (parallel.is_cut() || parallel.pipeline.stages > 1)
    fmt::print("{} keeps {:.1f} MB of parameters and {:.1f} MB of the optimizer's states\n",
               parallel.is_cut() ? "each process" : "this stage", static_cast<double>(plan.parameter_bytes) / 1e6,
               static_cast<double>(plan.optimizer_bytes) / 1e6);
  fmt::print("compiled in {:.1f} s\n", plan.compile_seconds);
  if (resumes) fmt::print("going on after step {}\n", plan.steps_done);
  std::fflush(stdout);
}

void print_epoch(const EpochReport& report, const TrainingPlan& plan, int64_t epochs) {
  std::string line = fmt::format("epoch {:3}/{}  loss {:.5f}", report.epoch, epochs, report.loss);
  if (plan.has_classes) line += fmt::format("  train {:6.2f} %", 100 * report.train);
  if (report.test_total > 0)
    line += fmt::format("  test {:6.2f} % ({} of {})",
                        100.0 * static_cast<double>(report.test_right) / static_cast<double>(report.test_total),
                        report.test_right, report.test_total);
  else if (plan.test > 0) line += fmt::format("  test loss {:.5f}", report.test_loss);
  fmt::print("{}  {:.0f} steps/s\n", line, report.steps_per_second);
  std::fflush(stdout);
}

// The processes that do it are started here, and again when one of them has ended.
int train_supervised(const TrainCommand& command) {
  const TrainSettings& settings = command.settings;
  if (command.restarts > 0 && settings.checkpoint.empty())
    refuse("TSR-4080", "--restarts without --checkpoint", "a file from which a group goes on");
  std::vector<std::string> arguments = arguments_without({"--processes", "--restarts"});
  if (command.restarts > 0 && !command.goes_on) arguments.emplace_back("--continue");
  if (command.restarts > 0 && settings.checkpoint_steps == 0)
    arguments.insert(arguments.end(), {"--checkpoint-steps", "1"});
  return supervise(arguments, {command.processes, command.restarts, settings.checkpoint});
}

int run_training(TrainCommand command) {
  if (command.goes_on && command.settings.checkpoint.empty())
    refuse("TSR-4080", "--continue without --checkpoint", "a file to go on from, once it is there");
  if (command.processes > 0) return train_supervised(command);
  if (command.goes_on && command.settings.resume.empty() && std::filesystem::exists(command.settings.checkpoint))
    command.settings.resume = command.settings.checkpoint;
  const ProcessRank process = process_rank();
  command.settings.features = feature_pairs(command.features);
  refuse_files_of_training(command.model, command.output, command.settings, {command.data.path},
                           {command.curve, command.profile});
  const TrainSettings& settings = command.settings;
  const TrainingData data = read_training_data(command.data);
  const bool talks = !command.quiet && !command.json && process.is_first();
  const auto started = std::chrono::steady_clock::now();
  // Ranks would end after different steps: they end at once instead, and go on from the last epoch.
  std::optional<StopOnInterrupt> interrupt;
  std::optional<Progress> progress("preparing " + std::filesystem::path(command.model).filename().string());
  TrainingPlan plan;
  double memory_before = 0, memory_behind = 0;
  const TrainingWatch watch = {
      .compiles =
          [&] {
            progress.reset();
            if (!command.json) return;
            reset_peak_memory();  // compiling has its own
            memory_before = own_memory();
          },
      .begins =
          [&](const TrainingPlan& made) {
            plan = made;
            if (talks) print_plan(plan, !settings.resume.empty());
            if (process.ranks == 1) interrupt.emplace();
          },
      .on_epoch =
          [&](const EpochReport& report) {
            if (talks) print_epoch(report, plan, settings.epochs);
          },
      .ends =
          [&](Model& step) {
            memory_behind = own_memory();
            if (command.profile.empty()) return;
            profile_run(step,
                        process.is_first() ? command.profile : fmt::format("{}.{}", command.profile, process.rank));
          },
      .stop = &StopOnInterrupt::asked(),
  };
  const TrainingOutcome outcome =
      train_model(command.model, command.output, settings, data, driver_options(command.compile),
                  {process, shape_of(command.pipeline, process), command.pipeline.settings.tensor}, watch);
  interrupt.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (outcome.loop.interrupted) {
    fmt::print(stderr, "interrupted after step {}{}\n", outcome.steps_done,
               settings.checkpoint.empty() ? "" : fmt::format("; go on with --resume {}", settings.checkpoint));
    return kExitInterrupted;
  }
  if (!process.is_first()) return kExitOk;
  const std::vector<double>& losses = outcome.loop.losses;
  if (talks && !losses.empty()) fmt::print("loss  {}\n", coloured(sparkline(losses, 72), "34", stdout_has_colour()));
  if (!command.curve.empty())
    write_curve(command.curve, std::filesystem::path(command.model).filename().string() + ": loss", losses);
  if (command.json) {
    nlohmann::json report = training_json(command.model, command.output, outcome);
    report["seconds"] = seconds;
    report["peak_rss_mb"] = peak_memory() / (1 << 20);
    report["memory_growth_bytes"] = memory_behind - memory_before;
    std::cout << json_line(report);
  } else if (talks) {
    if (outcome.sparsity) fmt::print("{:.1f} % of the masked weights are zero\n", 100 * *outcome.sparsity);
    fmt::print("{} steps in {:.1f} s{}\n", outcome.steps_done, seconds,
               command.output.empty() ? "" : ", written to " + command.output);
  }
  return kExitOk;
}

}  // namespace

Command add_train_command(CLI::App& root) {
  const auto command = std::make_shared<TrainCommand>();
  TrainCommand& c = *command;
  TrainSettings& s = c.settings;
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
  app->add_flag("--with-step", s.with_step,
                "Write one file with two modules over the same weights: 'infer', the model, and 'step', which goes on "
                "training without a compiler; 'tessera strip' takes the model alone out of it");
  app->add_option("--loss", s.loss, "What is made smaller")
      ->check(CLI::IsMember(std::vector<std::string>(loss_names().begin(), loss_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--label-smoothing", s.label_smoothing,
                  "The share of each target that all classes have together, below 1")
      ->capture_default_str();
  app->add_option("--ignore", s.ignored,
                  "A target that counts nothing, as -100 where language models have no word to guess");
  app->add_flag("--classes-last", s.classes_last, "Scores are [N, ..., classes], as language models give them");
  app->add_option("--optimizer", s.optimizer, "How parameters follow their gradients")
      ->check(CLI::IsMember(std::vector<std::string>(optimizer_names().begin(), optimizer_names().end())))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--lr", s.rate, "The learning rate")->capture_default_str();
  app->add_option("--schedule", s.schedule, "How it changes: constant, or falling to 0 as a cosine or a line")
      ->check(CLI::IsMember({"constant", "cosine", "linear"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--warmup", s.warmup, "Steps in which it grows to its value")->capture_default_str();
  app->add_option("--momentum", s.momentum, "Of sgd and rmsprop")->capture_default_str();
  app->add_flag("--nesterov", s.nesterov, "sgd: Nesterov's momentum");
  app->add_option("--weight-decay", s.weight_decay, "How much weights shrink")->capture_default_str();
  app->add_option("--clip-norm", s.clip_norm, "The largest norm of all gradients together; 0: any")
      ->capture_default_str();
  app->add_option("--freeze", s.frozen, "A constant that stays what it is")->allow_extra_args(false)->type_name("NAME");
  app->add_option("--products", s.products,
                  "Products are of numbers of this type, with sums, weights and all else in f32")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--loss-scale", s.loss_scale,
                  "Multiply the loss for gradients in 16 bits, by this at first; halved after a step whose gradients "
                  "are not finite, which is left out; 0: not")
      ->capture_default_str();
  app->add_option("--distill", s.teacher, "A model with the same input and output, whose answers are learnt, too")
      ->type_name("TEACHER");
  app->add_option("--distill-weight", s.distill_weight, "How much of the loss that is")->capture_default_str();
  app->add_option("--temperature", s.temperature, "What both models' scores are divided by for it")
      ->capture_default_str();
  app->add_option(
         "--distill-features", c.features,
         "A value of the teacher that one of the model learns to be like, by their names; where they differ in "
         "channels, a linear map that is learnt, too, is between them")
      ->allow_extra_args(false)
      ->type_name("TEACHER_TENSOR=STUDENT_TENSOR");
  app->add_option("--feature-weight", s.feature_weight, "What the mean squared difference of features is multiplied by")
      ->capture_default_str();
  app->add_option("--prune", s.prune,
                  "Make weights zero while it learns: a share (0.8), N:M (2:4), or channels:0.5, which cuts channels "
                  "out of the model that is written")
      ->type_name("HOW");
  app->add_option("--importance", s.importance,
                  "Which channels go first: those of small weights (l1), of a small first-order change of the loss "
                  "(taylor), or of small scales of batch normalisations (bn)")
      ->check(CLI::IsMember({"l1", "taylor", "bn"}))
      ->capture_default_str()
      ->type_name("NAME");
  app->add_flag("--qat", s.qat, "Learn with 8 bits in mind, and write a model of integers (as 'quantize' does)");
  app->add_option("--qat-bits", s.qat_bits, "Bits of weights for --qat")
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  app->add_option("--epochs", s.epochs, "How often the samples are seen")->capture_default_str();
  app->add_option("--batch", s.batch, "Samples in a step, where the model leaves that open")->capture_default_str();
  app->add_option("--leaves", s.leaves,
                  "Sum gradients over so many parts of a batch, in a fixed order: the same bits for every number of "
                  "processes that divides it; 0: one part for each process")
      ->capture_default_str();
  app->add_option("--zero", s.zero,
                  "What each process keeps a part of only: 1 the optimizer's moments, 2 gradients, too, 3 parameters, "
                  "too; 0: nothing")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  add_pipeline_flags(*app, c.pipeline, "--pipeline");
  app->add_option("--tensor-parallel", c.pipeline.settings.tensor, "So many processes share each layer")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  app->add_option("--plan", c.pipeline.plan, "Stages as 'tessera parallelize --stages' has planned them")
      ->type_name("FOLDER");
  app->add_option("--seed", s.seed, "Of the order of samples")->capture_default_str();
  app->add_flag("--in-order", s.in_order, "Every epoch sees the samples in the order of the file");
  app->add_option("--checkpoint", s.checkpoint, "Keep parameters and moments here, after each epoch and on Ctrl-C")
      ->type_name("FILE.safetensors");
  app->add_option("--checkpoint-steps", s.checkpoint_steps, "And after every so many steps; 0: not")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_flag("--continue", c.goes_on, "Go on from the checkpoint, where it is there already");
  app->add_option("--processes", c.processes, "Start so many processes of this command, by mpirun; 0: this one does it")
      ->check(CLI::Range(int64_t{0}, int64_t{kMostRanks}))
      ->capture_default_str();
  app->add_option(
         "--restarts", c.restarts,
         "With --processes: when one of them has ended, start all again, at most so often, from a checkpoint of "
         "every step")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--resume", s.resume, "Go on from a checkpoint: the same bits as without the break")
      ->type_name("FILE.safetensors");
  app->add_option("--curve", c.curve, "Draw the loss of every step")->type_name("FILE.svg");
  app->add_option("--step", s.step, "Write the training step as a graph: for explain, bench and compile")
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
      "  mpirun -n 2 tessera train lenet.onnx --data digits.npz -o lenet.so\n"
      "  tessera train lenet.onnx --data digits.npz --processes 4 --restarts 10 --checkpoint lenet.safetensors\n"
      "  mpirun -n 2 tessera train gpt.graph --data text.npz --stages 2 --micro-batches 8");
  return {app, [command] { return run_training(*command); }};
}

}  // namespace tessera
