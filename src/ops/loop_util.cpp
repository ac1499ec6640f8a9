#include "ops/loop_util.h"

#include "arith/simplify.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kOpenLanes = 16;  // of vectors where a loop's extent is symbolic

}  // namespace

Expr size_of(const Shape& shape, size_t first, size_t end) {
  Expr product = 1;
  for (size_t d = first; d < end; ++d) product = product * shape[d];
  return normalize_size(product);
}

int64_t extent_of(const OpContext& ctx, const Shape& shape, size_t first, size_t end) {
  const Expr size = size_of(shape, first, end);
  const auto known = as_int(size);
  if (!known)
    ctx.fail(
        "TSR-2030",
        "its loops need the size " + to_string(size) + ", which is not known while compiling, of " + to_string(shape),
        "a number", "fix the dimension with --shape or --dim");
  return *known;
}

LoopProgram start_loops(const OpContext& ctx, DType result, const Expr& elements) {
  LoopProgram program;
  program.name = ctx.op.name;
  for (size_t i = 0; i < ctx.inputs.size(); ++i) {
    const TensorType& type = ctx.inputs[i];
    program.params.push_back(
        make_buffer("in" + std::to_string(i), type.dtype, {size_of(type.shape, 0, type.shape.size())}));
  }
  program.params.push_back(make_buffer("out", result, {elements}));
  return program;
}

namespace {

Stmt make_loop(const std::string& name, Expr extent, ForKind kind, const std::function<Stmt(const Var&)>& body) {
  const Var var = make_var(name);
  Stmt inner = body(var);
  return for_loop(var, 0, std::move(extent), kind, std::move(inner));
}

}  // namespace

Stmt serial_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body) {
  return make_loop(name, std::move(extent), ForKind::kSerial, body);
}

Stmt parallel_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body, bool pays) {
  const bool parallel = pays && as_int(extent).value_or(2) > 1;
  return make_loop(name, std::move(extent), parallel ? ForKind::kParallel : ForKind::kSerial, body);
}

Stmt vector_loop(const std::string& name, Expr extent, const std::function<Stmt(const Var&)>& body) {
  if (as_int(extent)) return make_loop(name, std::move(extent), ForKind::kVectorized, body);
  const Expr vectors = floordiv(extent, kOpenLanes);
  const Stmt whole = serial_loop(name + "v", vectors, [&](const Var& v) {
    return vector_loop(name + "l", kOpenLanes, [&](const Var& l) { return body(v * Expr(kOpenLanes) + l); });
  });
  const Expr done = vectors * Expr(kOpenLanes);
  return seq({whole, serial_loop(name + "r", extent - done, [&](const Var& r) { return body(done + r); })});
}

Stmt unrolled_loop(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body) {
  return make_loop(name, extent, ForKind::kUnrolled, body);
}

Stmt with(const std::vector<BufferPtr>& buffers, const std::vector<Stmt>& body) {
  Stmt s = seq(body);
  for (size_t i = buffers.size(); i-- > 0;) s = alloc(buffers[i], s);
  return s;
}

BufferPtr local_buffer(const std::string& name, DType dtype, std::vector<Expr> shape) {
  return make_buffer(name, dtype, std::move(shape), MemoryScope::kLocal);
}

Expr index_of(Expr value) { return cast(DType::kI64, std::move(value)); }
Expr constant(DType dtype, double value) { return const_of(dtype, value); }

}  // namespace tessera::inline ops
