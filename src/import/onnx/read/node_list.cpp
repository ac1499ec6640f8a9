#include "import/onnx/read/node_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

using onnx::NodeProto;

// A call may open other calls, so that a small file could stand for any number of nodes.
constexpr size_t kMaxInlinedNodes = 200'000;
constexpr size_t kMaxInlinedBytes = 256u << 20;
constexpr size_t kMaxCallDepth = 100;

std::string label_of(const NodeProto& node, int index) {
  return node.name().empty() ? fmt::format("{}#{}", node.op_type(), index) : node.name();
}

using FunctionKey = std::array<std::string, 3>;  // domain, name, overload

class Inliner {
 public:
  Inliner(LoadedModel& model, const std::set<std::string>& defined,
          const std::function<bool(const FlatNode&)>& is_known)
      : model_(model), is_known_(is_known), names_(defined.begin(), defined.end()) {
    for (int i = 0; i < model.proto.functions_size(); ++i) {
      const auto& function = model.proto.functions(i);
      functions_[{standard_domain(function.domain()), function.name(), function.overload()}] = i;
    }
    if (functions_.empty()) return;
    for (const NodeProto& node : model.proto.graph().node()) names_.insert(node.output().begin(), node.output().end());
  }

  std::vector<FlatNode> run() {
    const auto& nodes = model_.proto.graph().node();
    for (int i = 0; i < nodes.size(); ++i) add({&nodes[i], label_of(nodes[i], i), &model_.opsets});
    return std::move(flat_);
  }

 private:
  void add(FlatNode node) {
    const auto function = find_function(node);
    if (function >= 0) return open(node, function);
    if (calls_in_subgraphs(node)) {
      NodeProto& copy = copy_node(*node.proto, node);
      open_in_subgraphs(copy, node);
      node.proto = &copy;
    }
    flat_.push_back(std::move(node));
  }

  // Whether a subgraph of the node, at any depth, calls a function.
  bool calls_in_subgraphs(const FlatNode& node) const {
    if (functions_.empty()) return false;
    const auto has_call = [&](const onnx::GraphProto& graph) {
      return std::any_of(graph.node().begin(), graph.node().end(), [&](const NodeProto& inner) {
        const FlatNode flat{&inner, node.label, node.opsets};
        return find_function(flat) >= 0 || calls_in_subgraphs(flat);
      });
    };
    for (const auto& attribute : node.proto->attribute()) {
      if (attribute.has_g() && has_call(attribute.g())) return true;
      if (std::any_of(attribute.graphs().begin(), attribute.graphs().end(), has_call)) return true;
    }
    return false;
  }

