#include "lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <unordered_set>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "graph/slices.h"
#include "loop/naive_loops.h"
#include "lower/narrow_values.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"

namespace tessera::inline lower {
namespace {

// A kernel's name: letters, digits and underscores from the model's node name.
std::string identifier(const std::string& text) {
  std::string name;
  for (char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (name.size() > 60) name.resize(60);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "k_" + name;
  return name;
}

const TensorPtr* constant_of(const Graph& graph, ValueId id) {
  const Node* producer = graph.producer(id);
  return producer && producer->op->kind == OpKind::kConstant ? &producer->attrs.get<TensorPtr>("value") : nullptr;
}

// Builds the stages of one kernel from the nodes of a region.
class KernelLowering {
 public:
  explicit KernelLowering(TensorProgram& program) : program_(program) {}

  // The buffer that stands for a value inside the kernel, or a scalar written into the expressions.
  struct Operand {
    BufferPtr buffer;
    Expr scalar;
  };

  Operand add_param(const std::string& name, const TensorType& type, bool is_constant) {
    const BufferPtr buffer = make_buffer(fresh(name), type.dtype, type.shape);
    program_.params.push_back({buffer, type.layout, is_constant});
    return {buffer, {}};
  }

  static Operand scalar(const Tensor& value) {
    return {nullptr, is_float(value.dtype()) ? const_float(value.dtype(), value.get_double(0))
                                             : const_int(value.dtype(), value.get_int(0))};
  }

  Operand add_stage(const std::string& name, const TensorType& type, const Body& body,
                    const std::vector<Operand>& operands) {
    Body stage_body = with_fresh_axes(with_wide_accumulation(body));
    std::unordered_map<const Buffer*, const Operand*> map;
    for (size_t i = 0; i < body.inputs.size(); ++i) map[body.inputs[i].get()] = &operands[i];
    stage_body.value = transform(stage_body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = map.find(node->buffer.get());
      if (it == map.end()) return {};
      return it->second->scalar ? it->second->scalar : load(it->second->buffer, node->operands);
    });
    stage_body.inputs.clear();
    const DType computed = stage_body.value.dtype();
    const BufferPtr out = make_buffer(fresh(name), computed, type.shape);
    program_.stages.push_back({out, type.layout, std::move(stage_body)});
    if (computed == type.dtype) return {out, {}};
    // The complete sum is rounded by whoever reads it, or by a last stage.
    Body rounding;
    rounding.inputs = {make_buffer("x", computed, type.shape)};
    rounding.axes = make_axes("i", type.shape);
    rounding.value = cast(type.dtype, load(rounding.inputs[0], rounding.axis_vars()));
    return add_stage(name, type, rounding, {{out, {}}});
  }

 private:
  std::string fresh(const std::string& name) {
    const std::string base = identifier(name);
    int& count = names_[base];
    return count++ ? fmt::format("{}_{}", base, count - 1) : base;
  }

  TensorProgram& program_;
  std::map<std::string, int> names_;
};

// A view inside a kernel: the same row-major bytes under another shape.
Body reshape_body(const TensorType& from, const TensorType& to) {
  Body body;
  body.inputs = {make_buffer("x", from.dtype, from.shape)};
  body.axes = make_axes("i", to.shape);
  Expr flat = 0;
  for (const Axis& axis : body.axes) flat = flat * axis.extent + axis.var;
  std::vector<Expr> index(from.shape.size());
  for (size_t i = from.shape.size(); i-- > 0;) {
    index[i] = i == 0 ? flat : floormod(flat, from.shape[i]);
    flat = floordiv(flat, from.shape[i]);
  }
  std::vector<std::pair<Var, Expr>> axes;
  for (const Axis& axis : body.axes) axes.emplace_back(axis.var, axis.extent);
  const auto is_number = [](const Axis& axis) { return as_int(axis.extent).has_value(); };
  if (!std::all_of(body.axes.begin(), body.axes.end(), is_number) || !static_dims(from.shape)) {
    for (Expr& i : index) i = normalize_size(i, axes);
    body.value = load(body.inputs[0], index);
    return body;
  }
  Bounds bounds;
  for (const Axis& axis : body.axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
  body.value = simplify(load(body.inputs[0], index), bounds);
  return body;
}

void lower_region(KernelLowering& kernel, const Graph& region, std::vector<KernelLowering::Operand> inputs) {
  std::map<ValueId, KernelLowering::Operand> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[region.inputs[i]] = inputs[i];
  for (const Node& node : region.nodes()) {
    const ValueId result = node.outputs.at(0);
    const TensorType& type = region.type(result);
    std::vector<KernelLowering::Operand> operands;
    for (ValueId input : node.inputs) operands.push_back(values.at(input));
    switch (node.op->kind) {
      case OpKind::kConstant: {
        const TensorPtr& value = node.attrs.get<TensorPtr>("value");
        check(value->num_elements() == 1, "a constant inside a kernel must be a scalar");
        values[result] = KernelLowering::scalar(*value);
        break;
      }
      case OpKind::kExpression:
        values[result] = kernel.add_stage(region.value(result).name, type, node_body(region, node), operands);
        break;
      case OpKind::kView:
        values[result] = kernel.add_stage(region.value(result).name, type,
                                          reshape_body(region.type(node.inputs[0]), type), operands);
        break;
      default: throw InternalError("operator " + node.op->name + " inside a kernel");
    }
  }
  check(region.outputs.size() == 1, "a kernel has one result");
  const KernelLowering::Operand& out = values.at(region.outputs[0]);
  check(out.buffer != nullptr, "a kernel whose result is a constant");
}

std::vector<Var> those_seen(const std::unordered_set<const ExprNode*>& seen, const std::vector<SymbolRange>& symbols) {
  std::vector<Var> used;
  for (const SymbolRange& symbol : symbols)
    if (seen.count(symbol.var.get())) used.push_back(symbol.var);
  return used;
}

// Those of the symbols that sizes or the body of the kernel depend on.
std::vector<Var> used_symbols(const TensorProgram& program, const std::vector<SymbolRange>& symbols) {
  std::unordered_set<const ExprNode*> seen;
  const auto look = [&](const Expr& e) {
    walk(e, [&](const Expr& node) {
      seen.insert(node.get());
      if (node->kind == ExprKind::kLoad)
        for (const Expr& extent : node->buffer->shape) seen.insert(extent.get());
    });
  };
  const auto look_at_buffer = [&](const BufferPtr& buffer) {
    std::for_each(buffer->shape.begin(), buffer->shape.end(), look);
  };
  for (const TensorParam& param : program.params) look_at_buffer(param.buffer);
  for (const Stage& stage : program.stages) {
    look_at_buffer(stage.out);
    for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
      for (const Axis& axis : *axes) look(axis.extent);
    look(stage.body.value);
  }
  return those_seen(seen, symbols);
}

// The same of loops.
std::vector<Var> used_symbols(const LoopProgram& program, const std::vector<SymbolRange>& symbols) {
  std::unordered_set<const ExprNode*> seen;
  const auto look = [&](const Expr& e) { seen.insert(e.get()); };
  walk(program.body, nullptr, look);
  for (const BufferPtr& param : program.params)
    for (const Expr& dim : param->shape) walk(dim, look);
  return those_seen(seen, symbols);
}

// Assigns buffers to values and collects calls.
class GraphLowering {
 public:
  explicit GraphLowering(const Graph& graph) : graph_(graph), largest_(largest_sizes(graph.symbols)) {}

  Program run() {
    for (const SymbolRange& symbol : graph_.symbols)
      if (symbol.hi == INT64_MAX)
        throw UserError({"TSR-5020", fmt::format("the range of symbol {} has no end", symbol.var->name), "",
                         "ranges with a largest value, for which memory is planned", "give a range with --dim"});
    for (const SymbolRange& symbol : graph_.symbols) {
      const auto is_dim = [&](ValueId input) {
        const Shape& shape = graph_.type(input).shape;
        return std::any_of(shape.begin(), shape.end(), [&](const Expr& dim) { return dim.same_node(symbol.var); });
      };
      if (std::none_of(graph_.inputs.begin(), graph_.inputs.end(), is_dim))
        throw UserError({"TSR-5020", fmt::format("symbol {} is no dimension of an input by itself", symbol.var->name),
                         "", "symbols that the inputs of a run give values", "declare an input with such a dimension"});
    }
    program_.name = graph_.name;
    program_.symbols = graph_.symbols;
    program_.checks = graph_.checks;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const BufferId id =
          add_buffer(graph_.value(graph_.inputs[i]).name, BufferKind::kInput, graph_.type(graph_.inputs[i]));
      program_.buffers[static_cast<size_t>(id)].index = static_cast<int32_t>(i);
      program_.inputs.push_back(id);
      buffer_of_[graph_.inputs[i]] = id;
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      TensorType type = graph_.type(graph_.outputs[i]);
      check(type.layout.row_major(), "graph output with a layout");
      const BufferId id = add_buffer(graph_.value(graph_.outputs[i]).name, BufferKind::kOutput, type);
      program_.buffers[static_cast<size_t>(id)].index = static_cast<int32_t>(i);
      program_.outputs.push_back(id);
      program_.output_names.push_back(graph_.value(graph_.outputs[i]).name);
      // The first output whose bytes this storage is writes into it directly; others are copied at the end.
      const ValueId root = storage_value(graph_, graph_.outputs[i]);
      const Node* producer = graph_.producer(root);
      if (producer && producer->op->kind != OpKind::kConstant && !is_slice_view(*producer) && !direct_.count(root))
        direct_[root] = id;
      else copies_.push_back({graph_.outputs[i], id});
    }
    place_concats();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) lower(graph_.nodes()[i], placed_[i]);
    for (const auto& [value, output] : copies_) copy(value, output);
    return std::move(program_);
  }

