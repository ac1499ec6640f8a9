#include "program/symbolic_sizes.h"

#include <algorithm>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "program/memory_plan.h"
#include "support/error.h"

namespace tessera::inline program {

SizePoint largest_sizes(const std::vector<SymbolRange>& symbols) {
  SizePoint point;
  for (const SymbolRange& symbol : symbols) point.push_back(symbol.hi);
  return point;
}

SizePoint smallest_sizes(const std::vector<SymbolRange>& symbols) {
  SizePoint point;
  for (const SymbolRange& symbol : symbols) point.push_back(symbol.lo);
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
        const Expr room = bound_of_size(dim, program.symbols);
        check(static_cast<bool>(room), "a dimension without a bound: " + to_string(dim));
        if (as_int(room) || room->kind == ExprKind::kVar) continue;
        const auto same = [&](const Expr& other) { return structurally_equal(other, room); };
        if (std::none_of(dims.begin(), dims.end(), same)) dims.push_back(room);
      }
  return dims;
}

std::vector<DecidedDim> decided_dims(const Program& program) {
  std::vector<DecidedDim> dims;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Shape& shape = program.buffers[static_cast<size_t>(program.outputs[i])].type.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (uses_data_symbols(shape[axis], program.symbols)) dims.push_back({i, axis, shape[axis]});
  }
  return dims;
}

bool is_of_piece(const Expr& e, const Program& program, size_t piece) {
  if (!program.flow) return true;
  size_t first = 0;
  for (size_t p = 0; p < piece; ++p) first += program.pieces[p].num_symbols;
  for (size_t i = first; i < first + program.pieces[piece].num_symbols; ++i)
    if (uses_var(e, program.symbols[i].var)) return true;
  return false;
}

size_t piece_of_call(const Program& program, size_t call) {
  size_t piece = 0;
  while (piece + 1 < program.pieces.size() && program.pieces[piece + 1].first_call <= call) ++piece;
  return piece;
}

std::vector<ArenaPart> arena_parts(const Program& program) {
  std::vector<Lifetime> lifetimes = arena_lifetimes(program);
  const auto offset = [&](const Lifetime& l) { return program.buffers[static_cast<size_t>(l.buffer)].offset; };
  std::erase_if(lifetimes,
                [&](const Lifetime& l) { return program.buffers[static_cast<size_t>(l.buffer)].device != 0; });
  std::vector<size_t> pieces(program.buffers.size());
  if (program.flow) {
    for (size_t call = 0; call < program.calls.size(); ++call)
      for (const BufferId arg : program.calls[call].args)
        pieces[static_cast<size_t>(storage_buffer(program, arg))] = piece_of_call(program, call);
    std::erase_if(lifetimes, [&](const Lifetime& l) {
      return program.pieces[pieces[static_cast<size_t>(l.buffer)]].num_symbols == 0;
    });
  }
  std::stable_sort(lifetimes.begin(), lifetimes.end(),
                   [&](const Lifetime& a, const Lifetime& b) { return offset(a) < offset(b); });
  std::vector<ArenaPart> parts;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    ArenaPart part;
    part.storage = lifetimes[i].buffer;
    part.piece = pieces[static_cast<size_t>(part.storage)];
    const Expr bytes =
        bound_of_size(bytes_formula(program.buffers[static_cast<size_t>(part.storage)].type), program.symbols);
    check(static_cast<bool>(bytes),
          "a buffer whose size has no bound: " + program.buffers[static_cast<size_t>(part.storage)].name);
    part.bytes = ceildiv(bytes, kBufferAlign) * Expr(kBufferAlign);
    for (size_t j = 0; j < i; ++j)
      if (lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last) part.below.push_back(j);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tessera::inline program
