// What only a finished schedule can be asked.
#include <fmt/format.h>

#include "loop/printer.h"
#include "schedule/primitives/rewriter.h"

namespace tessera::inline schedule {

void Schedule::check_finished() const {
  for (const Access& access : accesses_of(program_)) {
    if (access.buffer->scope != MemoryScope::kRegister) continue;
    // Copies of a loop count from its begin, which loops around it may choose.
    const auto is_copied = [](const Stmt& loop) {
      return loop->for_kind == ForKind::kUnrolled || loop->for_kind == ForKind::kVectorized ||
             is_const_int(loop->extent, 1);
    };
    std::vector<Expr> indices = access.indices;
    for (size_t i = access.loops.size(); i-- > 0;)
      if (const Stmt& loop = access.loops[i]; is_copied(loop) && !as_int(loop->begin))
        for (Expr& index : indices) index = substitute(index, {{loop->var.get(), loop->begin}});
    for (size_t i = 0; i < access.loops.size(); ++i) {
      const Stmt& loop = access.loops[i];
      if (is_copied(loop)) continue;
      for (const Expr& index : indices)
        if (uses_var(index, loop->var))
          refuse(refusal::kRegister,
                 fmt::format("'{}' uses {}, which is in registers, at a place that '{}' chooses", summary(access.stmt),
                             access.buffer->name, summary(loop)),
                 "indices of register buffers that only unrolled and vectorized loops choose",
                 fmt::format("unroll({}) or vectorize({}), or set_scope({}, local)", loop->var->name, loop->var->name,
                             access.buffer->name));
    }
    for (const Expr& index : indices) {
      bool loads = false;
      walk(index, [&](const Expr& e) { loads |= e->kind == ExprKind::kLoad; });
      if (loads)
        refuse(refusal::kRegister,
               fmt::format("'{}' uses {}, which is in registers, at a loaded place", summary(access.stmt),
                           access.buffer->name),
               "indices that are constants once loops are unrolled");
    }
  }
}

}  // namespace tessera::inline schedule
