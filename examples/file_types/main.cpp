// Tells what kind of files these are, with magika's compiled network.
#include "common/model.h"
#include "file_types/identify.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <stdexcept>

namespace example {
namespace {

constexpr const char* kUsage =
    "usage: file_types MODULE.so PACKAGE FILE... [--mode high-confidence|medium-confidence|best-guess]\n"
    "                  [--no-dereference] [--json]\n"
    "\n"
    "Tells what kind of files these are, by their content. PACKAGE is the unpacked Python package of magika\n"
    "(.deps/magika/magika, which scripts/setup.sh fetches); MODULE.so is its network, compiled:\n"
    "  tessera compile .deps/magika/magika/models/standard_v3_3/model.onnx -o magika.so --shape bytes=1x2048\n"
    "  --mode MODE         how sure the network has to be before its answer counts; default high-confidence\n"
    "  --no-dereference    a symbolic link is a symbolic link\n"
    "Exit code 1 when a file could not be read; the others are answered all the same.\n";

struct Options {
  std::string module_path, package;
  std::vector<std::string> files;
  Mode mode = Mode::kHighConfidence;
  bool follow_links = true, json = false;
};

Options parse_options(int argc, char** argv) {
  static const std::map<std::string, Mode> kModes{{"high-confidence", Mode::kHighConfidence},
                                                  {"medium-confidence", Mode::kMediumConfidence},
                                                  {"best-guess", Mode::kBestGuess}};
  Options options;
  std::vector<std::string> positional;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--no-dereference") {
      options.follow_links = false;
    } else if (argument == "--mode") {
      const std::string name = i + 1 < argc ? argv[++i] : "";
      const auto mode = kModes.find(name);
      if (mode == kModes.end()) {
        throw std::runtime_error("--mode wants high-confidence, medium-confidence or best-guess, got '" + name + "'");
      }
      options.mode = mode->second;
    } else if (argument.starts_with("--")) {
      throw std::runtime_error("unknown option '" + argument + "'");
    } else {
      positional.push_back(argument);
    }
  }
  if (positional.size() < 3) throw std::runtime_error("expected a module, a package folder, and at least one file");
  options.module_path = positional[0];
  options.package = positional[1];
  options.files.assign(positional.begin() + 2, positional.end());
  return options;
}

// The package holds one model, in a folder named after its version.
std::string config_path(const std::string& package) {
  const std::string models = package + "/models";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(models, error)) {
    const auto path = entry.path() / "config.min.json";
    if (std::filesystem::exists(path)) return path.string();
  }
  throw std::runtime_error("there is no config.min.json in a folder of '" + models + "'; is '" + package +
                           "' the unpacked package of magika?");
}

nlohmann::json to_json(const std::string& path, const Answer& answer, const ContentType& type) {
  return {{"path", path},          {"label", answer.label},       {"network_label", answer.network_label},
          {"score", answer.score}, {"reason", answer.reason},     {"description", type.description},
          {"group", type.group},   {"mime_type", type.mime_type}, {"is_text", type.is_text}};
}

void print_text(const std::string& path, const Answer& answer, const ContentType& type) {
  std::printf("%s: %s (%s)", path.c_str(), type.description.c_str(), type.group.c_str());
  if (answer.network_label != "undefined") std::printf(" %.0f%%", answer.score * 100);
  if (answer.reason == "low_confidence") std::printf(" [not sure enough of: %s]", answer.network_label.c_str());
  std::printf("\n");
}

int run(const Options& options) {
  const TypeConfig config = load_type_config(config_path(options.package));
  const ContentTypes types = load_content_types(options.package + "/config/content_types_kb.min.json");
  for (const std::string& label : config.labels) {
    if (!types.contains(label))
      throw std::runtime_error("'" + options.package + "' says nothing about '" + label + "'");
  }
  Model model(options.module_path, 0);
  const std::vector<std::int64_t> input{1, config.begin_size + config.end_size},
      output{1, std::int64_t(config.labels.size())};
  if (model.input_dims(0) != input || model.output_dims(0) != output) {
    throw std::runtime_error("'" + options.module_path + "' is not the network of '" + options.package +
                             "' compiled with --shape bytes=1x" + std::to_string(input[1]));
  }
  const Network network = [&model](const std::vector<std::int32_t>& tokens) {
    std::copy(tokens.begin(), tokens.end(), model.input<std::int32_t>(0).begin());
    model.run();
    return model.output(0);
  };

  int status = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& path : options.files) {
    try {
      const Answer answer = identify(path, config, types, options.mode, options.follow_links, network);
      const ContentType& type = types.at(answer.label);
      if (options.json) {
        all.push_back(to_json(path, answer, type));
      } else {
        print_text(path, answer, type);
      }
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "file_types: error: %s\n", error.what());
      status = 1;
    }
  }
  // A file's name need not be UTF-8.
  if (options.json) std::printf("%s\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return status;
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  try {
    if (argc < 2 || std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h") {
      std::fputs(example::kUsage, argc < 2 ? stderr : stdout);
      return argc < 2 ? 1 : 0;
    }
    return example::run(example::parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "file_types: error: %s\n", error.what());
    return 1;
  }
}
