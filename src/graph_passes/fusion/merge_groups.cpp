#include "graph_passes/fusion/merge_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "graph/slices.h"
#include "graph_passes/support/graph_util.h"
#include "graph_passes/support/operand_access.h"

namespace tessera::inline graph_passes {
namespace {

constexpr size_t kMostMembers = 64;
constexpr size_t kMostResults = 8;
constexpr size_t kMostOperands = 24;
// Smaller results fit the nearest cache, from which reading them again costs less than what several results add.
constexpr int64_t kLeastBytes = 4096;
// Groups that are looked at when a path between two of them is sought; longer searches count as a path.
constexpr size_t kMostVisits = 4096;

// At usual sizes, where a run decides about them.
int64_t bytes_of(const TensorType& type) {
  Expr elements = 1;
  for (const Expr& dim : type.shape) elements = elements * dim;
  return dtype_bytes(type.dtype, typical_size(normalize_size(elements)));
}

struct Candidate {
  std::vector<NodeId> members;  // in order
  std::set<NodeId> results;
  NodeId reduction = -1;
  bool contraction = false;  // the reduction is a sum of products, with what follows it
  bool may_merge = false;
};

class Merger {
 public:
  Merger(const Graph& graph, FusionPlan& plan, Remarks* remarks)
      : graph_(graph), plan_(plan), remarks_(remarks), users_(graph.users()), is_output_(output_mask(graph)) {}

