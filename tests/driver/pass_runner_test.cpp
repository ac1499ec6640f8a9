#include "driver/pass_runner.h"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/parser.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/test_data.h"
#include "support/watched_compile.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Graph sample(const char* op) {
  return parse_graph(std::string("graph @main(%x: f32[4]) -> (%y: f32[4]) { %y = ") + op + "(%x) : f32[4] }",
                     standard_ops());
}

class StepNames : public Observer {
 public:
  explicit StepNames(std::vector<std::string>& names) : names_(names) {}
  void step_begins(std::string_view step) override { names_.emplace_back(step); }

 private:
  std::vector<std::string>& names_;
};

TEST(PassRunner, PrintsWhatChangedAndTimesEverything) {
  std::ostringstream printed;
  std::vector<std::string> seen;
  DriverOptions options;
  options.runner.print_ir_after = "all";
  options.runner.ir_stream = &printed;
  StepNames steps(seen);
  options.observers.add(steps);
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

TEST(PassRunner, ACancelledCompileEndsBeforeTheNextStep) {
  class Cancelled : public Decisions {
    bool is_cancelled() override { return asked_++ > 0; }
    int asked_ = 0;
  };
  DriverOptions options;
  options.decisions = std::make_shared<Cancelled>();
  PassRunner runner(options);
  runner.run("first", [] { return sample("exp"); });
  EXPECT_THAT([&] { runner.run("second", [] { return sample("exp"); }); },
              ThrowsMessage<UserError>(HasSubstr("TSR-5111: the compile was cancelled before 'second'")));
}

TEST(PassRunner, DecisionsMayAmendWhatAStepGives) {
  DriverOptions options;
  options.decisions = std::make_shared<SpoiledGraphs>([](std::string_view step, Graph& graph) {
    if (step == "second") graph = sample("log");
  });
  std::string seen;
  OnGraph observer([&](std::string_view, const Graph& graph) { seen += graph.nodes()[0].op->name + " "; });
  options.observers.add(observer);
  PassRunner runner(options);
  runner.run("first", [] { return sample("exp"); });
  EXPECT_EQ(runner.run("second", [] { return sample("exp"); }).nodes()[0].op->name, "log");
  EXPECT_EQ(seen, "exp log ");  // observers see what the compile goes on with
}

TEST(PassRunner, ABrokenResultIsABugThatNamesThePass) {
  DriverOptions options;
  options.runner.verify_each = true;
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
  DriverOptions options;
  options.runner.save_temps = folder.path() / "a/b";
  PassRunner runner(options);
  runner.run("first", [] { return sample("exp"); });
  runner.run("second", [] { return sample("exp"); });
  runner.run("third", [] { return sample("log"); });
  runner.save("module.o", "bytes");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options.runner.save_temps))
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
