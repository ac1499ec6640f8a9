// Finds lines of text in a picture: reads it, runs the compiled detector, turns its output into boxes, draws them.
#include "common/drawing.h"
#include "common/image_io.h"
#include "common/model.h"
#include "common/npy.h"
#include "text_detect/db_postprocess.h"
#include "text_detect/options.h"
#include "text_detect/preprocess.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {
namespace {

std::string text_of(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (const std::int64_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

std::vector<std::int64_t> input_shape(Size size) { return {1, 3, size.height, size.width}; }

struct Latency {
  double min_ms = 0, median_ms = 0;
};

// Times `repeat` runs after two that only warm up.
Latency time_runs(Model& model, int repeat) {
  for (int i = 0; i < 2; ++i) model.run();
  std::vector<double> milliseconds(repeat);
  for (double& ms : milliseconds) {
    const auto begin = std::chrono::steady_clock::now();
    model.run();
    ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const std::size_t half = milliseconds.size() / 2;
  const bool odd = milliseconds.size() % 2 == 1;
  return {milliseconds.front(), odd ? milliseconds[half] : (milliseconds[half - 1] + milliseconds[half]) / 2};
}

void draw_boxes(Image& picture, const std::vector<TextBox>& boxes) {
  const float thickness = std::max(2.0f, float(std::max(picture.width, picture.height)) / 450);
  constexpr Color kColor{226, 45, 94};
  for (const TextBox& box : boxes) draw_polygon(picture, box.corners, thickness, kColor, 0.12f);
}

void print_json(const std::vector<TextBox>& boxes, const Latency& latency, int runs, int threads) {
  std::printf("{\"median_ms\": %.4f, \"min_ms\": %.4f, \"runs\": %d, \"threads\": %d, \"lines\": [", latency.median_ms,
              latency.min_ms, runs, threads);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    std::printf("%s{\"score\": %.4f, \"box\": [", i == 0 ? "" : ", ", boxes[i].score);
    for (std::size_t k = 0; k < 4; ++k) {
      std::printf("%s[%.0f, %.0f]", k == 0 ? "" : ", ", boxes[i].corners[k].x, boxes[i].corners[k].y);
    }
    std::printf("]}");
  }
  std::printf("]}\n");
}

void print_text(const std::vector<TextBox>& boxes, const Latency& latency, int runs, int threads) {
  std::printf("%zu lines of text%s\n", boxes.size(), boxes.empty() ? "" : "; score, then corners (x,y) clockwise:");
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    std::printf("  %3zu  %.2f ", i + 1, boxes[i].score);
    for (const Point& corner : boxes[i].corners) std::printf(" (%.0f,%.0f)", corner.x, corner.y);
    std::printf("\n");
  }
  std::printf("latency of the network: median %.2f ms, fastest %.2f ms (%d runs, %d threads)\n", latency.median_ms,
              latency.min_ms, runs, threads);
}

int run(const Options& options) {
  Image picture = load_image(options.picture_path);
  const Size size = network_size(picture.width, picture.height);
  const std::vector<std::int64_t> shape = input_shape(size);
  if (options.print_shape) {
    std::printf("%s\n", text_of(shape).c_str());
    return 0;
  }

  Model model(options.module_path, options.threads);
  if (model.input_dims(0) != shape) {
    throw std::runtime_error("'" + options.module_path + "' was compiled for an input of " +
                             text_of(model.input_dims(0)) + ", but '" + options.picture_path + "' needs " +
                             text_of(shape) + "; compile it with --shape " + model.input_name(0) + "=" +
                             text_of(shape));
  }
  const std::vector<std::int64_t> map_shape{1, 1, size.height, size.width};
  if (model.output_dims(0) != map_shape) {
    throw std::runtime_error("'" + options.module_path + "' gives " + text_of(model.output_dims(0)) +
                             ", not a map of " + text_of(map_shape) + ": is it PP-OCR's text detector?");
  }

  fill_network_input(picture, size, model.input(0));
  const Latency latency = time_runs(model, options.repeat);
  const std::vector<TextBox> boxes =
      find_text_boxes(model.output(0), size.width, size.height, picture.width, picture.height);

  if (!options.save_input_path.empty()) save_npy(options.save_input_path, model.input(0), shape);
  if (!options.save_map_path.empty()) save_npy(options.save_map_path, model.output(0), map_shape);
  if (!options.out_path.empty()) {
    draw_boxes(picture, boxes);
    save_png(picture, options.out_path);
  }
  (options.json ? print_json : print_text)(boxes, latency, options.repeat, model.num_threads());
  return 0;
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
    std::fprintf(stderr, "text_detect: error: %s\n", error.what());
    return 1;
  }
}
