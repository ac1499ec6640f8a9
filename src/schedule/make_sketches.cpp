// The rules that write sketches; sketch.h says what they are.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedule/primitives/loop_tree.h"
#include "schedule/rules/tile_shape.h"
#include "schedule/sketch.h"
#include "schedule/sketch_program.h"
#include "schedule/symbolic_kernel.h"
#include "schedule/trace.h"
#include "support/error.h"

namespace tessera {
namespace {

// Writes a trace line by line, and applies it as it goes, so that a line that would be refused is known at once.
class TraceWriter {
 public:
  TraceWriter(const TensorProgram& kernel, const Target& target)
      : schedule_(sketch_schedule(kernel, target)), replayer_(schedule_) {}

  const LoopProgram& program() const { return schedule_.program(); }
  const Schedule& schedule() const { return schedule_; }
  const std::vector<TraceStep>& steps() const { return steps_; }

  // Answers the names of what the line makes.
  template <typename... Args>
  Names line(fmt::format_string<Args...> text, Args&&... args) {
    // Read behind what was written: sampled numbers are names there.
    std::vector<TraceStep> parsed =
        parse_trace(print_trace(steps_) + fmt::format(text, std::forward<Args>(args)...), "sketch");
    check(parsed.size() == steps_.size() + 1, "a sketch is written line by line");
    replayer_.apply(parsed.back());
    parsed.back().results = schedule_.steps().back().results;
    steps_.push_back(std::move(parsed.back()));
    return steps_.back().results;
  }
  // One of several numbers under a name; without a choice no line. Answers what stands for the number in other lines.
  std::string number(const std::string& name, std::vector<int64_t> candidates, int64_t first) {
    candidates.push_back(first);
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    if (candidates.size() == 1) return fmt::format("{}", first);
    line("{} = sample_categorical([{}]) decided [{}]", name, fmt::join(candidates, ", "), first);
    return name;
  }
  // A loop in two, as far as numbers divide it; the outer one first.
  Names tile(const std::string& loop, const std::string& outer, const std::string& inner, int64_t most) {
    const int64_t extent = *as_int(find_loop(program().body, loop)->stmt()->extent);
    if (extent == 1) return {loop};
    line("{}, {} = sample_perfect_tile({}, 2, {}) decided [{}, 1]", outer, inner, loop, most, extent);
    return line("split({}, [{}, {}])", loop, outer, inner);
  }

