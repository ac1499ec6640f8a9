// tessera db show|merge|export|prune|train
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diagnose/text_table.h"
#include "package/atomic_file.h"
#include "records/records.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "te/canonical.h"
#include "terminal.h"
#include "tune/train.h"
#include "tune/tuned_kernels.h"

namespace tessera {

namespace {

struct DbCommand {
  std::string file, output = "-";
  std::vector<std::string> others, files, tests;
  int64_t keep = 64;
  bool json = false;
};

using nlohmann::json;

std::map<std::string, KernelRecord> kernels_by_hash(const RecordFile& records) {
  std::map<std::string, KernelRecord> result;
  for (KernelRecord& kernel : records.kernels()) result[kernel.hash] = kernel;
  return result;
}

// What compiles by this compiler, for the machines of the records, do with their choices.
class Uses {
 public:
  explicit Uses(const RecordFile& records) : kernels_(kernels_by_hash(records)) {
    for (const MachineRecord& machine : records.machines()) targets_[machine.id] = target_of_facts(machine.facts);
  }

  const std::map<std::string, KernelRecord>& kernels() const { return kernels_; }
  std::string nodes_of(const ChoiceRecord& choice) const {
    const auto kernel = kernels_.find(choice.key.kernel);
    return kernel == kernels_.end() ? "" : kernel->second.name;
  }

  // "used", or why not.
  std::string of(const ChoiceRecord& choice) const {
    if (choice.state == "won alone") return "won alone: 'tune --resume' compares it in its model";
    if (choice.state != "won") return choice.state;
    const std::string why = refusal(choice);
    return why.empty() ? "used" : why;
  }

 private:
  std::string refusal(const ChoiceRecord& choice) const {
    std::string why;
    if (choice.payload.kind == kGraphPayload) return usable_graph(choice.payload, why) ? "" : why;
    const auto point = usable_point(choice.payload, why);
    if (!point) return why;
    const auto kernel = kernels_.find(choice.key.kernel);
    if (kernel == kernels_.end()) return "what its kernel computes is not in the file";
    const auto target = targets_.find(choice.key.machine);
    if (target == targets_.end() || !target->second) return "its machine is not in the file, or not known here";
    Target with_threads = *target->second;
    with_threads.num_threads = choice.key.threads;
    if (find_joining_step(point->rule)) return "";  // a joined kernel says so where it is compiled
    try {
      const TensorProgram program = parse_canonical_text(kernel->second.text);
      const auto answer = apply_point(*point, program, with_threads);
      const auto* declined = std::get_if<Declined>(&answer);
      return declined ? declined->reason : "";
    } catch (const UserError& error) {
      return error.diagnostic().message;
    }
  }