  // Replaces the calls in the subgraphs of `node`, which `original` stands for, by the nodes of the functions.
  void open_in_subgraphs(NodeProto& node, const FlatNode& original) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) open_calls(*attribute.mutable_g(), original);
      for (auto& graph : *attribute.mutable_graphs()) open_calls(graph, original);
    }
  }

  void open_calls(onnx::GraphProto& graph, const FlatNode& around) {
    std::vector<FlatNode> outer = std::move(flat_);
    flat_.clear();
    for (int i = 0; i < graph.node_size(); ++i) {
      const NodeProto& inner = graph.node(i);
      const std::string label =
          inner.name().empty() ? fmt::format("{}/{}", around.label, label_of(inner, i)) : inner.name();
      add({&inner, label, around.opsets});
    }
    const std::vector<FlatNode> nodes = std::exchange(flat_, std::move(outer));
    google::protobuf::RepeatedPtrField<NodeProto> opened;
    for (const FlatNode& inner : nodes) {
      require_same_version(inner, around);
      NodeProto& copy = *opened.Add();
      copy = *inner.proto;
      copy.set_name(inner.label);
    }
    graph.mutable_node()->Swap(&opened);
  }

  // A subgraph has the opsets of the node around it.
  static void require_same_version(const FlatNode& node, const FlatNode& around) {
    const int64_t want = opset_version({node.proto, node.label, around.opsets}), got = opset_version(node);
    if (want == got) return;
    throw UserError(
        {"TSR-1052",
         fmt::format("a function that is called in a subgraph uses {} of opset {}", node.proto->op_type(), got),
         node.label, fmt::format("opset {}, that of the nodes around the call", want),
         "convert the functions to one opset with onnx.version_converter, or inline them with onnx.inliner"});
  }

  int find_function(const FlatNode& node) const {
    if (functions_.empty() || is_known_(node)) return -1;
    const auto it =
        functions_.find({standard_domain(node.proto->domain()), node.proto->op_type(), node.proto->overload()});
    return it == functions_.end() ? -1 : it->second;
  }

  void open(const FlatNode& call, int index) {
    const onnx::FunctionProto& function = model_.proto.functions(index);
    if (std::find(open_.begin(), open_.end(), index) != open_.end()) {
      std::vector<std::string> path;
      for (const int i : open_) path.push_back(model_.proto.functions(i).name());
      path.push_back(function.name());
      throw UserError({"TSR-1050",
                       fmt::format("model-local functions call each other in a circle: {}", fmt::join(path, " -> ")),
                       call.label, "functions that do not call themselves", ""});
    }
    if (open_.size() >= kMaxCallDepth)
      throw UserError({"TSR-1051",
                       fmt::format("calls of model-local functions are nested more than {} deep", kMaxCallDepth),
                       call.label, "less", "inline and simplify the model before importing it"});
    if (call.proto->input_size() > function.input_size() || call.proto->output_size() > function.output_size())
      throw UserError({"TSR-1052",
                       fmt::format("a call of function {} with {} inputs and {} outputs", function.name(),
                                   call.proto->input_size(), call.proto->output_size()),
                       call.label,
                       fmt::format("at most {} inputs and {} outputs", function.input_size(), function.output_size()),
                       ""});
    open_.push_back(index);
    std::unordered_map<std::string, std::string> rename{{"", ""}};
    for (int i = 0; i < function.input_size(); ++i)
      rename[function.input(i)] = i < call.proto->input_size() ? call.proto->input(i) : "";
    // A function may return one of its inputs, or one value twice: what is left over is renamed by Identity nodes.
    std::vector<std::pair<std::string, std::string>> aliases;
    for (int i = 0; i < call.proto->output_size(); ++i) {
      if (call.proto->output(i).empty()) continue;
      const auto [it, inserted] = rename.emplace(function.output(i), call.proto->output(i));
      if (!inserted) aliases.emplace_back(it->second, call.proto->output(i));
    }
    for (int i = 0; i < function.node_size(); ++i) {
      NodeProto& copy = copy_node(function.node(i), call);
      for (std::string& input : *copy.mutable_input()) input = renamed(rename, input, call);
      for (std::string& output : *copy.mutable_output()) output = renamed(rename, output, call);
      bind_attributes(copy, function, call);
      for (auto& attribute : *copy.mutable_attribute()) {
        if (attribute.has_g()) rename_subgraph(*attribute.mutable_g(), rename, function, call);
        for (auto& graph : *attribute.mutable_graphs()) rename_subgraph(graph, rename, function, call);
      }
      add({&copy, fmt::format("{}/{}", call.label, label_of(function.node(i), i)),
           &model_.function_opsets[static_cast<size_t>(index)]});
    }
    for (const auto& [from, to] : aliases) {
      NodeProto identity;
      identity.set_op_type("Identity");
      identity.add_input(from);
      identity.add_output(to);
      flat_.push_back({&copy_node(identity, call), call.label + "/Identity", &model_.opsets});
    }
    open_.pop_back();
  }

  NodeProto& copy_node(const NodeProto& node, const FlatNode& call) {
    bytes_ += node.ByteSizeLong();
    if (model_.inlined.size() >= kMaxInlinedNodes || bytes_ > kMaxInlinedBytes)
      throw UserError({"TSR-1051",
                       fmt::format("model-local functions expand to more than {} nodes or {} MB", kMaxInlinedNodes,
                                   kMaxInlinedBytes >> 20),
                       call.label, "less", "inline and simplify the model before importing it"});
    return model_.inlined.emplace_back(node);
  }

  // Inner values get names of their own for every call.
  std::string renamed(std::unordered_map<std::string, std::string>& rename, const std::string& name,
                      const FlatNode& call) {
    const auto known = rename.find(name);
    if (known != rename.end()) return known->second;
    std::string fresh = fmt::format("{}/{}", call.label, name);
    for (int i = 1; names_.count(fresh); ++i) fresh = fmt::format("{}/{}_{}", call.label, name, i);
    names_.insert(fresh);
    rename.emplace(name, fresh);
    return fresh;
  }

  // All names of a function's subgraph, its own and those that it takes from around it; and its attributes.
  void rename_subgraph(onnx::GraphProto& graph, std::unordered_map<std::string, std::string>& rename,
                       const onnx::FunctionProto& function, const FlatNode& call) {
    const auto change = [&](std::string& name) { name = renamed(rename, name, call); };
    for (auto* values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
      for (auto& value : *values) change(*value.mutable_name());
    for (auto& tensor : *graph.mutable_initializer()) change(*tensor.mutable_name());
    for (NodeProto& node : *graph.mutable_node()) {
      for (std::string& input : *node.mutable_input()) change(input);
      for (std::string& output : *node.mutable_output()) change(output);
      if (!node.name().empty()) node.set_name(fmt::format("{}/{}", call.label, node.name()));
      bind_attributes(node, function, call);
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) rename_subgraph(*attribute.mutable_g(), rename, function, call);
        for (auto& inner : *attribute.mutable_graphs()) rename_subgraph(inner, rename, function, call);
      }
    }
  }

  // Attributes that refer to the function's attributes get the values of the call, or the defaults, or disappear.
  static void bind_attributes(NodeProto& node, const onnx::FunctionProto& function, const FlatNode& call) {
    auto& attributes = *node.mutable_attribute();
    for (int i = attributes.size() - 1; i >= 0; --i) {
      const std::string wanted = attributes[i].ref_attr_name();
      if (wanted.empty()) continue;
      const auto named = [&wanted](const onnx::AttributeProto& a) { return a.name() == wanted; };
      const auto& given = call.proto->attribute();
      const auto& defaults = function.attribute_proto();
      const std::string name = attributes[i].name();
      if (const auto it = std::find_if(given.begin(), given.end(), named); it != given.end()) attributes[i] = *it;
      else if (const auto other = std::find_if(defaults.begin(), defaults.end(), named); other != defaults.end())
        attributes[i] = *other;
      else {
        attributes.DeleteSubrange(i, 1);
        continue;
      }
      attributes[i].set_name(name);
    }
  }

  LoadedModel& model_;
  const std::function<bool(const FlatNode&)>& is_known_;
  std::map<FunctionKey, int> functions_;
  std::unordered_set<std::string> names_;  // of all values, once there are functions
  std::vector<int> open_;                  // the functions being opened, outermost first
  std::vector<FlatNode> flat_;
  size_t bytes_ = 0;
};

