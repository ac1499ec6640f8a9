#include "codegen/common/local_plan.h"

#include <algorithm>

#include "support/error.h"

namespace tessera::inline codegen {
namespace {

int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Planner {
  LocalPlan plan;
  int64_t stack_bytes = 0;

  void visit(const Stmt& s, int64_t scratch_used) {
    if (s->kind == StmtKind::kAlloc && s->buffer->scope != MemoryScope::kRegister) {
      const auto elements = constant_elements(*s->buffer);
      check(elements.has_value(), "allocation of a size that is not constant: " + s->buffer->name);
      LocalPlace place;
      place.bytes = align64(std::max<int64_t>(dtype_bytes(s->buffer->dtype, *elements), 1));
      place.on_stack = stack_bytes + place.bytes <= kMaxStackBytes;
      if (place.on_stack) {
        stack_bytes += place.bytes;
      } else {
        place.offset = scratch_used;
        scratch_used += place.bytes;
        plan.scratch_bytes = std::max(plan.scratch_bytes, scratch_used);
      }
      // A statement may appear twice: the later place must be free at both.
      const auto [it, fresh] = plan.places.emplace(s->buffer.get(), place);
      if (!fresh && !it->second.on_stack) it->second.offset = std::max(it->second.offset, place.offset);
    }
    for (const Stmt& child : s->stmts) visit(child, scratch_used);
  }
};

}  // namespace

std::optional<int64_t> constant_elements(const Buffer& buffer) {
  int64_t n = 1;
  for (const Expr& extent : buffer.shape) {
    const auto value = as_int(extent);
    if (!value || __builtin_mul_overflow(n, *value, &n)) return std::nullopt;
  }
  return n;
}

bool share_scratch(const LocalPlace& a, const LocalPlace& b) {
  return !a.on_stack && !b.on_stack && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

LocalPlan plan_locals(const LoopProgram& program) {
  Planner planner;
  planner.visit(program.body, 0);
  return std::move(planner.plan);
}

}  // namespace tessera::inline codegen
