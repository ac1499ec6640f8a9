#include "text_read/ctc.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace example {

Alphabet load_alphabet(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read the recogniser's letters from '" + path + "'");
  Alphabet alphabet;
  for (std::string line; std::getline(file, line);) alphabet.letters.push_back(line);
  if (alphabet.letters.empty()) throw std::runtime_error("there are no letters in '" + path + "'");
  alphabet.letters.push_back(" ");
  return alphabet;
}

Decoded decode(std::span<const float> probabilities, const Alphabet& alphabet) {
  const std::size_t classes = std::size_t(alphabet.num_classes());
  Decoded result;
  double sum = 0;
  int letters = 0;
  std::size_t before = 0;
  for (std::size_t begin = 0; begin + classes <= probabilities.size(); begin += classes) {
    const auto step = probabilities.subspan(begin, classes);
    const std::size_t best = std::size_t(std::max_element(step.begin(), step.end()) - step.begin());
    if (best != 0 && best != before) {
      result.text += alphabet.letters[best - 1];
      sum += step[best];
      ++letters;
    }
    before = best;
  }
  if (letters > 0) result.confidence = float(sum / letters);
  return result;
}

}  // namespace example