 private:
  BufferId add_buffer(const std::string& name, BufferKind kind, const TensorType& type) {
    ProgramBuffer buffer;
    buffer.name = unique(name);
    buffer.kind = kind;
    buffer.type = type;
    buffer.bytes = bytes_at(type, graph_.symbols, largest_);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  std::string unique(const std::string& name) {
    int& count = names_[name];
    return count++ ? fmt::format("{}.{}", name, count - 1) : name;
  }

  // A slice that is a view of memory. Constants are stored in the order of whoever reads them: no views of those.
  bool is_slice_view(const Node& node) const {
    if (node.op->name != "slice" || !is_in_place(node)) return false;
    const Node* producer = graph_.producer(storage_value(graph_, node.inputs[0]));
    return !producer || producer->op->kind != OpKind::kConstant;
  }

  // The part of buffer `whole` from byte `begin` on, as a buffer of its own.
  BufferId add_view(const std::string& name, const TensorType& type, BufferId whole, Expr begin = 0) {
    for (BufferId of = whole; of >= 0; of = program_.buffers[static_cast<size_t>(of)].alias_of) {
      const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(of)];
      begin = begin + (buffer.view_offset_formula ? buffer.view_offset_formula : Expr(buffer.view_offset));
      whole = of;
    }
    begin = normalize_size(begin);
    const BufferId id = add_buffer(name, program_.buffers[static_cast<size_t>(whole)].kind, type);
    program_.buffers[static_cast<size_t>(id)].alias_of = whole;
    program_.buffers[static_cast<size_t>(id)].view_offset = value_at(begin, graph_.symbols, largest_);
    if (!as_int(begin)) program_.buffers[static_cast<size_t>(id)].view_offset_formula = begin;
    return id;
  }

