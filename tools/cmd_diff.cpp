// tessera diff MODEL --against interp|O0|onnxruntime|MODULE
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diff_flags.h"
#include "progress.h"
#include "step_progress.h"
#include "terminal.h"

namespace tessera {

namespace {

struct DiffCommand {
  DiffFlags flags;
  std::string folder;
  double seconds = 120;
  bool json = false;
};

int diff(const DiffCommand& command) {
  Difference difference;
  const std::string folder = command.folder.empty() ? default_case_folder(command.flags.model, "diff") : command.folder;
  refuse_to_overwrite_case(folder, command.flags.model);
  {
    Progress progress("comparing " + std::filesystem::path(command.flags.model).filename().string());
    DiffRequest request = diff_request(command.flags);
    request.find.max_seconds = command.seconds;
    request.find.step = [&](const std::string& step) { progress.update(step); };
    StepProgress steps(progress);
    request.driver.observers.add(steps);
    difference = diff_model(request);
  }
  const std::string verify = verify_command(command.flags, folder);
  std::string file;
  if (difference.reproduction)
    file = write_case(*difference.reproduction, command.flags.model, folder, command.flags.cut_format());
  if (command.json) {
    nlohmann::json json = to_json(difference);
    json["model"] = command.flags.model;
    json["against"] = command.flags.against;
    if (difference.reproduction) json["reproduction"]["folder"] = folder, json["reproduction"]["command"] = verify;
    std::cout << json_line(json);
  } else {
    std::cout << to_text(difference, TextStyle{stdout_has_colour()});
    if (difference.reproduction)
      std::cout << fmt::format("written to {}: {} and the values it was given\n  {}\n", folder, file, verify);
  }
  return difference.first ? kExitMismatch : kExitOk;
}

}  // namespace

Command add_diff_command(CLI::App& root) {
  const auto command = std::make_shared<DiffCommand>();
  CLI::App* app = root.add_subcommand("diff", "Name the first node that a compiled model computes wrongly");
  add_diff_flags(*app, command->flags);
  app->add_option(
         "-o,--output", command->folder,
         "Folder for the smallest model that shows the difference, as a test case for verify;\ndefault: MODEL-diff")
      ->type_name("DIR");
  add_cut_format_flag(*app, command->flags);
  app->add_option("--budget", command->seconds, "Seconds after which no smaller model is looked for")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Exit code 0: all values agree, 2: some differ.\n"
      "Examples:\n"
      "  tessera diff model.onnx\n"
      "  tessera diff model.onnx --against onnxruntime --input @x.npy\n"
      "  tessera diff model.onnx --against O0 --disable-pass winograd -o smallest\n"
      "  tessera diff model.onnx --against yesterday.so --json");
  return {app, [command] { return diff(*command); }};
}

}  // namespace tessera
