#include "text_read/options.h"

#include <charconv>
#include <stdexcept>
#include <vector>

namespace example {
namespace {

template <typename T>
T parse_number(const std::string& name, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw std::runtime_error(name + " wants a number from " + std::to_string(least) + " to " + std::to_string(most) +
                             ", got '" + text + "'");
  }
  return value;
}

}  // namespace

const char* const kUsage =
    "usage: text_read FOLDER PICTURE [--out PAGE.png] [--font FONT.ttf] [--least-confidence C] [--json]\n"
    "                 [--threads N] [--repeat N] [--save-stages DIR]\n"
    "\n"
    "Reads the text in a PNG or JPEG with the three networks of PP-OCR. FOLDER has them compiled: detector.so for the\n"
    "picture's size (text_detect --print-shape tells which), classifier.so for 1x3x48x192, recogniser_W.so for "
    "1x3x48xW\n"
    "with one or more widths W, and characters.txt. scripts/demo.sh makes such a folder.\n"
    "  --out PAGE.png          the picture with the lines' outlines, and beside it the text that was read\n"
    "  --least-confidence C    leave out lines read with less; default 0.5\n"
    "  --repeat N              read the page N times (default 5) for the latencies, after one that warms up\n"
    "  --save-stages DIR       write what went into each network and what came out, as .npy\n";

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> positional;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(argument + " wants a value");
      return argv[++i];
    };
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--out") {
      options.out_path = value();
    } else if (argument == "--font") {
      options.font_path = value();
    } else if (argument == "--save-stages") {
      options.stages_path = value();
    } else if (argument == "--least-confidence") {
      options.least_confidence = parse_number(argument, value(), 0.0f, 1.0f);
    } else if (argument == "--threads") {
      options.threads = parse_number(argument, value(), 0, 4096);
    } else if (argument == "--repeat") {
      options.repeat = parse_number(argument, value(), 1, 100000);
    } else if (argument.starts_with("--")) {
      throw std::runtime_error("unknown option '" + argument + "'");
    } else {
      positional.push_back(argument);
    }
  }
  if (positional.size() != 2) {
    throw std::runtime_error("expected a folder and a picture, got " + std::to_string(positional.size()) + " names");
  }
  options.folder = positional[0];
  options.picture_path = positional[1];
  return options;
}

}  // namespace example
