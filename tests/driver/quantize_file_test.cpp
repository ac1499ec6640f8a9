// tessera/quantize.h, as a program uses it.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/quantize.h"

namespace tessera {
namespace {

constexpr const char* kModel =
    "graph @g(%x: f32[1,4]) -> (%y: f32[1,3]) {\n"
    "  %w = constant {value = splat<f32[4,3] 0.5>} : f32[4,3]\n"
    "  %y = matmul(%x, %w) : f32[1,3]\n"
    "}\n";

class QuantizeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("quantize_file_test_{}", getpid());
    std::filesystem::create_directories(folder_);
    std::ofstream(path("model.graph")) << kModel;
    settings_.all = true;
    settings_.min_speedup = 0;
    settings_.correct_bias = false;
    options_.num_threads = 1;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  QuantizeSamples samples(size_t count) {
    QuantizeSamples samples;
    samples.count = count;
    samples.at = [this](size_t sample) {
      for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<float>((i * 7 + sample * 5) % 11) - 5;
      tessera_tensor tensor = {};
      tensor.data = numbers_.data();
      tensor.rank = 2;
      tensor.dims[0] = 1;
      tensor.dims[1] = 4;
      tensor.dtype = TESSERA_F32;
      return std::vector<tessera_tensor>{tensor};
    };
    return samples;
  }

  std::string id_of_refusal(const QuantizeSamples& samples) {
    try {
      quantize_file(path("model.graph"), path("out.onnx"), settings_, samples, options_);
    } catch (const CompileError& error) {
      return error.details().id + ": " + error.details().message;
    }
    return "";
  }

  std::filesystem::path folder_;
  QuantizeSettings settings_;
  CompileOptions options_;
  std::array<float, 4> numbers_ = {};
};

TEST_F(QuantizeFile, LabelsAreOneForEachSample) {
  QuantizeSamples given = samples(3);
  for (const size_t count : {1, 2, 4}) {
    given.labels.assign(count, 0);
    EXPECT_EQ(id_of_refusal(given), "TSR-4085: " + std::to_string(count) + " labels for 3 samples");
    EXPECT_FALSE(std::filesystem::exists(path("out.onnx")));
  }
  for (const size_t count : {0, 3}) {
    given.labels.assign(count, 1);
    EXPECT_EQ(id_of_refusal(given), "");
    EXPECT_TRUE(std::filesystem::exists(path("out.onnx")));
    std::filesystem::remove(path("out.onnx"));
  }
}

TEST_F(QuantizeFile, NoSamplesForTheSchemesThatNeedNone) {
  EXPECT_THAT(id_of_refusal(samples(0)), ::testing::HasSubstr("TSR-4085"));
  settings_.scheme = "dynamic";
  EXPECT_EQ(id_of_refusal(samples(0)), "");
  EXPECT_TRUE(std::filesystem::exists(path("out.onnx")));
}

}  // namespace
}  // namespace tessera
