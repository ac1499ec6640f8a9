#include "diagnose/explain.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/common/work_estimate.h"
#include "graph/op_def.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera::inline diagnose {

namespace {

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

// The nodes that a node of the graph stands for: those of its region, for a group.
std::vector<std::string> labels_of(const Node& node, const std::set<std::string>& known) {
  std::vector<std::string> result;
  if (node.op->kind == OpKind::kGroup) {
    for (const Node& member : node.regions.at(0)->nodes()) {
      if (member.op->name == "constant") continue;
      for (const std::string& label : split_location(member.loc, known)) add_once(result, label);
    }
  }
  for (const std::string& label : split_location(node.loc, known)) add_once(result, label);
  return result;
}

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size(), false);
  std::vector<ValueId> pending = graph.outputs;
  while (!pending.empty()) {
    const NodeId producer = graph.value(pending.back()).producer;
    pending.pop_back();
    if (producer < 0 || live[static_cast<size_t>(producer)]) continue;
    live[static_cast<size_t>(producer)] = true;
    const Node& node = graph.node(producer);
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return live;
}

// What the model itself says of its nodes: which ones its outputs need, and which ones compute something that depends
// on its inputs' elements (and not on their shapes alone).
struct ModelFacts {
  std::vector<bool> needed, varies;
};

ModelFacts facts_of(const ModelOutline& model) {
  ModelFacts facts{std::vector<bool>(model.nodes.size(), false), std::vector<bool>(model.nodes.size(), false)};
  std::set<std::string> needed, varying;
  varying.insert(model.inputs.begin(), model.inputs.end());
  needed.insert(model.outputs.begin(), model.outputs.end());
  const auto any_in = [](const std::vector<std::string>& names, const std::set<std::string>& set) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return set.count(name) != 0; });
  };
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const OutlineNode& node = model.nodes[i];
    facts.varies[i] = any_in(node.inputs, varying) && node.op_type != "Shape" && node.op_type != "Size";
    if (facts.varies[i]) varying.insert(node.outputs.begin(), node.outputs.end());
  }
  for (size_t i = model.nodes.size(); i-- > 0;) {
    const OutlineNode& node = model.nodes[i];
    facts.needed[i] = any_in(node.outputs, needed);
    if (facts.needed[i]) needed.insert(node.inputs.begin(), node.inputs.end());
  }
  return facts;
}

// The nodes of one call, by the name of the value that it computes. Buffers that are the same bytes have several names.
std::vector<std::string> nodes_of_call(const Program& program, const KernelCall& call, const NodeTrail& trail) {
  const ProgramBuffer& result = program.buffers[static_cast<size_t>(call.args.back())];
  std::vector<std::string> names = {result.name};
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ProgramBuffer& other = program.buffers[i];
    const bool is_view_of_it = other.alias_of == call.args.back() && other.bytes == result.bytes;
    const bool is_viewed = result.alias_of == static_cast<BufferId>(i) && other.bytes == result.bytes;
    if (is_view_of_it || is_viewed) names.push_back(other.name);
  }
  const std::vector<std::string> located = split_location(call.loc, trail.labels());
  for (const std::string& name : names) {
    const auto found = trail.members().find(name);
    if (found == trail.members().end()) continue;
    std::vector<std::string> nodes = found->second;
    // Of kernels that are joined, the location names all.
    if (program.kernels[static_cast<size_t>(call.kernel)].joined)
      for (const std::string& label : located) add_once(nodes, label);
    return nodes;
  }
  return located;
}

// The rule with what it chooses by itself; alone where sizes are open.
std::string schedule_of(const ScheduleRule& rule, const TensorProgram& kernel, const ExplainedOptions& options) {
  const auto space = knob_space(rule, kernel, options.target, options.numerics.fp32);
  const auto* known = std::get_if<KnobSpace>(&space);
  return known ? to_string(known->preferred()) : std::string(rule.name);
}

std::vector<RuleNote> rules_of(const Program& program, const Kernel& kernel, const ExplainedOptions& options) {
  std::vector<RuleNote> notes;
  if (!kernel.definition) return notes;
  bool chosen_seen = false;
  for (const RuleOffer& offer : ask_all_rules(*kernel.definition, symbols_of(program, kernel), options.target,
                                              options.opt_level, options.disabled, options.numerics)) {
    // A tuned kernel stands behind the rules with its point.
    RuleNote note{std::string(offer.rule), offer.rule == kernel.rule, offer.declined, -1, ""};
    if (note.declined.empty()) {
      note.predicted_us = estimate_ns(offer.program.body, options.target) / 1e3;
      note.schedule = schedule_of(*find_schedule_rule(offer.rule), *kernel.definition, options);
    }
    chosen_seen |= note.chosen;
    notes.push_back(std::move(note));
  }
  if (!chosen_seen)
    notes.push_back({kernel.rule, true, "", estimate_ns(kernel.program.body, options.target) / 1e3, kernel.rule});
  return notes;
}

