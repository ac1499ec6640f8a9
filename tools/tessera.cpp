// The command line. What the verbs do stands in cmd_*.cpp; here is what they share: parsing, errors, signals.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "driver/api/version.h"
#include "package/atomic_file.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

// "error ...", with the word in red on a terminal.
void print_error(const std::string& text) {
  std::string shown = text;
  if (shown.starts_with("error")) shown = coloured("error", "31", stderr_has_colour()) + shown.substr(5);
  fmt::print(stderr, "{}\n", shown);
}

// A signal ends the process at once, whatever it is doing, but leaves no half-written file. Ctrl-C has the exit code
// that shells give it; other signals end the process as they would have without us.
void clean_up_and_die(int signal) {
  remove_unfinished_files();
  if (signal == SIGINT) _exit(kExitInterrupted);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void install_signal_handlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, clean_up_and_die);
  // A reader that went away ("tessera ... | head") is noticed by the next write.
  std::signal(SIGPIPE, SIG_DFL);
}

int run(int argc, char** argv) {
  CLI::App app("Tessera compiles neural networks ahead of time", "tessera");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(0, 1);  // none is reported below, so that an unknown verb is named
  app.failure_message(CLI::FailureMessage::simple);
  app.get_formatter()->column_width(34);
  app.footer(
      "Each verb has its own --help. Exit codes: 0 ok, 1 an error of the model, the options or the machine,\n"
      "2 outputs that differ, 3 a missed performance bound, 64 a bug in tessera, 130 interrupted by Ctrl-C.");
  const std::array commands = {add_compile_command(app), add_run_command(app),     add_verify_command(app),
                               add_bench_command(app),   add_explain_command(app), add_inspect_command(app),
                               add_doctor_command(app),  add_diff_command(app),    add_bisect_command(app),
                               add_reduce_command(app),  add_opt_command(app),     add_schedule_command(app),
                               add_tune_command(app),    add_db_command(app),      add_worker_command(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto parsed = app.get_subcommands();
    const std::string help = parsed.empty() ? "tessera --help" : "tessera " + parsed[0]->get_name() + " --help";
    throw UserError({.id = "TSR-4001", .message = error.what(), .node = {}, .legal = {}, .hint = "see '" + help + "'"});
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  std::string verbs;
  for (const Command& command : commands) verbs += (verbs.empty() ? "" : ", ") + command.app->get_name();
  throw UserError(
      {.id = "TSR-4001", .message = "a verb is required", .node = {}, .legal = verbs, .hint = "see 'tessera --help'"});
}

}  // namespace

}  // namespace tessera

int main(int argc, char** argv) {
  tessera::install_signal_handlers();
  try {
    return tessera::run(argc, argv);
  } catch (const tessera::UserError& error) {
    tessera::print_error(error.what());
    return tessera::kExitUserError;
  } catch (const std::bad_alloc&) {
    tessera::print_error(
        "error TSR-5100: not enough memory\n"
        "  legal: a model whose weights and tensors fit in this machine's memory\n"
        "  hint:  give smaller dimensions, close other programs, or take a machine with more memory");
    return tessera::kExitUserError;
  } catch (const std::exception& error) {
    std::string command;
    for (int i = 0; i < argc; ++i) command += (i ? " " : "") + std::string(argv[i]);
    tessera::print_error(
        fmt::format("error: this is a bug in tessera: {}\n"
                    "  hint:  please report it with this text, '{}', the model if you may, and the command:\n  {}",
                    error.what(), tessera::version_text(), command));
    return tessera::kExitInternal;
  }
}
