#include "driver/analysis/bisect.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "diagnose/text_diff.h"
#include "driver/compile.h"
#include "driver/engine/native_model.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop_passes/pass.h"
#include "program/pass.h"
#include "schedule/choose.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

// A model that is computed wrongly, and what its outputs should be.
struct Failure {
  Graph graph;
  std::vector<Tensor> inputs;
  std::vector<std::optional<Tensor>> expected;  // of each output; empty where the reference does not show it
};

// The applications of a compile, with the IR around one of them.
class Applications : public Observer {
 public:
  explicit Applications(int64_t shown = 0) : shown_(shown) {}  // its number; 0: none

  void application_begins(const PassApplication& application, const ChangedIr& ir) override {
    done.resize(static_cast<size_t>(application.number - 1));
    done.push_back(application);
    if (application.number == shown_) before = text_of(ir);
  }
  void application_ended(const PassApplication& application, const ChangedIr& ir) override {
    if (application.number == shown_) after = text_of(ir);
  }

  std::vector<PassApplication> done;
  std::string before, after;

 private:
  int64_t shown_;
};

// What each step gives.
class EachStep : public Observer {
 public:
  using SeeGraph = std::function<void(std::string_view step, const Graph& graph)>;
  using SeeProgram = std::function<void(std::string_view step, const Program& program)>;
  EachStep(SeeGraph graph, SeeProgram program) : graph_(std::move(graph)), program_(std::move(program)) {}

  void graph_made(std::string_view step, const Graph& graph) override { graph_(step, graph); }
  void program_made(std::string_view step, const Program& program) override { program_(step, program); }

 private:
  SeeGraph graph_;
  SeeProgram program_;
};

class Bisection {
 public:
  Bisection(const BisectRequest& request, const Failure& failure, DriverOptions options)
      : request_(request), failure_(failure), options_(std::move(options)) {}

  // Empty when the results are right after all.
  std::optional<Culprit> run() {
    Culprit culprit;
    Applications all;
    options_.observers.add(all);
    if (!is_wrong(INT64_MAX)) return std::nullopt;
    options_.observers = {};
    culprit.applications = std::ssize(all.done);
    int64_t right = 0, wrong = culprit.applications;
    if (is_wrong(0)) wrong = 0;
    while (wrong - right > 1) {
      const int64_t middle = right + (wrong - right) / 2;
      step(fmt::format("trying the first {} of {} applications", middle, culprit.applications));
      (is_wrong(middle) ? wrong : right) = middle;
    }
    culprit.application = wrong;
    look_at(culprit);
    return culprit;
  }

 private:
  void step(const std::string& text) const {
    if (request_.diff.find.step) request_.diff.find.step(text);
  }

  bool agree(const std::vector<Tensor>& results) const {
    for (size_t i = 0; i < failure_.expected.size(); ++i) {
      const auto& want = failure_.expected[i];
      if (!want) continue;
      if (!compare(results.at(i), *want, tolerance_for(request_.diff.find.tolerance, want->dtype())).agrees)
        return false;
    }
    return true;
  }

  // With the first `applications` alone.
  bool is_wrong(int64_t applications) const {
    DriverOptions options = options_;
    options.max_applications = applications;
    try {
      PassRunner runner(options);
      const Compiled compiled = compile_graph(failure_.graph, options, runner);
      const auto model = load_module(module_in_memory(compiled), "bisect", request_.diff.num_threads);
      model->bind(failure_.inputs);
      model->run();
      return !agree(model->results());
    } catch (const InternalError&) {
      return true;  // a compiler that breaks is wrong, too
    }
  }

