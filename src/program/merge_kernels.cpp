#include "program/merge_kernels.h"

#include <bit>
#include <unordered_map>

namespace tessera::inline program {
namespace {

// Writes structure as bytes. Variables and buffers are numbered by first appearance, shared sub-expressions are written
// once and referred to by number, so the key is as long as the kernel is large.
class KeyWriter {
 public:
  std::string take() { return std::move(key_); }

  void number(int64_t value) {
    for (int i = 0; i < 8; ++i) key_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
  template <typename T>
  void tag(T value) {
    key_ += static_cast<char>(value);
  }

  void text(const std::string& value) {
    number(static_cast<int64_t>(value.size()));
    key_ += value;
  }

  void layout(const Layout& layout) {
    number(static_cast<int64_t>(layout.dims.size()));
    for (const LayoutDim& dim : layout.dims) {
      number(dim.axis);
      tag(dim.part);
      number(dim.block);
    }
  }

  void buffer(const BufferPtr& buffer) {
    const auto [it, is_new] = things_.try_emplace(buffer.get(), static_cast<int64_t>(things_.size()));
    number(it->second);
    if (!is_new) return;
    tag(buffer->dtype);
    tag(buffer->scope);
    number(static_cast<int64_t>(buffer->shape.size()));
    for (const Expr& extent : buffer->shape) expression(extent);
  }

  void expression(const Expr& e) {
    if (!e) return tag('0');
    const auto [it, is_new] = things_.try_emplace(e.get(), static_cast<int64_t>(things_.size()));
    tag('e');
    number(it->second);
    if (!is_new) return;
    tag(e->kind);
    tag(e->dtype);
    switch (e->kind) {
      case ExprKind::kConst:
        number(e->int_value);
        number(std::bit_cast<int64_t>(e->float_value));
        break;
      case ExprKind::kLoad: buffer(e->buffer); break;
      case ExprKind::kUnary: tag(e->unary); break;
      case ExprKind::kBinary: tag(e->binary); break;
      default: break;
    }
    number(static_cast<int64_t>(e->operands.size()));
    for (const Expr& operand : e->operands) expression(operand);
  }

  void axes(const std::vector<Axis>& axes) {
    number(static_cast<int64_t>(axes.size()));
    for (const Axis& axis : axes) {
      expression(axis.var);
      expression(axis.extent);
    }
  }

  void definition(const TensorProgram& program) {
    number(static_cast<int64_t>(program.params.size()));
    for (const TensorParam& param : program.params) {
      buffer(param.buffer);
      layout(param.layout);
      tag(param.kind);
    }
    number(static_cast<int64_t>(program.num_results));
    number(static_cast<int64_t>(program.stages.size()));
    for (const Stage& stage : program.stages) {
      buffer(stage.out);
      layout(stage.layout);
      axes(stage.body.axes);
      axes(stage.body.reduce_axes);
      tag(stage.body.combiner);
      expression(stage.body.value);
    }
  }

  void statement(const Stmt& s) {
    tag('s');
    tag(s->kind);
    if (s->var) expression(s->var);
    expression(s->begin);
    expression(s->extent);
    tag(s->for_kind);
    expression(s->condition);
    if (s->buffer) buffer(s->buffer);
    number(static_cast<int64_t>(s->indices.size()));
    for (const Expr& index : s->indices) expression(index);
    expression(s->value);
    // Intrinsics live as long as the compiler: their address is their identity.
    number(static_cast<int64_t>(reinterpret_cast<intptr_t>(s->intrinsic)));
    number(static_cast<int64_t>(s->stmts.size()));
    for (const Stmt& child : s->stmts) statement(child);
  }

  void loops(const LoopProgram& program) {
    number(static_cast<int64_t>(program.params.size()));
    for (const BufferPtr& param : program.params) buffer(param);
    number(program.num_outputs);
    number(static_cast<int64_t>(program.symbols.size()));
    for (const Var& symbol : program.symbols) text(symbol->name);
    statement(program.body);
  }

 private:
  std::string key_;
  std::unordered_map<const void*, int64_t> things_;
};

}  // namespace

std::string kernel_key(const Kernel& kernel) {
  KeyWriter writer;
  writer.text(kernel.rule);
  writer.tag(kernel.definition ? 'd' : 'l');
  // Symbols are values of a run with a meaning of their own: first, so that their numbers are those of their names.
  for (const Var& symbol : kernel.program.symbols) writer.expression(symbol);
  if (kernel.definition) writer.definition(*kernel.definition);
  // The naive loops of equal definitions are equal; loops are compared all the same, so that the pass is right wherever
  // it stands.
  writer.loops(kernel.program);
  return writer.take();
}

void merge_kernels(Program& program) {
  std::unordered_map<std::string, int32_t> kept_by_key;
  std::vector<int32_t> renumber;
  std::vector<Kernel> kept;
  for (Kernel& kernel : program.kernels) {
    const auto [it, is_new] = kept_by_key.try_emplace(kernel_key(kernel), static_cast<int32_t>(kept.size()));
    renumber.push_back(it->second);
    if (is_new) kept.push_back(std::move(kernel));
  }
  program.kernels = std::move(kept);
  for (KernelCall& call : program.calls) call.kernel = renumber.at(static_cast<size_t>(call.kernel));
}

std::vector<int32_t> drop_uncalled_kernels(Program& program) {
  std::vector<int32_t> numbers(program.kernels.size(), -1);
  for (const KernelCall& call : program.calls) numbers[static_cast<size_t>(call.kernel)] = 0;
  std::vector<Kernel> kernels;
  for (size_t k = 0; k < numbers.size(); ++k) {
    if (numbers[k] < 0) continue;
    numbers[k] = static_cast<int32_t>(kernels.size());
    kernels.push_back(std::move(program.kernels[k]));
  }
  program.kernels = std::move(kernels);
  for (KernelCall& call : program.calls) call.kernel = numbers[static_cast<size_t>(call.kernel)];
  return numbers;
}

}  // namespace tessera::inline program
