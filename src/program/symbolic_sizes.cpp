#include "program/symbolic_sizes.h"

#include <algorithm>

#include "arith/simplify.h"
#include "program/memory_plan.h"
#include "support/error.h"

namespace tessera {

SizePoint largest_sizes(const std::vector<SymbolRange>& symbols) {
  SizePoint point;
  for (const SymbolRange& symbol : symbols) point.push_back(symbol.hi);
  return point;
}

int64_t value_at(const Expr& e, const std::vector<SymbolRange>& symbols, const SizePoint& point) {
  if (const auto value = as_int(e)) return *value;
  VarMap map;
  for (size_t i = 0; i < symbols.size(); ++i) map[symbols[i].var.get()] = point[i];
  const auto value = as_int(simplify(substitute(e, map)));
  check(value.has_value(), "a size that is no expression of the named dimensions: " + to_string(e));
  return *value;
}

int64_t bytes_at(const TensorType& type, const std::vector<SymbolRange>& symbols, const SizePoint& point) {
  int64_t count = 1;
  for (const Expr& dim : physical_shape(type.shape, type.layout)) count *= value_at(dim, symbols, point);
  return dtype_bytes(type.dtype, count);
}

Expr bytes_formula(const TensorType& type) {
  Expr count = 1;
  for (const Expr& dim : physical_shape(type.shape, type.layout)) count = count * dim;
  const int64_t bits = dtype_bits(type.dtype);
  return bits % 8 == 0 ? count * Expr(bits / 8) : ceildiv(count * Expr(bits), 8);
}

std::vector<Expr> derived_dims(const Program& program) {
  std::vector<Expr> dims;
  for (const auto* buffers : {&program.inputs, &program.outputs})
    for (const BufferId id : *buffers)
      for (const Expr& dim : program.buffers[static_cast<size_t>(id)].type.shape) {
        if (as_int(dim) || dim->kind == ExprKind::kVar) continue;
        const auto same = [&](const Expr& other) { return structurally_equal(other, dim); };
        if (std::none_of(dims.begin(), dims.end(), same)) dims.push_back(dim);
      }
  return dims;
}

std::vector<ArenaPart> arena_parts(const Program& program) {
  std::vector<Lifetime> lifetimes = arena_lifetimes(program);
  const auto offset = [&](const Lifetime& l) { return program.buffers[static_cast<size_t>(l.buffer)].offset; };
  std::stable_sort(lifetimes.begin(), lifetimes.end(),
                   [&](const Lifetime& a, const Lifetime& b) { return offset(a) < offset(b); });
  std::vector<ArenaPart> parts;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    ArenaPart part;
    part.storage = lifetimes[i].buffer;
    part.bytes = ceildiv(bytes_formula(program.buffers[static_cast<size_t>(part.storage)].type), kBufferAlign) *
                 Expr(kBufferAlign);
    for (size_t j = 0; j < i; ++j)
      if (lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last) part.below.push_back(j);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tessera
