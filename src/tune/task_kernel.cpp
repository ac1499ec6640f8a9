#include "tune/task_kernel.h"

#include <algorithm>

#include "arith/simplify.h"
#include "schedule/choose.h"
#include "schedule/dynamic/axis_sizes.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "te/canonical.h"

namespace tessera::inline tune {

TaskKernel::TaskKernel(const Program& program, const Kernel& kernel) : TaskKernel(kernel) {
  if (!joined_ || !is_open()) return;
  symbols_ = symbols_of(program, kernel);
  const KnownSymbols known(symbols_);
  for (const SymbolRange& symbol : symbols_) usual_[symbol.var.get()] = typical_size(symbol.var);
  for (TensorParam value : std::span(joined_->values).first(joined_->num_args)) {
    Shape shape;
    for (const Expr& dim : value.buffer->shape) shape.push_back(simplify(substitute(dim, usual_)));
    value.buffer = make_buffer(value.buffer->name, value.buffer->dtype, std::move(shape));
    values_.push_back(std::move(value));
  }
}

LoopProgram TaskKernel::at_usual_sizes(const LoopProgram& program) const {
  if (usual_.empty()) return program;
  LoopProgram result = with_values(program, usual_);
  result.symbols.clear();
  return result;
}

std::span<const TensorParam> TaskKernel::params() const {
  if (!values_.empty()) return std::span(values_).first(values_.size() - 1);
  return joined_ ? std::span(joined_->values).first(joined_->num_args - 1) : std::span(single_->params);
}

TensorParam TaskKernel::result() const {
  if (!values_.empty()) return values_.back();
  if (joined_) return joined_->result();
  return {single_->output().out, single_->output().layout};
}

std::string TaskKernel::text() const { return joined_ ? canonical_text(*joined_) : canonical_text(*single_); }

std::string TaskKernel::hash() const { return structural_hash(text()); }

bool TaskKernel::is_open() const {
  if (single_) return is_symbolic(*single_);
  return std::any_of(joined_->members.begin(), joined_->members.end(),
                     [](const JoinedMember& member) { return is_symbolic(member.program); });
}

int64_t TaskKernel::constant_bytes() const {
  if (single_) return count_constant_bytes(*single_);
  int64_t bytes = 0;
  for (const JoinedMember& member : joined_->members) {
    const int64_t own = count_constant_bytes(member.program);
    if (own < 0) return -1;
    bytes += own;
  }
  return bytes;
}

}  // namespace tessera::inline tune
