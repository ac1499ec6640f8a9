// The command line of text_read.
#pragma once

#include <string>

namespace example {

struct Options {
  bool json = false;
  std::string folder, picture_path;
  std::string out_path;     // the page, and the text drawn beside it
  std::string font_path;    // for out_path; empty: Font::default_path()
  std::string stages_path;  // folder for what went into each network and what came out
  float least_confidence = 0.5f;
  int threads = 0;  // 0: the runtime decides
  int repeat = 5;   // timed readings of the page
};

extern const char* const kUsage;

// Throws std::runtime_error when the arguments make no sense.
Options parse_options(int argc, char** argv);

}  // namespace example