void add_captures(const onnx::GraphProto& graph, std::vector<std::string>& names) {
  std::unordered_set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& initializer : graph.initializer()) own.insert(initializer.name());
  for (const auto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  for (const auto& node : graph.node())
    for (const std::string& name : read_names(node))
      if (!own.count(name)) names.push_back(name);
  // A subgraph may hand on a value from outside without a node of its own.
  for (const auto& output : graph.output())
    if (!own.count(output.name())) names.push_back(output.name());
}

// Names of the nodes on one cycle, in order. `waiting` marks the nodes that could not be ordered: each of them reads
// from another one of them.
std::vector<std::string> find_cycle(const std::vector<FlatNode>& nodes,
                                    const std::vector<std::vector<size_t>>& reads_from,
                                    const std::vector<int>& waiting) {
  size_t at = 0;
  while (waiting[at] == 0) ++at;
  std::vector<size_t> path;
  std::unordered_map<size_t, size_t> seen;  // node -> place in path
  while (seen.emplace(at, path.size()).second) {
    path.push_back(at);
    for (const size_t from : reads_from[at])
      if (waiting[from] > 0) {
        at = from;
        break;
      }
  }
  std::vector<std::string> names;
  for (size_t i = seen[at]; i < path.size(); ++i) names.push_back(nodes[path[i]].label);
  std::reverse(names.begin(), names.end());
  return names;
}

