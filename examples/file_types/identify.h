// Which kind of file something is, decided as magika decides it; the network is a function that is passed in.
#pragma once

#include "file_types/config.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace example {

// What is looked at of a file: its first and its last block, the whole file where it is shorter than one.
struct FileEnds {
  std::uint64_t size = 0;
  std::string first, last;
};

// Reads a regular file. Throws std::runtime_error when that fails.
FileEnds read_ends(const std::string& path, int block_size);

// What the network is asked: config.begin_size tokens from the beginning of the file with white space before it taken
// off, then config.end_size from its end with white space after it taken off; a token is a byte or the padding token.
// Nothing when too little is left to ask about.
std::optional<std::vector<std::int32_t>> tokens_of(const FileEnds& ends, const TypeConfig& config);

enum class Mode {
  kHighConfidence,    // each label's own threshold
  kMediumConfidence,  // one threshold for all
  kBestGuess,         // none
};

struct Answer {
  std::string label;                        // what the file is taken for
  std::string network_label = "undefined";  // what the network said, if it was asked
  double score = 1;
  std::string reason = "none";  // why both differ: "overwrite_map" or "low_confidence"
};

// Probabilities in the order of config.labels.
using Network = std::function<std::span<const float>(const std::vector<std::int32_t>& tokens)>;

// A path may name anything: folders, empty files and devices have answers of their own. Throws std::runtime_error when
// there is nothing of that name or it cannot be read. `follow_links` false: a link is a link.
Answer identify(const std::string& path, const TypeConfig& config, const ContentTypes& types, Mode mode,
                bool follow_links, const Network& network);

// The last part of that: from the network's output to the answer.
Answer answer_of(std::span<const float> probabilities, const TypeConfig& config, const ContentTypes& types, Mode mode);

}  // namespace example
