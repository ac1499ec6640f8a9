#include "text_detect/options.h"

#include <charconv>
#include <stdexcept>
#include <vector>

namespace example {
namespace {

int parse_count(const std::string& name, const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > 100000) {
    throw std::runtime_error(name + " wants a number of at least " + std::to_string(least) + ", got '" + text + "'");
  }
  return value;
}

}  // namespace

const char* const kUsage =
    "usage: text_detect MODULE.so PICTURE [--out BOXES.png] [--threads N] [--repeat N] [--json]\n"
    "                   [--save-input X.npy] [--save-map Y.npy]\n"
    "       text_detect --print-shape PICTURE\n"
    "\n"
    "Finds lines of text in a PNG or JPEG with PP-OCR's detector. Shapes are fixed when a model is compiled, so ask\n"
    "for the picture's first:\n"
    "  tessera compile ch_PP-OCRv4_det_infer.onnx -o det.so --shape x=$(text_detect --print-shape photo.jpg)\n";

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> positional;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(argument + " wants a value");
      return argv[++i];
    };
    if (argument == "--print-shape") {
      options.print_shape = true;
    } else if (argument == "--json") {
      options.json = true;
    } else if (argument == "--out") {
      options.out_path = value();
    } else if (argument == "--save-input") {
      options.save_input_path = value();
    } else if (argument == "--save-map") {
      options.save_map_path = value();
    } else if (argument == "--threads") {
      options.threads = parse_count(argument, value(), 0);
    } else if (argument == "--repeat") {
      options.repeat = parse_count(argument, value(), 1);
    } else if (argument.starts_with("--")) {
      throw std::runtime_error("unknown option '" + argument + "'");
    } else {
      positional.push_back(argument);
    }
  }
  const std::size_t wanted = options.print_shape ? 1 : 2;
  if (positional.size() != wanted) {
    throw std::runtime_error("expected " + std::to_string(wanted) + " file names, got " +
                             std::to_string(positional.size()));
  }
  options.picture_path = positional.back();
  if (!options.print_shape) options.module_path = positional.front();
  return options;
}

}  // namespace example
