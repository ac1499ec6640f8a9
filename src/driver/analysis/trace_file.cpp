#include "driver/analysis/trace_file.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {

std::string chrome_trace(const Model& model, const std::vector<KernelSpan>& spans) {
  using nlohmann::json;
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  json events = json::array();
  const auto name_event = [&](const char* what, int thread, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", thread}, {"args", {{"name", name}}}});
  };
  name_event("process_name", 0, model.name());
  int threads = 1;
  for (const KernelSpan& span : spans)
    if (!span.is_of_device()) threads = std::max(threads, span.worker + 1);
  for (int thread = 0; thread < threads; ++thread)
    name_event("thread_name", thread, thread == 0 ? "caller" : "worker " + std::to_string(thread));
  std::set<int> devices;
  for (const KernelSpan& span : spans) {
    if (span.is_of_device()) {
      const int thread = threads + span.worker;
      if (devices.insert(thread).second) name_event("thread_name", thread, "device " + std::to_string(span.worker + 1));
      const bool known = span.kernel >= 0;
      events.push_back({{"ph", "X"},
                        {"name", known ? model.kernels().at(static_cast<size_t>(span.kernel)).name : span.operation},
                        {"cat", "operation"},
                        {"pid", 1},
                        {"tid", thread},
                        {"ts", microseconds(span.begin_ns)},
                        {"dur", microseconds(span.end_ns - span.begin_ns)}});
      continue;
    }
    const KernelInfo& kernel = model.kernels().at(static_cast<size_t>(span.kernel));
    json arguments = {{"kernel", span.kernel}, {"call", span.call}, {"busy_us", microseconds(span.busy_ns)}};
    if (span.pieces > 0) arguments["pieces"] = span.pieces;
    if (span.worker == 0) {
      arguments["flops"] = kernel.flops;
      arguments["bytes"] = kernel.bytes;
      if (!kernel.rule.empty()) arguments["rule"] = kernel.rule;
    }
    events.push_back({{"ph", "X"},
                      {"name", kernel.name.empty() ? "copy" : kernel.name},
                      {"cat", "kernel"},
                      {"pid", 1},
                      {"tid", span.worker},
                      {"ts", microseconds(span.begin_ns)},
                      {"dur", microseconds(span.end_ns - span.begin_ns)},
                      {"args", std::move(arguments)}});
  }
  const json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void profile_run(Model& model, const std::string& path) {
  if (model.kernels().empty()) {
    throw UserError({.id = "TSR-4042",
                     .message = "the interpreter has no kernels to record",
                     .node = {},
                     .legal = "--profile with --engine native",
                     .hint = {}});
  }
  AtomicFile file(path, "profile");  // before the work, so that a wrong name costs no time
  model.run();
  file.write(chrome_trace(model, model.run_traced()));
  file.commit();
}

}  // namespace tessera::inline driver
