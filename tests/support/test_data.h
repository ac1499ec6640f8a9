// Test data that is not in the repository, and comparison of tensors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "types/tensor.h"

namespace tessera {

// `relative` below the environment variable TESSERA_TEST_DATA, or else below the folder `shared` beside the source
// folder; empty when it is in neither. A test then skips itself: GTEST_SKIP() << missing_test_data(relative).
std::optional<std::filesystem::path> find_test_data(const std::string& relative);
std::string missing_test_data(const std::string& relative);

// A path below the source folder.
std::filesystem::path source_path(const std::string& relative);

// A folder of its own for one test, empty at first and removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // Writes a file below the folder, making its parents; returns its path.
  std::string write(const std::string& relative, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

// Type and shape equal, and max|found - want| <= tolerance * max|want|; integers and bools are equal.
testing::AssertionResult tensors_agree(const Tensor& found, const Tensor& want, double tolerance = 1e-4);

}  // namespace tessera