  // Where the kernel that computes `value` writes it.
  BufferId result_buffer(ValueId value) {
    const std::string& name = graph_.value(value).name;
    const TensorType& type = graph_.type(value);
    if (const auto part = part_of_.find(value); part != part_of_.end())
      return add_view(name, type, part->second.first, part->second.second);
    const auto direct = direct_.find(value);
    if (direct == direct_.end()) return add_buffer(name, BufferKind::kArena, type);
    const bool same = program_.buffers[static_cast<size_t>(direct->second)].type == type;
    return same ? direct->second : add_view(name, type, direct->second);
  }

  // In-place concats have their buffers before their operands, the largest first: a concat may be part of another.
  void place_concats() {
    placed_ = place_operands(graph_);
    for (size_t i = placed_.size(); i-- > 0;) {
      if (placed_[i].empty()) continue;
      const ValueId result = graph_.nodes()[i].outputs[0];
      buffer_of_[result] = result_buffer(result);
      for (const PlacedOperand& operand : placed_[i])
        if (operand.storage >= 0) part_of_[operand.storage] = {buffer_of_[result], operand.offset};
    }
  }

  void lower(const Node& node, const std::vector<PlacedOperand>& placed) {
    if (node.op->kind == OpKind::kConstant) {
      const TensorPtr& value = node.attrs.get<TensorPtr>("value");
      const TensorType& type = graph_.type(node.outputs[0]);
      check(type.layout.row_major(), "a constant with a layout");
      const BufferId id = add_buffer(graph_.value(node.outputs[0]).name, BufferKind::kWeight, type);
      program_.buffers[static_cast<size_t>(id)].data = value;
      buffer_of_[node.outputs[0]] = id;
      return;
    }
    if (node.op->kind == OpKind::kView) {
      const BufferId source = buffer_of_.at(node.inputs[0]);
      const TensorType& type = graph_.type(node.outputs[0]);
      check(type.layout.row_major() && graph_.type(node.inputs[0]).layout.row_major(), "a view of a layout");
      buffer_of_[node.outputs[0]] = add_view(graph_.value(node.outputs[0]).name, type, source);
      return;
    }
    if (is_slice_view(node)) {
      const auto begin = contiguous_slice(graph_, node);
      check(begin.has_value(), "an in-place slice that is not contiguous: " + node.loc);
      const ValueId result = node.outputs[0];
      buffer_of_[result] =
          add_view(graph_.value(result).name, graph_.type(result), buffer_of_.at(node.inputs[0]), *begin);
      return;
    }
    if (!placed.empty()) {
      for (size_t i = 0; i < placed.size(); ++i) {
        if (placed[i].storage >= 0) continue;
        const std::string name = graph_.value(node.inputs[i]).name + ".part";
        const BufferId whole = buffer_of_.at(node.outputs[0]);
        copy(node.inputs[i], add_view(name, graph_.type(node.inputs[i]), whole, placed[i].offset));
      }
      return;
    }
    check(node.outputs.size() == 1, "a kernel has one result");
    if (node.op->kind == OpKind::kProcedure) return lower_procedure(node);
    std::vector<size_t> kept;
    auto definition = std::make_shared<TensorProgram>(lower_node(graph_, node, kept));
    std::vector<BufferId> args;
    for (size_t i : kept) args.push_back(buffer_of_.at(node.inputs[i]));
    const ValueId result = node.outputs[0];
    const BufferId out = result_buffer(result);
    buffer_of_[result] = out;
    args.push_back(out);
    add_call(std::move(definition), std::move(args), node.loc);
  }

