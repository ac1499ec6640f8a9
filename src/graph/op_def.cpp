#include "graph/op_def.h"

#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"
#include "support/error.h"

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

void check_regions(const OpContext& ctx) {
  const bool has_region = ctx.op.kind == OpKind::kComposite || ctx.op.kind == OpKind::kGroup;
  if (!has_region) {
    if (!ctx.regions.empty()) ctx.fail("TSR-2005", fmt::format("{} regions", ctx.regions.size()), "no regions");
    return;
  }
  if (ctx.regions.size() != 1 || !ctx.regions[0])
    ctx.fail("TSR-2005", fmt::format("{} regions", ctx.regions.size()), "exactly one region");
  const Graph& region = *ctx.regions[0];
  if (region.inputs.size() != ctx.inputs.size())
    ctx.fail("TSR-2005", fmt::format("{} operands for a region of {} inputs", ctx.inputs.size(), region.inputs.size()),
             "one operand for each input of the region, in order");
  for (size_t i = 0; i < ctx.inputs.size(); ++i) {
    TensorType want = region.type(region.inputs[i]);
    want.layout = {};
    if (!(want == ctx.inputs[i]))
      ctx.fail("TSR-2005", fmt::format("operand {} is {}", i, ctx.inputs[i].to_string()),
               fmt::format("{}, as input %{} of the region", want.to_string(), region.value(region.inputs[i]).name));
  }
}

}  // namespace

void OpContext::fail(const std::string& id, const std::string& found, const std::string& legal,
                     const std::string& hint) const {
  throw UserError({id, fmt::format("operator {}: {}", op.name, found), loc, legal, hint});
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