  // Interprets what each step gives, from the last application on, and says which is the first whose meaning is wrong.
  void look_at(Culprit& culprit) const {
    struct Seen {
      std::string step, problem;
      bool wrong = false, applied = false;  // `applied`: the step of the last application
    };
    std::vector<Seen> seen;
    Applications applications(culprit.application);
    DriverOptions options = options_;
    options.max_applications = culprit.application;
    options.observers.add(applications);
    options.emit = Emit::kProgram;
    bool found = false;
    const auto interpret_step = [&](std::string_view name, const auto& interpret) {
      if (found || std::ssize(applications.done) < culprit.application) return;
      step(fmt::format("interpreting what {} gives", name));
      Seen entry{std::string(name), "", false, seen.empty()};
      try {
        entry.wrong = !agree(interpret());
        if (entry.wrong) entry.problem = "computes something else";
      } catch (const InternalError& error) {
        entry.wrong = true;
        entry.problem = fmt::format("cannot be computed: {}", error.what());
      }
      found = entry.wrong;
      seen.push_back(std::move(entry));
    };
    const bool can_interpret = takes_seconds() <= request_.interpret_seconds;
    const bool reference_is_wrong = can_interpret && culprit.application == 0 && !interpreted_graph_agrees();
    EachStep interpreted(
        [&](std::string_view name, const Graph& graph) {
          interpret_step(name, [&] { return GraphInterpreter().evaluate(graph, failure_.inputs); });
        },
        [&](std::string_view name, const Program& program) {
          const bool planned = program.arena_bytes > 0;
          interpret_step(name, [&] { return interpret(program, failure_.inputs, ProgramRun{nullptr, planned}); });
        });
    if (can_interpret) options.observers.add(interpreted);
    std::string crash;
    try {
      PassRunner runner(options);
      compile_graph(failure_.graph, options, runner);
    } catch (const InternalError& error) {
      crash = error.what();
    }
    culprit.before = applications.before;
    culprit.after = applications.after;
    if (culprit.application > 0 && culprit.application <= std::ssize(applications.done))
      culprit.applied = applications.done[static_cast<size_t>(culprit.application - 1)];
    else if (culprit.application > 0)
      culprit.applied = {PassApplication::Kind::kCodegen, "codegen", ""};  // Emit::kProgram stops before it
    const std::string what = culprit.applied ? application_text(*culprit.applied) : "";
    if (culprit.applied) culprit.nodes = culprit.applied->nodes;
    const auto blame_applied = [&](const std::string& evidence) {
      culprit.pass = culprit.applied->pass;
      culprit.kind = application_kind_name(culprit.applied->kind);
      culprit.evidence = evidence;
    };
    if (reference_is_wrong) {
      culprit.pass = "import", culprit.kind = "step";
      culprit.evidence =
          "the model as it was read, interpreted, computes something else than the reference: no pass is at fault, but "
          "how "
          "the model is read, or the reference";
    } else if (!crash.empty() && !found) {
      if (culprit.applied) blame_applied(fmt::format("the compiler fails: {}", crash));
      else culprit.pass = "?", culprit.kind = "step", culprit.evidence = fmt::format("the compiler fails: {}", crash);
    } else if (culprit.applied && culprit.applied->kind == PassApplication::Kind::kCodegen) {
      blame_applied("the planned program, interpreted, is right, and so is its code without LLVM's optimisations");
    } else if (!can_interpret) {
      if (culprit.applied) blame_applied("results are wrong from this application on (not interpreted: too large)");
      else culprit.pass = "?", culprit.kind = "step", culprit.evidence = "wrong without any optional pass";
    } else if (found && seen.back().applied && culprit.applied) {
      blame_applied(fmt::format("what it gives, interpreted, {}", seen.back().problem));
    } else if (found) {
      culprit.pass = seen.back().step;
      culprit.kind = kind_of_step(culprit.pass);
      culprit.evidence = fmt::format("what it gives, interpreted, {}{}", seen.back().problem,
                                     what.empty() ? "" : fmt::format("; what {} made is still right", what));
    } else {
      culprit.pass = "codegen", culprit.kind = "code generation";
      culprit.evidence = fmt::format("the planned program, interpreted, is right; its machine code is not{}",
                                     what.empty() ? "" : fmt::format(", since {}", what));
    }
    culprit.can_disable = can_disable(culprit.pass);
  }

  static std::string application_text(const PassApplication& application) {
    return application.nodes.empty() ? application.pass : fmt::format("{} on {}", application.pass, application.nodes);
  }

  static std::string kind_of_step(const std::string& name) {
    if (find_graph_pass(name)) return application_kind_name(PassApplication::Kind::kGraphPass);
    if (find_program_pass(name)) return application_kind_name(PassApplication::Kind::kProgramPass);
    if (find_loop_pass(name)) return application_kind_name(PassApplication::Kind::kLoopPass);
    return "step";
  }

  static bool can_disable(const std::string& name) {
    const GraphPass* graph_pass = find_graph_pass(name);
    const LoopPass* loop_pass = find_loop_pass(name);
    if (graph_pass) return graph_pass->min_level > 0;
    if (loop_pass) return loop_pass->min_level > 0;
    const std::vector<std::string_view> steps = schedule_step_names();
    return find_program_pass(name) || std::find(steps.begin(), steps.end(), name) != steps.end();
  }

  double takes_seconds() const {
    const auto begin = std::chrono::steady_clock::now();
    GraphInterpreter().evaluate(failure_.graph, failure_.inputs);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  bool interpreted_graph_agrees() const { return agree(GraphInterpreter().evaluate(failure_.graph, failure_.inputs)); }

  const BisectRequest& request_;
  const Failure& failure_;
  DriverOptions options_;
};

// The reference's values of the model's outputs, by name.
std::map<std::string, Tensor> values_of(ValueSource& source, const std::vector<std::string>& names) {
  std::map<std::string, Tensor> values;
  const std::set<std::string> wanted(names.begin(), names.end());
  source.run(wanted, [&](const std::string& name, const Tensor& value) {
    values[name] = value;
    return values.size() < wanted.size();
  });
  return values;
}

}  // namespace

