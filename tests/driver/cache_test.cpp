#include "driver/engine/cache.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "support/onnx_model.h"
#include "support/test_data.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    OnnxModel model;
    model.input("x", {4}).output("y");
    model.node("Relu", {"x"}, {"y"});
    compiled_ = compile_model(folder_.write("relu.onnx", model.bytes()), {});
    place_ = folder_.path() / "cache";
  }

  ModuleCache cache(uint64_t capacity) {
    return ModuleCache(place_, capacity, [this](const std::string& text) { warnings_.push_back(text); });
  }
  void add(const ModuleCache& cache, const std::string& key) {
    write_module(compiled_, cache.place_for(key));
    cache.trim(key);
  }

  TemporaryFolder folder_;
  Compiled compiled_;
  std::string place_;
  std::vector<std::string> warnings_;
};

TEST(ParseSize, KnowsItsUnits) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("1000"), 1000u);
  EXPECT_EQ(parse_size("64k"), 64u << 10);
  EXPECT_EQ(parse_size("500M"), 500u << 20);
  EXPECT_EQ(parse_size("2G"), uint64_t{2} << 30);
  for (const char* text : {"", "G", "2T", "2GB", "-1", "1.5G", "99999999999G"}) EXPECT_FALSE(parse_size(text)) << text;
}

TEST_F(CacheTest, FindsWhatWasStoredAndNothingElse) {
  const ModuleCache cache = this->cache(1 << 20);
  EXPECT_EQ(cache.find("a", "model", 1), nullptr);
  add(cache, "a");
  const std::unique_ptr<Model> model = cache.find("a", "model", 1);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->name(), "model");
  EXPECT_EQ(model->inputs().at(0).name, "x");
  EXPECT_EQ(cache.find("b", "model", 1), nullptr);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CacheTest, AnEntryThatIsTooLargeAloneIsNotKept) {
  const ModuleCache cache = this->cache(1000);
  add(cache, "a");
  EXPECT_EQ(cache.find("a", "model", 1), nullptr);
}

TEST_F(CacheTest, OldTemporaryFilesAreSweptAndForeignFilesAreNot) {
  const ModuleCache cache = this->cache(1 << 20);
  add(cache, "a");
  const fs::path old = folder_.write("cache/k.so.tmp-1-1", "x"), fresh = folder_.write("cache/k.so.tmp-1-2", "x"),
                 foreign = folder_.write("cache/notes.txt", "x");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(3));
  add(cache, "b");
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(CacheTest, ManyThreadsMayUseOneFolder) {
  const auto size = [&] {
    add(cache(1 << 20), "size");
    return fs::file_size(place_ + "/size.so");
  }();
  const ModuleCache cache = this->cache(size * 3);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string key = std::to_string((t + i) % 5);
        // An entry may be gone again at once, but what is there is whole.
        const std::unique_ptr<Model> found = cache.find(key, "model", 1);
        if (!found) {
          add(cache, key);
        } else if (found->outputs().at(0).name != "y") {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const std::string& text : warnings_) EXPECT_THAT(text, ::testing::HasSubstr("does not exist"));
}

}  // namespace
}  // namespace tessera
