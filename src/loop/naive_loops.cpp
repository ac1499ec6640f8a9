#include "loop/naive_loops.h"

#include "arith/simplify.h"
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

Stmt nest(const std::vector<Axis>& axes, Stmt body) {
  for (size_t i = axes.size(); i-- > 0;) body = for_loop(axes[i].var, 0, axes[i].extent, ForKind::kSerial, body);
  return body;
}

}  // namespace

LoopProgram naive_loops(const TensorProgram& program) {
  LoopProgram result;
  result.name = program.name;
  Memory memory;
  for (const TensorParam& param : program.params) {
    memory.add(param.buffer, param.layout, param.buffer->name);
    result.params.push_back(memory.physical[param.buffer.get()].first);
  }
  const Stage& output = program.output();
  memory.add(output.out, output.layout, output.out->name);
  const BufferPtr out = memory.physical[output.out.get()].first;
  result.params.push_back(out);

  Bounds bounds;
  bound_axes(output.body.axes, bounds);
  const std::vector<Expr> index = physical_index(output.body.axis_vars(), output.layout);
  std::vector<Expr> store_index;
  for (const Expr& i : index) store_index.push_back(simplify(i, bounds));

  const Stage* reduction = program.reduction();
  if (!reduction) {
    result.body = nest(output.body.axes, store(out, store_index, memory.rewrite(output.body.value, bounds)));
    return result;
  }

  // One accumulator per output element; the epilogue reads it in place of the reduction's result.
  check(program.stages.size() <= 2, "a kernel with more than one reduction and one epilogue: " + program.name);
  const Body body = reduction == &output ? reduction->body : with_fresh_axes(reduction->body);
  VarMap to_output;
  for (size_t i = 0; i < body.axes.size(); ++i) to_output[body.axes[i].var.get()] = output.body.axes[i].var;
  bound_axes(body.reduce_axes, bounds);
  const BufferPtr acc = make_buffer("acc", reduction->out->dtype, {1}, MemoryScope::kRegister);
  const Expr value = memory.rewrite(substitute(body.value, to_output), bounds);
  const Expr sum = load(acc, {0});
  Stmt update = store(acc, {0}, combine(body.combiner, sum, value));
  Expr final_value = sum;
  if (reduction != &output)
    final_value = memory.rewrite(
        transform(output.body.value,
                  [&](const Expr& node) -> Expr {
                    return node->kind == ExprKind::kLoad && node->buffer == reduction->out ? sum : Expr();
                  }),
        bounds);
  result.body =
      nest(output.body.axes, alloc(acc, seq({store(acc, {0}, combiner_identity(body.combiner, acc->dtype)),
                                             nest(body.reduce_axes, update), store(out, store_index, final_value)})));
  return result;
}

}  // namespace tessera::inline loop
