// tessera doctor
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "driver/analysis/doctor.h"
#include "progress.h"
#include "terminal.h"

namespace tessera {

namespace {

int doctor(bool json) {
  nlohmann::json machine;
  {
    const Progress progress("measuring this machine");
    machine = examine_machine();
  }
  std::cout << (json ? json_line(machine) : machine_text(machine, {stdout_has_colour()}));
  return kExitOk;
}

}  // namespace

Command add_doctor_command(CLI::App& root) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* app = root.add_subcommand("doctor", "Measure this machine and say what costs speed on it");
  app->add_flag("--json", *json, "Print one line of JSON instead of text");
  return {app, [json] { return doctor(*json); }};
}

}  // namespace tessera
