// Reads the text in a picture: finds its lines, turns them upright, reads them, prints them, draws them beside it.
#include "common/font.h"
#include "common/image_io.h"
#include "common/npy.h"
#include "text_read/options.h"
#include "text_read/reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <vector>

namespace example {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Each stage's median over several readings.
StageTimes median(const std::vector<StageTimes>& all) {
  StageTimes result;
  for (double StageTimes::* stage : {&StageTimes::detect, &StageTimes::find_boxes, &StageTimes::classify,
                                     &StageTimes::recognise, &StageTimes::prepare}) {
    std::vector<double> values;
    for (const StageTimes& times : all) values.push_back(times.*stage);
    result.*stage = median(values);
  }
  return result;
}

Observer save_to(const std::string& folder) {
  std::filesystem::create_directories(folder);
  return [folder](std::string_view stage, std::size_t line, Model& model) {
    const std::string path = folder + "/" + std::string(stage) + "_" + std::to_string(line);
    save_npy(path + "_in.npy", model.input(0), model.input_dims(0));
    save_npy(path + "_out.npy", model.output(0), model.output_dims(0));
  };
}

// The page with outlines of its lines, and to the right of it, on white, the same outlines with the text in them.
Image draw_beside(const Image& page, const std::vector<ReadLine>& lines, const Font& font) {
  constexpr Color kOutline{226, 45, 94}, kFaint{225, 225, 230}, kInk{25, 25, 30};
  const float thickness = std::max(2.0f, float(std::max(page.width, page.height)) / 450);
  Image result(page.width * 2, page.height);
  std::fill(result.rgb.begin(), result.rgb.end(), 255);
  for (int y = 0; y < page.height; ++y) std::copy_n(page.pixel(0, y), std::size_t(page.width) * 3, result.pixel(0, y));
  for (const ReadLine& line : lines) {
    Quad left = line.box.corners, right = left;
    for (Point& corner : right) corner.x += float(page.width);
    draw_polygon(result, left, thickness, kOutline, 0.08f);
    draw_polygon(result, right, 1, kFaint);
    // Text from top to bottom begins at the quad's second corner, text from bottom to top at the opposite one.
    if (2 * height_of(right) >= 3 * width_of(right)) {
      std::rotate(right.begin(), right.begin() + (line.turned ? 3 : 1), right.end());
    }
    draw_text(result, right, line.text, font, kInk);
  }
  return result;
}

void print_json(const std::vector<ReadLine>& lines, const StageTimes& times, int threads) {
  nlohmann::json all = nlohmann::json::array();
  for (const ReadLine& line : lines) {
    nlohmann::json corners = nlohmann::json::array();
    for (const Point corner : line.box.corners) corners.push_back({corner.x, corner.y});
    all.push_back({{"text", line.text},
                   {"confidence", line.confidence},
                   {"box", corners},
                   {"box_score", line.box.score},
                   {"turned", line.turned},
                   {"recogniser_width", line.recogniser_width}});
  }
  const nlohmann::json result{{"threads", threads},
                              {"lines", all},
                              {"median_ms",
                               {{"detector", times.detect},
                                {"classifier", times.classify},
                                {"recogniser", times.recognise},
                                {"boxes", times.find_boxes},
                                {"lines", times.prepare}}}};
  std::printf("%s\n", result.dump().c_str());
}

void print_text(const std::vector<ReadLine>& lines, const Options& options, const StageTimes& times, int threads) {
  std::size_t unsure = 0;
  std::printf("confidence, corners (x,y) clockwise, text:\n");
  for (const ReadLine& line : lines) {
    if (line.confidence < options.least_confidence) {
      ++unsure;
      continue;
    }
    std::string corners;
    for (const Point corner : line.box.corners) {
      corners += "(" + std::to_string(int(corner.x)) + "," + std::to_string(int(corner.y)) + ") ";
    }
    std::printf("  %.2f  %-45s %s%s\n", line.confidence, corners.c_str(), line.text.c_str(),
                line.turned ? "   [was upside down]" : "");
  }
  std::printf("%zu lines", lines.size() - unsure);
  if (unsure > 0) std::printf(", and %zu read with a confidence below %.2g", unsure, options.least_confidence);
  std::printf(
      "\nlatency of the page, median of %d, %d threads: detector %.1f ms, classifier %.1f ms, recogniser %.1f ms; "
      "between them: boxes %.1f ms, cutting out and decoding %.1f ms\n",
      options.repeat, threads, times.detect, times.classify, times.recognise, times.find_boxes, times.prepare);
}

int run(const Options& options) {
  const Image page = load_image(options.picture_path);
  PageReader reader(options.folder, options.threads);
  StageTimes warm_up;
  const std::vector<ReadLine> lines =
      reader.read(page, warm_up, options.stages_path.empty() ? Observer{} : save_to(options.stages_path));
  std::vector<StageTimes> all(options.repeat);
  for (StageTimes& times : all) reader.read(page, times);

  if (!options.out_path.empty()) {
    const Font font(options.font_path.empty() ? Font::default_path() : options.font_path);
    std::vector<ReadLine> sure = lines;
    std::erase_if(sure, [&](const ReadLine& line) { return line.confidence < options.least_confidence; });
    save_png(draw_beside(page, sure, font), options.out_path);
  }
  if (options.json) {
    print_json(lines, median(all), reader.num_threads());
  } else {
    print_text(lines, options, median(all), reader.num_threads());
  }
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
    std::fprintf(stderr, "text_read: error: %s\n", error.what());
    return 1;
  }
}