 private:
  Schedule schedule_;
  Replayer replayer_;
  std::vector<TraceStep> steps_;
};

struct LoopFact {
  std::string name;
  int64_t extent = 1;
};

// The naive program of a kernel, taken apart.
struct NaiveNest {
  std::vector<LoopFact> outputs, reduced;
  Stmt result;  // the store to y
  Stmt update;  // null without a reduction
};

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

// The block in which some load walks along the loop's variable: c of floormod(r, c); 1 when there is none.
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

using Made = std::variant<std::vector<TraceStep>, Declined>;

// How the output is walked over: which loop lies along contiguous memory, and others from the inside out.
struct OutputAxes {
  std::string vector;
  int64_t extent = 1, lanes = 1;
  std::vector<LoopFact> rows;  // longer than 1, the innermost in memory first
  std::vector<std::string> ones;
};

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

// Digits of a parameter's dimensions in the order in which a tile reads them: "floordiv(o, (vectors * 16)), k, ...".
struct PackOrder {
  std::vector<std::string> outer;             // loops, outermost first, that choose whole dimensions
  std::map<std::string, std::string> within;  // of the loops in the tile: what one tile covers, as text
  std::vector<std::string> inner;             // loops in the tile, outermost first
  std::string lanes_of;                       // the one that has lanes
  int64_t lanes = 1;
  std::string vectors = "1";
  std::map<std::string, int64_t> blocks;  // of reduced loops that are walked block by block
};

// transform_layout of each constant operand that the tile walks through.
void pack_constants(TraceWriter& writer, const TensorProgram& kernel, const Stmt& update, const PackOrder& order) {
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    if (!kernel.params[p].is_constant) continue;
    const std::string name = fmt::format("p{}", p);
    std::vector<Expr> loads;
    for (const Expr& load : loads_of(update->value))
      if (load->buffer->name == name) loads.push_back(load);
    if (loads.size() != 1) continue;
    // Each dimension is one loop's, or has one element.
    std::map<std::string, std::string> dim_of;  // by loop
    std::vector<std::string> vars;
    bool plain = true;
    for (size_t d = 0; d < loads[0]->operands.size(); ++d) {
      const Expr& index = loads[0]->operands[d];
      vars.push_back(fmt::format("d{}", d));
      if (as_int(loads[0]->buffer->shape[d]) == 1) continue;
      plain = plain && index->kind == ExprKind::kVar && dim_of.try_emplace(index->name, vars.back()).second;
    }
    bool in_tile = false;
    for (const std::string& loop : order.inner) in_tile |= dim_of.contains(loop);
    if (!plain || !in_tile) continue;
    std::vector<std::string> index;
    for (const std::string& loop : order.inner)
      if (dim_of.contains(loop)) index.push_back(fmt::format("floordiv({}, {})", dim_of[loop], order.within.at(loop)));
    std::vector<std::string> last;
    for (const std::string& entry : order.outer) {
      // "r0/16" and "r0%16" are parts of a loop that is walked block by block.
      const size_t cut = entry.find_first_of("/%");
      const auto dim = dim_of.find(entry.substr(0, cut));
      if (dim == dim_of.end()) continue;
      if (cut == std::string::npos) index.push_back(dim->second);
      else
        index.push_back(
            fmt::format("{}({}, {})", entry[cut] == '/' ? "floordiv" : "floormod", dim->second, entry.substr(cut + 1)));
    }
    for (const std::string& loop : order.inner) {
      const auto dim = dim_of.find(loop);
      if (dim == dim_of.end()) continue;
      if (loop == order.lanes_of) {
        index.push_back(fmt::format("floormod(floordiv({}, {}), {})", dim->second, order.lanes, order.vectors));
        last.push_back(fmt::format("floormod({}, {})", dim->second, order.lanes));
      } else {
        index.push_back(fmt::format("floormod({}, {})", dim->second, order.within.at(loop)));
      }
    }
    index.insert(index.end(), last.begin(), last.end());
    writer.line("transform_layout({}, ({}) -> [{}])", name, fmt::join(vars, ", "), fmt::join(index, ", "));
  }
}

// Operands that are no weights, that all rows of a tile share, and that lie in memory along one loop: copied to where
// the tile's vectors lie one behind the other, at a place that is sampled. Answers whether there are any.
bool pack_operands(TraceWriter& writer, const TensorProgram& kernel, const Stmt& update, const OutputAxes& axes) {
  bool any = false;
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    if (kernel.params[p].is_constant) continue;
    const std::string name = fmt::format("p{}", p);
    std::vector<Expr> loads;
    for (const Expr& load : loads_of(update->value))
      if (load->buffer->name == name) loads.push_back(load);
    if (loads.size() != 1) continue;
    const std::vector<Expr>& indices = loads[0]->operands;
    size_t along = indices.size();
    bool shared = true;
    for (size_t d = 0; d < indices.size(); ++d) {
      if (mentions(indices[d], axes.vector)) {
        shared = shared && along == indices.size() && indices[d]->kind == ExprKind::kVar;
        along = d;
      }
      for (size_t r = 0; r < std::min<size_t>(axes.rows.size(), 2); ++r)
        shared = shared && !mentions(indices[d], axes.rows[r].name);
    }
    if (!shared || along == indices.size()) continue;
    any = true;
    const std::string copy = writer.line("{0}_pack = cache_read({0}, local)", name)[0];
    writer.line("place{} = sample_compute_location({}) decided [-1]", p, copy);
    writer.line("compute_at({}, place{})", copy, p);
    std::vector<std::string> vars, index = {fmt::format("floordiv(d{}, {})", along, axes.lanes)};
    for (size_t d = 0; d < indices.size(); ++d) {
      vars.push_back(fmt::format("d{}", d));
      if (d != along) index.push_back(vars.back());
    }
    index.push_back(fmt::format("floormod(d{}, {})", along, axes.lanes));
    writer.line("transform_layout({}, ({}) -> [{}])", copy, fmt::join(vars, ", "), fmt::join(index, ", "));
    if (along + 1 < indices.size()) continue;
    const Names parts =
        writer.line("{0}_v, {0}_l = split({0}, [_, {1}])", fmt::format("{}_{}", copy, along), axes.lanes);
    writer.line("vectorize({})", parts[1]);
  }
  return any;
}

