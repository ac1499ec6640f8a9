// tessera compile MODEL.onnx -o MODULE.so
#include <cctype>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "codegen/linalg/linalg.h"
#include "commands.h"
#include "compile_flags.h"
#include "compile_watch.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "flag_use.h"
#include "graph/flow.h"
#include "package/atomic_file.h"
#include "progress.h"
#include "step_progress.h"
#include "support/error.h"
#include "target/wasm.h"
#include "terminal.h"

namespace tessera {

namespace {

struct CompileCommand {
  CompileFlags flags;
  std::string model, output, emit = "module";
  bool quiet = false, force = false, json = false;
};

const std::map<std::string, Emit> kEmits = {
    {"module", Emit::kModule}, {"exe", Emit::kExecutable}, {"c", Emit::kCSource},        {"wasm", Emit::kWasm},
    {"graph", Emit::kGraph},   {"loop", Emit::kLoop},      {"program", Emit::kProgram},  {"llvm", Emit::kLlvm},
    {"asm", Emit::kAsm},       {"obj", Emit::kObj},        {"opencl", Emit::kGpuSource}, {"cuda", Emit::kGpuSource},
    {"hip", Emit::kGpuSource}};

// And linalg, which is made of the graph before a compile.
std::vector<std::string> emit_names() {
  std::vector<std::string> names = {"linalg"};
  for (const auto& [name, emit] : kEmits) names.push_back(name);
  return names;
}

bool is_text(Emit emit) {
  return emit != Emit::kModule && emit != Emit::kObj && emit != Emit::kExecutable && emit != Emit::kCSource &&
         emit != Emit::kWasm;
}

// What stands beside the model when -o is not given; text goes to standard output then.
std::string default_output(const CompileCommand& command, Emit emit) {
  if (is_text(emit)) return "-";
  std::filesystem::path path = std::filesystem::path(command.model).filename();
  return path.replace_extension(emit == Emit::kObj      ? ".o"
                                : emit == Emit::kModule ? ".so"
                                : emit == Emit::kWasm   ? ".wasm"
                                                        : "");
}

// What files that belong to a model are called: letters, digits and lines of its own file's name.
std::string file_name_of(const std::string& model) {
  std::string name = std::filesystem::path(model).stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name.empty() ? "model" : name;
}

// To standard output for "-".
void write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  write_file(path, "output", text);
}

std::string size_text(double bytes) {
  return bytes < 1e6 ? fmt::format("{:.1f} kB", bytes / 1e3) : fmt::format("{:.1f} MB", bytes / 1e6);
}

void write_bytes(const std::vector<std::byte>& bytes) {
  std::cout.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::cout.flush();
}

// --json where standard output holds what was compiled.
void refuse_json_beside_output() {
  throw UserError({.id = "TSR-4069",
                   .message = "--json, and the output itself, would both go to standard output",
                   .node = {},
                   .legal = "-o FILE with --json",
                   .hint = {}});
}

void refuse_terminal() {
  if (!stdout_is_terminal()) return;
  throw UserError({.id = "TSR-4064",
                   .message = "standard output is a terminal, and what is written is no text",
                   .node = {},
                   .legal = "-o FILE, or -o - into a file or a pipe",
                   .hint = {}});
}

void refuse_standard_output(const char* what, const char* legal) {
  throw UserError({.id = "TSR-4064",
                   .message = fmt::format("{} would go to standard output", what),
                   .node = {},
                   .legal = legal,
                   .hint = {}});
}

// NAME.h and NAME.c in a folder, which is made where it is not there.
void write_c(const Compiled& compiled, const std::string& folder, const std::string& name) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  write_file(path.string() + ".h", "header", compiled.header);
  write_file(path.string() + ".c", "source", compiled.text);
}

// Of a name that nobody chose: MODEL.so in the current folder.
[[noreturn]] void refuse_to_replace(const std::string& output, const std::string& what) {
  throw UserError({.id = "TSR-4065",
                   .message = fmt::format("'{}', the default output, is {}", output,
                                          what.empty() ? std::string("the module of another model") : what),
                   .node = {},
                   .legal = "a new file, or a module of the same model for the same kind of machine",
                   .hint = fmt::format("name the file: -o {} replaces it, -o OTHER.so keeps it", output)});
}

void refuse_other_target(const CompileCommand& command) {
  throw UserError(
      {.id = "TSR-4079",
       .message = fmt::format("--emit {}: the target '{}' has no such language", command.emit, command.flags.target),
       .node = {},
       .legal = fmt::format("--target {}, or none", command.emit),
       .hint = {}});
}

// The model as it is read, before any pass, as MLIR.
int emit_linalg(const CompileCommand& command) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  const std::string output = command.output.empty() ? "-" : command.output;
  if (output != "-") refuse_to_overwrite(output, files_of_model(command.model));
  const Graph graph = graph_alone(read_model(command.model, driver_options(command.flags), unwatched));
  write_text(output, linalg_text(graph));
  return kExitOk;
}

