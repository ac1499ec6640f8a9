// tessera doctor
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "driver/analysis/communication.h"
#include "driver/analysis/doctor.h"
#include "driver/process_rank.h"
#include "progress.h"
#include "terminal.h"

namespace tessera {

namespace {

struct DoctorCommand {
  bool json = false, comm = false;
};

// All processes measure together, and one says what.
int doctor_of_processes(bool json) {
  const ProcessRank process = process_rank();
  const nlohmann::json measured = examine_communication(process);
  if (process.is_first())
    std::cout << (json ? json_line(measured) : communication_text(measured, {stdout_has_colour()}));
  return kExitOk;
}

int doctor(const DoctorCommand& command) {
  const bool json = command.json;
  if (command.comm) return doctor_of_processes(json);
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
  const auto command = std::make_shared<DoctorCommand>();
  CLI::App* app = root.add_subcommand("doctor", "Measure this machine and say what costs speed on it");
  app->add_flag(
      "--comm", command->comm,
      "Measure latency and bandwidth between the processes of this run instead: mpirun -n 2 tessera doctor --comm");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  return {app, [command] { return doctor(*command); }};
}

}  // namespace tessera