  std::map<std::string, KernelRecord> kernels_;
  std::map<int64_t, std::optional<Target>> targets_;
};

// Of choices, and of what won alone.
std::vector<ChoiceRecord> all_choices(const RecordFile& records) {
  std::vector<ChoiceRecord> result = records.choices();
  for (ChoiceRecord& candidate : records.candidates()) result.push_back(std::move(candidate));
  return result;
}

// A trace has many lines: its sketch and decisions say which it is.
std::string name_of(const SchedulePayload& payload) {
  std::string why;
  const auto point = usable_point(payload, why);
  return point ? to_string(*point) : payload.text.substr(0, payload.text.find('\n'));
}

// What records of trials and of choices have in common.
json record_json(const RecordKey& key, const SchedulePayload& payload) {
  return {{"kernel", key.kernel},
          {"machine", key.machine},
          {"threads", key.threads},
          {"kind", payload.kind},
          {"schedule", payload.text},
          {"knob_format", payload.knob_format},
          {"rule_version", payload.rule_version}};
}

json choice_json(const ChoiceRecord& choice, const Uses& uses) {
  json entry = record_json(choice.key, choice.payload);
  entry.update({{"nodes", uses.nodes_of(choice)},
                {"default_us", choice.default_us},
                {"us", choice.us},
                {"rounds", choice.rounds},
                {"wins", choice.wins},
                {"state", choice.state},
                {"use", uses.of(choice)},
                {"made", choice.made}});
  return entry;
}

json trial_json(const TrialRecord& trial) {
  json entry = record_json(trial.key, trial.payload);
  entry.update({{"status", trial.status},
                {"detail", trial.detail},
                {"us", trial.us},
                {"incumbent_us", trial.incumbent_us},
                {"mode", trial.mode},
                {"seed", trial.seed},
                {"number", trial.number},
                {"seconds", trial.seconds},
                {"made", trial.made}});
  return entry;
}

json machine_json(const MachineRecord& machine) {
  return {{"machine", machine.id},
          {"facts", machine.facts},
          {"peak_gflops", machine.peak_gflops},
          {"memory_gbytes", machine.memory_gbytes}};
}

int show(const DbCommand& command) {
  const RecordFile records(command.file, RecordFile::Open::kRead);
  const Uses uses(records);
  const auto machines = records.machines();
  const auto choices = all_choices(records);
  if (command.json) {
    json list = json::array(), machine_list = json::array();
    for (const ChoiceRecord& choice : choices) list.push_back(choice_json(choice, uses));
    for (const MachineRecord& machine : machines) machine_list.push_back(machine_json(machine));
    std::cout << json_line({{"file", command.file},
                            {"trials", records.count_trials()},
                            {"kernels", uses.kernels().size()},
                            {"machines", std::move(machine_list)},
                            {"choices", std::move(list)}});
    return kExitOk;
  }
  for (const MachineRecord& machine : machines)
    fmt::print("machine {}: {:.3g} GFLOP/s and {:.1f} GB/s of one thread; {}\n", machine.id, machine.peak_gflops,
               machine.memory_gbytes, machine.facts);
  using Align = TextTable::Align;
  TextTable table({{"kernel"},
                   {"machine", Align::kRight},
                   {"threads", Align::kRight},
                   {"default", Align::kRight},
                   {"tuned", Align::kRight},
                   {"gain", Align::kRight},
                   {"use"},
                   {"nodes", Align::kLeft, 40},
                   {"schedule"}});
  for (const ChoiceRecord& choice : choices) {
    table.add({choice.key.kernel, std::to_string(choice.key.machine), std::to_string(choice.key.threads),
               time_text(choice.default_us), time_text(choice.us), fmt::format("{:.2f}", choice.default_us / choice.us),
               uses.of(choice), uses.nodes_of(choice), name_of(choice.payload)});
  }
  std::cout << table.to_string({stdout_has_colour()});
  fmt::print("{} trials of {} kernels, {} choices\n", records.count_trials(), uses.kernels().size(),
             records.choices().size());
  return kExitOk;
}

int merge(const DbCommand& command) {
  // What cannot be read is refused before a new file is made.
  std::vector<std::unique_ptr<RecordFile>> others;
  for (const std::string& name : command.others) {
    std::error_code error;
    if (std::filesystem::equivalent(name, command.file, error)) continue;
    others.push_back(std::make_unique<RecordFile>(name, RecordFile::Open::kRead));
  }
  RecordFile records(command.file, RecordFile::Open::kWrite);
  json list = json::array();
  for (const auto& other : others) {
    const RecordFile::Merged merged = records.merge(*other);
    if (command.json) list.push_back({{"file", other->path()}, {"trials", merged.trials}, {"choices", merged.choices}});
    else
      fmt::print("{}: {} trials and {} choices came to {}\n", other->path(), merged.trials, merged.choices,
                 command.file);
  }
  if (command.json) std::cout << json_line({{"file", command.file}, {"merged", std::move(list)}});
  return kExitOk;
}

// One line of JSON for each record: kernels first, then trials, then choices.
int export_records(const DbCommand& command) {
  const RecordFile records(command.file, RecordFile::Open::kRead);
  std::string text;
  const auto add = [&](const char* what, json entry) {
    entry["record"] = what;
    text += json_line(entry);
  };
  for (const MachineRecord& machine : records.machines()) add("machine", machine_json(machine));
  const Uses uses(records);
  for (const auto& [hash, kernel] : uses.kernels())
    add("kernel", {{"kernel", hash}, {"nodes", kernel.name}, {"text", kernel.text}});
  for (const TrialRecord& trial : records.trials()) add("trial", trial_json(trial));
  for (const ChoiceRecord& choice : all_choices(records)) add("choice", choice_json(choice, uses));
  if (command.output == "-") {
    std::cout << text << std::flush;
  } else {
    write_file(command.output, "output", text);
  }
  return kExitOk;
}

int prune(const DbCommand& command) {
  {
    const RecordFile there(command.file, RecordFile::Open::kRead);
  }  // pruning makes no file
  RecordFile records(command.file, RecordFile::Open::kWrite);
  const int64_t gone = records.prune(command.keep);
  if (command.json)
    std::cout << json_line({{"file", command.file}, {"removed", gone}, {"left", records.count_trials()}});
  else fmt::print("{} trials removed, {} left\n", gone, records.count_trials());
  return kExitOk;
}

int train(const DbCommand& command) {
  CostModel model;
  const Training training = train_cost_model(command.files, command.tests, model);
  model.save(command.output);
  if (command.json) {
    json list = json::array();
    for (const TestedKernel& kernel : training.test)
      list.push_back(
          {{"kernel", kernel.hash}, {"name", kernel.name}, {"trials", kernel.trials}, {"spearman", kernel.spearman}});
    std::cout << json_line({{"model", command.output},
                            {"trials", training.trials},
                            {"kernels", training.kernels},
                            {"skipped", training.skipped},
                            {"test", std::move(list)},
                            {"trained_on", training.trained_on},
                            {"too_few", training.too_few},
                            {"prediction_us", training.prediction_us},
                            {"single_prediction_us", training.single_prediction_us}});
    return kExitOk;
  }
  fmt::print("{}: trained on {} trials of {} kernels; {} records could not be used\n", command.output, training.trials,
             training.kernels, training.skipped);
  if (training.trained_on + training.too_few > 0)
    fmt::print("--test: {} of its kernels were trained on, and {} have too few trials: they are no test\n",
               training.trained_on, training.too_few);
  if (training.test.empty()) return kExitOk;
  using Align = TextTable::Align;
  TextTable table(
      {{"kernel"}, {"trials", Align::kRight}, {"rank correlation", Align::kRight}, {"nodes", Align::kLeft, 40}});
  for (const TestedKernel& kernel : training.test)
    table.add({kernel.hash, std::to_string(kernel.trials), fmt::format("{:.2f}", kernel.spearman), kernel.name});
  std::cout << table.to_string({stdout_has_colour()});
  fmt::print("one prediction with its features: {:.0f} us, alone {:.0f} us\n", training.prediction_us,
             training.single_prediction_us);
  return kExitOk;
}

}  // namespace

Command add_db_command(CLI::App& root) {
  const auto command = std::make_shared<DbCommand>();
  CLI::App* app = root.add_subcommand("db", "Show, merge, export or prune tuning records");
  app->require_subcommand(1);
  const auto add = [&](const char* name, const char* text) {
    CLI::App* verb = app->add_subcommand(name, text);
    verb->add_option("FILE", command->file, "Tuning records")->required()->type_name("");
    return verb;
  };
  CLI::App* show_app = add("show", "The schedules that won, with what they gained, and whether compiles use them");
  show_app->add_flag("--json", command->json, "Print one line of JSON");
  CLI::App* merge_app =
      add("merge", "Add the records of other files; of two choices for a kernel that are used the larger gain stays");
  merge_app->add_option("OTHER", command->others, "Files that are only read")->required()->type_name("");
  merge_app->add_flag("--json", command->json, "Print one line of JSON");
  CLI::App* export_app = add("export", "All records as lines of JSON");
  export_app->add_option("-o,--output", command->output, "Where to; - is standard output")
      ->capture_default_str()
      ->type_name("FILE");
  CLI::App* prune_app =
      add("prune", "Remove all but the default's and the fastest trials of each kernel, or all trials; choices stay");
  prune_app
      ->add_option("--keep", command->keep,
                   "Trials that stay beside the default's, of each kernel; 0: no trials stay, the default's neither")
      ->check(CLI::Range(int64_t{0}, int64_t{100000000}))
      ->capture_default_str()
      ->type_name("N");
  prune_app->add_flag("--json", command->json, "Print one line of JSON");
  CLI::App* train_app = app->add_subcommand("train", "Train a cost model for 'tessera tune --cost-model' from trials");
  train_app->add_option("FILE", command->files, "Tuning records")->required()->type_name("");
  train_app
      ->add_option("--test", command->tests,
                   "Records whose kernels the model orders afterwards, but for those that it was trained on")
      ->type_name("FILE");
  train_app->add_option("-o,--output", command->output, "Where to write the model")->required()->type_name("FILE.json");
  train_app->add_flag("--json", command->json, "Print one line of JSON");
  app->footer(
      "Examples:\n"
      "  tessera db show my.db\n"
      "  tessera db merge all.db my.db theirs.db\n"
      "  tessera db export my.db -o records.jsonl\n"
      "  tessera db prune my.db --keep 16\n"
      "  tessera db train my.db -o my.json --test theirs.db");
  return {app, [=] {
            if (show_app->parsed()) return show(*command);
            if (merge_app->parsed()) return merge(*command);
            if (export_app->parsed()) return export_records(*command);
            if (train_app->parsed()) return train(*command);
            return prune(*command);
          }};
}

}  // namespace tessera
