#include "graph/op_def.h"

#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "graph/control_flow.h"
#include "support/error.h"
#include "support/operator_rule_error.h"
#include "support/symbolic_shape_error.h"

namespace tessera::inline graph {
namespace {

const char* kind_name(AttrKind kind) {
  static constexpr const char* kNames[] = {
      "a bool",  "an integer", "a number", "a string",       "a list of integers", "a list of numbers",
      "a dtype", "a layout",   "a tensor", "a list of sizes"};
  return kNames[static_cast<int>(kind)];
}

// The alternatives of Attr stand in the order of AttrKind.
AttrKind kind_of(const Attr& attr) { return static_cast<AttrKind>(attr.index()); }
static_assert(std::variant_size_v<Attr> == static_cast<size_t>(AttrKind::kSizes) + 1);
static_assert(std::is_same_v<std::variant_alternative_t<static_cast<size_t>(AttrKind::kLayout), Attr>, Layout>);

bool is_of_kind(const Attr& attr, AttrKind kind) {
  return kind_of(attr) == kind || (kind == AttrKind::kSizes && kind_of(attr) == AttrKind::kInts);
}

void check_attrs(const OpContext& ctx) {
  for (const AttrDef& def : ctx.op.attrs) {
    const auto it = ctx.attrs.all().find(def.name);
    if (it == ctx.attrs.all().end()) {
      if (def.required)
        ctx.fail("TSR-2002", fmt::format("attribute '{}' is missing", def.name),
                 fmt::format("'{}' is {}{}{}", def.name, kind_name(def.kind), def.doc.empty() ? "" : ": ", def.doc));
    } else if (!is_of_kind(it->second, def.kind)) {
      ctx.fail("TSR-2003", fmt::format("attribute '{}' is {}", def.name, kind_name(kind_of(it->second))),
               fmt::format("'{}' is {}", def.name, kind_name(def.kind)));
    } else if (const auto* tensor = std::get_if<TensorPtr>(&it->second); tensor && *tensor == nullptr) {
      ctx.fail("TSR-2003", fmt::format("attribute '{}' has no tensor", def.name), "a tensor");
    }
  }
  // A composite carries the attributes of the operator it stands for; only its own definition knows them.
  if (ctx.op.kind == OpKind::kComposite) return;
  for (const auto& [name, value] : ctx.attrs.all()) {
    const auto known = [&name = name](const AttrDef& def) { return def.name == name; };
    if (std::any_of(ctx.op.attrs.begin(), ctx.op.attrs.end(), known)) continue;
    std::string legal = ctx.op.attrs.empty() ? "no attributes" : "";
    for (const AttrDef& def : ctx.op.attrs) legal += (legal.empty() ? "" : ", ") + def.name;
    ctx.fail("TSR-2004", fmt::format("unknown attribute '{}'", name), legal);
  }
}

size_t num_regions(OpKind kind) {
  switch (kind) {
    case OpKind::kComposite:
    case OpKind::kGroup:
    case OpKind::kLoop:
    case OpKind::kCall: return 1;
    case OpKind::kIf: return 2;
    case OpKind::kExpression:
    case OpKind::kProcedure:
    case OpKind::kView:
    case OpKind::kBindSize:
    case OpKind::kConstant: return 0;
  }
  return 0;
}

void check_regions(const OpContext& ctx) {
  const size_t wanted = num_regions(ctx.op.kind), found = ctx.regions.size();
  if (found != wanted || std::count(ctx.regions.begin(), ctx.regions.end(), nullptr) > 0)
    ctx.fail("TSR-2005", fmt::format("{} regions", found),
             wanted == 0   ? "no regions"
             : wanted == 1 ? "exactly one region"
                           : "two regions, the first for true");
  if (ctx.op.kind == OpKind::kLoop) return;  // whose operands are not the inputs of its body
  const size_t first = first_captured(ctx.op);
  for (const GraphPtr& region : ctx.regions) {
    if (region->inputs.size() != ctx.inputs.size() - first)
      ctx.fail("TSR-2005",
               fmt::format("{} operands for a region of {} inputs", ctx.inputs.size() - first, region->inputs.size()),
               "one operand for each input of the region, in order");
    for (size_t i = first; i < ctx.inputs.size(); ++i) {
      const ValueId input = region->inputs[i - first];
      TensorType want = region->type(input);
      want.layout = {};
      if (!(want == ctx.inputs[i]))
        ctx.fail("TSR-2005", fmt::format("operand {} is {}", i, ctx.inputs[i].to_string()),
                 fmt::format("{}, as input %{} of the region", want.to_string(), region->value(input).name));
    }
  }
}

}  // namespace

void OpContext::fail(const std::string& id, const std::string& found, const std::string& legal,
                     const std::string& hint) const {
  const auto is_static = [](const TensorType& type) { return type.is_static(); };
  const auto is_sizes = [](const auto& attr) { return std::holds_alternative<Shape>(attr.second); };
  Diagnostic diagnostic{id, fmt::format("operator {}: {}", op.name, found), loc, legal, hint};
  if (!std::all_of(inputs.begin(), inputs.end(), is_static) ||
      std::any_of(attrs.all().begin(), attrs.all().end(), is_sizes))
    throw SymbolicShapeError(std::move(diagnostic));
  throw OperatorRuleError(std::move(diagnostic));
}

OpTable::OpTable(std::vector<const OpDef*> ops) : ops_(std::move(ops)) {
  std::sort(ops_.begin(), ops_.end(), [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  for (size_t i = 1; i < ops_.size(); ++i)
    check(ops_[i - 1]->name != ops_[i]->name, "operator " + ops_[i]->name + " is in the table twice");
}

const OpDef* OpTable::find(std::string_view name) const {
  const auto it = std::lower_bound(ops_.begin(), ops_.end(), name,
                                   [](const OpDef* op, std::string_view key) { return op->name < key; });
  return it != ops_.end() && (*it)->name == name ? *it : nullptr;
}

const OpDef& OpTable::get(std::string_view name) const {
  const OpDef* op = find(name);
  if (!op) throw InternalError(fmt::format("no operator is named {}", name));
  return *op;
}

std::vector<TensorType> infer_types(const OpDef& op, const std::vector<TensorType>& inputs, const Attrs& attrs,
                                    const std::vector<GraphPtr>& regions, const std::string& loc) {
  std::vector<TensorType> logical = inputs;
  for (TensorType& type : logical) type.layout = {};
  const OpContext ctx{op, logical, attrs, regions, loc};
  const auto count = static_cast<int>(inputs.size());
  if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs)) {
    const std::string legal = op.max_inputs < 0                ? fmt::format("{} or more", op.min_inputs)
                              : op.min_inputs == op.max_inputs ? fmt::format("{}", op.min_inputs)
                                                               : fmt::format("{} to {}", op.min_inputs, op.max_inputs);
    ctx.fail("TSR-2001", fmt::format("{} operands", count), legal + " operands");
  }
  check_attrs(ctx);
  check_regions(ctx);
  std::vector<TensorType> types = op.infer(ctx);
  // In normal form, so that equal sizes are equal expressions.
  for (TensorType& type : types)
    for (Expr& dim : type.shape) dim = normalize_size(dim);
  return types;
}

namespace {

std::vector<TensorType> logical_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  for (const ValueId input : node.inputs) {
    types.push_back(graph.type(input));
    types.back().layout = {};
  }
  return types;
}

}  // namespace

Body node_body(const Graph& graph, const Node& node) {
  check(node.op->kind == OpKind::kExpression, "operator " + node.op->name + " has no body");
  const std::vector<TensorType> types = logical_types(graph, node);
  return node.op->body(OpContext{*node.op, types, node.attrs, node.regions, node.loc});
}

LoopProgram node_loops(const Graph& graph, const Node& node) {
  check(node.op->kind == OpKind::kProcedure, "operator " + node.op->name + " has no loops");
  const std::vector<TensorType> types = logical_types(graph, node);
  return node.op->loops(OpContext{*node.op, types, node.attrs, node.regions, node.loc});
}

Tensor evaluate_procedure(const Graph& graph, const Node& node, const std::vector<const Tensor*>& inputs) {
  check(node.op->kind == OpKind::kProcedure, "operator " + node.op->name + " is no procedure");
  const std::vector<TensorType> types = logical_types(graph, node);
  return node.op->evaluate(OpContext{*node.op, types, node.attrs, node.regions, node.loc}, inputs);
}

}  // namespace tessera::inline graph