// What the step that joined the kernels has chosen; its name alone where the program has another point of it.
std::string joined_schedule(const Program& program, const Kernel& kernel, const ExplainedOptions& options) {
  const JoiningStep* step = find_joining_step(kernel.rule);
  if (!step) return kernel.rule;
  const AskRules ask = first_answer_of(options.target, options.opt_level, options.disabled, options.numerics);
  Knobs knobs;
  const JoinedContext context{{}, symbols_of(program, kernel)};
  step->apply(*kernel.joined, context, options.target, ask, knobs);
  return to_string(KnobSpace{kernel.rule, knobs.seen()}.preferred());
}

std::string layout_text(const Layout& layout) { return layout.row_major() ? "rows" : layout.to_string(); }

// By call: the branches around it, "c" or "not c".
std::vector<std::vector<std::string>> branches_around(const Program& program) {
  std::vector<std::vector<std::string>> result(program.calls.size());
  const auto visit = [&](const auto& self, const StepBlock& block, const std::vector<std::string>& around) -> void {
    for (const ProgramStep& step : block) {
      for (size_t i = 0; i < step.num_calls; ++i) result[step.first_call + i] = around;
      for (size_t b = 0; b < step.blocks.size(); ++b) {
        std::vector<std::string> inside = around;
        if (step.kind == StepKind::kBranch)
          inside.push_back((b == 0 ? "" : "not ") + program.buffers[static_cast<size_t>(step.condition)].name);
        self(self, step.blocks[b], inside);
      }
    }
  };
  visit(visit, program.steps, {});
  return result;
}

KernelNote describe(const Program& program, const KernelCall& call, std::vector<RuleNote> rules,
                    std::vector<std::string> branches) {
  const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
  KernelNote note;
  note.name = kernel.program.name;
  note.rule = note.schedule = kernel.rule;
  for (const RuleNote& rule : rules)
    if (rule.chosen) note.schedule = rule.schedule;
  note.flops = kernel.flops;
  note.bytes = kernel.bytes;
  note.rules = std::move(rules);
  note.only_if = std::move(branches);
  if (kernel.rule == "pack") {
    const auto text = [&](BufferId id) { return program.buffers[static_cast<size_t>(id)].type.to_string(); };
    note.operands = {"weight " + program.buffers[static_cast<size_t>(call.args[0])].name + ": " + text(call.args[0])};
    note.result = text(call.args[1]);
  }
  const auto read = [&](size_t i, const TensorParam& param) {
    const TensorType type{param.buffer->dtype, param.buffer->shape, param.layout};
    note.operands.push_back(fmt::format("{}{}: {}",
                                        param.is_constant()                  ? "const "
                                        : param.kind == OperandKind::kWeight ? "weight "
                                                                             : "",
                                        program.buffers[static_cast<size_t>(call.args[i])].name, type.to_string()));
  };
  if (const JoinedProgram* joined = kernel.joined.get()) {
    for (size_t i = 0; i + 1 < joined->num_args && i < call.args.size(); ++i) read(i, joined->values[i]);
    const TensorParam& result = joined->result();
    note.result = TensorType{result.buffer->dtype, result.buffer->shape, result.layout}.to_string();
    note.layout = layout_text(result.layout);
    for (const JoinedMember& member : joined->members) {
      const Stage& output = member.program.output();
      note.joins.push_back(member.program.name + ": " +
                           TensorType{output.out->dtype, output.out->shape, output.layout}.to_string());
    }
  }
  if (!kernel.definition) return note;
  for (size_t i = 0; i < kernel.definition->params.size() && i < call.args.size(); ++i)
    read(i, kernel.definition->params[i]);
  for (const Stage& result : kernel.definition->results())
    note.result +=
        (note.result.empty() ? "" : ", ") + TensorType{result.out->dtype, result.out->shape, result.layout}.to_string();
  note.layout = layout_text(kernel.definition->output().layout);
  return note;
}

}  // namespace

std::vector<std::string> split_location(std::string_view location, const std::set<std::string>& known) {
  std::vector<std::string> result;
  for (size_t begin = 0; begin < location.size();) {
    // The longest known name that begins here and ends at a '+' or at the end.
    size_t end = location.size();
    while (true) {
      const std::string part(location.substr(begin, end - begin));
      if (known.count(part)) {
        add_once(result, part);
        break;
      }
      const size_t plus = end == begin ? std::string_view::npos : location.rfind('+', end - 1);
      if (plus == std::string_view::npos || plus <= begin) {
        end = std::min(location.find('+', begin), location.size());  // an unknown part is passed over
        break;
      }
      end = plus;
    }
    begin = end + 1;
  }
  return result;
}

