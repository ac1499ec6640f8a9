#include "schedule/packing/shared_tables.h"

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"

namespace tessera::inline schedule {
namespace {

bool has_load(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

// The place in one part, and whether it is there.
struct PartPlace {
  Expr place, is_inside;
};

PartPlace place_in_part(const PackSpec& spec, const Expr& source) {
  // Places of the axes, those that go furthest first: the rest of the way is for the others.
  std::vector<size_t> order(spec.axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return spec.axes[a].stride > spec.axes[b].stride; });
  std::vector<Expr> at(spec.axes.size());
  Expr rest = source - Expr(spec.offset), is_inside = Expr();
  for (const size_t axis : order) {
    const int64_t stride = spec.axes[axis].stride;
    at[axis] = floordiv(rest, stride);
    rest = floormod(rest, stride);
    const Expr fits = at[axis] < Expr(spec.axes[axis].extent);
    is_inside = is_inside ? binary(BinaryOp::kAnd, is_inside, fits) : fits;
  }
  Expr place = 0;
  for (const PackDim& dim : spec.dims) {
    const Expr of_axis = at[static_cast<size_t>(dim.axis)];
    place = place * Expr(dim.extent) + floormod(floordiv(of_axis, dim.multiplier), dim.extent);
  }
  return {place, is_inside};
}

}  // namespace

Expr place_in_packed(const PackedParam& packed, const Expr& place) {
  Expr result;
  int64_t end = packed.num_elements();
  for (size_t i = packed.parts.size(); i-- > 0;) {
    end -= packed.parts[i].num_elements();
    const PartPlace part = place_in_part(packed.parts[i], place);
    const Expr here = part.place + Expr(end);
    result = result ? select(part.is_inside, here, result) : here;
  }
  return simplify(result, {});
}

bool looks_up(const LoopProgram& program, size_t param) {
  bool reads = false, by_data = true;
  walk(program.body, nullptr, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad || node->buffer != program.params[param]) return;
    reads = true;
    by_data &= node->operands.size() == 1 && has_load(node->operands[0]);
  });
  return reads && by_data;
}

LoopProgram with_packed(const LoopProgram& program, size_t param, const PackedParam& packed) {
  LoopProgram result = program;
  const BufferPtr old = program.params[param];
  const BufferPtr table = make_buffer(old->name, old->dtype, {packed.num_elements()});
  result.params[param] = table;
  result.body = transform(
      program.body,
      [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad || node->buffer != old) return {};
        return load(table, {place_in_packed(packed, node->operands[0])});
      },
      nullptr);
  return result;
}

}  // namespace tessera::inline schedule
