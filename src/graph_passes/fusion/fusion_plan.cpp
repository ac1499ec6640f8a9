#include "graph_passes/fusion/fusion_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "graph/slices.h"
#include "graph_passes/quantized/copy_dequantisations.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr size_t kMaxGroupNodes = 64;
// Arithmetic that may be repeated rather than stored: a read and a write of memory cost about as much.
constexpr int kCheapWork = 3;
// How many look-ups may lie in the index of another one: a longer chain (a walk down a tree) is written out again for
// each place that uses an index, which doubles the kernel's text with every look-up.
constexpr int kMaxIndexDepth = 2;
// Rows of fewer elements are not worth a pass of their own.
constexpr int64_t kShortRow = 8;
// Nodes between a look-up and what is made of it that are looked at.
constexpr int kMostSteps = 16;

struct Group {
  std::vector<NodeId> members;
  NodeId result = -1;
  NodeId reduction = -1;
};

class Planner {
 public:
  Planner(const Graph& graph, Remarks* remarks)
      : graph_(graph),
        remarks_(remarks),
        users_(graph.users()),
        is_output_(output_mask(graph)),
        accesses_(graph.nodes().size()),
        group_of_(graph.nodes().size(), -1),
        in_front_(graph.nodes().size(), false),
        repeated_work_(graph.nodes().size(), 0),
        index_depth_(graph.nodes().size(), 0) {
    for (size_t i = 0; i < graph.nodes().size(); ++i)
      if (graph.nodes()[i].op->kind == OpKind::kExpression) accesses_[i] = accesses_of(graph, graph.nodes()[i]);
  }

  FusionPlan run() {
    for (NodeId id = last(); id >= 0; --id)
      if (is_reduction(id)) grow_epilogue(id);
    for (NodeId id = last(); id >= 0; --id) {
      if (group_of_[static_cast<size_t>(id)] >= 0) continue;
      if (is_expression(id)) {
        place_injective(id);
      } else if (is_view(id)) {
        place_view(id);
      }
    }
    return {group_of_, static_cast<int>(groups_.size()), {}};
  }

