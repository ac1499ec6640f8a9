// The rules that write sketches; sketch.h says what they are, tile_sketch.cpp has the longest.
#include <algorithm>
#include <functional>

#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/sketches/sketch.h"
#include "schedule/sketches/sketch_writer.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

// Lanes of partial results of one reduced loop along which memory is contiguous.
Made rfactor_sketch(const TensorProgram& kernel, const Target& target, Threads threads) {
  TraceWriter writer(kernel, target);
  const NaiveNest nest = nest_of(writer.program());
  if (!nest.update) return Declined{"the kernel does not reduce"};
  const BufferPtr acc = nest.update->buffer;
  const int64_t lanes = std::max<int64_t>(1, target.vector_bits() / dtype_bits(acc->dtype));
  // Every operand that moves along the loop does so element by element.
  const auto contiguous = [&](const LoopFact& loop) {
    bool any = false;
    for (const Expr& load : loads_of(nest.update->value)) {
      if (load->buffer == acc || !mentions(load, loop.name)) continue;
      for (size_t d = 0; d + 1 < load->operands.size(); ++d)
        if (mentions(load->operands[d], loop.name)) return false;
      bool plain = true;
      walk(load->operands.back(), [&](const Expr& e) {
        const bool sum = e->kind == ExprKind::kBinary && (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub);
        plain = plain && (sum || e->kind == ExprKind::kVar || !mentions(e, loop.name));
      });
      if (!plain) return false;
      any = true;
    }
    return any;
  };
  const LoopFact* along = nullptr;
  for (const LoopFact& loop : nest.reduced)
    if (loop.extent >= lanes && contiguous(loop)) along = &loop;
  if (!along)
    return Declined{"no reduced axis is as long as a vector and contiguous in all operands that move along it"};
  const int64_t blocks = (along->extent + lanes - 1) / lanes;
  const std::string vectors = writer.number("vectors", {1, 2, 3, 4, 6, 8}, std::min<int64_t>(blocks, 4));
  const std::string& k = along->name;
  writer.line("{0}_0, {0}_1, {0}_2 = split({0}, [_, {1}, {2}])", k, vectors, lanes);
  writer.line("{0}_f = fuse([{0}_1, {0}_2])", k);
  const std::string partial = writer.line("rfactor({}.update, {}_f)", acc->name, k)[0];
  writer.line("set_scope({}, register)", partial);
  Names order;
  for (const LoopFact& loop : nest.reduced) order.push_back(loop.name == k ? k + "_0" : loop.name);
  order.push_back(k + "_f");
  writer.line("reorder([{}])", fmt::join(order, ", "));
  for (const char* suffix : {"_f_init", "_f", "_f_final"}) {
    const Names parts = writer.line("{0}{1}_v, {0}{1}_l = split({0}{1}, [{2}, {3}])", k, suffix, vectors, lanes);
    writer.line("unroll({})", parts[0]);
    writer.line("vectorize({})", parts[1]);
  }
  if (is_product_of_floats(nest.update)) writer.line("annotate({}.update, fma, 1)", partial);
  Names outer;
  for (const LoopFact& loop : nest.outputs)
    if (outer.size() < 2) outer.push_back(loop.name);
  run_on_threads(writer, target, outer, threads);
  return writer.steps();
}

// No reduction: vectors along the output's contiguous axis, and copies of some of its and its neighbour's iterations.
Made map_sketch(const TensorProgram& kernel, const Target& target, Threads threads) {
  TraceWriter writer(kernel, target);
  const NaiveNest nest = nest_of(writer.program());
  if (nest.update) return Declined{"the kernel reduces"};
  const int64_t machine_lanes = std::max<int64_t>(1, target.vector_bits() / dtype_bits(nest.result->buffer->dtype));
  auto found = output_axes(nest, machine_lanes);
  if (auto* declined = std::get_if<Declined>(&found)) return std::move(*declined);
  const OutputAxes& axes = std::get<OutputAxes>(found);
  const int64_t lanes = std::min(axes.lanes, axes.extent);
  const int64_t blocks = (axes.extent + lanes - 1) / lanes;
  const std::string vectors =
      writer.number("vectors", up_to(std::min<int64_t>(blocks, 8)), std::min<int64_t>(blocks, 4));
  const Names v = writer.line("{0}_0, {0}_1, {0}_2 = split({0}, [_, {1}, {2}])", axes.vector, vectors, lanes);
  Names outer = axes.ones, inner;
  for (size_t i = axes.rows.size(); i-- > 1;) outer.push_back(axes.rows[i].name);
  if (axes.rows.empty()) {
    outer.push_back(v[0]);
  } else {
    const LoopFact& row = axes.rows[0];
    std::vector<int64_t> choices;
    for (const int64_t rows : {1, 2, 4, 8, 16})
      if (rows <= row.extent) choices.push_back(rows);
    const std::string rows = writer.number("rows", choices, 1);
    const Names w = writer.line("{0}_0, {0}_1 = split({0}, [_, {1}])", row.name, rows);
    outer.push_back(w[0]);
    outer.push_back(v[0]);
    inner.push_back(w[1]);
  }
  inner.push_back(v[1]);
  inner.push_back(v[2]);
  Names all = outer;
  all.insert(all.end(), inner.begin(), inner.end());
  writer.line("reorder([{}])", fmt::join(all, ", "));
  for (const std::string& loop : inner) writer.line("{}({})", loop == v[2] ? "vectorize" : "unroll", loop);
  outer.resize(std::min<size_t>(outer.size(), axes.ones.size() + 2));
  run_on_threads(writer, target, outer, threads);
  return writer.steps();
}

}  // namespace

SketchList make_sketches(const TensorProgram& kernel, const Target& target) {
  SketchList result;
  if (!kernel.is_single()) {
    result.declined.push_back("the kernel has several results or reductions");
    return result;
  }
  const auto add = [&](const std::string& name, const std::function<Made(Threads)>& make) {
    std::string refused;
    for (const Threads threads : {Threads::kJoined, Threads::kOneLoop}) {
      try {
        Made made = make(threads);
        if (auto* declined = std::get_if<Declined>(&made)) refused = declined->reason;
        else result.sketches.push_back({name, std::move(std::get<std::vector<TraceStep>>(made))});
        if (refused.empty()) return;
        break;
      } catch (const UserError& error) {
        refused = error.diagnostic().message;
        if (target.num_threads < 2) break;
      }
    }
    result.declined.push_back(name + ": " + refused);
  };
  if (is_symbolic(kernel)) {
    result.declined.emplace_back("sketch: a run decides about sizes");
    return result;
  }
  add("sketch.tile", [&](Threads threads) { return tile_sketch(kernel, target, TileKind::kPlain, threads); });
  add("sketch.tile_windows",
      [&](Threads threads) { return tile_sketch(kernel, target, TileKind::kWindowsInside, threads); });
  add("sketch.tile_packed",
      [&](Threads threads) { return tile_sketch(kernel, target, TileKind::kPackedOperands, threads); });
  add("sketch.rfactor", [&](Threads threads) { return rfactor_sketch(kernel, target, threads); });
  add("sketch.map", [&](Threads threads) { return map_sketch(kernel, target, threads); });
  return result;
}

}  // namespace tessera::inline schedule
