// tessera worker --token FILE
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "codegen/llvm/target.h"
#include "commands.h"
#include "support/error.h"
#include "tune/worker.h"

namespace tessera {

namespace {

struct WorkerCommand {
  std::string listen = "127.0.0.1:7070";
  std::string target = "native";
  std::optional<std::string> runner;
  std::string runner_program;
  WorkerOptions options;
  bool quiet = false;
};

std::atomic<bool> stop_asked{false};

void on_signal(int) { stop_asked = true; }

int serve(const WorkerCommand& command) {
  WorkerOptions options = command.options;
  options.listen = parse_host_port(command.listen);
  const Target target = parse_target(command.target);
  if (!command.runner && !command.runner_program.empty())
    throw UserError({.id = "TSR-4055",
                     .message = "--runner-program without --runner",
                     .node = {},
                     .legal = "--runner COMMAND beside it, which may be empty: --runner \"\"",
                     .hint = {}});
  if (command.runner) options.runner = runner_command(*command.runner, command.runner_program, target);
  else if (!runs_here(target))
    throw UserError(
        {.id = "TSR-4054",
         .message = fmt::format("code for the target '{}' does not run on this machine", command.target),
         .node = {},
         .legal = "a target whose features this machine has, or --runner with a command that runs such code",
         .hint = "for AArch64: --runner \"qemu-aarch64 -L /usr/aarch64-linux-gnu\" (Debian's packages "
                 "qemu-user and g++-aarch64-linux-gnu)"});
  options.on_listening = [](const HostPort& address) {
    std::cout << "listening on " << to_string(address) << std::endl;
  };
  if (!command.quiet) options.on_event = [](const std::string& line) { std::cout << line << std::endl; };
  options.stop = &stop_asked;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  run_worker(target, options);
  return kExitOk;
}

}  // namespace

Command add_worker_command(CLI::App& root) {
  const auto command = std::make_shared<WorkerCommand>();
  WorkerOptions& options = command->options;
  CLI::App* app =
      root.add_subcommand("worker", "Build, run and time candidates for 'tessera tune --workers' elsewhere");
  app->add_option("--token", options.token_file,
                  "File that only its owner may read; its first line is what coordinators have to know")
      ->required()
      ->type_name("FILE");
  app->add_option("--listen", command->listen, "Where to listen; port 0 takes any that is free")
      ->capture_default_str()
      ->type_name("HOST:PORT");
  app->add_option("--target", command->target,
                  "The machine that candidates are built for, as 'tessera compile' names it")
      ->capture_default_str()
      ->type_name("TARGET");
  app->add_option("--runner", command->runner,
                  "Words before the program that runs candidates in place of this process: an emulator, 'ssh HOST', or "
                  "none (\"\")")
      ->type_name("COMMAND");
  app->add_option("--runner-program", command->runner_program,
                  "That program; default: tessera-runner-ARCHITECTURE beside tessera")
      ->type_name("FILE");
  app->add_option("--max-size", options.most_bytes, "Bytes of a message from a coordinator")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 30))
      ->capture_default_str()
      ->type_name("BYTES");
  app->add_option("--time-limit", options.run_seconds, "Seconds after which a candidate that runs counts as hanging")
      ->check(CLI::Range(0.01, 1e5))
      ->capture_default_str()
      ->type_name("SECONDS");
  app->add_option("--build-limit", options.build_seconds, "Seconds after which a build counts as hanging")
      ->check(CLI::Range(0.01, 1e5))
      ->capture_default_str()
      ->type_name("SECONDS");
  app->add_option("--max-memory", options.most_operand_bytes, "Bytes of a kernel's operands")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 45))
      ->capture_default_str()
      ->type_name("BYTES");
  app->add_option("--jobs", options.jobs, "Builds at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--connections", options.most_connections, "Coordinators at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->type_name("N");
  app->add_flag("--quiet", command->quiet, "Print only the address");
  app->footer(
      "Whoever knows the token can run code here: give it only to those who might have an account on this machine. It "
      "and\n"
      "all messages are sent as they are: listen at addresses other than the loopback only in a network that you "
      "trust, "
      "or\n"
      "through a tunnel: ssh -L 7070:localhost:7070.\n"
      "Ctrl-C ends the worker and what it started; coordinators go on without it.\n"
      "Examples:\n"
      "  (umask 077; head -c 32 /dev/urandom | base64 > token)\n"
      "  tessera worker --token token\n"
      "  tessera tune mobilenet_v2.onnx --workers 127.0.0.1:7070 --token token --threads 1\n"
      "For AArch64, emulated; the search names the same --target:\n"
      "  tessera worker --token token --target aarch64-unknown-linux-gnu --runner \"qemu-aarch64 -L "
      "/usr/aarch64-linux-gnu\"");
  return {app, [command] { return serve(*command); }};
}

}  // namespace tessera
