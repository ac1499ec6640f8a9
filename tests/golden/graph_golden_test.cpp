// Graph passes on text: every file of tests/golden/graph, and the before/after example in each pass's header. The same
// files run under lit and FileCheck through `tessera opt`; here every line is compared, the result verifies, and
// print -> parse -> print is identical.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string trimmed(const std::string& line) {
  const size_t start = line.find_first_not_of(' ');
  return start == std::string::npos ? "" : line.substr(start, line.find_last_not_of(' ') - start + 1);
}

// The rest of the line's word behind `key`; empty when the line does not have it.
std::string word_behind(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  if (at == std::string::npos) return "";
  const size_t start = line.find_first_not_of(' ', at + key.size());
  return line.substr(start, line.find(' ', start) - start);
}

DType precision_of(const std::string& word) {
  return word == "bf16" ? DType::kBF16 : word == "i8" ? DType::kI8 : DType::kF32;
}

// `on`: "", x86-64-v4, or that with features, each with + before it.
Graph run_passes(Graph graph, const std::string& names, const std::string& on, DType precision) {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma"};
  std::stringstream features(on);
  for (std::string item; std::getline(features, item, ',');)
    if (item == "x86-64-v4")
      target.features.insert({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
    else if (!item.empty())
      target.features.insert(item.substr(1));
  GraphInterpreter evaluator;
  const PassContext ctx{standard_ops(), evaluator, target, 3, nullptr, precision};
  std::stringstream stream(names);
  for (std::string name; std::getline(stream, name, ',');) {
    std::vector<const GraphPass*> passes;
    if (const GraphPass* pass = find_graph_pass(name)) passes = {pass};
    if (name == "pipeline")
      for (const GraphPass& pass : graph_pipeline()) passes.push_back(&pass);
    if (passes.empty()) throw std::runtime_error("no pass is named " + name);
    for (const GraphPass* pass : passes) {
      graph = pass->run(graph, ctx);
      verify_or_throw(graph, std::string(pass->name));
    }
  }
  return graph;
}

void expect_round_trip(const Graph& graph) {
  const std::string text = print(graph);
  EXPECT_EQ(text, print(parse_graph(text, standard_ops())));
}

class GoldenFile : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenFile, GivesTheCheckedLines) {
  const std::string text = read(GetParam());
  std::string passes;
  std::string target;
  DType precision = DType::kF32;
  std::vector<std::string> want;
  bool whole = true;  // every line is checked; else those that are, in order
  for (const std::string& line : lines_of(text)) {
    if (line.find("// RUN:") == 0 && line.find("--check-prefix") == std::string::npos) {
      passes = word_behind(line, "--pass=");
      target = word_behind(line, "--target");
      if (!target.starts_with("x86-64-v4")) target.clear();  // AVX2 it has anyhow
      precision = precision_of(word_behind(line, "--precision"));
    }
    for (const std::string check : {"// CHECK:", "// CHECK-NEXT:"})
      if (line.compare(0, check.size(), check) == 0) {
        whole = whole && (want.empty() || check == "// CHECK-NEXT:");
        want.push_back(trimmed(line.substr(check.size())));
      }
  }
  ASSERT_FALSE(passes.empty()) << "no RUN line with --pass=";
  ASSERT_GT(want.size(), whole ? 2u : 1u) << "nothing is checked";
  const Graph before = parse_graph(text, standard_ops(), GetParam().string());
  expect_round_trip(before);
  const Graph after = run_passes(before, passes, target, precision);
  expect_round_trip(after);
  std::vector<std::string> got = lines_of(print(after));
  for (std::string& line : got) line = trimmed(line);
  if (!whole) {
    size_t found = 0;
    for (const std::string& line : got) found += found < want.size() && line.find(want[found]) != std::string::npos;
    EXPECT_EQ(found, want.size()) << (found < want.size() ? want[found] : "") << "\nis missing in\n" << print(after);
    return;
  }
  EXPECT_EQ(got, want);
}

std::vector<fs::path> golden_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(TESSERA_SOURCE_DIR "/tests/golden/graph"))
    if (entry.path().extension() == ".graph") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Graph, GoldenFile, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param.stem().string(); });

// A header's example: "// before:", a graph, "// after:" or "// after (dce, 16 lanes):", a graph.
struct Example {
  std::string pass, options, before, after;
};

Example example_of(const fs::path& header) {
  Example example;
  example.pass = header.stem();
  std::string* into = nullptr;
  for (const std::string& line : lines_of(read(header))) {
    if (line.find("// before:") == 0) {
      into = &example.before;
    } else if (line.find("// after") == 0) {
      example.options = line;
      into = &example.after;
    } else if (line.find("//") != 0) {
      into = nullptr;
    } else if (into) {
      *into += line.substr(2) + "\n";
    }
  }
  return example;
}

class HeaderExample : public testing::TestWithParam<fs::path> {};

TEST_P(HeaderExample, IsWhatThePassDoes) {
  const Example example = example_of(GetParam());
  ASSERT_NE(find_graph_pass(example.pass), nullptr) << "a pass's file is named like the pass";
  ASSERT_FALSE(example.before.empty()) << "the header has no '// before:' text";
  const Graph before = parse_graph(example.before, standard_ops(), GetParam().string());
  const Graph want = parse_graph(example.after, standard_ops(), GetParam().string());
  const bool with_dce = example.options.find("dce") != std::string::npos;
  const auto has = [&](const char* word) { return example.options.find(word) != std::string::npos; };
  const std::string target = std::string(has("16 lanes") ? "x86-64-v4" : "") + (has("tiles") ? ",+portable-tiles" : "");
  EXPECT_EQ(print(run_passes(before, example.pass + (with_dce ? ",dce" : ""), target,
                             precision_of(has("bf16") ? "bf16"
                                          : has("i8") ? "i8"
                                                      : ""))),
            print(want));
}

// A pass's header declares the function that it is named after.
bool is_pass_header(const fs::path& path) {
  return path.extension() == ".h" && read(path).find("Graph " + path.stem().string() + "(") != std::string::npos;
}

std::vector<fs::path> pass_headers() {
  std::vector<fs::path> headers;
  for (const auto& entry : fs::recursive_directory_iterator(TESSERA_SOURCE_DIR "/src/graph_passes"))
    if (is_pass_header(entry.path())) headers.push_back(entry.path());
  std::sort(headers.begin(), headers.end());
  return headers;
}

INSTANTIATE_TEST_SUITE_P(Graph, HeaderExample, testing::ValuesIn(pass_headers()),
                         [](const auto& info) { return info.param.stem().string(); });

// By the example of its header, or by files that begin with its name.
TEST(GraphPipeline, HasGoldenTestsForEveryPass) {
  std::string all;
  for (const fs::path& header : pass_headers()) all += header.stem().string() + "\n";
  for (const fs::path& file : golden_files()) all += file.stem().string() + "\n";
  for (const GraphPass& pass : graph_pipeline()) EXPECT_NE(all.find(pass.name), std::string::npos) << pass.name;
}

}  // namespace
}  // namespace tessera
