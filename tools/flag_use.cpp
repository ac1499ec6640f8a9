#include "flag_use.h"

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compile_flags.h"
#include "driver/step_names.h"
#include "loop/intrinsic_text.h"
#include "support/mapped_file.h"
#include "tune/task_kernel.h"

namespace tessera {

namespace {

constexpr char kAsk[] = "'tessera explain' says why";

}  // namespace

void FlagUse::graph_chosen(const TunedGraph& graph) {
  graph_ = !graph.choice.empty();
  graph_refused_ = graph.refused;
}

void FlagUse::program_made(std::string_view step, const Program& program) {
  if (step != kSchedule) return;
  compiled_ = true;
  for (const Kernel& kernel : program.kernels) {
    refusals_.insert(kernel.refused.begin(), kernel.refused.end());
    if (kernel.rule.starts_with("call ")) calls_.insert(kernel.rule.substr(5));
    const TaskKernel task(kernel);
    if (!records_.decisions || !task) continue;
    hashes_.insert(task.hash());
    const TunedChoice choice = records_.decisions->choose_schedule(kernel);
    if (!choice.point && choice.refused.empty()) continue;
    ++(kernel.refused_tuning.empty() ? tuned_ : refused_);
  }
}

std::string FlagUse::db_line(const std::string& file) const {
  if (!records_.unfit.empty()) return fmt::format("{}: no choice for this model: {}", file, records_.unfit);
  if (!graph_refused_.empty())
    return fmt::format("{}: what it says of the whole model is not used: {}", file, graph_refused_);
  if (!compiled_) {
    if (!records_.why_none || records_.choices > 0) return "";
    return fmt::format("{}: no choice for any model: none for this machine and number of threads is in use", file);
  }
  if ((refused_ == 0 && (graph_ || tuned_ > 0)) || !records_.why_none) return "";
  if (refused_ > 0)
    return fmt::format("{}: {} of {} tuned kernels of this model are not used; {}", file, refused_, tuned_ + refused_,
                       kAsk);
  return fmt::format("{}: no choice for this model: {}", file, records_.why_none(hashes_));
}

std::string FlagUse::kernel_line(const std::string& file) const {
  if (!compiled_) return "";
  std::vector<std::string> names;
  std::set<std::string> reasons;
  for (const TensorIntrinsic* declared :
       parse_intrinsics(MappedFile::open(file, "kernel declaration", "TSR-4026")->text(), file)) {
    if (declared->call.empty()) continue;
    if (calls_.contains(declared->name)) return "";
    names.push_back(declared->name);
    const std::string prefix = declared->name + ": ";
    for (const std::string& reason : refusals_)
      if (reason.starts_with(prefix)) reasons.insert(reason.substr(prefix.size()));
  }
  if (names.empty()) return fmt::format("{}: it declares no function with 'call'", file);
  return fmt::format("{}: no kernel of this model calls {}: {}", file, fmt::join(names, " or "),
                     reasons.size() == 1 ? *reasons.begin() : kAsk);
}

std::vector<std::string> FlagUse::lines(const CompileFlags& flags) const {
  std::vector<std::string> result;
  if (!flags.db.empty()) result.push_back(db_line(flags.db));
  for (const std::string& file : flags.kernels) result.push_back(kernel_line(file));
  std::erase(result, "");
  return result;
}

void print_lines(const FlagUse& use, const CompileFlags& flags) {
  for (const std::string& line : use.lines(flags)) fmt::print(stderr, "{}\n", line);
}

}  // namespace tessera