std::vector<FlatNode> in_order(std::vector<FlatNode> nodes, const std::set<std::string>& defined) {
  std::unordered_map<std::string, size_t> producer;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const std::string& output : nodes[i].proto->output()) {
      if (output.empty()) continue;
      const auto [it, inserted] = producer.emplace(output, i);
      if (inserted && !defined.count(output)) continue;
      throw UserError(
          {"TSR-1011",
           fmt::format("the value '{}' is defined twice: by this node and by {}", output,
                       inserted ? "a graph input or initializer" : fmt::format("node '{}'", nodes[it->second].label)),
           nodes[i].label, "one definition of each name", ""});
    }

  std::vector<std::vector<size_t>> readers(nodes.size()), reads_from(nodes.size());
  std::vector<int> waiting(nodes.size(), 0);  // producers that are not placed yet
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : read_names(*nodes[i].proto)) {
      if (name.empty() || defined.count(name)) continue;
      const auto it = producer.find(name);
      if (it == producer.end())
        throw UserError({"TSR-1010", fmt::format("the node reads the value '{}', which nothing defines", name),
                         nodes[i].label, "names of graph inputs, initializers and node outputs", ""});
      readers[it->second].push_back(i);
      reads_from[i].push_back(it->second);
      ++waiting[i];
    }
  }
  // The model's own order is kept as far as possible: of the nodes that are ready, the first one in the file is next.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (waiting[i] == 0) ready.push(i);
  std::vector<FlatNode> ordered;
  ordered.reserve(nodes.size());
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    ordered.push_back(nodes[i]);
    for (const size_t reader : readers[i])
      if (--waiting[reader] == 0) ready.push(reader);
  }
  if (ordered.size() < nodes.size()) {
    const auto names = find_cycle(nodes, reads_from, waiting);
    std::string text =
        fmt::format("{}", fmt::join(names.begin(), names.begin() + std::min<ptrdiff_t>(20, std::ssize(names)), " -> "));
    if (names.size() > 20) text += fmt::format(" -> ... ({} nodes)", names.size());
    throw UserError({"TSR-1012", fmt::format("the nodes form a cycle: {} -> {}", text, names.front()), names.front(),
                     "a graph without cycles", ""});
  }
  return ordered;
}

}  // namespace

int64_t opset_version(const FlatNode& node) {
  const auto it = node.opsets->find(standard_domain(node.proto->domain()));
  return it == node.opsets->end() ? 0 : it->second;
}

std::vector<FlatNode> flatten_nodes(LoadedModel& model, const std::set<std::string>& defined,
                                    const std::function<bool(const FlatNode&)>& is_known) {
  return in_order(Inliner(model, defined, is_known).run(), defined);
}

std::vector<FlatNode> flatten_subgraph(const onnx::GraphProto& graph, const FlatNode& node,
                                       const std::set<std::string>& defined) {
  std::vector<FlatNode> nodes;
  for (int i = 0; i < graph.node_size(); ++i) {
    const NodeProto& inner = graph.node(i);
    const std::string label =
        inner.name().empty() ? fmt::format("{}/{}", node.label, label_of(inner, i)) : inner.name();
    nodes.push_back({&inner, label, node.opsets});
  }
  return in_order(std::move(nodes), defined);
}

std::vector<std::string> read_names(const NodeProto& node) {
  std::vector<std::string> names(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) add_captures(attribute.g(), names);
    for (const auto& graph : attribute.graphs()) add_captures(graph, names);
  }
  return names;
}

}  // namespace tessera::inline onnx_import