int compile(const CompileCommand& command) {
  if (command.emit == "linalg") return emit_linalg(command);
  const auto begin = std::chrono::steady_clock::now();
  Progress progress("compiling " + std::filesystem::path(command.model).filename().string());
  FlagUse use;
  DriverOptions options = driver_options(command.flags, &use);
  options.emit = kEmits.at(command.emit);
  // The language says what the target is, where nothing else does.
  if (options.compile.target == "native") {
    if (options.emit == Emit::kGpuSource) options.compile.target = command.emit;
    if (options.emit == Emit::kWasm) options.compile.target = kWasmTriple;
  }
  if (options.emit == Emit::kGpuSource && options.compile.target != command.emit) refuse_other_target(command);
  CompileWatch watch(command.flags.max_seconds);
  StepProgress steps(progress, &watch);
  options.observers.add(steps);
  const std::string output = command.output.empty() ? default_output(command, options.emit) : command.output;
  const bool is_program = options.emit == Emit::kExecutable;
  const bool is_module = options.emit == Emit::kModule || is_program;
  if (output == "-" && command.json) refuse_json_beside_output();
  const bool is_c = options.emit == Emit::kCSource;
  if (is_c) options.c_name = file_name_of(command.model);
  if (output == "-" && is_program) refuse_standard_output("a program", "-o FILE");
  if (output == "-" && is_c) refuse_standard_output("two files", "-o FOLDER");
  if (output == "-" && !is_text(options.emit)) refuse_terminal();
  if (output != "-" && !is_c) refuse_to_overwrite(output, files_of_model(command.model));
  if (is_program && !command.force) refuse_foreign_program(output);
  if (is_c && !command.force)
    for (const char* kind : {".h", ".c"})
      refuse_foreign_source((std::filesystem::path(output) / options.c_name).string() + kind);
  std::optional<ReplacedModule> replaced;
  if (output != "-" && options.emit == Emit::kModule) replaced.emplace(output, command.force);
  const Compiled compiled = compile_model(command.model, options);
  std::string note;
  if (replaced) {
    note = replaced->difference(compiled.info);
    if (command.output.empty() && !command.force && replaced->is_foreign(compiled.program, compiled.info))
      refuse_to_replace(output, note);
  }
  if (is_module) {
    progress.update("writing");
    watch.step("writing");
    if (is_program) write_program(compiled, output);
    else if (output == "-") write_bytes(module_in_memory(compiled).contents());
    else write_module(compiled, output);
  } else if (is_c) {
    write_c(compiled, output, options.c_name);
  } else if (options.emit == Emit::kObj || options.emit == Emit::kWasm) {
    write_text(output, {reinterpret_cast<const char*>(compiled.code.data()), compiled.code.size()});
  } else {
    write_text(output, compiled.text);
  }
  progress.finish();
  std::cerr << time_report(command.flags, compiled.times);
  if (!note.empty() && !command.quiet) fmt::print(stderr, "replaced {}, {}\n", output, note);
  if (!command.quiet) print_lines(use, command.flags);
  if (command.json) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    nlohmann::json json = {
        {"model", command.model}, {"output", output}, {"emit", command.emit}, {"seconds", taken.count()}};
    if (std::filesystem::is_regular_file(output)) json["bytes"] = std::filesystem::file_size(output);
    if (is_module)
      json.update({{"kernels", compiled.program.calls.size()},
                   {"different_kernels", compiled.program.kernels.size()},
                   {"code_bytes", compiled.code.size()},
                   {"weight_bytes", compiled.program.weight_bytes},
                   {"arena_bytes", compiled.program.arena_bytes}});
    if (!note.empty()) json["replaced"] = note;
    if (!command.flags.db.empty()) json["tuned"] = use.tuned();
    std::cout << json_line(json);
    return kExitOk;
  }
  if (is_module && !command.quiet && std::filesystem::is_regular_file(output)) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    const Program& program = compiled.program;
    const std::string tuned = command.flags.db.empty() ? "" : fmt::format(", {} tuned", use.tuned());
    fmt::print("{}: {} in {:.1f} s: {} kernels ({} different{}), code {}, weights {}, arena {}\n", output,
               size_text(static_cast<double>(std::filesystem::file_size(output))), taken.count(), program.calls.size(),
               program.kernels.size(), tuned, size_text(static_cast<double>(compiled.code.size())),
               size_text(static_cast<double>(program.weight_bytes)),
               size_text(static_cast<double>(program.arena_bytes)));
  }
  return kExitOk;
}

}  // namespace

Command add_compile_command(CLI::App& root) {
  const auto command = std::make_shared<CompileCommand>();
  CLI::App* app = root.add_subcommand("compile", "Compile an ONNX model to a module, or to a program");
  app->add_option("MODEL", command->model, "The ONNX file")->required()->type_name("");
  app->add_option(
         "-o,--output", command->output,
         "Where to write, - for standard output; default: MODEL.so in this folder (MODEL.o for obj, MODEL for\n"
         "exe, MODEL.wasm for wasm, the folder MODEL for c), and standard output for text")
      ->type_name("FILE");
  app->add_option(
         "--emit", command->emit,
         "What to write: module, exe, c, wasm, opencl, cuda, hip, graph, linalg, loop, program, llvm, asm, obj")
      ->capture_default_str()
      ->check(CLI::IsMember(emit_names()))
      ->type_name("KIND");
  app->add_flag("--force", command->force, "Replace the output also where it is no module, or of another model");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text: bytes, kernels, seconds, ...");
  app->add_flag("-q,--quiet", command->quiet, "Print nothing on success");
  add_compile_flags(*app, command->flags);
  add_time_limit_flag(*app, command->flags);
  app->footer(
      "Examples:\n"
      "  tessera compile resnet50.onnx -o resnet50.so\n"
      "  tessera compile detector.onnx -o detector.so --target x86-64-v3 --shape x=1x3x640x640\n"
      "  tessera compile model.onnx --dim batch=8 -O2 --time-passes\n"
      "  tessera compile model.onnx --emit exe -o model && ./model x.npy y.npy\n"
      "  tessera compile model.onnx --emit c -o folder\n"
      "  tessera compile model.onnx --emit wasm -o model.wasm\n"
      "  tessera compile model.onnx --emit graph");
  return {app, [command] { return compile(*command); }};
}

}  // namespace tessera
