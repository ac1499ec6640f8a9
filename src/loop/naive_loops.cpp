#include "loop/naive_loops.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "support/error.h"

namespace tessera::inline loop {
namespace {

struct Memory {
  std::unordered_map<const Buffer*, std::pair<BufferPtr, Layout>> physical;

  void add(const BufferPtr& logical, const Layout& layout, const std::string& name) {
    physical[logical.get()] = {make_buffer(name, logical->dtype, physical_shape(logical->shape, layout)), layout};
  }
  Expr rewrite(const Expr& e, const Bounds& bounds) const {
    return simplify(transform(e,
                              [&](const Expr& node) -> Expr {
                                if (node->kind != ExprKind::kLoad) return {};
                                const auto it = physical.find(node->buffer.get());
                                if (it == physical.end()) return {};
                                return load(it->second.first, physical_index(node->operands, it->second.second));
                              }),
                    bounds);
  }
};

void bound_axes(const std::vector<Axis>& axes, Bounds& bounds) {
  for (const Axis& axis : axes) {
    const auto extent = as_int(axis.extent);
    bounds.set(axis.var, Interval{0, extent ? std::optional(*extent - 1) : std::nullopt});
  }
}

// All values before the first store: a result may take the place of what another one is computed from.
Stmt store_results(std::span<const BufferPtr> outs, const std::vector<Expr>& index, const std::vector<Expr>& values) {
  if (outs.size() == 1) return store(outs[0], index, values[0]);
  std::vector<Stmt> compute, stores;
  std::vector<BufferPtr> registers;
  for (size_t i = 0; i < outs.size(); ++i) {
    registers.push_back(make_buffer("value" + std::to_string(i), values[i].dtype(), {1}, MemoryScope::kRegister));
    compute.push_back(store(registers[i], {0}, values[i]));
    stores.push_back(store(outs[i], index, load(registers[i], {0})));
  }
  compute.insert(compute.end(), stores.begin(), stores.end());
  Stmt body = seq(std::move(compute));
  for (size_t i = outs.size(); i-- > 0;) body = alloc(registers[i], std::move(body));
  return body;
}

Stmt nest(const std::vector<Axis>& axes, Stmt body) {
  for (size_t i = axes.size(); i-- > 0;) body = for_loop(axes[i].var, 0, axes[i].extent, ForKind::kSerial, body);
  return body;
}

}  // namespace

LoopProgram naive_loops(const TensorProgram& program) {
  LoopProgram result;
  result.name = program.name;
  result.num_outputs = static_cast<int>(program.num_results);
  Memory memory;
  for (const TensorParam& param : program.params) {
    memory.add(param.buffer, param.layout, param.buffer->name);
    result.params.push_back(memory.physical[param.buffer.get()].first);
  }
  for (const Stage& stage : program.results()) {
    memory.add(stage.out, stage.layout, stage.out->name);
    result.params.push_back(memory.physical[stage.out.get()].first);
  }
  const Stage& output = program.output();
  const bool several = program.num_results > 1;
  Bounds bounds;
  bound_axes(output.body.axes, bounds);
  std::vector<Expr> store_index;
  for (const Expr& i : physical_index(output.body.axis_vars(), output.layout))
    store_index.push_back(simplify(i, bounds));

  // One accumulator per reduction and output element; what is computed from it reads it in its place. Reductions that
  // read others (te/extremum_place.h) have loops of their own behind those.
  std::vector<std::pair<const Stage*, BufferPtr>> accumulators;
  const auto finished = [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return {};
    for (const auto& [reduction, acc] : accumulators)
      if (node->buffer == reduction->out) return load(acc, {0});
    return {};
  };
  std::vector<Stmt> clear, updates, later;
  std::vector<Axis> reduce_axes;
  for (const Stage* reduction : program.reductions()) {
    const bool own_axes = !several && reduction != &output;
    const Body body = own_axes ? with_fresh_axes(reduction->body) : reduction->body;
    VarMap to_output;
    for (size_t i = 0; i < body.axes.size(); ++i) to_output[body.axes[i].var.get()] = output.body.axes[i].var;
    if (reduce_axes.empty()) reduce_axes = body.reduce_axes;
    for (size_t i = 0; i < body.reduce_axes.size(); ++i) to_output[body.reduce_axes[i].var.get()] = reduce_axes[i].var;
    bound_axes(reduce_axes, bounds);
    const BufferPtr acc = make_buffer(accumulators.empty() ? "acc" : "acc" + std::to_string(accumulators.size()),
                                      reduction->out->dtype, {1}, MemoryScope::kRegister);
    clear.push_back(store(acc, {0}, combiner_identity(body.combiner, acc->dtype)));
    const Expr value = transform(substitute(body.value, to_output), finished);
    bool reads_others = false;
    walk(value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad) return;
      for (const auto& other : accumulators) reads_others = reads_others || e->buffer == other.second;
    });
    (reads_others ? later : updates)
        .push_back(store(acc, {0}, combine(body.combiner, load(acc, {0}), memory.rewrite(value, bounds))));
    accumulators.emplace_back(reduction, acc);
  }
  const auto final_value = [&](const Stage& stage) {
    for (const auto& [reduction, acc] : accumulators)
      if (reduction == &stage) return load(acc, {0});
    return memory.rewrite(transform(stage.body.value, finished), bounds);
  };
  std::vector<Expr> values;
  for (const Stage& stage : program.results()) values.push_back(final_value(stage));
  Stmt body = store_results(std::span(result.params).last(program.num_results), store_index, values);
  if (!accumulators.empty()) {
    std::vector<Stmt> all = std::move(clear);
    all.push_back(nest(reduce_axes, seq(std::move(updates))));
    if (!later.empty()) all.push_back(with_fresh_definitions(nest(reduce_axes, seq(std::move(later)))));
    all.push_back(std::move(body));
    body = seq(std::move(all));
    for (size_t i = accumulators.size(); i-- > 0;) body = alloc(accumulators[i].second, std::move(body));
  }
  result.body = nest(output.body.axes, std::move(body));
  return result;
}

