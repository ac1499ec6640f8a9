// tessera accel UNIT.json
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "accel/rtl/rtl_run.h"
#include "accel/stream.h"
#include "commands.h"
#include "driver/accelerators.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

struct AccelCommand {
  std::string unit, output;
  bool json = false;
};

int write_hardware(const AccelCommand& command) {
  const Accelerator& unit = accelerator_of(command.unit);
  const RtlFiles files = rtl_files(unit);
  write_rtl(files, command.output);
  const size_t count = files.design.size() + files.headers.size() + files.bench.size();
  if (command.json)
    std::cout << json_line({{"unit", unit.name},
                            {"folder", command.output},
                            {"files", count},
                            {"instruction_bits", instruction_bits(unit)}});
  else
    fmt::print("{}: {} files in {}, instructions of {} bits\n", unit.name, count, command.output,
               instruction_bits(unit));
  return kExitOk;
}

}  // namespace

Command add_accel_command(CLI::App& root) {
  const auto command = std::make_shared<AccelCommand>();
  CLI::App* app =
      root.add_subcommand("accel", "Write the hardware of an accelerator that a file describes (SystemVerilog)");
  app->add_option("UNIT", command->unit, "UNIT.json, as of --target")->type_name("")->required();
  app->add_option("-o,--output", command->output, "Folder for the files; it is made")->type_name("FOLDER")->required();
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Streams run on it by 'tessera schedule --accel UNIT.json --rtl FOLDER' and 'tessera bench --target UNIT.json\n"
      "--rtl FOLDER'. docs/accelerator.md says what it is made of.\n"
      "Examples:\n"
      "  tessera accel examples/accel/vdla.json -o vdla_rtl");
  return {app, [command] { return write_hardware(*command); }};
}

}  // namespace tessera