  // Its loops are written already: no schedule rule is asked.
  void lower_procedure(const Node& node) {
    Kernel kernel;
    kernel.program = node_loops(graph_, node);
    kernel.program.name = kernel_name(identifier(node.loc.empty() ? node.op->name : node.loc));
    kernel.rule = "procedure";
    kernel.loc = node.loc;
    std::vector<BufferId> args;
    for (const ValueId input : node.inputs) args.push_back(buffer_of_.at(input));
    const ValueId result = node.outputs[0];
    buffer_of_[result] = result_buffer(result);
    args.push_back(buffer_of_[result]);
    kernel.program.symbols = used_symbols(kernel.program, graph_.symbols);
    kernel.bytes = kernel.program.symbols.empty() ? 0 : -1;
    if (kernel.bytes == 0)
      for (const BufferId arg : args) kernel.bytes += program_.buffers[static_cast<size_t>(arg)].bytes;
    program_.kernels.push_back(std::move(kernel));
    program_.calls.push_back({static_cast<int32_t>(program_.kernels.size() - 1), std::move(args), node.loc});
  }

  std::string kernel_name(const std::string& wish) {
    std::string name = unique(wish);
    for (char& c : name) c = c == '.' ? '_' : c;
    return name;
  }

  void add_call(std::shared_ptr<TensorProgram> definition, std::vector<BufferId> args, const std::string& loc) {
    definition->name = kernel_name(definition->name);
    Kernel kernel;
    kernel.program = naive_loops(*definition);
    kernel.program.symbols = used_symbols(*definition, graph_.symbols);
    kernel.loc = loc;
    const bool fixed = kernel.program.symbols.empty();
    kernel.flops = fixed ? count_flops(*definition) : -1;
    kernel.bytes = fixed ? count_bytes(*definition) : -1;
    kernel.definition = std::move(definition);
    program_.kernels.push_back(std::move(kernel));
    program_.calls.push_back({static_cast<int32_t>(program_.kernels.size() - 1), std::move(args), loc});
  }

