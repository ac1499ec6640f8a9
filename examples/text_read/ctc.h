// From the recogniser's output to text: greedy decoding of "Connectionist Temporal Classification" (Graves et al.,
// 2006).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace example {

// What the recogniser's classes stand for: class 0 is "no letter here", class i > 0 is letters[i - 1].
// Letters are UTF-8; the last one is the space, which is not in the file.
struct Alphabet {
  std::vector<std::string> letters;
  int num_classes() const { return int(letters.size()) + 1; }
};

// Reads a file with one letter a line. Throws std::runtime_error when it cannot be read or is empty.
Alphabet load_alphabet(const std::string& path);

struct Decoded {
  std::string text;
  float confidence = 0;  // mean probability of its letters, 0..1; 0 for no text
};

// `probabilities` has a row of alphabet.num_classes() for each step along the line. The likeliest class of each step
// counts; a class that goes on over several steps is one letter, and "no letter" between two equal ones separates them.
Decoded decode(std::span<const float> probabilities, const Alphabet& alphabet);

}  // namespace example
