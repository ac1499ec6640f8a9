// tessera bisect MODEL --against interp|O0|onnxruntime|MODULE
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diff_flags.h"
#include "driver/analysis/bisect.h"
#include "package/atomic_file.h"
#include "progress.h"
#include "terminal.h"

namespace tessera {

namespace {

struct BisectCommand {
  DiffFlags flags;
  std::string folder;
  double seconds = 120;
  bool whole = false, json = false;
};

int bisect(const BisectCommand& command) {
  BisectResult result;
  const std::string folder =
      command.folder.empty() ? default_case_folder(command.flags.model, "bisect") : command.folder;
  refuse_to_overwrite_case(folder, command.flags.model);
  {
    Progress progress("searching " + std::filesystem::path(command.flags.model).filename().string());
    BisectRequest request;
    request.diff = diff_request(command.flags);
    request.diff.find.max_seconds = command.seconds;
    request.diff.find.step = [&](const std::string& step) { progress.update(step); };
    request.reduce = !command.whole;
    result = bisect_model(request);
  }
  const auto& reproduction = result.difference.reproduction;
  std::string file;
  if (reproduction) file = write_case(*reproduction, command.flags.model, folder, command.flags.cut_format());
  const bool has_texts = reproduction && result.culprit && result.culprit->before != result.culprit->after;
  if (has_texts) {
    write_file(folder + "/before.txt", "text", result.culprit->before);
    write_file(folder + "/after.txt", "text", result.culprit->after);
  }
  if (command.json) {
    nlohmann::json json = to_json(result);
    json["model"] = command.flags.model;
    json["against"] = command.flags.against;
    if (reproduction) json["folder"] = folder, json["command"] = verify_command(command.flags, folder);
    std::cout << json_line(json);
  } else {
    std::cout << to_text(result, TextStyle{stdout_has_colour()});
    if (reproduction) {
      std::cout << fmt::format("written to {}: {} and the values it was given{}\n  {}\n", folder, file,
                               has_texts ? ", before.txt, after.txt" : "", verify_command(command.flags, folder));
    }
  }
  return result.difference.first ? kExitMismatch : kExitOk;
}

}  // namespace

Command add_bisect_command(CLI::App& root) {
  const auto command = std::make_shared<BisectCommand>();
  CLI::App* app = root.add_subcommand("bisect", "Name the pass with which a compiled model goes wrong");
  add_diff_flags(*app, command->flags);
  app->add_option("-o,--output", command->folder,
                  "Folder for the smallest model that shows it and the program before and after the pass;\n"
                  "default: MODEL-bisect")
      ->type_name("DIR");
  add_cut_format_flag(*app, command->flags);
  app->add_option("--budget", command->seconds, "Seconds after which no smaller model is looked for")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS");
  app->add_flag("--whole", command->whole, "Search with the whole model, not with the smallest part that shows it");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Exit code 0: nothing is wrong, 2: something is.\n"
      "Examples:\n"
      "  tessera bisect model.onnx\n"
      "  tessera bisect model.onnx --against onnxruntime --input @x.npy --target x86-64-v4\n"
      "  tessera bisect model.onnx --whole --json");
  return {app, [command] { return bisect(*command); }};
}

}  // namespace tessera