  // An identity kernel from a value's buffer to another that cannot be the same bytes.
  void copy(ValueId value, BufferId output) {
    const TensorType& type = graph_.type(value);
    auto definition = std::make_shared<TensorProgram>();
    definition->name = identifier("copy_" + graph_.value(value).name);
    KernelLowering kernel(*definition);
    const auto param = kernel.add_param("x", type, false);
    Body body;
    body.inputs = {param.buffer};
    body.axes = make_axes("i", type.shape);
    body.value = load(param.buffer, body.axis_vars());
    kernel.add_stage("y", type, body, {param});
    add_call(std::move(definition), {buffer_of_.at(value), output}, graph_.value(value).name);
  }

  const Graph& graph_;
  const SizePoint largest_;
  Program program_;
  std::map<ValueId, BufferId> buffer_of_;
  std::map<ValueId, BufferId> direct_;
  std::vector<std::pair<ValueId, BufferId>> copies_;
  std::vector<std::vector<PlacedOperand>> placed_;        // by node
  std::map<ValueId, std::pair<BufferId, Expr>> part_of_;  // the concat's buffer and the place in it, in bytes
  std::map<std::string, int> names_;
};

}  // namespace

TensorProgram lower_node(const Graph& graph, const Node& node, std::vector<size_t>& kept) {
  TensorProgram program;
  program.name = identifier(node.loc.empty() ? node.op->name : node.loc);
  KernelLowering kernel(program);
  std::vector<KernelLowering::Operand> operands;
  std::map<ValueId, KernelLowering::Operand> seen;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (const auto it = seen.find(input); it != seen.end()) {
      operands.push_back(it->second);
      continue;
    }
    const TensorPtr* constant = constant_of(graph, input);
    if (constant && *constant && (*constant)->num_elements() == 1 && (*constant)->dtype() != DType::kString) {
      operands.push_back(KernelLowering::scalar(**constant));
    } else {
      operands.push_back(kernel.add_param(graph.value(input).name, graph.type(input), constant != nullptr));
      kept.push_back(i);
    }
    seen[input] = operands.back();
  }
  if (node.op->kind == OpKind::kGroup) {
    lower_region(kernel, *node.regions.at(0), operands);
  } else {
    check(node.op->kind == OpKind::kExpression, "cannot lower operator " + node.op->name);
    kernel.add_stage(graph.value(node.outputs[0]).name, graph.type(node.outputs[0]), node_body(graph, node), operands);
  }
  inline_injective_stages(program);
  return program;
}

Program lower_graph(const Graph& graph) {
  const KnownSymbols known(graph.symbols);
  Program program = GraphLowering(graph).run();
  narrow_values(program);
  return program;
}

}  // namespace tessera::inline lower