 private:
  NodeId last() const { return static_cast<NodeId>(graph_.nodes().size()) - 1; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  const Accesses& accesses(NodeId id) const { return accesses_[static_cast<size_t>(id)]; }
  bool is_expression(NodeId id) const {
    return node(id).op->kind == OpKind::kExpression && node(id).outputs.size() == 1 && !is_in_place(node(id));
  }
  bool is_view(NodeId id) const { return node(id).op->kind == OpKind::kView; }
  bool is_reduction(NodeId id) const { return is_expression(id) && accesses(id).reduction; }
  // A transpose that puts another dimension last.
  bool turns_rows(NodeId id) const {
    if (node(id).op->name != "transpose") return false;
    const auto& perm = node(id).attrs.get_ints("perm");
    return !perm.empty() && perm.back() != std::ssize(perm) - 1 &&
           !is_const_int(graph_.type(result(id)).shape.back(), 1);
  }
  // A look-up that reads rows: its result's last dimension is the operand's.
  bool looks_up_rows(NodeId id) const {
    if (node(id).op->name != "gather") return false;
    const TensorType& x = graph_.type(node(id).inputs[0]);
    const auto row = as_int(x.shape.back());
    return node(id).attrs.get_int("axis") != x.rank() - 1 && (!row || *row >= kShortRow);
  }
  // Whether `id` is computed element by element from such a look-up, in its order.
  bool follows_row_look_up(NodeId id, int steps = 0) const {
    if (steps > kMostSteps || (!is_view(id) && (!is_expression(id) || accesses(id).reduction))) return false;
    if (is_expression(id) && looks_up_rows(id)) return true;
    for (size_t i = 0; i < node(id).inputs.size(); ++i) {
      const NodeId producer = graph_.value(node(id).inputs[i]).producer;
      const bool in_order = is_view(id) || accesses(id).operands[i] == OperandAccess::kIdentity;
      if (producer >= 0 && in_order && follows_row_look_up(producer, steps + 1)) return true;
    }
    return false;
  }
  // Why `id` is stored in its own order before `reader` reads it in another; null when it need not be.
  const char* wants_rows(NodeId id, NodeId reader) const {
    if (turns_rows(id) && is_expression(reader) && looks_up_rows(reader)) return "look-ups read whole rows of it";
    if (is_expression(reader) && turns_rows(reader) && follows_row_look_up(id)) return "it is made of looked-up rows";
    return nullptr;
  }
  ValueId result(NodeId id) const { return node(id).outputs[0]; }
  const std::vector<NodeId>& readers(NodeId id) const { return users_[static_cast<size_t>(result(id))]; }
  bool leaves_graph(NodeId id) const { return is_output_[static_cast<size_t>(result(id))]; }

  std::string describe(NodeId id) const {
    return node(id).loc.empty() ? "%" + graph_.value(result(id)).name : node(id).loc;
  }

  void refuse(NodeId producer, NodeId consumer, std::string reason) {
    if (remarks_) remarks_->refused("fuse_groups", describe(producer), std::move(reason), describe(consumer));
  }

  int new_group(NodeId id) {
    group_of_[static_cast<size_t>(id)] = static_cast<int>(groups_.size());
    groups_.push_back({{id}, id, is_reduction(id) ? id : -1});
    return static_cast<int>(groups_.size()) - 1;
  }

  void join(NodeId id, int group) {
    group_of_[static_cast<size_t>(id)] = group;
    groups_[static_cast<size_t>(group)].members.push_back(id);
  }

  // ---- epilogues ----

  // Why `id` cannot follow a reduction whose result has type `type`; `inside` are the values that it may read at its
  // own index only: the reduction's result and what has been computed from it.
  std::string no_epilogue(NodeId id, const TensorType& type, const std::set<ValueId>& inside) const {
    if (!is_expression(id)) return "a view or composite is not computed element by element";
    const Accesses& reads = accesses(id);
    if (reads.reduction) return "a kernel has one reduction";
    if (group_of_[static_cast<size_t>(id)] >= 0) return "it already follows a later reduction";
    if (is_branch(id)) return "it chooses by one bool, and a kernel of its own need not run when it is not chosen";
    const TensorType& own = graph_.type(result(id));
    if (!same_shape(own.shape, type.shape)) return "the shapes differ: " + own.to_string() + " and " + type.to_string();
    if (!(own.layout == type.layout)) return "the layouts differ: " + own.to_string() + " and " + type.to_string();
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (inside.count(node(id).inputs[i]) && reads.operands[i] != OperandAccess::kIdentity &&
          reads.operands[i] != OperandAccess::kNone)
        return "it reads other places than its own";
    return "";
  }

  // A select between two tensors by a bool that a run decides, as an If of the model gives.
  bool is_branch(NodeId id) const {
    if (node(id).op->name != "select") return false;
    const ValueId condition = node(id).inputs[0];
    return is_one_element(graph_.type(condition)) && !is_one_element(graph_.type(result(id))) &&
           !constant_value(graph_, condition);
  }

  void grow_epilogue(NodeId reduction) {
    const int group = new_group(reduction);
    const TensorType& type = graph_.type(result(reduction));
    while (true) {
      const std::vector<NodeId> step = next_meeting_point(groups_[static_cast<size_t>(group)], type);
      if (step.empty()) return;
      for (const NodeId id : step) join(id, group);
      groups_[static_cast<size_t>(group)].result = step.back();
    }
  }

  // The nodes that follow the group's result up to the first one in which all paths from it have met, in order; empty
  // when one of them cannot join. Readers are taken in topological order, so whatever lies between two of them has
  // been taken or refused before.
  std::vector<NodeId> next_meeting_point(const Group& group, const TensorType& type) {
    const NodeId start = group.result;
    if (leaves_graph(start)) {
      if (!readers(start).empty()) refuse(start, readers(start)[0], "its result is an output of the graph");
      return {};
    }
    std::vector<NodeId> taken;
    std::set<ValueId> inside;
    for (const NodeId member : group.members) inside.insert(result(member));
    std::set<NodeId> waiting(readers(start).begin(), readers(start).end());
    while (!waiting.empty()) {
      const NodeId id = *waiting.begin();
      waiting.erase(waiting.begin());
      std::string reason = no_epilogue(id, type, inside);
      if (reason.empty() && group.members.size() + taken.size() >= kMaxGroupNodes) reason = "the group is full";
      if (!reason.empty()) {
        refuse(taken.empty() ? start : taken.back(), id, std::move(reason));
        return {};
      }
      taken.push_back(id);
      inside.insert(result(id));
      if (waiting.empty()) return taken;  // every path from `start` has arrived here
      if (leaves_graph(id)) {
        refuse(id, *waiting.begin(), "its result is an output of the graph");
        return {};
      }
      waiting.insert(readers(id).begin(), readers(id).end());
    }
    return {};
  }

  // ---- injective nodes ----

  // The group of all readers of `id`; -1 with a reason when there is none.
  int common_group(NodeId id) {
    if (readers(id).empty() || leaves_graph(id)) {
      if (!readers(id).empty()) refuse(id, readers(id)[0], "its result is an output of the graph");
      return -1;
    }
    const int group = group_of_[static_cast<size_t>(readers(id)[0])];
    for (const NodeId reader : readers(id)) {
      if (group_of_[static_cast<size_t>(reader)] == group && group >= 0) continue;
      refuse(id, reader,
             group_of_[static_cast<size_t>(reader)] < 0 ? "a view of stored bytes reads it"
                                                        : "kernels that are apart read it");
      return -1;
    }
    if (groups_[static_cast<size_t>(group)].members.size() >= kMaxGroupNodes) {
      refuse(id, readers(id)[0], "the group is full");
      return -1;
    }
    return group;
  }

  void place_injective(NodeId id) {
    const int group = common_group(id);
    if (group >= 0 && may_be_inlined(id, groups_[static_cast<size_t>(group)])) {
      join(id, group);
    } else {
      new_group(id);
    }
  }

  // Whether `id` dequantises, or rounds, weights in blocks for one product or look-up.
  bool makes_weights(NodeId id) const {
    const Node* source = &node(id);
    while (source && is_op(source, "cast")) source = graph_.producer(source->inputs[0]);
    if (!source || !dequantizes_weights(graph_, *source)) return false;
    for (NodeId at = id; readers(at).size() == 1; at = readers(at)[0]) {
      const Node& reader = node(readers(at)[0]);
      if (!is_op(&reader, "cast")) return reads_as_weights(graph_, result(at), reader);
    }
    return false;
  }

  // Whether `id` makes wide numbers of bytes, element by element and for one reader: an epilogue that computes it reads
  // a quarter of the memory, and nobody stores the wide ones.
  bool widens_bytes(NodeId id, int steps = 0) const {
    if (steps > kMostSteps || !is_expression(id) || !accesses(id).elementwise() || readers(id).size() != 1 ||
        leaves_graph(id))
      return false;
    NodeId from = -1;
    for (const ValueId input : node(id).inputs) {
      if (constant_value(graph_, input)) continue;
      if (from >= 0 || graph_.value(input).producer < 0) return false;
      from = graph_.value(input).producer;
    }
    if (from < 0) return false;
    const DType dtype = graph_.type(result(from)).dtype;
    if (node(id).op->name == "cast" && (dtype == DType::kI8 || dtype == DType::kU8)) return true;
    return widens_bytes(from, steps + 1);
  }

  // Whether `id` may be computed where its readers, all in `group`, read it. Sets its repeated work.
  bool may_be_inlined(NodeId id, const Group& group) {
    if (makes_weights(id)) {
      in_front_[static_cast<size_t>(id)] = group.reduction >= 0;
      return true;
    }
    int repeats = 0;  // work per element of `id` that is done again and again in its readers
    bool repeated = false;
    int reads = 0;
    int depth = 0;  // of the look-ups whose index it is part of
    bool all_identity = true;
    bool behind = false;  // the reduction
    for (const NodeId reader : std::set<NodeId>(readers(id).begin(), readers(id).end())) {
      if (is_reduction(reader) && accesses(reader).contraction) {
        refuse(id, reader, "a contraction reads its operands many times, from packed memory");
        return false;
      }
      if (group.reduction >= 0 && reader != group.reduction && !in_front_[static_cast<size_t>(reader)]) {
        if (!widens_bytes(id)) {
          refuse(id, reader, "what an epilogue reads beside the reduction comes from memory");
          return false;
        }
        behind = true;
      }
      if (const char* reason = wants_rows(id, reader)) {
        refuse(id, reader, reason);
        return false;
      }
      repeated |= repeated_work_[static_cast<size_t>(reader)] > 0;
      repeats = std::max(repeats, repeated_work_[static_cast<size_t>(reader)]);
      depth = std::max(depth, index_depth_[static_cast<size_t>(reader)]);
      if (is_view(reader)) {
        ++reads;
        continue;
      }
      for (size_t i = 0; i < node(reader).inputs.size(); ++i) {
        if (node(reader).inputs[i] != result(id)) continue;
        if (accesses(reader).repeats[i] && is_reduction(reader)) {
          refuse(id, reader, "windows that overlap would compute it once for each");
          return false;
        }
        repeated |= accesses(reader).repeats[i];
        if (accesses(reader).indexes[i]) depth = std::max(depth, index_depth_[static_cast<size_t>(reader)] + 1);
        all_identity &= accesses(reader).operands[i] == OperandAccess::kIdentity;
        reads += accesses(reader).reads[i];
      }
    }
    // Readers at one and the same index share the value; at several indices each computes its own.
    repeated |= reads > 1 && !all_identity;
    const int work = is_view(id) ? 0 : accesses(id).work;
    if (repeated && repeats + work > kCheapWork) {
      refuse(id, readers(id)[0],
             fmt::format("its elements are read more than once and are not cheap (work {}, limit {})", repeats + work,
                         kCheapWork));
      return false;
    }
    if (depth > kMaxIndexDepth) {
      refuse(id, readers(id)[0], fmt::format("an index lies behind more than {} look-ups", kMaxIndexDepth));
      return false;
    }
    index_depth_[static_cast<size_t>(id)] = depth;
    // At least 1, so that what feeds it knows that it is repeated.
    repeated_work_[static_cast<size_t>(id)] = repeated ? std::max(1, repeats + work) : 0;
    in_front_[static_cast<size_t>(id)] = group.reduction >= 0 && !behind;
    return true;
  }

  // A view costs nothing between kernels, but between two nodes of one injective group it saves a pass over memory:
  // inside the group it is index arithmetic. Only behind nodes that merely move elements (transpose, relayout): there
  // the arithmetic replaces a pass that does nothing else.
  void place_view(NodeId id) {
    const Node* producer = graph_.producer(node(id).inputs[0]);
    if (!producer || leaves_graph(id) || readers(id).empty()) return;
    const NodeId made_by = graph_.value(node(id).inputs[0]).producer;
    const int group = group_of_[static_cast<size_t>(readers(id)[0])];
    const bool alone = users_[static_cast<size_t>(node(id).inputs[0])].size() == 1;
    if (group < 0 || !alone || groups_[static_cast<size_t>(group)].reduction >= 0) return;
    const bool moves = is_expression(made_by) && !is_reduction(made_by) && accesses(made_by).work == 0;
    if (!is_view(made_by) && (!moves || group_of_[static_cast<size_t>(made_by)] >= 0)) return;
    for (const NodeId reader : readers(id))
      if (group_of_[static_cast<size_t>(reader)] != group || wants_rows(made_by, reader)) return;
    if (leaves_graph(made_by) || groups_[static_cast<size_t>(group)].members.size() + 1 >= kMaxGroupNodes) return;
    if (may_be_inlined(id, groups_[static_cast<size_t>(group)])) join(id, group);
  }

  const Graph& graph_;
  Remarks* remarks_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> is_output_;
  std::vector<Accesses> accesses_;
  std::vector<int> group_of_;
  std::vector<bool> in_front_;      // of the reduction of their group
  std::vector<int> repeated_work_;  // of nodes inlined into readers that read their elements more than once
  std::vector<int> index_depth_;    // of inlined nodes: look-ups in whose index their elements are
  std::vector<Group> groups_;
};

}  // namespace

FusionPlan plan_fusion(const Graph& graph, Remarks* remarks) { return Planner(graph, remarks).run(); }

}  // namespace tessera::inline graph_passes
