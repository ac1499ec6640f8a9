// What a model goes without: its text form, and that the compiler leaves out just that.
#include "driver/graph_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "driver/compile.h"
#include "graph/parser.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

// Two softmaxes over rows of different lengths: two chains of kernels.
Graph two_softmaxes() {
  std::string text = "graph @main(%x: f32[64,256], %y: f32[32,512]) -> (%xq: f32[64,256], %yq: f32[32,512]) {\n";
  for (const auto& [name, rows, columns] : {std::tuple("x", 64, 256), std::tuple("y", 32, 512)})
    text += fmt::format(
        "  %{0}m = reduce(%{0}) {{axes = [1], keepdims = true, kind = \"max\"}} : f32[{1},1]\n"
        "  %{0}d = sub(%{0}, %{0}m) : f32[{1},{2}]\n"
        "  %{0}e = exp(%{0}d) : f32[{1},{2}]\n"
        "  %{0}s = reduce(%{0}e) {{axes = [1], keepdims = true, kind = \"sum\"}} : f32[{1},1]\n"
        "  %{0}q = div(%{0}e, %{0}s) : f32[{1},{2}]\n",
        name, rows, columns);
  return parse_graph(text + "}\n", standard_ops());
}

class ChainNames : public Observer {
 public:
  void chain_offered(std::string_view step, const Kernel& made) override { list.push_back(name_of_chain(step, made)); }
  std::vector<std::string> list;
};

std::string program_with(const GraphChoice& choice, std::vector<std::string>* chains = nullptr) {
  DriverOptions options;
  options.compile.target = "x86-64-v3";
  options.compile.num_threads = 1;
  options.emit = Emit::kProgram;
  options.graph_choice = choice;
  ChainNames names;
  options.observers.add(names);
  PassRunner runner(options);
  std::string text = compile_graph(two_softmaxes(), options, runner).text;
  if (chains) *chains = std::move(names.list);
  return text;
}

size_t chains_in(const std::string& program) {
  size_t count = 0;
  for (size_t at = program.find("rule \"fuse_rows\""); at != std::string::npos;
       at = program.find("rule \"fuse_rows\"", at + 1))
    ++count;
  return count;
}

TEST(GraphChoice, TextsReadBack) {
  std::string why;
  const std::string first = "overlapped_tiles@0123456789abcdef", second = "fuse_rows@fedcba9876543210";
  const GraphChoice choice = {{"assign_layouts", "fuse_rows"}, {first, second}};
  EXPECT_EQ(to_string(choice), "without assign_layouts fuse_rows " + second + " " + first);
  EXPECT_EQ(parse_graph_choice(to_string(choice), why), choice);
  EXPECT_EQ(to_string(GraphChoice()), "");
  for (const std::string_view text :
       {"", "without", "with fuse_rows", "without nothing", "without fuse_rows@", "without fuse_rows@0123",
        "without assign_layouts@0123456789abcdef", "without fuse_rows@0123456789ABCDEF", "without lower",
        "without fuse_rows@0123456789abcdef0"}) {
    why.clear();
    EXPECT_FALSE(parse_graph_choice(text, why)) << text;
    EXPECT_NE(why, "") << text;
  }
}

TEST(GraphChoice, EverySearchedStepCanBeLeftOut) {
  for (const std::string_view step : searched_steps()) {
    DriverOptions options;
    options.compile.disabled_passes.emplace(step);
    EXPECT_NO_THROW(check_options(options)) << step;
  }
}

TEST(GraphChoice, LeavesOutChainsOneByOne) {
  std::vector<std::string> chains;
  EXPECT_EQ(chains_in(program_with({}, &chains)), 2);
  ASSERT_EQ(chains.size(), 2);
  EXPECT_NE(chains[0], chains[1]);
  EXPECT_EQ(chains_in(program_with({{"fuse_rows"}, {}})), 0);
  EXPECT_EQ(chains_in(program_with({{}, {chains[0], chains[1]}})), 0);
  EXPECT_EQ(chains_in(program_with({{}, {chains[0]}})), 1);
  EXPECT_NE(program_with({{}, {chains[0]}}), program_with({{}, {chains[1]}}));
  EXPECT_EQ(program_with({{}, {"fuse_rows@0123456789abcdef"}}), program_with({}));
  // The name of a chain stays when another one is gone.
  std::vector<std::string> left;
  program_with({{}, {chains[0]}}, &left);
  EXPECT_EQ(left, chains);
}

TEST(GraphChoice, RecordsAreAskedByTheModelsHash) {
  DriverOptions options;
  options.compile.target = "x86-64-v3";
  options.compile.num_threads = 1;
  options.emit = Emit::kProgram;
  class Recorded : public Decisions {
   public:
    std::optional<TunedGraph> choose_graph(const std::function<std::string()>& model_hash) override {
      asked = model_hash();
      return TunedGraph{{{"fuse_rows"}, {}}, "refused"};
    }
    std::string asked;
  };
  class Chosen : public Observer {
   public:
    void graph_chosen(const TunedGraph& graph) override { refused.push_back(graph.refused); }
    std::vector<std::string> refused;
  };
  const auto recorded = std::make_shared<Recorded>();
  Chosen chosen;
  options.decisions = recorded;
  options.observers.add(chosen);
  PassRunner runner(options);
  EXPECT_EQ(chains_in(compile_graph(two_softmaxes(), options, runner).text), 0);
  EXPECT_EQ(recorded->asked, model_hash_of(two_softmaxes(), options));
  EXPECT_EQ(recorded->asked.size(), 16);
  EXPECT_EQ(chosen.refused, std::vector<std::string>{"refused"}) << "asked once, and observers are told";
}

}  // namespace
}  // namespace tessera