void NodeTrail::see(std::string_view step, const Graph& graph) {
  std::set<std::string> now, constants;
  views_.clear();
  members_.clear();
  const std::vector<bool> live = live_nodes(graph);
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    const Node& node = graph.nodes()[i];
    const std::vector<std::string> labels = labels_of(node, labels_);
    if (node.op->name == "constant") {
      constants.insert(labels.begin(), labels.end());
      continue;
    }
    now.insert(labels.begin(), labels.end());
    if (node.op->kind == OpKind::kView) views_.insert(labels.begin(), labels.end());
    else if (!labels.empty()) members_[graph.value(node.outputs[0]).name] = labels;
  }
  for (const std::string& label : constants) {
    if (!now.count(label)) constants_.insert(label);
  }
  for (const std::string& label : present_) {
    if (!now.count(label)) gone_[label] = step;
  }
  for (const std::string& label : now) {
    gone_.erase(label);
    constants_.erase(label);
  }
  present_ = std::move(now);
}

std::string NodeTrail::gone_after(const std::string& label) const {
  if (present_.count(label)) return "";
  const auto found = gone_.find(label);
  return found == gone_.end() ? "import" : found->second;
}

Explanation explain(const ModelOutline& model, const NodeTrail& trail, const Program& program, const Remarks& remarks,
                    const ExplainedOptions& options) {
  Explanation result;
  result.model = model.name;
  result.target = options.target.triple + "," + options.target.cpu;
  result.opt_level = options.opt_level;
  std::map<std::string, std::vector<int>> kernels_of;
  // Equal kernels are generated once and called several times; each call is one kernel to whoever asks about a node.
  std::map<int32_t, std::vector<RuleNote>> rules;
  std::map<int32_t, std::string> joined;
  const std::vector<std::vector<std::string>> branches = branches_around(program);
  for (size_t number = 0; number < program.calls.size(); ++number) {
    const KernelCall& call = program.calls[number];
    if (!rules.count(call.kernel))
      rules[call.kernel] = rules_of(program, program.kernels[static_cast<size_t>(call.kernel)], options);
    KernelNote note = describe(program, call, rules[call.kernel], branches[number]);
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    if (kernel.joined) {
      const auto [known, is_new] = joined.try_emplace(call.kernel);
      if (is_new) known->second = joined_schedule(program, kernel, options);
      note.schedule = known->second;
    }
    note.nodes = nodes_of_call(program, call, trail);
    const auto index = static_cast<int>(result.kernels.size());
    for (const std::string& label : note.nodes) kernels_of[label].push_back(index);
    result.kernels.push_back(std::move(note));
  }
  std::map<std::string, std::vector<const Remark*>> remarks_of;
  for (const Remark& remark : remarks.list()) {
    std::set<std::string> about;
    for (const std::string* location : {&remark.node, &remark.other})
      for (const std::string& label : split_location(*location, trail.labels())) about.insert(label);
    for (const std::string& label : about) remarks_of[label].push_back(&remark);
  }
  const ModelFacts facts = facts_of(model);
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const OutlineNode& entry = model.nodes[i];
    NodeNote note;
    note.name = entry.label;
    note.op_type = entry.op_type;
    if (const auto found = kernels_of.find(entry.label); found != kernels_of.end()) {
      note.fate = "kernel";
      note.kernels = found->second;
    } else if (trail.gone_after(entry.label).empty()) {
      note.fate = trail.is_view(entry.label) ? "view" : "removed";
      if (note.fate == "removed") note.gone_after = "lower";
    } else {
      note.gone_after = trail.gone_after(entry.label);
      note.fate = !facts.needed[i]                                         ? "unused"
                  : !facts.varies[i] || trail.became_constant(entry.label) ? "constant"
                                                                           : "removed";
    }
    for (const Remark* remark : remarks_of[entry.label]) {
      std::vector<Remark>& list = remark->kind == Remark::Kind::kDone ? note.done : note.refused;
      if (std::find(list.begin(), list.end(), *remark) == list.end()) list.push_back(*remark);
    }
    result.nodes.push_back(std::move(note));
  }
  return result;
}

const NodeNote& find_node(const Explanation& explanation, const ModelOutline& model, const std::string& name) {
  for (const NodeNote& node : explanation.nodes) {
    if (node.name == name) return node;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    names.push_back(model.nodes[i].label);
    for (const std::string& output : model.nodes[i].outputs) {
      if (output == name) return explanation.nodes.at(i);
    }
  }
  const std::vector<std::string> nearest = nearest_names(name, names, 5);
  throw UserError({.id = "TSR-4040",
                   .message = fmt::format("the model has no node '{}'", name),
                   .node = {},
                   .legal = nearest.empty() ? fmt::format("one of its {} nodes, or the name of a value that one gives",
                                                          explanation.nodes.size())
                                            : fmt::format("nearest names: {}", fmt::join(nearest, ", ")),
                   .hint = "without --node all nodes are listed"});
}

}  // namespace tessera::inline diagnose
