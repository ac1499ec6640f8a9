// Reads a page: PP-OCR's detector finds the lines, its classifier turns those that stand on their heads, its recogniser
// reads each. Everything between the three networks is here.
#pragma once

#include "common/model.h"
#include "text_detect/preprocess.h"
#include "text_read/ctc.h"
#include "text_read/line_input.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace example {

struct ReadLine {
  TextBox box;
  bool turned = false;  // it stood on its head
  std::string text;     // UTF-8
  float confidence = 0;
  int recogniser_width = 0;  // of the module that read it
};

// Milliseconds that one page spent in each stage. "Networks" are the three calls of compiled code; the rest is ours.
struct StageTimes {
  double detect = 0;      // network
  double find_boxes = 0;  // resizing the picture before it, boxes after it
  double classify = 0;    // network, all lines
  double recognise = 0;   // network, all lines
  double prepare = 0;     // cutting lines out, resizing them, decoding
};

// Called after each call of a network: "detector", "classifier" or "recogniser", the line's number, the network.
using Observer = std::function<void(std::string_view stage, std::size_t line, Model& model)>;

// Used by one thread at a time. Every function throws std::runtime_error with a sentence for a person.
class PageReader {
 public:
  // The folder has detector.so, classifier.so, one or more recogniser_WIDTH.so (each compiled for lines of 48 x WIDTH)
  // and characters.txt. `num_threads` 0: as many as the runtime finds fit.
  PageReader(const std::string& folder, int num_threads);

  int num_threads() const { return detector_.num_threads(); }

  // Lines in reading order. The detector must have been compiled for the picture's size (network_size()).
  std::vector<ReadLine> read(const Image& page, StageTimes& times, const Observer& observer = {});

 private:
  struct Recogniser {
    Model model;
    int width = 0;
  };
  std::vector<TextBox> find_lines(const Image& page, StageTimes& times, const Observer& observer);
  bool is_upside_down(const Image& line, std::size_t number, StageTimes& times, const Observer& observer);
  Recogniser& recogniser_for(const Image& line);

  std::string folder_;
  Model detector_, classifier_;
  std::vector<Recogniser> recognisers_;  // the narrowest first; at least one
  Alphabet alphabet_;
};

}  // namespace example
