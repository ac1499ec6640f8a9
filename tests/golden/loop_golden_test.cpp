// Runs tests/golden/loop/*.loop: the passes of each file's RUN line, FileCheck on the result, and what holds for every
// pass: the result verifies, reads back to the same text, and computes the same values as before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "interp/loop_interp.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> golden_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE_DIR) / "tests/golden/loop"))
    if (entry.path().extension() == ".loop") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The passes of "// RUN: tessera opt %s --pass=a,b | FileCheck %s".
std::vector<std::string> passes_of(const std::string& text) {
  const std::string marker = "// RUN: tessera opt %s --pass=";
  const size_t at = text.find(marker);
  if (at == std::string::npos) return {};
  std::stringstream list(
      text.substr(at + marker.size(), text.find_first_of(" \n", at + marker.size()) - at - marker.size()));
  std::vector<std::string> names;
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

std::string find_file_check() {
  for (const char* name : {"FileCheck-19", "FileCheck"})
    if (std::system((std::string("command -v ") + name + " > /dev/null").c_str()) == 0) return name;
  const char* const path = "/usr/lib/llvm-19/bin/FileCheck";
  return fs::exists(path) ? path : "";
}

// Outputs of the kernel on inputs that depend on the seed only.
std::vector<Tensor> run(const LoopProgram& program, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Tensor> tensors;
  for (const BufferPtr& param : program.params) {
    std::vector<int64_t> dims;
    for (const Expr& dim : param->shape) dims.push_back(as_int(dim).value());
    Tensor tensor(param->dtype, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, static_cast<double>(random() % 4000) / 1000 - 2);
    tensors.push_back(std::move(tensor));
  }
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  interpret(program, std::span<Tensor* const>(pointers));
  tensors.erase(tensors.begin(), tensors.end() - program.num_outputs);
  return tensors;
}

// Where values differ by more than a few units in the last place; empty: nowhere. Not a number equals itself.
std::string difference(const Tensor& want, const Tensor& got) {
  const double unit = want.dtype() == DType::kF16 ? 0x1p-10 : want.dtype() == DType::kF64 ? 0x1p-52 : 0x1p-23;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double w = want.get_double(i), g = got.get_double(i);
    if (w == g || (std::isnan(w) && std::isnan(g)) || std::fabs(w - g) <= 4 * unit * std::fabs(w)) continue;
    std::stringstream text;
    text << "element " << i << " is " << g << " instead of " << w;
    return text.str();
  }
  return "";
}

class LoopGolden : public testing::TestWithParam<fs::path> {};

TEST_P(LoopGolden, File) {
  const std::string text = read(GetParam());
  const std::vector<std::string> passes = passes_of(text);
  ASSERT_FALSE(passes.empty()) << "no RUN line in " << GetParam();
  const Target target{.triple = "x86_64-unknown-linux-gnu", .cpu = "x86-64-v3", .features = {"avx", "avx2", "fma"}};
  std::string output;
  for (const LoopProgram& before : parse_loop_programs(text, GetParam().string())) {
    ASSERT_THAT(verify(before), testing::IsEmpty());
    LoopProgram after = before;
    for (const std::string& name : passes) {
      const LoopPass* pass = find_loop_pass(name);
      ASSERT_NE(pass, nullptr) << name;
      after = pass->run(after, {target, 3});
      ASSERT_THAT(verify(after), testing::IsEmpty()) << print(after);
      const std::string printed = print(after);
      EXPECT_EQ(print(parse_loop_program(printed)), printed);
      EXPECT_EQ(print(pass->run(after, {target, 3})), printed) << name << " a second time changes its result";
    }
    output += print(after);
    const bool exact = std::find(passes.begin(), passes.end(), "expand_math") == passes.end();
    const std::vector<Tensor> expected = run(before, 1);
    const std::vector<Tensor> got = run(after, 1);
    for (size_t i = 0; !exact && i < expected.size(); ++i)
      EXPECT_EQ(difference(expected[i], got[i]), "") << before.name;
    for (size_t i = 0; exact && i < expected.size(); ++i)
      EXPECT_EQ(std::memcmp(expected[i].bytes(), got[i].bytes(), static_cast<size_t>(expected[i].num_bytes())), 0)
          << before.name << " computes something else:\n"
          << print(after);
  }
  const std::string file_check = find_file_check();
  if (file_check.empty())
    GTEST_SKIP() << "FileCheck is not installed (Debian: llvm-19-tools); only values were compared";
  const fs::path result = fs::path(testing::TempDir()) / (GetParam().stem().string() + ".out");
  std::ofstream(result) << output;
  const std::string command = file_check + " " + GetParam().string() + " --input-file=" + result.string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << output;
  fs::remove(result);
}

INSTANTIATE_TEST_SUITE_P(All, LoopGolden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace tessera
