#include "schedule/fusion/chain_block.h"

#include <unordered_map>

#include "arith/simplify.h"
#include "schedule/dynamic/dynamic_tiles.h"

namespace tessera::inline schedule {

void cut_rows(TensorProgram& kernel, const Chain& chain, const Block& block, const std::vector<size_t>& axes) {
  for (size_t r = 0; r < axes.size(); ++r) {
    if (axes[r] == kNoAxis) continue;
    const bool last = r + 1 == chain.rows.size();
    kernel.windows.push_back({axes[r], block.bases[r], last ? block.count : 1, last ? block.lo : 0,
                              last ? block.hi : chain.rows[r].extent - 1});
  }
}

std::optional<Stmt> place_kernel(const TensorProgram& kernel, const std::vector<Place>& places, const Block& block,
                                 const AskRules& ask) {
  const auto answer = ask(kernel);
  if (!answer || !answer->scheduled.packed.empty()) return std::nullopt;
  const LoopProgram& program = answer->scheduled.program;
  Bounds bounds;
  for (const Window& window : kernel.windows) bounds.set(window.base, window.lo, window.hi);
  std::unordered_map<const Buffer*, const Place*> moved;
  for (size_t p = 0; p < places.size(); ++p) {
    if (program.params[p]->shape.size() != 1) return std::nullopt;
    moved[program.params[p].get()] = &places[p];
  }
  bool fits = true;
  const auto at = [&](const Place& place, const Expr& index) {
    Expr local = index;
    if (place.begin) {
      local = simplify(index - place.begin, bounds);
      for (const Var& base : block.bases) fits &= !uses_var(local, base);
    }
    return place.shift ? local + place.shift : local;
  };
  Stmt part = transform(
      without_threads(program.body),
      [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        const auto it = moved.find(node->buffer.get());
        return it == moved.end() ? Expr() : load(it->second->buffer, {at(*it->second, node->operands[0])});
      },
      [&](const Stmt& node) -> Stmt {
        if (node->kind != StmtKind::kStore) return {};
        const auto it = moved.find(node->buffer.get());
        if (it == moved.end()) return {};
        return store(it->second->buffer, {at(*it->second, node->indices[0])}, node->value);
      });
  if (!fits) return std::nullopt;
  return part;
}

}  // namespace tessera::inline schedule
