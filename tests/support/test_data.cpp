#include "support/test_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace tessera {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::optional<fs::path> find_test_data(const std::string& relative) {
  const char* folder = std::getenv("TESSERA_TEST_DATA");
  const fs::path path =
      (folder && *folder ? fs::path(folder) : fs::path(TESSERA_SOURCE_DIR) / ".." / "shared") / relative;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  return path;
}

std::string missing_test_data(const std::string& relative) {
  return fmt::format("no '{}' in $TESSERA_TEST_DATA or in the folder 'shared' beside the sources", relative);
}

fs::path source_path(const std::string& relative) { return fs::path(TESSERA_SOURCE_DIR) / relative; }

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "tessera-test-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make a temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string TemporaryFolder::write(const std::string& relative, const std::string& bytes) const {
  const fs::path path = path_ / relative;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}

testing::AssertionResult tensors_agree(const Tensor& found, const Tensor& want, double tolerance) {
  if (found.dtype() != want.dtype() || found.dims() != want.dims())
    return testing::AssertionFailure() << fmt::format("found {}[{}], want {}[{}]", dtype_name(found.dtype()),
                                                      fmt::join(found.dims(), ","), dtype_name(want.dtype()),
                                                      fmt::join(want.dims(), ","));
  double largest = 0, worst = 0;
  int64_t place = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double a = found.get_double(i), b = want.get_double(i);
    if (std::isnan(a) != std::isnan(b) || (std::isinf(b) && a != b))
      return testing::AssertionFailure() << fmt::format("element {}: found {}, want {}", i, a, b);
    if (std::isnan(b) || std::isinf(b)) continue;
    largest = std::max(largest, std::fabs(b));
    if (!(std::fabs(a - b) <= worst)) {
      worst = std::fabs(a - b);
      place = i;
    }
  }
  const double allowed = is_float(want.dtype()) ? tolerance * largest : 0;
  if (worst <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << fmt::format("element {} of {}: found {}, want {}; the difference {} exceeds {}",
                                                    place, want.num_elements(), found.get_double(place),
                                                    want.get_double(place), worst, allowed);
}

}  // namespace tessera
