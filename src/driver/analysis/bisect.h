// With which pass a compiled model goes wrong: the analysis behind `tessera bisect`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/find_difference.h"
#include "diagnose/text_table.h"
#include "driver/analysis/diff.h"
#include "driver/pass_application.h"

namespace tessera::inline driver {

struct BisectRequest {
  DiffRequest diff;
  bool reduce = true;             // look for the smallest part of the model first, and search with that
  double interpret_seconds = 30;  // programs are interpreted when the model itself takes no longer than that
};

struct Culprit {
  // The first application with which the results are wrong; 0: they are wrong without any.
  int64_t application = 0, applications = 0;
  std::optional<PassApplication> applied;  // empty for 0
  // What goes wrong: the pass of `applied` where what it gives, interpreted, is wrong; a later step ("lower",
  // "expand_math", "plan_memory", "codegen", ...) where that is right and the step behind makes it wrong.
  std::string pass;
  std::string kind;           // "graph pass", "schedule rule", "loop pass", "program pass", "step", "code generation"
  std::string nodes;          // of the kernel, or those that show the difference
  std::string evidence;       // a sentence
  std::string before, after;  // texts of the IR around the application
  bool helps = false;         // the whole model agrees with --disable-pass
  bool can_disable = false;
};

struct BisectResult {
  Difference difference;  // with its reproduction; agrees: there is no culprit
  std::optional<Culprit> culprit;
};

BisectResult bisect_model(const BisectRequest& request);

std::string to_text(const BisectResult& result, const TextStyle& style);
nlohmann::json to_json(const BisectResult& result);

}  // namespace tessera::inline driver