// The loops over the output, the outermost two joined for threads.
void join_for_threads(TraceWriter& writer, const Target& target, const Names& outer) {
  if (target.num_threads < 2 || outer.empty()) return;
  const std::string joined = outer.size() > 1 ? writer.line("fuse([{}])", fmt::join(outer, ", "))[0] : outer[0];
  const std::string piece = writer.number("piece", {1, 2, 4, 8, 16, 64}, 1);
  const Names parts = writer.line("{0}_t, {0}_s = split({0}, [_, {1}])", joined, piece);
  writer.line("parallel({})", parts[0]);
}

enum class TileKind : uint8_t { kPlain, kWindowsInside, kPackedOperands };

// A tile of sums in registers.
Made tile_sketch(const TensorProgram& kernel, const Target& target, TileKind kind) {
  const bool channels_outside = kind == TileKind::kWindowsInside;
  TraceWriter writer(kernel, target);
  const NaiveNest nest = nest_of(writer.program());
  if (!nest.update) return Declined{"the kernel does not reduce"};
  if (nest.reduced.empty()) return Declined{"nothing is left of the reduction's loops"};
  const BufferPtr acc = nest.update->buffer;
  const int64_t machine_lanes = std::max<int64_t>(1, target.vector_bits() / dtype_bits(acc->dtype));
  auto found = output_axes(nest, machine_lanes);
  if (auto* declined = std::get_if<Declined>(&found)) return std::move(*declined);
  const OutputAxes& axes = std::get<OutputAxes>(found);
  if (axes.extent < 2) return Declined{"the output has no axis for vectors"};

  // The tile: vectors along the contiguous axis, rows along the next two.
  const std::string row = axes.rows.empty() ? "" : axes.rows[0].name;
  const std::string column = axes.rows.size() < 2 ? "" : axes.rows[1].name;
  const int64_t blocks = (axes.extent + axes.lanes - 1) / axes.lanes;
  TileProblem problem;
  problem.rows = axes.rows.empty() ? 1 : axes.rows[0].extent;
  problem.blocks = blocks;
  problem.registers_per_block = std::max<int64_t>(1, axes.lanes / machine_lanes);
  for (const LoopFact& loop : nest.reduced) problem.steps *= loop.extent;
  problem.registers = target.vector_registers();
  const TileShape shape = choose_tile(problem);
  const std::string vectors = writer.number("vectors", up_to(std::min<int64_t>(blocks, 8)), shape.vectors);
  std::string rows = "1", columns = "1";
  if (!row.empty()) rows = writer.number("rows", up_to(std::min<int64_t>(axes.rows[0].extent, 28)), shape.rows);
  if (!column.empty()) columns = writer.number("columns", up_to(std::min<int64_t>(axes.rows[1].extent, 4)), 1);
  const Names v = writer.line("{0}_0, {0}_1, {0}_2 = split({0}, [_, {1}, {2}])", axes.vector, vectors, axes.lanes);
  Names w, h;
  if (!row.empty()) w = writer.line("{0}_0, {0}_1 = split({0}, [_, {1}])", row, rows);
  if (!column.empty()) h = writer.line("{0}_0, {0}_1 = split({0}, [_, {1}])", column, columns);
  // Blocks of vectors and of places, which stay in caches while the others pass by.
  const Names vb = writer.tile(v[0], "groups", "group", 64);
  const std::string place = !column.empty() ? h[0] : row.empty() ? "" : w[0];
  const Names pb = place.empty() ? Names{} : writer.tile(place, "blocks", "block", 64);
  Names outer = axes.ones;
  for (size_t i = axes.rows.size(); i-- > 2;) outer.push_back(axes.rows[i].name);
  const size_t joinable = outer.size();
  for (size_t i = 0; i < 2; ++i)
    for (const Names* part : {&vb, &pb})
      if (i < part->size()) outer.push_back((*part)[i]);
  if (!column.empty()) outer.push_back(w[0]);
  Names inner = {v[1]};
  if (!column.empty()) inner.push_back(h[1]);
  if (!row.empty()) inner.push_back(w[1]);
  inner.push_back(v[2]);
  Names all = outer;
  all.insert(all.end(), inner.begin(), inner.end());
  writer.line("reorder([{}])", fmt::join(all, ", "));

  // Sums of a tile, their loops, and the results' apart.
  writer.line("store_at({}, {})", acc->name, inner[0]);
  writer.line("fission({}, y)", inner[0]);
  writer.line("decompose_reduction({}, {}_before)", acc->name, inner[0]);

  // The reduction's order. Blocked channels are walked block by block.
  constexpr int64_t kWindow = 7, kMostCopies = 8;
  struct Part {
    std::string loop;   // name now
    std::string digit;  // of the naive loop, for packing
    int64_t extent = 1;
  };
  std::vector<Part> channels, windows;
  for (const LoopFact& loop : nest.reduced) {
    const int64_t block = block_of(nest.update->value, loop.name);
    if (block > 1 && loop.extent > block) {
      const Names parts = writer.line("{0}_0, {0}_1 = split({0}, [_, {1}])", loop.name, block);
      channels.push_back({parts[0], fmt::format("{}/{}", loop.name, block), (loop.extent + block - 1) / block});
      channels.push_back({parts[1], fmt::format("{}%{}", loop.name, block), loop.extent % block == 0 ? block : 1});
    } else if (loop.extent <= kWindow && !(block > 1)) {
      windows.push_back({loop.name, loop.name, loop.extent});
    } else {
      channels.push_back({loop.name, loop.name, loop.extent});
    }
  }
  if (channels_outside && (channels.empty() || windows.empty()))
    return Declined{"there are no window loops to be inside of others"};
  // Copies of the windows' iterations, and of some of the innermost channel loop's.
  std::vector<std::string> order, digits, copied;
  const auto cut = [&](const Part& part, const std::string& name, const std::vector<int64_t>& factors,
                       int64_t first) -> Names {
    if (factors.size() < 2) return {part.loop};
    const std::string factor = writer.number(name, factors, first);
    const Names parts = writer.line("{0}_o, {0}_c = split({0}, [_, {1}])", part.loop, factor);
    copied.push_back(parts[1]);
    return parts;
  };
  std::vector<Names> window_loops;
  for (size_t i = 0; i < windows.size(); ++i) {
    std::vector<int64_t> factors = {1, windows[i].extent};
    if (windows[i].extent == 1) factors = {1};
    window_loops.push_back(
        cut(windows[i], fmt::format("copies{}", i), factors, i + 1 == windows.size() ? windows[i].extent : 1));
  }
  const auto add_windows = [&] {
    for (size_t part = 0; part < 2; ++part)
      for (const Names& loops : window_loops)
        if (part < loops.size()) order.push_back(loops[part]);
    for (const Part& window : windows) digits.push_back(window.digit);
  };
  const auto add_channel = [&](const Part& channel, bool last) {
    digits.push_back(channel.digit);
    const Names loops = last ? cut(channel, "steps", divisors(channel.extent, kMostCopies), 1) : Names{channel.loop};
    order.insert(order.end(), loops.begin(), loops.end());
  };
  for (size_t i = 0; i + 1 < channels.size(); ++i) add_channel(channels[i], false);
  if (!channels.empty() && (channels_outside || channels.size() == 1)) {
    // One loop of channels: natural order has it outside of short windows already.
    if (channels_outside || windows.empty()) add_channel(channels.back(), true);
    add_windows();
    if (!channels_outside && !windows.empty()) add_channel(channels.back(), true);
  } else {
    add_windows();
    if (!channels.empty()) add_channel(channels.back(), true);
  }

  PackOrder packing;
  packing.outer = digits;
  for (size_t i = axes.rows.size(); i-- > 2;) packing.outer.insert(packing.outer.begin(), axes.rows[i].name);
  packing.inner = {axes.vector};
  packing.within[axes.vector] = fmt::format("({} * {})", vectors, axes.lanes);
  if (!column.empty()) {
    packing.inner.push_back(column);
    packing.within[column] = columns;
  }
  if (!row.empty()) {
    packing.inner.push_back(row);
    packing.within[row] = rows;
  }
  packing.lanes_of = axes.vector;
  packing.lanes = axes.lanes;
  packing.vectors = vectors;
  pack_constants(writer, kernel, nest.update, packing);

  for (const std::string& loop : inner) order.push_back(loop + "_before");
  if (order.size() > 1) writer.line("reorder([{}])", fmt::join(order, ", "));
  if (kind == TileKind::kPackedOperands && !pack_operands(writer, kernel, nest.update, axes))
    return Declined{"no operand but weights is shared by all rows of a tile and lies along the lanes' axis"};
  writer.line("predicate({}.update)", acc->name);
  for (const std::string& loop : copied) writer.line("unroll({})", loop);
  for (const char* suffix : {"_before_init", "_before", ""})
    for (const std::string& loop : inner) writer.line("{}({}{})", loop == v[2] ? "vectorize" : "unroll", loop, suffix);
  if (is_product_of_floats(nest.update)) writer.line("annotate({}.update, fma, 1)", acc->name);
  outer.resize(std::min(outer.size(), joinable + 2));
  join_for_threads(writer, target, outer);
  return writer.steps();
}

