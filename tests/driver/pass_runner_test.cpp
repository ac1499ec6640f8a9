#include "driver/pass_runner.h"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/parser.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph sample(const char* op) {
  return parse_graph(std::string("graph @main(%x: f32[4]) -> (%y: f32[4]) { %y = ") + op + "(%x) : f32[4] }",
                     standard_ops());
}

TEST(PassRunner, PrintsWhatChangedAndTimesEverything) {
  std::ostringstream printed;
  std::vector<std::string> seen;
  RunnerOptions options;
  options.print_ir_after = "all";
  options.ir_stream = &printed;
  options.on_step = [&](std::string_view step) { seen.emplace_back(step); };
  PassRunner runner(options);
  runner.run("first", [] { return sample("exp"); });
  runner.run("second", [] { return sample("exp"); });
  runner.run("third", [] { return sample("log"); });
  EXPECT_EQ(runner.time("fourth", [] { return 4; }), 4);
  EXPECT_THAT(printed.str(), HasSubstr("// after first\ngraph @main"));
  EXPECT_THAT(printed.str(), HasSubstr("// after second (unchanged)\n// after third\ngraph @main"));
  EXPECT_THAT(seen, ElementsAre("first", "second", "third", "fourth"));
  EXPECT_EQ(runner.times().size(), 4u);
}

TEST(PassRunner, ABrokenResultIsABugThatNamesThePass) {
  RunnerOptions options;
  options.verify_each = true;
  PassRunner runner(options);
  try {
    runner.run("clumsy", [] {
      Graph graph = sample("exp");
      graph.value(graph.outputs[0]).type.dtype = DType::kI32;
      return graph;
    });
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("clumsy"));
  }
}

TEST(PassRunner, SavesChangedTextsUnderNumberedNames) {
  const TemporaryFolder folder;
  RunnerOptions options;
  options.save_temps = folder.path() / "a/b";
  PassRunner runner(options);
  runner.run("first", [] { return sample("exp"); });
  runner.run("second", [] { return sample("exp"); });
  runner.run("third", [] { return sample("log"); });
  runner.save("module.o", "bytes");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options.save_temps))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("00-first.graph", "01-third.graph", "02-module.o"));
}

TEST(PassRunner, TableAddsUpStepsOfTheSameName) {
  EXPECT_EQ(time_table({{"dce", 0.001}, {"cse", 0.002}, {"dce", 0.001}}),
            "      ms      %  step\n"
            "     2.0   50.0  dce\n"
            "     2.0   50.0  cse\n"
            "     4.0  100.0  total\n");
}

}  // namespace
}  // namespace tessera
