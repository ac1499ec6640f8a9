// The command line. What the verbs do stands in cmd_*.cpp; here is what they share: parsing, errors, signals.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command_line.h"
#include "commands.h"
#include "compile_flags.h"
#include "driver/api/version.h"
#include "package/atomic_file.h"
#include "run_flags.h"
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

// A number of threads that the runtime would pass over is probably a slip.
void check_environment() {
  for (const char* name : {"TESSERA_NUM_THREADS", "TESSERA_BIND_THREADS"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    const bool is_flag = std::string_view(name) == "TESSERA_BIND_THREADS";
    const int least = is_flag ? 0 : 1, most = is_flag ? 1 : kMostThreads;
    int number = -1;
    const char* end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, number);
    if (error == std::errc() && stop == end && number >= least && number <= most) continue;
    print_warning(fmt::format("{}='{}' is no whole number from {} to {}, and is not used", name, value, least, most));
  }
}

// What was written has arrived: UserError TSR-6101 when it has not ("tessera inspect m.so > /dev/full").
void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout) return;
  throw UserError({.id = "TSR-6101",
                   .message = fmt::format("standard output cannot be written: {}", std::strerror(errno)),
                   .node = {},
                   .legal = "a place with room for it",
                   .hint = {}});
}

int run(std::vector<std::string> arguments) {
  CLI::App app("Tessera compiles neural networks ahead of time", "tessera");
  app.set_version_flag("-V,--version", version_text());
  app.require_subcommand(0, 1);  // none is reported below, so that an unknown verb is named
  app.failure_message(CLI::FailureMessage::simple);
  use_wrapped_help(app);
  app.footer(
      "Each verb has its own --help ('tessera help VERB'). Exit codes: 0 ok, 1 an error of the model, the options\n"
      "or the machine, 2 outputs that differ, 3 a missed performance bound, 64 a bug in tessera, 130 interrupted\n"
      "by Ctrl-C.");
  std::vector<Command> commands;
  for (const auto& add : kVerbs) commands.push_back(add(app));
  arguments = with_pipes_read(with_help_as_flag(std::move(arguments)));
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the end
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw_usage_error(app, error, arguments);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    check_environment();
    const int code = command.run();
    flush_output();
    return code;
  }
  throw_no_verb(app);
}

// With --json programs read standard output: what went wrong stands there too.
void print_json_error(const Diagnostic& diagnostic, const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--json") == arguments.end()) return;
  fmt::print("{}", json_line({{"error",
                               {{"id", diagnostic.id},
                                {"message", diagnostic.message},
                                {"node", diagnostic.node},
                                {"legal", diagnostic.legal},
                                {"hint", diagnostic.hint}}}}));
}

}  // namespace

}  // namespace tessera

int main(int argc, char** argv) {
  tessera::install_signal_handlers();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  try {
    return tessera::run(arguments);
  } catch (const tessera::UserError& error) {
    tessera::print_json_error(error.diagnostic(), arguments);
    tessera::print_error(error.what());
    return tessera::kExitUserError;
  } catch (const std::bad_alloc&) {
    const tessera::Diagnostic diagnostic{
        .id = "TSR-5100",
        .message = "not enough memory",
        .node = {},
        .legal = "a model whose weights and tensors fit in this machine's memory",
        .hint = "give smaller dimensions, close other programs, or take a machine with more memory"};
    tessera::print_json_error(diagnostic, arguments);
    tessera::print_error(diagnostic.to_string());
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
