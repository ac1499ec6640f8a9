#include "text_read/ctc.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace example {
namespace {

const Alphabet kAlphabet{{"a", "b", "é", " "}};

// A step in which class `best` has probability `p`, and the others share the rest.
void add_step(std::vector<float>& steps, int best, float p) {
  for (int c = 0; c < kAlphabet.num_classes(); ++c) steps.push_back(c == best ? p : (1 - p) / 4);
}

std::vector<float> steps_of(std::initializer_list<int> classes) {
  std::vector<float> steps;
  for (const int c : classes) add_step(steps, c, 0.8f);
  return steps;
}

TEST(Ctc, RepeatsAreOneLetterAndBlanksSeparate) {
  EXPECT_EQ(decode(steps_of({0, 1, 1, 2, 2, 0}), kAlphabet).text, "ab");
  EXPECT_EQ(decode(steps_of({1, 0, 1}), kAlphabet).text, "aa");
  EXPECT_EQ(decode(steps_of({1, 2, 1}), kAlphabet).text, "aba");
  EXPECT_EQ(decode(steps_of({3, 4, 4, 3}), kAlphabet).text, "é é");
}

TEST(Ctc, NoLettersIsNoText) {
  EXPECT_EQ(decode(steps_of({0, 0}), kAlphabet).text, "");
  EXPECT_EQ(decode(steps_of({0, 0}), kAlphabet).confidence, 0);
  EXPECT_EQ(decode({}, kAlphabet).text, "");
}

TEST(Ctc, ConfidenceIsTheMeanOverLettersAtTheirFirstStep) {
  std::vector<float> steps;
  add_step(steps, 0, 0.99f);
  add_step(steps, 1, 0.6f);
  add_step(steps, 1, 0.9f);  // goes on: does not count
  add_step(steps, 2, 0.8f);
  EXPECT_NEAR(decode(steps, kAlphabet).confidence, 0.7f, 1e-6f);
}

TEST(Ctc, AlphabetHasALetterForEachLineAndTheSpace) {
  const auto path = std::filesystem::path(testing::TempDir()) / "ctc_letters.txt";
  std::ofstream(path) << "'\n疗\nZ\n";
  const Alphabet alphabet = load_alphabet(path.string());
  EXPECT_EQ(alphabet.letters, (std::vector<std::string>{"'", "疗", "Z", " "}));
  EXPECT_EQ(alphabet.num_classes(), 5);
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_THROW(load_alphabet(path.string()), std::runtime_error);
  std::filesystem::remove(path);
  EXPECT_THROW(load_alphabet(path.string()), std::runtime_error);
}

}  // namespace
}  // namespace example