// Lanes of partial results of one reduced loop along which memory is contiguous.
Made rfactor_sketch(const TensorProgram& kernel, const Target& target) {
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
  join_for_threads(writer, target, outer);
  return writer.steps();
}

// No reduction: vectors along the output's contiguous axis, and copies of some of its and its neighbour's iterations.
Made map_sketch(const TensorProgram& kernel, const Target& target) {
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
  join_for_threads(writer, target, outer);
  return writer.steps();
}

}  // namespace

SketchList make_sketches(const TensorProgram& kernel, const Target& target) {
  SketchList result;
  const auto add = [&](const std::string& name, const std::function<Made()>& make) {
    try {
      Made made = make();
      if (auto* declined = std::get_if<Declined>(&made)) result.declined.push_back(name + ": " + declined->reason);
      else result.sketches.push_back({name, std::move(std::get<std::vector<TraceStep>>(made))});
    } catch (const UserError& error) {
      result.declined.push_back(fmt::format("{}: {}", name, error.diagnostic().message));
    }
  };
  if (is_symbolic(kernel)) {
    result.declined.emplace_back("sketch: a run decides about sizes");
    return result;
  }
  add("sketch.tile", [&] { return tile_sketch(kernel, target, TileKind::kPlain); });
  add("sketch.tile_windows", [&] { return tile_sketch(kernel, target, TileKind::kWindowsInside); });
  add("sketch.tile_packed", [&] { return tile_sketch(kernel, target, TileKind::kPackedOperands); });
  add("sketch.rfactor", [&] { return rfactor_sketch(kernel, target); });
  add("sketch.map", [&] { return map_sketch(kernel, target); });
  return result;
}

}  // namespace tessera