LoopProgram naive_loops(const JoinedProgram& program) {
  LoopProgram result;
  result.name = program.name;
  std::vector<BufferPtr> memory;
  for (size_t v = 0; v < program.values.size(); ++v) {
    const TensorParam& value = program.values[v];
    const bool is_argument = v < program.num_args;
    memory.push_back(make_buffer(is_argument ? value.buffer->name : "between" + std::to_string(v), value.buffer->dtype,
                                 physical_shape(value.buffer->shape, value.layout),
                                 is_argument ? MemoryScope::kGlobal : MemoryScope::kLocal));
    if (is_argument) result.params.push_back(memory.back());
  }
  std::vector<Stmt> parts;
  for (const JoinedMember& member : program.members) {
    const LoopProgram own = naive_loops(member.program);
    std::unordered_map<const Buffer*, BufferPtr> moved;
    for (size_t a = 0; a < own.params.size(); ++a) moved[own.params[a].get()] = memory[member.args[a]];
    parts.push_back(with_fresh_definitions(transform(
        own.body,
        [&](const Expr& node) -> Expr {
          if (node->kind != ExprKind::kLoad) return {};
          const auto it = moved.find(node->buffer.get());
          return it == moved.end() ? Expr() : load(it->second, node->operands);
        },
        [&](const Stmt& node) -> Stmt {
          if (node->kind != StmtKind::kStore) return {};
          const auto it = moved.find(node->buffer.get());
          return it == moved.end() ? Stmt() : store(it->second, node->indices, node->value);
        })));
  }
  result.body = seq(std::move(parts));
  for (size_t v = memory.size(); v-- > program.num_args;) result.body = alloc(memory[v], std::move(result.body));
  return result;
}

}  // namespace tessera::inline loop
