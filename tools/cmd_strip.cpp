// tessera strip BUNDLE -o FILE
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/training/trained_bundle.h"
#include "graph/printer.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"

namespace tessera {

namespace {

struct StripCommand {
  CompileFlags compile;
  std::string bundle, checkpoint, output;
  bool quiet = false;
};

int strip_bundle(const StripCommand& command) {
  std::vector<std::string> read = {command.bundle};
  if (!command.checkpoint.empty()) read.push_back(command.checkpoint);
  refuse_to_overwrite(command.output, read);
  const Graph model = stripped(command.bundle, command.checkpoint);
  if (command.output.ends_with(".onnx")) {
    export_onnx_file(model, command.output);
  } else if (command.output.ends_with(".graph")) {
    write_file(command.output, "output", print(model));
  } else {
    DriverOptions options = driver_options(command.compile);
    options.emit = Emit::kModule;
    PassRunner runner(options);
    write_module(compile_graph(model, options, runner), command.output);
  }
  if (!command.quiet) fmt::print("{}: the model alone, written to {}\n", command.bundle, command.output);
  return kExitOk;
}

}  // namespace

Command add_strip_command(CLI::App& root) {
  const auto command = std::make_shared<StripCommand>();
  StripCommand& c = *command;
  CLI::App* app = root.add_subcommand("strip", "Take the model alone out of a file that can go on training");
  app->add_option("BUNDLE", c.bundle, "A file that 'tessera train --with-step' wrote")->required()->type_name("");
  app->add_option("-o,--output", c.output,
                  "A module, with weights folded and packed as constants; FILE.onnx or FILE.graph: the model")
      ->required()
      ->type_name("FILE");
  app->add_option("--checkpoint", c.checkpoint, "Weights from here, instead of those that the file has")
      ->type_name("FILE.safetensors");
  add_compile_flags(*app, c.compile);
  app->add_flag("-q,--quiet", c.quiet, "Print nothing on success");
  app->footer(
      "Examples:\n"
      "  tessera strip digits.so -o digits-infer.so\n"
      "  tessera strip digits.so --checkpoint later.safetensors -o digits.onnx");
  return {app, [command] { return strip_bundle(*command); }};
}

}  // namespace tessera
