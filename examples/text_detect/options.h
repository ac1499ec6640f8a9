// The command line of text_detect.
#pragma once

#include <string>

namespace example {

struct Options {
  bool print_shape = false;  // only say which input shape the picture needs
  bool json = false;
  std::string module_path, picture_path;
  std::string out_path;                        // picture with the boxes drawn
  std::string save_input_path, save_map_path;  // .npy: what went into the network, what came out
  int threads = 0;                             // 0: the runtime decides
  int repeat = 10;                             // timed runs
};

extern const char* const kUsage;

// Throws std::runtime_error when the arguments make no sense.
Options parse_options(int argc, char** argv);

}  // namespace example
