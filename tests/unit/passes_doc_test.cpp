// docs/passes.md lists what the pipelines and the table of algebraic rules hold, row by row and nothing else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "graph_passes/pass.h"
#include "graph_passes/rewrite/algebra_rules.h"
#include "graph_passes/rewrite/sink_casts.h"
#include "loop_passes/pass.h"
#include "program/pass.h"
#include "schedule/choose.h"

namespace tessera {
namespace {

// The rows of the table behind `<!-- name -->`, without its two head lines.
std::string table_of(const std::string& name) {
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/passes.md");
  std::string rows;
  bool found = false;
  int heads = 2;
  for (std::string line; std::getline(file, line);) {
    if (line == "<!-- " + name + " -->") {
      found = true;
    } else if (found && line.rfind("|", 0) == 0) {
      if (heads-- <= 0) rows += line + "\n";
    } else if (found && !rows.empty()) {
      break;
    }
  }
  return rows;
}

template <typename Passes>
std::string rows_of(const Passes& passes) {
  std::string rows;
  int place = 0;
  for (const auto& pass : passes)
    rows += fmt::format("| {} | `{}` | -O{} | {} | {} |\n", ++place, pass.name, pass.min_level,
                        numerics_name(pass.numerics), pass.summary);
  return rows;
}

TEST(PassesDoc, ListsTheGraphPipeline) { EXPECT_EQ(table_of("graph passes"), rows_of(graph_pipeline())); }

TEST(PassesDoc, ListsTheLoopPipeline) { EXPECT_EQ(table_of("loop passes"), rows_of(loop_pipeline())); }

// Program passes keep every bit.
TEST(PassesDoc, ListsTheProgramPipeline) {
  std::string rows;
  int place = 0;
  for (const ProgramPass& pass : program_pipeline())
    rows += fmt::format("| {} | `{}` | -O{} | {} |\n", ++place, pass.name, pass.min_level, pass.summary);
  EXPECT_EQ(table_of("program passes"), rows);
}

TEST(PassesDoc, ListsTheJoiningSteps) { EXPECT_EQ(table_of("joining steps"), rows_of(joining_steps())); }

TEST(PassesDoc, ListsTheScheduleRules) { EXPECT_EQ(table_of("schedule rules"), rows_of(schedule_rules())); }

std::string rows_of_rules(std::span<const AlgebraRule> rules) {
  std::string rows;
  for (const AlgebraRule& rule : rules)
    rows += fmt::format("| {} | `{}` | `{}` | {} | {} |\n", rule.name, rule.pattern, rule.replacement,
                        numerics_name(rule.numerics), rule.says);
  return rows;
}

TEST(PassesDoc, ListsTheAlgebraicRules) { EXPECT_EQ(table_of("rules"), rows_of_rules(algebra_rules())); }

TEST(PassesDoc, ListsTheCastRules) { EXPECT_EQ(table_of("cast rules"), rows_of_rules(cast_rules())); }

}  // namespace
}  // namespace tessera
