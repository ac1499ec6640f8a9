// include/tessera/schedule.h on top of the driver: methods write lines of the schedule language.
#include "tessera/schedule.h"

#include <fmt/format.h>

#include "driver/api/api_support.h"
#include "driver/engine/loop_kernel.h"
#include "driver/text/schedule_tool.h"
#include "schedule/primitives/loop_tree.h"
#include "schedule/primitives/trace.h"
#include "support/text_reader.h"

namespace tessera {

struct LoopSchedule::State {
  explicit State(OpenedSchedule opened)
      : target(std::move(opened.target)), original(opened.schedule.program()), schedule(std::move(opened.schedule)) {}

  // What became of it so far. UserError TSR-3412 where it cannot end here.
  ScheduledLoops loops() const {
    schedule.check_finished();
    return {original, schedule.program(), schedule.steps(), target, target.num_threads};
  }
  Model& compiled() {
    if (!model) {
      schedule.check_finished();
      model = load_loops(schedule.program(), target, target.num_threads);
    }
    return *model;
  }

  Target target;
  LoopProgram original;
  Schedule schedule;
  std::unique_ptr<Model> model;  // of the schedule as it is; null: not compiled yet
};

namespace {

std::string list(const std::vector<std::string>& names) { return fmt::format("[{}]", fmt::join(names, ", ")); }

OpenedSchedule opened(std::string_view loops, const LoopSchedule::Options& options) {
  ScheduleJob job;
  job.text = loops;
  job.file = "<loops>";
  job.kernel = options.kernel;
  if (!options.intrinsics.empty()) job.intrinsics.emplace_back(options.intrinsics, options.intrinsics_file);
  job.compile.target = options.target;
  job.compile.num_threads = options.num_threads;
  return open_schedule(job);
}

}  // namespace

LoopSchedule::LoopSchedule(std::string_view loops) : LoopSchedule(loops, Options()) {}
LoopSchedule::LoopSchedule(std::string_view loops, const Options& options)
    : state_(translate_errors([&] { return std::make_unique<State>(opened(loops, options)); })) {}
LoopSchedule::~LoopSchedule() = default;
LoopSchedule::LoopSchedule(LoopSchedule&&) noexcept = default;
LoopSchedule& LoopSchedule::operator=(LoopSchedule&&) noexcept = default;

LoopSchedule::Applied LoopSchedule::apply(std::string_view steps) {
  return translate_errors([&] {
    const std::vector<TraceStep> parsed = parse_trace(steps, "<schedule>");
    Schedule next = state_->schedule;
    replay(next, parsed);
    state_->model.reset();
    state_->schedule = std::move(next);
    if (parsed.empty()) return Applied{};
    const TraceStep& last = state_->schedule.steps().back();
    return Applied{last.results, last.decision};
  });
}

LoopSchedule::Names LoopSchedule::split(const std::string& loop, const std::vector<int64_t>& factors) {
  Names texts;
  for (const int64_t factor : factors) texts.push_back(factor == 0 ? "_" : std::to_string(factor));
  return apply(fmt::format("split({}, {})", loop, list(texts))).names;
}
std::string LoopSchedule::fuse(const Names& loops) { return apply(fmt::format("fuse({})", list(loops))).names.at(0); }
void LoopSchedule::reorder(const Names& loops) { apply(fmt::format("reorder({})", list(loops))); }
LoopSchedule::Names LoopSchedule::tile(const std::string& i, const std::string& j, int64_t i_factor, int64_t j_factor) {
  return apply(fmt::format("tile({}, {}, {}, {})", i, j, i_factor, j_factor)).names;
}
void LoopSchedule::pad(const std::string& loop, int64_t multiple) { apply(fmt::format("pad({}, {})", loop, multiple)); }
void LoopSchedule::vectorize(const std::string& loop) { apply(fmt::format("vectorize({})", loop)); }
void LoopSchedule::unroll(const std::string& loop) { apply(fmt::format("unroll({})", loop)); }
void LoopSchedule::parallel(const std::string& loop) { apply(fmt::format("parallel({})", loop)); }
void LoopSchedule::fission(const std::string& loop, const std::string& statement) {
  apply(fmt::format("fission({}, {})", loop, statement));
}
void LoopSchedule::decompose_reduction(const std::string& block, const std::string& loop) {
  apply(fmt::format("decompose_reduction({}, {})", block, loop));
}
void LoopSchedule::predicate(const std::string& statement) { apply(fmt::format("predicate({})", statement)); }

std::string LoopSchedule::rfactor(const std::string& block, const std::string& loop) {
  return apply(fmt::format("rfactor({}, {})", block, loop)).names.at(0);
}
void LoopSchedule::compute_at(const std::string& stage, const std::string& loop) {
  apply(fmt::format("compute_at({}, {})", stage, loop));
}
void LoopSchedule::reverse_compute_at(const std::string& stage, const std::string& loop) {
  apply(fmt::format("reverse_compute_at({}, {})", stage, loop));
}
void LoopSchedule::compute_inline(const std::string& stage) { apply(fmt::format("compute_inline({})", stage)); }
std::string LoopSchedule::cache_read(const std::string& buffer, const std::string& scope, const std::string& reader) {
  const std::string who = reader.empty() ? "" : ", reader=" + reader;
  return apply(fmt::format("cache_read({}, {}{})", buffer, scope, who)).names.at(0);
}
std::string LoopSchedule::cache_write(const std::string& stage, const std::string& scope) {
  return apply(fmt::format("cache_write({}, {})", stage, scope)).names.at(0);
}
void LoopSchedule::set_scope(const std::string& buffer, const std::string& scope) {
  apply(fmt::format("set_scope({}, {})", buffer, scope));
}
void LoopSchedule::store_at(const std::string& buffer, const std::string& loop) {
  apply(fmt::format("store_at({}, {})", buffer, loop));
}
void LoopSchedule::transform_layout(const std::string& buffer, const std::string& mapping) {
  apply(fmt::format("transform_layout({}, {})", buffer, mapping));
}
std::vector<int64_t> LoopSchedule::intrinsic(const std::string& name) {
  return apply(fmt::format("intrinsic({})", quoted_text(name))).numbers;
}
void LoopSchedule::blockize(const std::string& loop) { apply(fmt::format("blockize({})", loop)); }
void LoopSchedule::tensorize(const std::string& loop, const std::string& intrinsic) {
  apply(fmt::format("tensorize({}{})", loop, intrinsic.empty() ? "" : ", " + quoted_text(intrinsic)));
}
void LoopSchedule::virtual_thread(const std::string& loop) { apply(fmt::format("virtual_thread({})", loop)); }
void LoopSchedule::software_pipeline(const std::string& loop, int64_t statements) {
  apply(fmt::format("software_pipeline({}, {})", loop, statements));
}
void LoopSchedule::annotate(const std::string& statement, const std::string& key, int64_t value) {
  apply(fmt::format("annotate({}, {}, {})", statement, key, value));
}
void LoopSchedule::bind(const std::string& loop, const std::string& axis) {
  apply(fmt::format("bind({}, {})", loop, axis));
}

std::string LoopSchedule::emit(std::string_view level) const {
  return translate_errors([&] {
    static constexpr std::pair<std::string_view, ScheduleEmit> kLevels[] = {
        {"loop", ScheduleEmit::kLoop},     {"trace", ScheduleEmit::kTrace}, {"llvm", ScheduleEmit::kLlvm},
        {"asm", ScheduleEmit::kAsm},       {"mca", ScheduleEmit::kMca},     {"cache", ScheduleEmit::kCache},
        {"opencl", ScheduleEmit::kOpenCl}, {"cuda", ScheduleEmit::kCuda}};
    std::string legal;
    for (const auto& [name, what] : kLevels) {
      // The text of a schedule that is not at its end can be looked at, too.
      if (name == level && (what == ScheduleEmit::kLoop || what == ScheduleEmit::kTrace))
        return emit_scheduled({state_->original, state_->schedule.program(), state_->schedule.steps(), state_->target,
                               state_->target.num_threads},
                              what);
      if (name == level) return emit_scheduled(state_->loops(), what);
      legal += (legal.empty() ? "" : ", ") + std::string(name);
    }
    throw UserError({.id = "TSR-4034",
                     .message = fmt::format("there is nothing to emit called '{}'", level),
                     .node = {},
                     .legal = legal,
                     .hint = {}});
  });
}

LoopSchedule::Names LoopSchedule::loops() const { return loop_names(state_->schedule.program()); }

LoopSchedule::Names LoopSchedule::buffers() const {
  Names names;
  for (const BufferPtr& buffer : buffers_of(state_->schedule.program())) names.push_back(buffer->name);
  return names;
}

std::vector<LoopSchedule::Check> LoopSchedule::check() const {
  return translate_errors([&] {
    std::vector<Check> result;
    for (const ScheduleCheck& check : check_schedule(state_->loops()))
      result.push_back({check.output, check.how, check.result.text, check.result.agrees});
    return result;
  });
}

LoopSchedule::Times LoopSchedule::time(double seconds, bool with_original) const {
  return translate_errors([&] {
    if (!(seconds > 0) || seconds > 600)
      throw UserError({.id = "TSR-4034",
                       .message = fmt::format("{} seconds to time a schedule", seconds),
                       .node = {},
                       .legal = "more than 0, at most 600",
                       .hint = {}});
    const ScheduleBench bench = bench_schedule(state_->loops(), seconds, !with_original);
    const double gflops = bench.scheduled_ms > 0 ? bench.flops / bench.scheduled_ms / 1e6 : 0;
    return Times{bench.original_ms, bench.scheduled_ms, gflops, bench.peak_gflops};
  });
}

std::vector<tessera_tensor_info> LoopSchedule::inputs() const {
  return translate_errors([&] { return public_infos(state_->compiled().inputs()); });
}
std::vector<tessera_tensor_info> LoopSchedule::outputs() const {
  return translate_errors([&] { return public_infos(state_->compiled().outputs()); });
}
void LoopSchedule::run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) {
  translate_errors([&] { run_on(state_->compiled(), inputs, outputs); });
}

}  // namespace tessera
