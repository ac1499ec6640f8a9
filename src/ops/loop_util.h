// What the loops of procedures are made of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace tessera::inline ops {

// The number of elements of dimensions first .. end - 1. REQUIRES: a static shape.
Expr size_of(const Shape& shape, size_t first, size_t end);
// The same as a number; TSR-2030 when it is symbolic.
int64_t extent_of(const OpContext& ctx, const Shape& shape, size_t first, size_t end);

// A parameter for each operand, named as in bodies, and one for the result; all of them flat.
LoopProgram start_loops(const OpContext& ctx, DType result, const Expr& elements);

Stmt serial_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body);
// Over 0 .. extent - 1, in pieces for threads; a plain loop for one iteration, or when `pays` is false.
Stmt parallel_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body, bool pays = true);
// Of a symbolic extent: whole vectors, then one step after the other. `body` is given the place.
Stmt vector_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body);
Stmt unrolled_loop(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body);
// The buffers around the statements.
Stmt with(const std::vector<BufferPtr>& buffers, const std::vector<Stmt>& body);

BufferPtr local_buffer(const std::string& name, DType dtype, std::vector<Expr> shape);

// A variable of the loops: one element in a register.
struct Cell {
  Cell(const std::string& name, DType dtype) : buffer(make_buffer(name, dtype, {1}, MemoryScope::kRegister)) {}
  BufferPtr buffer;
  Expr get() const { return load(buffer, {0}); }
  Stmt set(Expr value) const { return store(buffer, {0}, std::move(value)); }
};

Expr index_of(Expr value);  // as i64
Expr constant(DType dtype, double value);

}  // namespace tessera::inline ops
