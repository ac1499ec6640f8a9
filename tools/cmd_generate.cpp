// tessera generate, tessera serve: text out of language models. The work is done by the Python package, whose libraries
// make tokens of text and speak HTTP; what stands here declares the flags, and starts it in this process's place.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "support/error.h"

namespace tessera {

namespace {

enum class FlagKind : uint8_t { kText, kNumber, kSwitch };

struct Flag {
  const char* name;
  FlagKind kind;
  const char* help;
};

constexpr Flag kGenerateFlags[] = {
    {"--prompt", FlagKind::kText, "The text that is continued; - reads standard input"},
    {"--chat", FlagKind::kSwitch, "The prompt is a question, asked in the model's chat template"},
    {"--max-tokens", FlagKind::kNumber, "The longest answer (default: 128)"},
    {"--temperature", FlagKind::kNumber, "0 takes the best token each time (default: 0)"},
    {"--top-k", FlagKind::kNumber, "Draw among so many (default: all)"},
    {"--top-p", FlagKind::kNumber, "Draw among the fewest with this probability (default: 1)"},
    {"--seed", FlagKind::kNumber, "Of what is drawn"},
    {"--lookup", FlagKind::kNumber, "Guess so many tokens at a time from the text so far (default: 0)"},
    {"--threads", FlagKind::kNumber, "Default: as tessera run"},
    {"--context", FlagKind::kNumber, "The most tokens of prompt and answer (default: 2048)"},
    {"--module", FlagKind::kText, "Where the compiled model is, or goes to (default: the cache)"},
    {"--precision", FlagKind::kText, "f32, bf16, f16 or i8 (default: f32)"},
    {"--stats", FlagKind::kSwitch, "Tokens per second, on standard error"},
};
constexpr Flag kServeFlags[] = {
    {"--host", FlagKind::kText, "Default: 127.0.0.1, this machine alone"},
    {"--port", FlagKind::kNumber, "Default: 8080; 0: any that is free"},
    {"--name", FlagKind::kText, "The model's name in answers (default: the file's)"},
    {"--batch", FlagKind::kNumber, "Requests in a run of the model (default: 1)"},
    {"--precision", FlagKind::kText, "f32, bf16, f16 or i8 (default: f32)"},
    {"--caches", FlagKind::kNumber, "Requests at a time, and conversations to remember (default: 4)"},
    {"--lookup", FlagKind::kNumber, "Guess so many tokens at a time from the text so far (default: 0)"},
    {"--threads", FlagKind::kNumber, "Default: as tessera run"},
    {"--context", FlagKind::kNumber, "The most tokens of prompt and answer (default: 2048)"},
    {"--module", FlagKind::kText, "Where the compiled model is, or goes to (default: the cache)"},
};

// The package beside this program, as in the build folder, comes first; else Python finds the one that is installed.
void show_package_to_python() {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path folder = program.parent_path().parent_path() / "python";
  if (failed || !std::filesystem::exists(folder / "tessera" / "llm.py", failed)) return;
  const char* before = std::getenv("PYTHONPATH");
  const std::string path = before && *before ? folder.string() + ":" + before : folder.string();
  setenv("PYTHONPATH", path.c_str(), 1);
}

int become_python(const char* module, const std::vector<std::string>& arguments) {
  const char* named = std::getenv("TESSERA_PYTHON");
  const std::string python = named && *named ? named : "python3";
  show_package_to_python();
  std::vector<std::string> all = {python, "-m", module};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(python.c_str(), pointers.data());
  throw UserError({.id = "TSR-4044",
                   .message = fmt::format("'{}' cannot be started: {}", python, std::strerror(errno)),
                   .node = {},
                   .legal = "a Python with the package tessera",
                   .hint = "set TESSERA_PYTHON to that Python if it is not 'python3'"});
}

Command add_command(CLI::App& root, const char* name, const char* help, const char* module,
                    std::span<const Flag> flags) {
  struct Given {
    std::string model;
    std::vector<std::string> texts;
  };
  const auto given = std::make_shared<Given>();
  given->texts.resize(flags.size());
  CLI::App* app = root.add_subcommand(name, help);
  app->add_option("model", given->model, "A language model in a GGUF file")->required();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].kind == FlagKind::kSwitch) {
      app->add_flag(flags[i].name, flags[i].help);
      continue;
    }
    CLI::Option* option = app->add_option(flags[i].name, given->texts[i], flags[i].help);
    if (flags[i].kind == FlagKind::kNumber) option->check(CLI::Number)->type_name("N");
  }
  return {app, [app, given, module, flags] {
            std::vector<std::string> arguments = {given->model};
            for (size_t i = 0; i < flags.size(); ++i) {
              if (app->count(flags[i].name) == 0) continue;
              const bool is_switch = flags[i].kind == FlagKind::kSwitch;
              arguments.push_back(is_switch ? std::string(flags[i].name)
                                            : fmt::format("{}={}", flags[i].name, given->texts[i]));
            }
            return become_python(module, arguments);
          }};
}

}  // namespace

Command add_generate_command(CLI::App& root) {
  return add_command(root, "generate", "Continue a text, or answer, with a language model", "tessera.llm",
                     kGenerateFlags);
}

Command add_serve_command(CLI::App& root) {
  return add_command(root, "serve", "Serve a language model with OpenAI's interface", "tessera.serve", kServeFlags);
}

}  // namespace tessera
