// Runs the steps of a compile and gives each of them, for free: its time, verification of its result, its result as
// text (--print-ir-after, --save-temps), and its name in errors.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "driver/options.h"
#include "import/common/options.h"
#include "program/program.h"

namespace tessera::inline driver {

struct StepTime {
  std::string name;
  double seconds = 0;
};

// One compile's runner: not shared between threads.
class PassRunner {
 public:
  // `options` must outlive the runner. UserError TSR-6103 when the folder of save_temps cannot be made.
  explicit PassRunner(const DriverOptions& options);
  explicit PassRunner(DriverOptions&&) = delete;

  // Calls `step`, which returns a Graph, a Program, a model or what a reader makes of one, and looks at the result as
  // the options ask. UserError TSR-5111 when the compile is cancelled.
  template <typename Step>
  auto run(std::string_view name, const Step& step) {
    begin(name);
    auto result = step();
    end(name);
    amend(name, result);
    inspect(name, result);
    return result;
  }

  // A step without text of its own (code generation, linking).
  template <typename Step>
  auto time(std::string_view name, const Step& step) {
    begin(name);
    auto result = step();
    end(name);
    return result;
  }

  // Writes `bytes` as DIR/NN-`file` when --save-temps is on.
  void save(std::string_view file, std::string_view bytes);

  const std::vector<StepTime>& times() const { return times_; }

 private:
  void begin(std::string_view name);
  void end(std::string_view name);
  void amend(std::string_view name, Graph& graph) const { options_.decisions->amend(name, graph); }
  void amend(std::string_view name, Program& program) const { options_.decisions->amend(name, program); }
  void amend(std::string_view name, ImportedModel& model) const { amend(name, model.graph); }
  void inspect(std::string_view name, const Graph& graph);
  void inspect(std::string_view name, const Program& program);
  void inspect(std::string_view name, const ImportedModel& model);
  void amend(std::string_view name, ReadOutcome& outcome) const {
    if (auto* model = std::get_if<ImportedModel>(&outcome)) amend(name, *model);
  }
  void inspect(std::string_view name, const ReadOutcome& outcome) {
    if (const auto* model = std::get_if<ImportedModel>(&outcome)) inspect(name, *model);
  }
  void show(std::string_view name, std::string_view level, std::string text);
  bool wants_print(std::string_view name) const;
  bool wants_text() const;

  const DriverOptions& options_;
  std::chrono::steady_clock::time_point begin_;
  std::vector<StepTime> times_;
  std::string last_text_;  // of the step before, when texts are wanted
  int saved_ = 0;          // files written by save()
};

// "--time-passes": one line a step with its share; steps of the same name are added up.
std::string time_table(const std::vector<StepTime>& times);

}  // namespace tessera::inline driver
