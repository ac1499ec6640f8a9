#include "lower/lower.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <set>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera {
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
    Body stage_body = with_fresh_axes(body);
    std::unordered_map<const Buffer*, const Operand*> map;
    for (size_t i = 0; i < body.inputs.size(); ++i) map[body.inputs[i].get()] = &operands[i];
    stage_body.value = transform(stage_body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = map.find(node->buffer.get());
      if (it == map.end()) return {};
      return it->second->scalar ? it->second->scalar : load(it->second->buffer, node->operands);
    });
    stage_body.inputs.clear();
    const BufferPtr out = make_buffer(fresh(name), type.dtype, type.shape);
    program_.stages.push_back({out, type.layout, std::move(stage_body)});
    return {out, {}};
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
  Bounds bounds;
  for (const Axis& axis : body.axes)
    if (const auto extent = as_int(axis.extent)) bounds.set(axis.var, 0, *extent - 1);
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

// Assigns buffers to values and collects calls.
class GraphLowering {
 public:
  explicit GraphLowering(const Graph& graph) : graph_(graph) {}

  Program run() {
    program_.name = graph_.name;
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
      const ValueId root = storage_root(graph_.outputs[i]);
      const Node* producer = graph_.producer(root);
      if (producer && producer->op->kind != OpKind::kConstant && !direct_.count(root)) direct_[root] = id;
      else copies_.push_back({graph_.outputs[i], id});
    }
    for (const Node& node : graph_.nodes()) lower(node);
    for (const auto& [value, output] : copies_) copy(value, output);
    return std::move(program_);
  }

 private:
  BufferId add_buffer(const std::string& name, BufferKind kind, const TensorType& type) {
    ProgramBuffer buffer;
    buffer.name = unique(name);
    buffer.kind = kind;
    buffer.type = type;
    int64_t count = 1;
    const auto dims = static_dims(physical_shape(type.shape, type.layout));
    if (!dims)
      throw UserError({"TSR-5020", fmt::format("the shape {} of value {} is not fixed", type.to_string(), name), "",
                       "fixed dimensions", "fix the free dimensions with --shape or --dim"});
    for (int64_t dim : *dims) count *= dim;
    buffer.bytes = dtype_bytes(type.dtype, count);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  std::string unique(const std::string& name) {
    int& count = names_[name];
    return count++ ? fmt::format("{}.{}", name, count - 1) : name;
  }

  ValueId storage_root(ValueId id) const {
    const Node* producer = graph_.producer(id);
    while (producer && producer->op->kind == OpKind::kView) {
      id = producer->inputs[0];
      producer = graph_.producer(id);
    }
    return id;
  }

  void lower(const Node& node) {
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
      const BufferId root = root_of(source);
      const BufferId id =
          add_buffer(graph_.value(node.outputs[0]).name, program_.buffers[static_cast<size_t>(root)].kind, type);
      program_.buffers[static_cast<size_t>(id)].alias_of = root;
      buffer_of_[node.outputs[0]] = id;
      return;
    }
    check(node.outputs.size() == 1, "a kernel has one result");
    std::vector<size_t> kept;
    auto definition = std::make_shared<TensorProgram>(lower_node(graph_, node, kept));
    std::vector<BufferId> args;
    for (size_t i : kept) args.push_back(buffer_of_.at(node.inputs[i]));
    const ValueId result = node.outputs[0];
    const auto direct = direct_.find(result);
    BufferId out;
    if (direct != direct_.end()) {
      const TensorType& type = graph_.type(result);
      out = direct->second;
      if (!(program_.buffers[static_cast<size_t>(out)].type == type)) {
        const BufferId view = add_buffer(graph_.value(result).name, BufferKind::kOutput, type);
        program_.buffers[static_cast<size_t>(view)].alias_of = out;
        out = view;
      }
    } else {
      out = add_buffer(graph_.value(result).name, BufferKind::kArena, graph_.type(result));
    }
    buffer_of_[result] = out;
    args.push_back(out);
    add_call(std::move(definition), std::move(args), node.loc);
  }

  void add_call(std::shared_ptr<TensorProgram> definition, std::vector<BufferId> args, const std::string& loc) {
    definition->name = unique(definition->name);
    for (char& c : definition->name) c = c == '.' ? '_' : c;
    Kernel kernel;
    kernel.program = naive_loops(*definition);
    kernel.loc = loc;
    kernel.flops = count_flops(*definition);
    kernel.bytes = count_bytes(*definition);
    kernel.definition = std::move(definition);
    program_.kernels.push_back(std::move(kernel));
    program_.calls.push_back({static_cast<int32_t>(program_.kernels.size() - 1), std::move(args), loc});
  }

  // An identity kernel from a value's buffer to an output that cannot share its bytes.
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

  BufferId root_of(BufferId id) const {
    const BufferId alias = program_.buffers[static_cast<size_t>(id)].alias_of;
    return alias < 0 ? id : alias;
  }

  const Graph& graph_;
  Program program_;
  std::map<ValueId, BufferId> buffer_of_;
  std::map<ValueId, BufferId> direct_;
  std::vector<std::pair<ValueId, BufferId>> copies_;
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

Program lower_graph(const Graph& graph) { return GraphLowering(graph).run(); }

}  // namespace tessera
