#include "schedule/fusion/strip_kernel.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

// Zeros for the places between the end of an axis and the end of its last block: vectors read them, and nothing of the
// result depends on what they read, but kernels need not write them. A null statement where there are none.
std::optional<Stmt> fill_padding(const BufferPtr& flat, const Shape& shape, const Layout& layout) {
  const auto dims = *static_dims(layout.row_major() ? shape : physical_shape(shape, layout));
  Stmt fill;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    const LayoutDim& dim = layout.dims[d];
    if (dim.part != LayoutDim::Part::kQuotient || *as_int(shape[static_cast<size_t>(dim.axis)]) % dim.block == 0)
      continue;
    if (fill) return std::nullopt;  // no layout of ours
    int64_t before = 1, behind = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      if (i != d) (i < d ? before : behind) *= dims[i];
    const Var outer = make_var("o"), step = make_var("p");
    const Expr first = (outer * Expr(dims[d]) + Expr(dims[d] - 1)) * Expr(behind) + step * Expr(dim.block);
    if (behind % dim.block != 0) return std::nullopt;
    fill = vectorized("l", dim.block,
                      [&](const Var& lane) { return store(flat, {first + lane}, const_of(flat->dtype, 0)); });
    fill = for_loop(step, 0, behind / dim.block, ForKind::kSerial, fill);
    fill = for_loop(outer, 0, before, ForKind::kSerial, fill);
  }
  return fill;
}

// Where a strip of a member's rows begins: between 0 and `most`.
struct Start {
  Var var;
  int64_t most = 0;
};

BufferPtr strip_of(const BufferPtr& result, const TiledChain& chain, size_t m, int64_t rows) {
  Shape shape = result->shape;
  shape[chain.members[m].row_axis] = rows;
  if (chain.images > 1) shape[0] = 1;
  return make_buffer(result->name, result->dtype, std::move(shape));
}

class StripEmitter {
 public:
  StripEmitter(const JoinedProgram& joined, const TiledChain& chain, const AskRules& ask)
      : joined_(joined), chain_(chain), ask_(ask) {}

  std::optional<ScheduledKernel> make() const {
    const std::vector<int64_t> rows = strip_rows(chain_, chain_.strip);
    const size_t count = chain_.members.size();
    const Var strip = make_var("strip"), image = make_var("image");
    std::vector<Start> starts(count);
    std::vector<BufferPtr> results(count), local(count);
    starts[count - 1] = {make_var("row"), chain_.members.back().rows - chain_.strip};
    VarMap values{{starts[count - 1].var.get(), strip * Expr(chain_.strip)}};
    for (size_t m = count - 1; m-- > 0;) {
      const TiledKernel& member = chain_.members[m];
      const Reads& reads = chain_.members[m + 1].reads;
      results[m] = strip_of(member.definition->output().out, chain_, m, rows[m]);
      if (reads.window.step == 1 && reads.window.lo == 0 && reads.window.hi == 0 &&
          member.rows == chain_.members[m + 1].rows) {
        starts[m] = starts[m + 1];
        continue;
      }
      starts[m] = {make_var(fmt::format("row{}", m)), member.rows - rows[m]};
      const Expr first = values.at(starts[m + 1].var.get()) * Expr(reads.window.step) + Expr(reads.window.lo);
      values[starts[m].var.get()] = max(Expr(0), min(first, Expr(starts[m].most)));
    }

    ScheduledKernel made;
    made.program.name = joined_.name;
    made.program.params.resize(joined_.num_args);
    std::vector<Stmt> parts;
    for (size_t m = 0; m < count; ++m) {
      const TiledKernel& member = chain_.members[m];
      const Stage& output = member.definition->output();
      const std::vector<size_t>& args = joined_.members[m].args;
      const auto whole = ask_(*member.definition);
      const auto answer = ask_(strip_kernel(m, rows, starts, image, results));
      if (!answer || !whole || answer->rule != whole->rule) return std::nullopt;
      const LoopProgram& program = answer->scheduled.program;
      std::unordered_map<const Buffer*, BufferPtr> moved;
      for (size_t p = 0; p < args.size(); ++p) {
        const BufferPtr& own = program.params[p];
        if (own->shape.size() != 1) return std::nullopt;
        if (args[p] >= joined_.num_args) {
          BufferPtr& strips = local[m > 0 && p == member.param ? m - 1 : m];
          if (!strips) strips = make_buffer(fmt::format("strip{}", m), own->dtype, own->shape, MemoryScope::kLocal);
          moved[own.get()] = strips;
          continue;
        }
        BufferPtr& param = made.program.params[args[p]];
        if (!param) param = make_buffer(joined_.values[args[p]].buffer->name, own->dtype, own->shape);
        moved[own.get()] = param;
      }
      for (PackedParam packed : answer->scheduled.packed) {
        packed.param = args[packed.param];
        made.packed.push_back(packed);
      }
      if (m + 1 < count) {
        const auto fill = fill_padding(local[m], results[m]->shape, output.layout);
        if (!fill) return std::nullopt;
        if (*fill) parts.push_back(*fill);
      }
      parts.push_back(transform(
          without_threads(program.body),
          [&](const Expr& node) -> Expr {
            if (node->kind != ExprKind::kLoad) return {};
            const auto it = moved.find(node->buffer.get());
            return it == moved.end() ? Expr() : load(it->second, node->operands);
          },
          [&](const Stmt& node) -> Stmt {
            if (node->kind == StmtKind::kStore) {
              const auto it = moved.find(node->buffer.get());
              return it == moved.end() ? Stmt() : store(it->second, node->indices, node->value);
            }
            if (node->kind != StmtKind::kFor || !node->buffer) return {};
            const auto it = moved.find(node->buffer.get());
            if (it == moved.end()) return {};
            return prefetching(for_loop(node->var, node->begin, node->extent, node->for_kind, node->stmts[0]),
                               it->second, node->indices);
          }));
    }
    const Stmt body = seq(std::move(parts));
    const std::vector<OutputLoop> loops = {{image, chain_.images}, {strip, chain_.members.back().rows / chain_.strip}};
    made.program.body = outer_nest(loops, kJoinAll, [&](const VarMap& at) {
      VarMap here = at;
      for (const auto& [var, value] : values) here[var] = simplify(substitute(value, at));
      Stmt strips = substitute(body, here);
      for (size_t m = 0; m + 1 < count; ++m) strips = alloc(local[m], std::move(strips));
      return strips;
    });
    return made;
  }

