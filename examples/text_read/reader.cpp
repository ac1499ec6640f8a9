#include "text_read/reader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>

namespace example {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr float kSureOfTurn = 0.9f;  // below, a line is left as it is: most text stands upright

// How much narrower than its proportions ask for a line may become. The recogniser learned from lines squeezed like
// this: without it spaces get lost, from 2 on letters do.
constexpr double kMaxSqueeze = 1.6;

std::string text_of(const Dims& dims) {
  std::string text;
  for (const std::int64_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

// Adds the time since it was made to `sum` when it ends.
class Timer {
 public:
  explicit Timer(double& sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
  ~Timer() { sum_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point begin_;
};

void expect(bool fits, const std::string& path, const std::string& what, const Dims& input, const Dims& output) {
  if (fits) return;
  throw std::runtime_error("'" + path + "' takes " + text_of(input) + " and gives " + text_of(output) + "; is it " +
                           what + "?");
}

}  // namespace

PageReader::PageReader(const std::string& folder, int num_threads)
    : folder_(folder),
      detector_(folder + "/detector.so", num_threads),
      classifier_(folder + "/classifier.so", num_threads),
      alphabet_(load_alphabet(folder + "/characters.txt")) {
  const Dims classifier_input = classifier_.input_dims(0), classifier_output = classifier_.output_dims(0);
  expect(classifier_input.size() == 4 && classifier_input[1] == 3 && classifier_output == Dims{1, 2},
         folder + "/classifier.so", "PP-OCR's direction classifier", classifier_input, classifier_output);

  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("recogniser_") || !name.ends_with(".so")) continue;
    Model model(entry.path().string(), num_threads);
    const Dims input = model.input_dims(0), output = model.output_dims(0);
    expect(input.size() == 4 && input[1] == 3 && output.size() == 3 && output[2] == alphabet_.num_classes(),
           entry.path().string(),
           "PP-OCR's recogniser, and characters.txt its " + std::to_string(alphabet_.letters.size() - 1) + " letters",
           input, output);
    recognisers_.push_back({std::move(model), int(input[3])});
  }
  if (recognisers_.empty()) throw std::runtime_error("there is no recogniser_*.so in '" + folder + "'");
  std::sort(recognisers_.begin(), recognisers_.end(),
            [](const Recogniser& a, const Recogniser& b) { return a.width < b.width; });
}

std::vector<ReadLine> PageReader::read(const Image& page, StageTimes& times, const Observer& observer) {
  std::vector<ReadLine> lines;
  for (const TextBox& box : find_lines(page, times, observer)) {
    ReadLine result;
    result.box = box;
    Image line;
    {
      const Timer timer(times.prepare);
      line = cut_out_line(page, box);
    }
    result.turned = is_upside_down(line, lines.size(), times, observer);

    Recogniser& recogniser = recogniser_for(line);
    result.recogniser_width = recogniser.width;
    {
      const Timer timer(times.prepare);
      if (result.turned) line = turn_around(line);
      fill_line_input(line, recogniser.width, int(recogniser.model.input_dims(0)[2]), recogniser.model.input(0));
    }
    {
      const Timer timer(times.recognise);
      recogniser.model.run();
    }
    if (observer) observer("recogniser", lines.size(), recogniser.model);
    {
      const Timer timer(times.prepare);
      Decoded decoded = decode(recogniser.model.output(0), alphabet_);
      result.text = std::move(decoded.text), result.confidence = decoded.confidence;
    }
    lines.push_back(std::move(result));
  }
  return lines;
}

std::vector<TextBox> PageReader::find_lines(const Image& page, StageTimes& times, const Observer& observer) {
  const Size size = network_size(page.width, page.height);
  const Dims wanted{1, 3, size.height, size.width}, map{1, 1, size.height, size.width};
  if (detector_.input_dims(0) != wanted) {
    throw std::runtime_error("'" + folder_ + "/detector.so' was compiled for an input of " +
                             text_of(detector_.input_dims(0)) + ", but this picture needs " + text_of(wanted) +
                             "; compile it with --shape " + detector_.input_name(0) + "=" + text_of(wanted));
  }
  expect(detector_.output_dims(0) == map, folder_ + "/detector.so", "PP-OCR's text detector", wanted,
         detector_.output_dims(0));
  {
    const Timer timer(times.find_boxes);
    fill_network_input(page, size, detector_.input(0));
  }
  {
    const Timer timer(times.detect);
    detector_.run();
  }
  if (observer) observer("detector", 0, detector_);
  const Timer timer(times.find_boxes);
  std::vector<TextBox> boxes = find_text_boxes(detector_.output(0), size.width, size.height, page.width, page.height);
  sort_as_read(boxes);
  return boxes;
}

bool PageReader::is_upside_down(const Image& line, std::size_t number, StageTimes& times, const Observer& observer) {
  {
    const Timer timer(times.prepare);
    const Dims input = classifier_.input_dims(0);
    fill_line_input(line, int(input[3]), int(input[2]), classifier_.input(0));
  }
  {
    const Timer timer(times.classify);
    classifier_.run();
  }
  if (observer) observer("classifier", number, classifier_);
  const auto upright_and_turned = classifier_.output(0);
  return upright_and_turned[1] > kSureOfTurn;
}

// The narrowest one that the line fits into when squeezed a little, or the widest.
PageReader::Recogniser& PageReader::recogniser_for(const Image& line) {
  for (Recogniser& recogniser : recognisers_) {
    const int height = int(recogniser.model.input_dims(0)[2]);
    if (width_at_height(line, height) <= recogniser.width * kMaxSqueeze) return recogniser;
  }
  return recognisers_.back();
}

}  // namespace example
