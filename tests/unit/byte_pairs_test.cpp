#include "generate/byte_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "generate/generation.h"
#include "generate/tokenizer.h"
#include "generate/word_splitter.h"

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

// By looking through all neighbours for each join.
Tokens joined_slowly(Tokens parts, const JoinOf& join_of) {
  for (;;) {
    std::optional<Join> best;
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto join = join_of(parts[i], parts[i + 1]); join && (!best || *join < *best)) best = join, place = i;
    if (!best) return parts;
    parts[place] = best->token;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BytePairs, JoinsAsTheSlowWayDoes) {
  std::mt19937_64 random(1);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 300; ++round) {
    const int32_t letters = 1 + below(4);
    std::map<std::pair<int32_t, int32_t>, Join> joins;
    for (int32_t i = 0; i < below(30); ++i) {
      const int32_t token = letters + i;  // few ranks, so that there are equal ones
      joins[{below(token), below(token)}] = {static_cast<double>(below(8)), 0, 0, token};
    }
    Tokens parts(static_cast<size_t>(below(60)));
    for (int32_t& part : parts) part = below(letters);
    const JoinOf join_of = [&](int32_t left, int32_t right) -> std::optional<Join> {
      const auto found = joins.find({left, right});
      return found == joins.end() ? std::nullopt : std::optional(found->second);
    };
    EXPECT_EQ(join_neighbours(parts, join_of), joined_slowly(parts, join_of)) << round;
  }
}

TEST(BytePairs, AMillionPartsAreNoMatter) {
  const JoinOf join_of = [](int32_t left, int32_t right) -> std::optional<Join> {
    if (left != right || left > 20) return std::nullopt;
    return Join{static_cast<double>(left), 0, 0, left + 1};
  };
  EXPECT_EQ(join_neighbours(Tokens(1 << 20, 0), join_of), Tokens({20}));
}

TEST(WordSplitter, KeepsWhatLiesBetween) {
  const WordSplitter splitter({R"(\p{N})", R"( ?\p{L}+|\s+)"});
  const std::vector<std::string_view> wanted = {"ab", " cé", "1", "2", "!?", "  ", "ß"};
  EXPECT_EQ(splitter.split("ab cé12!?  ß"), wanted);
  EXPECT_TRUE(splitter.split("").empty() || splitter.split("") == std::vector<std::string_view>{""});
}

TEST(CharacterStream, WaitsForTheRestOfACharacter) {
  CharacterStream stream;
  EXPECT_EQ(stream.add("a\xE4\xBD"), "a");
  EXPECT_EQ(stream.add("\xA0" "b"), "你b");
  EXPECT_EQ(stream.add("\xFF" "c\x80"), "\xEF\xBF\xBD" "c\xEF\xBF\xBD");
  EXPECT_EQ(stream.add("\xF0\x9F\x99"), "");
  EXPECT_EQ(stream.rest(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.rest(), "");
}

TEST(Guess, IsWhatFollowedTheLastTokens) {
  EXPECT_EQ(guess_tokens({1, 2, 3, 9, 1, 2, 3}, 2), Tokens({9, 1}));
  EXPECT_EQ(guess_tokens({1, 2, 5, 2, 6, 2}, 9), Tokens({6, 2}));  // the last such place
  EXPECT_EQ(guess_tokens({4, 1, 2, 8, 7, 1, 2}, 1), Tokens({8}));
  EXPECT_EQ(guess_tokens({7, 7, 7}, 5), Tokens({7}));
  EXPECT_EQ(guess_tokens({1, 2, 3}, 5), Tokens());
  EXPECT_EQ(guess_tokens({1}, 5), Tokens());
  EXPECT_EQ(guess_tokens({1, 1}, 0), Tokens());
}

}  // namespace
}  // namespace tessera
