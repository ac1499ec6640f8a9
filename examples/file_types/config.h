// magika's settings, as they come with its model: config.min.json and content_types_kb.min.json.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace example {

struct TypeConfig {
  // The network sees this many bytes from the beginning and from the end, out of a block that is stripped first.
  int begin_size = 0, end_size = 0, block_size = 0;
  int padding_token = 0;            // stands where a file has no byte
  int min_file_size = 0;            // the network is not asked about less
  std::vector<std::string> labels;  // of the network's outputs
  // The network's answer counts from this score on: a label's own, or else the one for all.
  double threshold = 0;
  std::map<std::string, double> thresholds;
  std::map<std::string, std::string> overwrites;  // labels that are reported as another one
};

struct ContentType {
  std::string description, group, mime_type;
  bool is_text = false;
};
using ContentTypes = std::map<std::string, ContentType>;  // by label

// Both throw std::runtime_error when the file is missing, is not JSON, lacks a setting, or asks for something that is
// not handled here (bytes from the middle of a file).
TypeConfig load_type_config(const std::string& path);
ContentTypes load_content_types(const std::string& path);

}  // namespace example