BisectResult bisect_model(const BisectRequest& request) {
  BisectResult result;
  const DiffSubject subject = open_subject(request.diff);
  const auto reference = open_reference(request.diff, subject);
  DiffRequest diff = request.diff;
  if (!request.reduce) diff.find.max_seconds = 0;
  result.difference = diff_subject(diff, subject, *reference);
  if (!result.difference.first) return result;

  Failure failure;
  DriverOptions options = request.diff.driver;
  options.emit = Emit::kModule;
  options.runner = {};
  options.observers = {};
  const std::map<std::string, Tensor> outputs = values_of(*reference, subject.parts.outputs());
  if (const auto& part = result.difference.reproduction) {
    failure.graph = part->graph;
    failure.inputs = part->inputs;
    for (const Tensor& output : part->outputs) failure.expected.emplace_back(output);
  } else {
    failure.graph = subject.parts.graph();
    failure.inputs = subject.part_tensors;
    for (const std::string& name : subject.parts.outputs()) {
      const auto it = outputs.find(name);
      failure.expected.push_back(it == outputs.end() ? std::nullopt : std::optional<Tensor>(it->second));
    }
  }
  result.culprit = Bisection(request, failure, options).run();
  if (!result.culprit) {
    result.difference.notes.push_back(
        "compiled once more, the model gives the right results: the fault comes and goes");
    return result;
  }
  Culprit& culprit = *result.culprit;
  if (culprit.nodes.empty()) {
    culprit.nodes = result.difference.reproduction
                        ? fmt::format("{}", fmt::join(result.difference.reproduction->nodes, "+"))
                        : result.difference.first->node;
  }
  if (culprit.can_disable) {
    DiffRequest without = request.diff;
    without.driver.compile.disabled_passes.insert(culprit.pass);
    const auto tested = open_tested(without, subject);
    culprit.helps = true;
    for (const auto& [name, got] : values_of(*tested, subject.parts.outputs())) {
      const auto want = outputs.find(name);
      if (want == outputs.end()) continue;
      const Tolerance tolerance = tolerance_for(request.diff.find.tolerance, got.dtype());
      culprit.helps = culprit.helps && compare(got, want->second, tolerance).agrees;
    }
  }
  return result;
}

std::string to_text(const BisectResult& result, const TextStyle& style) {
  if (!result.culprit) return to_text(result.difference, style);
  const Culprit& culprit = *result.culprit;
  std::string text = fmt::format("{} ({}) goes wrong on {}\n", painted(culprit.pass, "31", style), culprit.kind,
                                 painted(culprit.nodes, "1", style));
  text += fmt::format("  {}\n", culprit.evidence);
  if (culprit.applied) {
    text += fmt::format("  right with --pass-limit {}, wrong with {} ({}{}{}), of {}\n", culprit.application - 1,
                        culprit.application, culprit.applied->pass, culprit.applied->nodes.empty() ? "" : " on ",
                        culprit.applied->nodes, culprit.applications);
  } else {
    text += fmt::format("  wrong without any of the {} applications of optional passes\n", culprit.applications);
  }
  const ValueReport& first = *result.difference.first;
  text += fmt::format("  first wrong value: '{}' of {} ({}), {}\n", first.value, first.node, first.op_type,
                      first.comparison.text);
  if (culprit.can_disable)
    text += fmt::format("  --disable-pass {}: the whole model {}\n", culprit.pass,
                        culprit.helps ? "agrees" : "is still wrong");
  const std::string changes = text_diff(culprit.before, culprit.after);
  if (!changes.empty()) text += fmt::format("what {} changed:\n{}", culprit.applied->pass, changes);
  return text;
}

nlohmann::json to_json(const BisectResult& result) {
  nlohmann::json json = {{"agrees", !result.difference.first.has_value()}, {"difference", to_json(result.difference)}};
  if (!result.culprit) return json;
  const Culprit& culprit = *result.culprit;
  json["pass"] = culprit.pass;
  json["kind"] = culprit.kind;
  json["nodes"] = culprit.nodes;
  json["evidence"] = culprit.evidence;
  json["application"] = culprit.application;
  json["applications"] = culprit.applications;
  if (culprit.applied)
    json["applied"] = {{"pass", culprit.applied->pass},
                       {"kind", application_kind_name(culprit.applied->kind)},
                       {"nodes", culprit.applied->nodes}};
  if (culprit.can_disable) json["agrees_without"] = culprit.helps;
  return json;
}

}  // namespace tessera::inline driver