 private:
  // The member's kernel for `rows` rows of its output from `starts[m]` on.
  TensorProgram strip_kernel(size_t m, const std::vector<int64_t>& rows, const std::vector<Start>& starts,
                             const Var& image, const std::vector<BufferPtr>& results) const {
    const TiledKernel& member = chain_.members[m];
    const bool is_last = m + 1 == chain_.members.size();
    TensorProgram kernel;
    kernel.name = member.definition->name;
    kernel.params = member.definition->params;
    const Buffer* before = m == 0 ? nullptr : kernel.params[member.param].buffer.get();
    if (before) kernel.params[member.param].buffer = results[m - 1];
    std::unordered_map<const Buffer*, BufferPtr> stages;
    for (const Stage& stage : member.definition->stages) {
      Stage own = stage;
      VarMap moved, back;
      if (!is_last) {
        own.out = &stage == &member.definition->output() ? results[m] : strip_of(stage.out, chain_, m, rows[m]);
        Axis& axis = own.body.axes[member.row_axis];
        axis.extent = rows[m];
        moved[axis.var.get()] = axis.var + starts[m].var;
        if (chain_.images > 1) {
          own.body.axes[0].extent = 1;
          moved[own.body.axes[0].var.get()] = own.body.axes[0].var + image;
        }
      }
      stages[stage.out.get()] = own.out;
      // The reduction is read at the place of its own in the strip.
      Expr value = transform(stage.body.value, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        const auto it = stages.find(node->buffer.get());
        if (it == stages.end()) return {};
        const Var result = make_var("result", node->dtype);
        back[result.get()] = load(it->second, node->operands);
        return result;
      });
      value = substitute(substitute(value, moved), back);
      if (before)
        value = transform(value, [&](const Expr& node) -> Expr {
          if (node->kind != ExprKind::kLoad || node->buffer.get() != before) return {};
          std::vector<Expr> index = node->operands;
          Expr& row = index[chain_.members[m].reads.dim];
          row = row - starts[m - 1].var;
          if (chain_.images > 1) index[0] = index[0] - image;
          return load(results[m - 1], std::move(index));
        });
      own.body.value = std::move(value);
      kernel.stages.push_back(std::move(own));
    }
    const auto window = [&](size_t axis, const Start& start, int64_t extent) {
      kernel.windows.push_back({axis, start.var, extent, 0, start.most});
    };
    if (m > 0) window(Window::kNoAxis, starts[m - 1], 1);
    window(is_last ? member.row_axis : Window::kNoAxis, starts[m], rows[m]);
    if (chain_.images > 1) window(is_last ? 0 : Window::kNoAxis, {image, chain_.images - 1}, 1);
    return kernel;
  }

  const JoinedProgram& joined_;
  const TiledChain& chain_;
  const AskRules& ask_;
};

}  // namespace

std::optional<ScheduledKernel> make_strip_kernel(const JoinedProgram& joined, const TiledChain& chain,
                                                 const AskRules& ask) {
  return StripEmitter(joined, chain, ask).make();
}

}  // namespace tessera::inline schedule
