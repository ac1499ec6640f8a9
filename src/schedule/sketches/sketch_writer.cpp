#include "schedule/sketches/sketch_writer.h"

#include <algorithm>

#include "schedule/sketches/sketch_program.h"
#include "support/error.h"

namespace tessera::inline schedule {

TraceWriter::TraceWriter(const TensorProgram& kernel, const Target& target)
    : schedule_(sketch_schedule(kernel, target)), replayer_(schedule_) {}

Names TraceWriter::add(const std::string& line) {
  // Read behind what was written: sampled numbers are names there.
  std::vector<TraceStep> parsed = parse_trace(print_trace(steps_) + line, "sketch");
  check(parsed.size() == steps_.size() + 1, "a sketch is written line by line");
  replayer_.apply(parsed.back());
  parsed.back().results = schedule_.steps().back().results;
  steps_.push_back(std::move(parsed.back()));
  return steps_.back().results;
}

std::string TraceWriter::number(const std::string& name, std::vector<int64_t> candidates, int64_t first) {
  candidates.push_back(first);
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  if (candidates.size() == 1) return fmt::format("{}", first);
  line("{} = sample_categorical([{}]) decided [{}]", name, fmt::join(candidates, ", "), first);
  return name;
}

Names TraceWriter::tile(const std::string& loop, const std::string& outer, const std::string& inner, int64_t most) {
  const int64_t extent = *as_int(find_loop(program().body, loop)->stmt()->extent);
  if (extent == 1) return {loop};
  line("{}, {} = sample_perfect_tile({}, 2, {}) decided [{}, 1]", outer, inner, loop, most, extent);
  return line("split({}, [{}, {}])", loop, outer, inner);
}

NaiveNest nest_of(const LoopProgram& program) {
  NaiveNest nest;
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kFor)
          (s->var->name[0] == 'i' ? nest.outputs : nest.reduced).push_back({s->var->name, *as_int(s->extent)});
        if (s->kind != StmtKind::kStore) return;
        if (s->buffer->name == "y") nest.result = s;
        else if (reads_buffer(s, s->buffer.get())) nest.update = s;
      },
      nullptr);
  return nest;
}

std::vector<Expr> loads_of(const Expr& e) {
  std::vector<Expr> loads;
  walk(e, [&](const Expr& node) {
    if (node->kind == ExprKind::kLoad) loads.push_back(node);
  });
  return loads;
}

bool mentions(const Expr& e, const std::string& var) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kVar && node->name == var; });
  return found;
}

int64_t block_of(const Expr& e, const std::string& var) {
  int64_t block = 1;
  walk(e, [&](const Expr& node) {
    if (node->kind == ExprKind::kBinary && node->binary == BinaryOp::kFloorMod &&
        node->operands[0]->kind == ExprKind::kVar && node->operands[0]->name == var)
      if (const auto c = as_int(node->operands[1])) block = std::max(block, *c);
  });
  return block;
}

std::vector<int64_t> divisors(int64_t extent, int64_t most) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d <= std::min(extent, most); ++d)
    if (extent % d == 0) result.push_back(d);
  return result;
}

std::vector<int64_t> up_to(int64_t most) {
  std::vector<int64_t> result;
  for (int64_t i = 1; i <= most; ++i) result.push_back(i);
  return result;
}

bool is_product_of_floats(const Stmt& update) {
  bool product = false;
  walk(update->value, [&](const Expr& e) {
    product |= e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul && is_float(e.dtype());
  });
  return product && update->value->kind == ExprKind::kBinary && update->value->binary == BinaryOp::kAdd;
}

std::variant<OutputAxes, Declined> output_axes(const NaiveNest& nest, int64_t lanes) {
  OutputAxes axes;
  std::vector<std::string> order;  // loops by the output's dimensions, innermost first
  const std::vector<Expr>& indices = nest.result->indices;
  for (size_t d = indices.size(); d-- > 0;)
    for (const LoopFact& loop : nest.outputs)
      if (mentions(indices[d], loop.name) && std::find(order.begin(), order.end(), loop.name) == order.end())
        order.push_back(loop.name);
  for (const LoopFact& loop : nest.outputs)
    if (loop.extent == 1) axes.ones.push_back(loop.name);
  for (const std::string& name : order) {
    const auto loop =
        std::find_if(nest.outputs.begin(), nest.outputs.end(), [&](const LoopFact& l) { return l.name == name; });
    if (loop->extent == 1) continue;
    if (axes.vector.empty()) {
      axes.vector = name;
      axes.extent = loop->extent;
    } else {
      axes.rows.push_back(*loop);
    }
  }
  if (axes.vector.empty()) return Declined{"the output has one element"};
  int64_t block = 1;
  for (const Expr& index : indices) block = std::max(block, block_of(index, axes.vector));
  axes.lanes = block > 1 ? block : lanes;
  return axes;
}

void run_on_threads(TraceWriter& writer, const Target& target, const Names& outer, Threads threads) {
  if (target.num_threads < 2 || outer.empty()) return;
  if (threads == Threads::kOneLoop) {
    const auto extent = [&](const std::string& loop) {
      return *as_int(find_loop(writer.program().body, loop)->stmt()->extent);
    };
    writer.line("parallel({})", *std::max_element(outer.begin(), outer.end(),
                                                  [&](const auto& a, const auto& b) { return extent(a) < extent(b); }));
    return;
  }
  const std::string joined = outer.size() > 1 ? writer.line("fuse([{}])", fmt::join(outer, ", "))[0] : outer[0];
  const std::string piece = writer.number("piece", {1, 2, 4, 8, 16, 64}, 1);
  const Names parts = writer.line("{0}_t, {0}_s = split({0}, [_, {1}])", joined, piece);
  writer.line("parallel({})", parts[0]);
}

}  // namespace tessera::inline schedule
