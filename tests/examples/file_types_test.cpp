#include "file_types/identify.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace example {
namespace {

TypeConfig small_config() {
  TypeConfig config;
  config.begin_size = 6, config.end_size = 4, config.block_size = 10;
  config.padding_token = 256, config.min_file_size = 3;
  config.labels = {"c", "markdown", "randomtxt", "zip", "txt"};
  config.threshold = 0.5;
  config.thresholds = {{"markdown", 0.75}, {"zip", 0.25}};
  config.overwrites = {{"randomtxt", "txt"}};
  return config;
}

const ContentTypes kTypes{{"c", {"C source", "code", "text/x-c", true}},
                          {"markdown", {"Markdown", "text", "text/markdown", true}},
                          {"txt", {"Text", "text", "text/plain", true}},
                          {"unknown", {"Unknown", "unknown", "application/octet-stream", false}},
                          {"zip", {"Zip", "archive", "application/zip", false}}};

FileEnds ends_of(const std::string& content) {
  const std::size_t block = std::min<std::size_t>(content.size(), 10);
  return {content.size(), content.substr(0, block), content.substr(content.size() - block)};
}

using Tokens = std::vector<std::int32_t>;

TEST(FileTypeTokens, PadBehindTheBeginningAndBeforeTheEnd) {
  EXPECT_EQ(tokens_of(ends_of("abc"), small_config()), (Tokens{'a', 'b', 'c', 256, 256, 256, 256, 'a', 'b', 'c'}));
}

TEST(FileTypeTokens, WhiteSpaceIsTakenOffOutsideOnly) {
  EXPECT_EQ(tokens_of(ends_of(" \t\n\r\v\fabc "), small_config()),
            (Tokens{'a', 'b', 'c', ' ', 256, 256, '\f', 'a', 'b', 'c'}));
}

TEST(FileTypeTokens, LongFilesAreSeenAtBothEndsOnly) {
  EXPECT_EQ(tokens_of(ends_of("0123456789-----------------abcdef\n"), small_config()),
            (Tokens{'0', '1', '2', '3', '4', '5', 'c', 'd', 'e', 'f'}));
}

TEST(FileTypeTokens, BytesAreUnsigned) {
  EXPECT_EQ(tokens_of(ends_of("\xff\x80\x7f"), small_config()),
            (Tokens{255, 128, 127, 256, 256, 256, 256, 255, 128, 127}));
}

TEST(FileTypeTokens, NothingWhenLittleIsLeftAfterWhiteSpace) {
  EXPECT_EQ(tokens_of(ends_of("        ab"), small_config()), std::nullopt);
  EXPECT_EQ(tokens_of(ends_of("          "), small_config()), std::nullopt);
  EXPECT_EQ(tokens_of(ends_of("          and text only in the second block"), small_config()), std::nullopt);
}

Answer answer(std::vector<float> probabilities, Mode mode = Mode::kHighConfidence) {
  return answer_of(probabilities, small_config(), kTypes, mode);
}

TEST(FileTypeAnswer, TakesTheLikeliestLabelWhenSureEnough) {
  const Answer sure = answer({0.6f, 0.1f, 0.1f, 0.1f, 0.1f});
  EXPECT_EQ(sure.label, "c");
  EXPECT_EQ(sure.network_label, "c");
  EXPECT_EQ(sure.reason, "none");
  EXPECT_FLOAT_EQ(float(sure.score), 0.6f);
}

TEST(FileTypeAnswer, AThresholdIsTheLabelsOwnOrTheGeneralOneAndIsReachedByEquality) {
  EXPECT_EQ(answer({0.1f, 0.7f, 0.1f, 0.05f, 0.05f}).label, "txt");  // markdown wants 0.75
  EXPECT_EQ(answer({0.1f, 0.7f, 0.1f, 0.05f, 0.05f}).reason, "low_confidence");
  EXPECT_EQ(answer({0.0f, 0.75f, 0.1f, 0.1f, 0.05f}).label, "markdown");
  EXPECT_EQ(answer({0.1f, 0.7f, 0.1f, 0.05f, 0.05f}, Mode::kMediumConfidence).label, "markdown");
  EXPECT_EQ(answer({0.2f, 0.2f, 0.2f, 0.3f, 0.1f}).label, "zip");  // zip wants only 0.25
  EXPECT_EQ(answer({0.2f, 0.2f, 0.2f, 0.3f, 0.1f}, Mode::kMediumConfidence).label, "unknown");
  EXPECT_EQ(answer({0.4f, 0.2f, 0.1f, 0.2f, 0.1f}).label, "txt");
  EXPECT_EQ(answer({0.4f, 0.2f, 0.1f, 0.2f, 0.1f}, Mode::kBestGuess).label, "c");
}

TEST(FileTypeAnswer, OverwritesAndTheirReason) {
  EXPECT_EQ(answer({0, 0, 0.9f, 0, 0.1f}).label, "txt");
  EXPECT_EQ(answer({0, 0, 0.9f, 0, 0.1f}).network_label, "randomtxt");
  EXPECT_EQ(answer({0, 0, 0.9f, 0, 0.1f}).reason, "overwrite_map");
  EXPECT_EQ(answer({0.2f, 0.2f, 0.3f, 0.1f, 0.2f}).reason, "low_confidence");
  EXPECT_EQ(answer({0.2f, 0.2f, 0.1f, 0.1f, 0.4f}).reason, "none");  // txt for want of confidence, and txt anyway
}

class Identify : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("file_types_" + std::to_string(std::rand()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string label_of(const std::string& path, bool follow_links = true) {
    const std::vector<float> probabilities{0.9f, 0, 0, 0, 0.1f};
    const Network network = [&](const Tokens&) { return std::span<const float>(probabilities); };
    return identify(path, small_config(), kTypes, Mode::kHighConfidence, follow_links, network).label;
  }
  std::string file(const std::string& name, const std::string& content) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(Identify, OnlyAsksTheNetworkAboutFilesWithSomethingInThem) {
  EXPECT_EQ(label_of(file("c", "int main() {}")), "c");
  EXPECT_EQ(label_of(file("empty", "")), "empty");
  EXPECT_EQ(label_of(file("two", "ab")), "txt");
  EXPECT_EQ(label_of(file("broken", "\xff\xff")), "unknown");
  EXPECT_EQ(label_of(file("spaces", std::string(100, ' '))), "txt");
  EXPECT_EQ(label_of(file("cut", "         \xc3\xa9")), "unknown");  // the block ends in the middle of a letter
  EXPECT_EQ(label_of(folder_.string()), "directory");
  EXPECT_EQ(label_of("/dev/null"), "unknown");
}

TEST_F(Identify, LinksAreFollowedUnlessAskedNotTo) {
  const std::string link = (folder_ / "link").string();
  std::filesystem::create_symlink(file("c", "int main() {}"), link);
  EXPECT_EQ(label_of(link), "c");
  EXPECT_EQ(label_of(link, false), "symlink");
  EXPECT_THROW(label_of((folder_ / "none").string()), std::runtime_error);
}

TEST_F(Identify, SaysWhatIsWrongWithItsSettings) {
  const auto message_of = [](auto load, const std::string& path) -> std::string {
    try {
      load(path);
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message_of(load_type_config, "/none.json"), "cannot read '/none.json': No such file or directory");
  const std::string broken = file("broken.json", "{");
  EXPECT_THAT(message_of(load_content_types, broken),
              testing::StartsWith("'" + broken + "' is not as magika writes it: "));
  const std::string other = file("other.json",
                                 R"({"beg_size": 4, "mid_size": 4, "end_size": 4, "use_inputs_at_offsets": false,
      "medium_confidence_threshold": 0.5, "min_file_size_for_dl": 2, "padding_token": 256, "block_size": 16,
      "target_labels_space": ["c"], "thresholds": {}, "overwrite_map": {}})");
  EXPECT_THAT(message_of(load_type_config, other), testing::HasSubstr("is for a magika model of another kind"));
}

}  // namespace
}  // namespace example