  void run() {
    find_candidates();
    std::vector<std::vector<int>> readers(graph_.values().size());  // groups, by value that they read from memory
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].may_merge) continue;
      for (const ValueId operand : operands(groups_[g]))
        readers[static_cast<size_t>(operand)].push_back(static_cast<int>(g));
    }
    // A producer first, then those that share an operand, in the order of the graph.
    for (size_t v = 0; v < readers.size(); ++v) {
      const auto value = static_cast<ValueId>(v);
      const NodeId producer = graph_.value(value).producer;
      std::vector<int> sharing;
      if (producer >= 0 && group_of(producer) >= 0) sharing.push_back(group_of(producer));
      sharing.insert(sharing.end(), readers[v].begin(), readers[v].end());
      for (size_t i = 0; i < sharing.size(); ++i)
        for (size_t j = i + 1; j < sharing.size(); ++j) try_merge(current(sharing[i]), current(sharing[j]), value);
    }
    write_plan();
  }

 private:
  int group_of(NodeId id) const { return plan_.group_of[static_cast<size_t>(id)]; }
  int current(int group) const {
    while (into_[static_cast<size_t>(group)] >= 0) group = into_[static_cast<size_t>(group)];
    return group;
  }
  const TensorType& type_of(const Candidate& group) const {
    return graph_.type(graph_.node(*group.results.begin()).outputs[0]);
  }

  // Of ranks some of whose collectives stay in their places (messages of a pipeline, parameters that are gathered when
  // they are read): how many are before a node. What is computed in between does not wait for a later one.
  void find_slots() {
    int slot = 0;
    for (const Node& node : graph_.nodes()) {
      slots_.push_back(slot);
      slot += node.op->name == "send" || node.op->name == "receive" || node.attrs.get_or<int64_t>("turn", 0) != 0;
    }
  }

  void find_candidates() {
    find_slots();
    groups_.resize(static_cast<size_t>(plan_.num_groups));
    into_.assign(groups_.size(), -1);
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (plan_.group_of[i] >= 0)
        groups_[static_cast<size_t>(plan_.group_of[i])].members.push_back(static_cast<NodeId>(i));
    std::set<ValueId> placed;
    for (const auto& operands : place_operands(graph_))
      for (const PlacedOperand& operand : operands) placed.insert(operand.storage);
    for (Candidate& group : groups_) {
      group.results = {group.members.back()};
      const ValueId result = graph_.node(group.members.back()).outputs[0];
      const TensorType& type = graph_.type(result);
      group.may_merge = !placed.count(result) && !is_decided_by_data(type);
      for (const NodeId id : group.members) group.may_merge = group.may_merge && suits(group, id);
      if (group.reduction >= 0 && !group.contraction) group.may_merge = group.may_merge && reduces_in_lanes(group);
      else group.may_merge = group.may_merge && bytes_of(type) >= kLeastBytes;
    }
  }

  // The node that gives such a size its value stands before its readers by its place alone.
  bool is_decided_by_data(const TensorType& type) const {
    return std::any_of(type.shape.begin(), type.shape.end(),
                       [&](const Expr& dim) { return uses_data_symbols(dim, graph_.symbols); });
  }

  // Nodes that compute element by element, with one that reduces among them.
  bool suits(Candidate& group, NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.op->kind != OpKind::kExpression || node.outputs.size() != 1 || is_in_place(node)) return false;
    if (node.op->name == "select" && is_one_element(graph_.type(node.inputs[0])) &&
        !constant_value(graph_, node.inputs[0]))
      return false;
    const Accesses reads = accesses_of(graph_, node);
    if (!reads.reduction) return reads.elementwise();
    group.reduction = id;
    group.contraction = reads.contraction;
    // Minimal filtering stores one result, and so do the tiles of a matrix unit.
    if (group.contraction)
      return graph_.type(node.outputs[0]).dtype == DType::kF32 && graph_.type(node.outputs[0]).is_static() &&
             graph_.type(node.inputs[0]).is_static() &&
             (node.op->name == "matmul" || (node.op->name == "conv" && !suits_minimal_filtering(graph_, node)));
    return node.op->name == "reduce";
  }

  // A reduction along contiguous memory, or along all but what is contiguous.
  bool reduces_in_lanes(const Candidate& group) const {
    const Node& node = graph_.node(group.reduction);
    const TensorType& type = graph_.type(node.inputs[0]);
    const auto& axes = node.attrs.get_ints("axes");
    if (axes.empty() || bytes_of(type) < kLeastBytes) return false;
    const int64_t innermost = type.layout.row_major() ? type.rank() - 1 : type.layout.dims.back().axis;
    const int64_t lanes = type.layout.row_major() ? typical_size(type.shape.back())
                                                  : std::max<int64_t>(1, type.layout.inner_block().block);
    return lanes >= 4 &&
           (std::find(axes.begin(), axes.end(), innermost) != axes.end() || keeps_lanes(group, innermost));
  }

  // Whether the output's innermost dimension is the operand's.
  bool keeps_lanes(const Candidate& group, int64_t innermost) const {
    const Node& node = graph_.node(group.reduction);
    const TensorType& operand = graph_.type(node.inputs[0]);
    const TensorType& result = graph_.type(node.outputs[0]);
    const auto& axes = node.attrs.get_ints("axes");
    if (!result.layout.row_major()) return result.layout.dims.back().axis == innermost;
    for (int64_t axis = innermost + 1; axis < operand.rank(); ++axis)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) return false;
    return true;
  }

  // What the group reads from memory, apart from numbers that kernels have in their expressions.
  std::set<ValueId> operands(const Candidate& group) const {
    std::set<ValueId> result;
    for (const NodeId id : group.members)
      for (const ValueId input : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(input).producer;
        const bool inside =
            producer >= 0 && group_of(producer) >= 0 && current(group_of(producer)) == current(group_of(id));
        if (!inside && !is_one_element(graph_.type(input))) result.insert(input);
      }
    return result;
  }

  void try_merge(int a, int b, ValueId shared) {
    if (a == b) return;
    Candidate& first = groups_[static_cast<size_t>(a)];
    Candidate& second = groups_[static_cast<size_t>(b)];
    if (!first.may_merge || !second.may_merge || !fit(first, second, shared)) return;
    if (slots_[static_cast<size_t>(first.members.back())] != slots_[static_cast<size_t>(second.members.back())]) return;
    if (reaches(a, b) || reaches(b, a)) return;
    std::set<ValueId> all = operands(first), more = operands(second);
    all.insert(more.begin(), more.end());
    if (first.members.size() + second.members.size() > kMostMembers || all.size() > kMostOperands ||
        first.results.size() + second.results.size() > kMostResults)
      return;
    if (remarks_)
      remarks_->done("fuse_groups", describe(first), "become one kernel with several results", describe(second));
    first.members.insert(first.members.end(), second.members.begin(), second.members.end());
    std::sort(first.members.begin(), first.members.end());
    first.results.insert(second.results.begin(), second.results.end());
    into_[static_cast<size_t>(b)] = a;
  }

  // Whether both are computed in one pass over what they share.
  bool fit(const Candidate& a, const Candidate& b, ValueId shared) const {
    const TensorType &x = type_of(a), &y = type_of(b);
    if (!same_shape(x.shape, y.shape) || !(x.layout == y.layout)) return false;
    if (a.contraction || b.contraction)
      return a.contraction && b.reduction < 0 && a.results.count(graph_.value(shared).producer) != 0;
    if ((a.reduction < 0) != (b.reduction < 0)) return false;
    if (a.reduction < 0)
      return same_shape(graph_.type(shared).shape, x.shape) && graph_.type(shared).layout == x.layout;
    // Neither may read the other's result, other than to find its place.
    const Node &first = graph_.node(a.reduction), &second = graph_.node(b.reduction);
    const TensorType &from = graph_.type(first.inputs[0]), &other = graph_.type(second.inputs[0]);
    return same_shape(from.shape, other.shape) && other.layout == from.layout &&
           same_shape(graph_.type(shared).shape, from.shape) && graph_.type(shared).layout == from.layout &&
           first.attrs.get_ints("axes") == second.attrs.get_ints("axes") && (!reads(a, b) || finds_place(a, b)) &&
           (!reads(b, a) || finds_place(b, a));
  }

  // The node that computes the value, if it is an `op` of the group's.
  const Node* member(const Candidate& group, ValueId value, std::string_view op) const {
    const NodeId id = graph_.value(value).producer;
    const bool inside = id >= 0 && std::binary_search(group.members.begin(), group.members.end(), id);
    return inside && graph_.node(id).op->name == op ? &graph_.node(id) : nullptr;
  }
  static bool is_extremum(const Node& node) {
    const std::string& kind = node.attrs.get<std::string>("kind");
    return kind == "min" || kind == "max";
  }

  // Whether all that `reader` does with results of `producer` is to reduce the places where an extremum is found, which
  // a kernel then does in the same pass (te/extremum_place.h).
  bool finds_place(const Candidate& reader, const Candidate& producer) const {
    const Node& places = graph_.node(reader.reduction);
    if (!is_extremum(places)) return false;
    const Node* found = member(reader, places.inputs[0], "select");
    if (!found) return false;
    const Node* same = member(reader, found->inputs[0], "eq");
    const Node* nan = nullptr;
    if (const Node* either = member(reader, found->inputs[0], "logical_or"))
      for (const size_t side : {0, 1}) {
        if (same && nan) break;
        same = member(reader, either->inputs[side], "eq");
        nan = member(reader, either->inputs[1 - side], "is_nan");
      }
    if (!same || (found->inputs[0] != same->outputs[0] && !nan)) return false;
    for (const size_t side : {0, 1}) {
      const ValueId x = same->inputs[side], extremum = same->inputs[1 - side];
      const Node* of = member(producer, extremum, "reduce");
      if (!of || !is_extremum(*of) || of->inputs[0] != x || (nan && nan->inputs[0] != x)) continue;
      return of->attrs.get_ints("axes") == places.attrs.get_ints("axes") && counts_places(reader, *found, places) &&
             reads_only(reader, producer, *same, extremum) &&
             (reader.results.count(reader.reduction) || !leaves(extremum, reader));
    }
    return false;
  }

  // Whether what is selected are places along a reduced dimension, and otherwise what is no better than any of them.
  bool counts_places(const Candidate& reader, const Node& select, const Node& places) const {
    const Node* iota = member(reader, select.inputs[1], "iota");
    if (!iota) return false;
    const int64_t axis = iota->attrs.get<int64_t>("axis");
    const auto& axes = places.attrs.get_ints("axes");
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) return false;
    const Expr& extent = graph_.type(iota->outputs[0]).shape[static_cast<size_t>(axis)];
    const bool first = places.attrs.get<std::string>("kind") == "min";
    if (const Tensor* none = constant_value(graph_, select.inputs[2]))
      return none->num_elements() == 1 && !is_float(none->dtype()) &&
             (first ? as_int(extent) && none->get_int(0) >= *as_int(extent) : none->get_int(0) < 0);
    return false;
  }

  // Whether nothing but `node` reads results of the producer, and it nothing but `value`.
  bool reads_only(const Candidate& reader, const Candidate& producer, const Node& node, ValueId value) const {
    for (const NodeId id : reader.members)
      for (const ValueId input : graph_.node(id).inputs)
        if (producer.results.count(graph_.value(input).producer) && (&graph_.node(id) != &node || input != value))
          return false;
    return true;
  }

  // Whether anything but the group reads the value.
  bool leaves(ValueId value, const Candidate& group) const {
    const auto& readers = users_[static_cast<size_t>(value)];
    return is_output_[static_cast<size_t>(value)] || std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
             return !std::binary_search(group.members.begin(), group.members.end(), reader);
           });
  }

  bool reads(const Candidate& reader, const Candidate& producer) const {
    for (const NodeId id : reader.members)
      for (const ValueId input : graph_.node(id).inputs)
        if (producer.results.count(graph_.value(input).producer)) return true;
    return false;
  }

  // Whether something outside of both groups reads what `from` computes and leads to `to`.
  bool reaches(int from, int to) const {
    const Candidate& target = groups_[static_cast<size_t>(to)];
    const NodeId last = target.members.back();
    std::set<NodeId> seen;
    std::vector<NodeId> waiting;
    bool found = false;
    const auto visit_readers = [&](NodeId id, bool is_start) {
      for (const ValueId output : graph_.node(id).outputs)
        for (const NodeId reader : users_[static_cast<size_t>(output)]) {
          const int group = group_of(reader) < 0 ? -1 : current(group_of(reader));
          if (group == from) continue;
          if (group == to) found |= !is_start;
          else if (seen.insert(reader).second) waiting.push_back(reader);
        }
    };
    for (const NodeId id : groups_[static_cast<size_t>(from)].members) visit_readers(id, true);
    while (!waiting.empty() && !found && seen.size() < kMostVisits) {
      const NodeId id = waiting.back();
      waiting.pop_back();
      const int group = group_of(id) < 0 ? -1 : current(group_of(id));
      // A merged group's other members may lead back to where the graph has been passed already.
      if (group < 0) {
        if (id < last) visit_readers(id, false);
        continue;
      }
      for (const NodeId member : groups_[static_cast<size_t>(group)].members) {
        seen.insert(member);
        visit_readers(member, false);
      }
    }
    return found || seen.size() >= kMostVisits;
  }

  std::string describe(const Candidate& group) const {
    const Node& node = graph_.node(*group.results.rbegin());
    return node.loc.empty() ? "%" + graph_.value(node.outputs[0]).name : node.loc;
  }

  void write_plan() {
    for (int& group : plan_.group_of)
      if (group >= 0) group = current(group);
    plan_.results.assign(groups_.size(), {});
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const NodeId id : groups_[g].results) {
        const ValueId result = graph_.node(id).outputs[0];
        const auto& readers = users_[static_cast<size_t>(result)];
        const bool leaves = is_output_[static_cast<size_t>(result)] || readers.empty() ||
                            std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
                              return plan_.group_of[static_cast<size_t>(reader)] != static_cast<int>(g);
                            });
        if (leaves) plan_.results[g].push_back(id);
      }
  }

  const Graph& graph_;
  FusionPlan& plan_;
  Remarks* remarks_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> is_output_;
  std::vector<int> slots_;  // by node
  std::vector<Candidate> groups_;
  std::vector<int> into_;  // the group that a group has become part of, or -1
};

}  // namespace

void merge_groups(const Graph& graph, FusionPlan& plan, Remarks* remarks) { Merger(graph, plan, remarks).run(); }

}  // namespace tessera::inline graph_passes
