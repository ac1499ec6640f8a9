// tessera generate, tessera serve: text out of language models. `generate` compiles the model where the cache does not
// have it, and becomes tessera-generate, which has nothing of the compiler in memory. Prompts in a chat template and
// the server are the Python package's work, whose libraries speak Jinja and HTTP: it is started in this process's
// place, and becomes tessera-generate once the prompt is written.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "import/gguf/gguf_file.h"
#include "import/gguf/hyperparameters.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "tessera/language_model.h"

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

// What was given, by the flags' names.
using Given = std::map<std::string, std::string>;

std::filesystem::path own_folder() {
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
}

// Does not return where the program can be started.
void become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(program.c_str(), pointers.data());
}

// The package beside this program, as in the build folder, comes first; else Python finds the one that is installed.
void show_package_to_python() {
  std::error_code failed;
  const std::filesystem::path folder = own_folder().parent_path() / "python";
  if (!std::filesystem::exists(folder / "tessera" / "llm.py", failed)) return;
  const char* before = std::getenv("PYTHONPATH");
  const std::string path = before && *before ? folder.string() + ":" + before : folder.string();
  setenv("PYTHONPATH", path.c_str(), 1);
}

int become_python(const char* module, const std::vector<std::string>& arguments) {
  const char* named = std::getenv("TESSERA_PYTHON");
  const std::string python = named && *named ? named : "python3";
  show_package_to_python();
  std::vector<std::string> all = {"-m", module};
  all.insert(all.end(), arguments.begin(), arguments.end());
  become(python, all);
  throw UserError({.id = "TSR-4044",
                   .message = fmt::format("'{}' cannot be started: {}", python, std::strerror(errno)),
                   .node = {},
                   .legal = "a Python with the package tessera",
                   .hint = "set TESSERA_PYTHON to that Python if it is not 'python3'"});
}

// "--name=value", or "--name" of a switch.
std::vector<std::string> words_of(const Given& given) {
  std::vector<std::string> words;
  for (const auto& [name, value] : given) words.push_back(value.empty() ? name : name + "=" + value);
  return words;
}

// A flag's number and takes it away; `otherwise` where it was not given.
int64_t take_number(Given& given, const std::string& name, int64_t otherwise) {
  const auto node = given.extract(name);
  if (node.empty()) return otherwise;
  int64_t number = 0;
  if (!CLI::detail::lexical_cast(node.mapped(), number) || number < 0)
    throw UserError({.id = "TSR-4038",
                     .message = fmt::format("{} is '{}'", name, node.mapped()),
                     .node = {},
                     .legal = "a whole number",
                     .hint = {}});
  return number;
}

// What the module at `path` is made from, as `path`.key says it and tessera.llm writes it; the module is compiled again
// where that differs.
void compile_to(const std::string& path, const std::string& model, const nlohmann::ordered_json& sizes,
                const CompileOptions& options) {
  struct stat about = {};
  stat(model.c_str(), &about);  // it was read just now
  nlohmann::ordered_json made_from = {{"model", std::filesystem::absolute(model).lexically_normal().string()},
                                      {"bytes", about.st_size},
                                      {"changed", about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec}};
  made_from.update(sizes);
  const std::string key = path + ".key";
  std::ifstream file(key);
  const auto known = nlohmann::ordered_json::parse(file, nullptr, false);
  if (known == made_from && std::filesystem::exists(path)) return;
  compile_file(model, path, options);
  std::ofstream(key) << made_from.dump();
}

// `work`, whose errors are those of the command.
template <typename Work>
void translated(const Work& work) {
  try {
    work();
  } catch (const CompileError& error) {
    const CompileError::Details& d = error.details();
    if (error.is_bug()) throw InternalError(d.message);
    throw UserError({.id = d.id, .message = d.message, .node = d.node, .legal = d.legal, .hint = d.hint});
  }
}

