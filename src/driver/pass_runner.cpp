#include "driver/pass_runner.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

#include <fmt/format.h>

#include "graph/printer.h"
#include "graph/verify.h"
#include "package/atomic_file.h"
#include "program/printer.h"
#include "program/verify.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

bool always_verify() {
#ifdef NDEBUG
  return false;
#else
  return true;
#endif
}

}  // namespace

PassRunner::PassRunner(const DriverOptions& options) : options_(options) {
  if (options_.runner.save_temps.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options_.runner.save_temps, error);
  if (error) {
    throw UserError(
        {.id = "TSR-6103",
         .message = fmt::format("folder '{}' cannot be made: {}", options_.runner.save_temps, error.message()),
         .node = {},
         .legal = "a folder that exists or can be made",
         .hint = "give another folder to --save-temps"});
  }
}

void PassRunner::begin(std::string_view name) {
  options_.observers.tell(&Observer::step_begins, name);
  if (options_.decisions->is_cancelled())
    throw UserError({.id = "TSR-5111",
                     .message = fmt::format("the compile was cancelled before '{}'", name),
                     .node = {},
                     .legal = {},
                     .hint = {}});
  begin_ = std::chrono::steady_clock::now();
}

void PassRunner::end(std::string_view name) {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  times_.push_back({std::string(name), taken.count()});
}

bool PassRunner::wants_print(std::string_view name) const {
  return options_.runner.print_ir_after == name || options_.runner.print_ir_after == "all";
}

bool PassRunner::wants_text() const {
  return !options_.runner.print_ir_after.empty() || !options_.runner.save_temps.empty();
}

void PassRunner::inspect(std::string_view name, const Graph& graph) {
  options_.observers.tell(&Observer::graph_made, name, graph);
  if (options_.runner.verify_each || always_verify()) verify_or_throw(graph, name);
  if (wants_text()) show(name, "graph", print(graph, {.elide_constants = true}));
}

void PassRunner::inspect(std::string_view name, const Program& program) {
  options_.observers.tell(&Observer::program_made, name, program);
  if (options_.runner.verify_each || always_verify()) verify_or_throw(program, name);
  if (wants_text()) show(name, "program", print(program, {.elide_constants = true}));
}

void PassRunner::inspect(std::string_view name, const ImportedModel& model) {
  if (!model.flow) return inspect(name, model.graph);
  for (const Graph& piece : model.flow->pieces) options_.observers.tell(&Observer::graph_made, name, piece);
  if (options_.runner.verify_each || always_verify()) {
    if (const auto violations = verify(*model.flow); !violations.empty())
      throw InternalError(fmt::format("after {}:\n  {}", name, fmt::join(violations, "\n  ")));
  }
  if (wants_text()) show(name, "flow", print(*model.flow, true));
}

void PassRunner::show(std::string_view name, std::string_view level, std::string text) {
  const bool changed = text != last_text_;
  if (wants_print(name)) {
    *options_.runner.ir_stream << fmt::format("// after {}{}\n", name, changed ? "" : " (unchanged)");
    if (changed) *options_.runner.ir_stream << text << '\n';
    options_.runner.ir_stream->flush();
  }
  if (changed) save(fmt::format("{}.{}", name, level), text);
  last_text_ = std::move(text);
}

void PassRunner::save(std::string_view file, std::string_view bytes) {
  if (options_.runner.save_temps.empty()) return;
  const auto path = std::filesystem::path(options_.runner.save_temps) / fmt::format("{:02}-{}", saved_++, file);
  AtomicFile output(path, "temporary file");
  output.write(bytes);
  output.commit();
}

std::string time_table(const std::vector<StepTime>& times) {
  std::vector<StepTime> rows;
  double total = 0;
  for (const StepTime& time : times) {
    total += time.seconds;
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const StepTime& r) { return r.name == time.name; });
    if (row == rows.end()) {
      rows.push_back(time);
    } else {
      row->seconds += time.seconds;
    }
  }
  std::string text = "      ms      %  step\n";
  for (const StepTime& row : rows) {
    text +=
        fmt::format("{:8.1f} {:6.1f}  {}\n", row.seconds * 1e3, total > 0 ? 100 * row.seconds / total : 0, row.name);
  }
  return text + fmt::format("{:8.1f} {:6.1f}  total\n", total * 1e3, 100.0);
}

}  // namespace tessera::inline driver