int generate(const std::string& model, Given given) {
  const auto take = [&](const char* name, const char* otherwise) {
    const auto node = given.extract(name);
    return node.empty() ? std::string(otherwise) : node.mapped();
  };
  const int64_t threads = take_number(given, "--threads", 0), wanted = take_number(given, "--context", 2048);
  const std::string precision = take("--precision", "f32"), module = take("--module", "");
  int64_t trained = 0;
  {
    const auto file = MappedFile::open(model, "model", "TSR-1001");
    trained = hyperparameters_of(GgufFile(file->text(), model)).context;
  }
  constexpr int64_t kChunk = 512;  // tokens of a prompt in one run
  const int64_t context = std::min(std::max<int64_t>(wanted, 1), trained), chunk = std::min(kChunk, context);
  CompileOptions options;
  options.precision = precision;
  options.num_threads = static_cast<int>(threads);
  options.dims = {
      {"length", {1, chunk, 1}}, {"past", {0, std::max<int64_t>(context - 1, 1), 1}}, {"kept", {1, chunk, 1}}};
  std::string compiled = module;
  translated([&] {
    if (module.empty()) compiled = compile_to_cache(model, options);
    else
      compile_to(module, model, {{"context", context}, {"chunk", chunk}, {"precision", precision}, {"sequences", 1}},
                 options);
  });
  if (compiled.empty())
    throw UserError({.id = "TSR-4091",
                     .message = "there is no cache that the compiled model could be kept in",
                     .node = {},
                     .legal = "a folder TESSERA_CACHE_DIR, and a TESSERA_CACHE_SIZE that has room for the model",
                     .hint = "say with --module where it goes"});
  const std::string program = (own_folder() / "tessera-generate").string();
  const bool is_chat = !given.extract("--chat").empty();
  const std::string question = is_chat ? take("--prompt", "-") : "";
  std::vector<std::string> arguments = words_of(given);
  arguments.insert(arguments.begin(), {model, compiled, fmt::format("--threads={}", threads)});
  if (is_chat) {
    arguments.insert(arguments.begin(), {model, question, program});
    arguments.emplace_back("--no-begin");
    return become_python("tessera._chat_template", arguments);
  }
  become(program, arguments);
  throw UserError({.id = "TSR-4044",
                   .message = fmt::format("'tessera-generate' cannot be started: {}", std::strerror(errno)),
                   .node = {},
                   .legal = "the program beside tessera",
                   .hint = "install both"});
}

Command add_command(CLI::App& root, const char* name, const char* help, std::span<const Flag> flags,
                    const std::function<int(const std::string& model, const Given& given)>& run) {
  struct Texts {
    std::string model;
    std::vector<std::string> of_flags;
  };
  const auto texts = std::make_shared<Texts>();
  texts->of_flags.resize(flags.size());
  CLI::App* app = root.add_subcommand(name, help);
  app->add_option("model", texts->model, "A language model in a GGUF file")->required();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i].kind == FlagKind::kSwitch) {
      app->add_flag(flags[i].name, flags[i].help);
      continue;
    }
    CLI::Option* option = app->add_option(flags[i].name, texts->of_flags[i], flags[i].help);
    if (flags[i].kind == FlagKind::kNumber) option->check(CLI::Number)->type_name("N");
  }
  return {app, [app, texts, flags, run] {
            Given given;
            for (size_t i = 0; i < flags.size(); ++i)
              if (app->count(flags[i].name) != 0) given[flags[i].name] = texts->of_flags[i];
            return run(texts->model, given);
          }};
}

}  // namespace

Command add_generate_command(CLI::App& root) {
  return add_command(root, "generate", "Continue a text, or answer, with a language model", kGenerateFlags, generate);
}

Command add_serve_command(CLI::App& root) {
  const auto serve = [](const std::string& model, const Given& given) {
    std::vector<std::string> arguments = words_of(given);
    arguments.insert(arguments.begin(), model);
    return become_python("tessera.serve", arguments);
  };
  return add_command(root, "serve", "Serve a language model with OpenAI's interface", kServeFlags, serve);
}

}  // namespace tessera
