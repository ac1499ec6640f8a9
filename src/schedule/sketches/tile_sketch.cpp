// The sketch of a tile of sums in registers.
#include <algorithm>
#include <map>

#include "schedule/rules/register_tile/tile_shape.h"
#include "schedule/sketches/sketch_writer.h"

namespace tessera::inline schedule {
namespace {

// Digits of a parameter's dimensions in the order in which a tile reads them: "floordiv(o, (vectors * 16)), k, ...".
struct PackOrder {
  std::vector<std::string> outer;             // loops, outermost first, that choose whole dimensions
  std::map<std::string, std::string> within;  // of the loops in the tile: what one tile covers, as text
  std::vector<std::string> inner;             // loops in the tile, outermost first
  std::string lanes_of;                       // the one that has lanes
  int64_t lanes = 1;
  std::string vectors = "1";
};

// transform_layout of each constant operand that the tile walks through.
void pack_constants(TraceWriter& writer, const TensorProgram& kernel, const Stmt& update, const PackOrder& order) {
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    if (!kernel.params[p].may_be_packed()) continue;
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
    if (kernel.params[p].may_be_packed()) continue;
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

class TileSketch {
 public:
  TileSketch(const TensorProgram& kernel, const Target& target, TileKind kind, Threads threads)
      : kernel_(kernel),
        target_(target),
        kind_(kind),
        threads_(threads),
        writer_(kernel, target),
        nest_(nest_of(writer_.program())) {}

  Made run() {
    if (!nest_.update) return Declined{"the kernel does not reduce"};
    if (nest_.reduced.empty()) return Declined{"nothing is left of the reduction's loops"};
    auto found = output_axes(nest_, machine_lanes());
    if (auto* declined = std::get_if<Declined>(&found)) return std::move(*declined);
    axes_ = std::move(std::get<OutputAxes>(found));
    sort_reduced();
    if (kind_ == TileKind::kWindowsInside && (channels_.empty() || windows_.empty()))
      return Declined{"there are no window loops to be inside of others"};
    cut_output();
    cut_reduced();
    order_reduced();
    pack_constants(writer_, kernel_, nest_.update, packing());
    for (const std::string& loop : tile_) order_.push_back(loop + "_before");
    writer_.line("reorder([{}])", fmt::join(order_, ", "));
    if (kind_ == TileKind::kPackedOperands && !pack_operands(writer_, kernel_, nest_.update, axes_))
      return Declined{"no operand but weights is shared by all rows of a tile and lies along the lanes' axis"};
    writer_.line("predicate({}.update)", acc());
    for (const std::string& loop : copied_) writer_.line("unroll({})", loop);
    for (const char* suffix : {"_before_init", "_before", ""})
      for (const std::string& loop : tile_)
        writer_.line("{}({}{})", loop == tile_.back() ? "vectorize" : "unroll", loop, suffix);
    if (is_product_of_floats(nest_.update)) writer_.line("annotate({}.update, fma, 1)", acc());
    run_on_threads(writer_, target_, joined_, threads_);
    return writer_.steps();
  }

 private:
  // A loop of the reduction.
  struct Part {
    std::string loop;   // its name now
    std::string digit;  // of the naive loop, for packing
    int64_t extent = 1, block = 1;
  };

  const std::string& acc() const { return nest_.update->buffer->name; }
  int64_t machine_lanes() const {
    return std::max<int64_t>(1, target_.vector_bits() / dtype_bits(nest_.update->buffer->dtype));
  }
  bool has_row() const { return !axes_.rows.empty(); }
  bool has_column() const { return axes_.rows.size() > 1; }
  const std::string& row() const { return axes_.rows[0].name; }
  const std::string& column() const { return axes_.rows[1].name; }

  // Windows are short, channels the others.
  void sort_reduced() {
    constexpr int64_t kWindow = 7;
    for (const LoopFact& loop : nest_.reduced) {
      const int64_t block = block_of(nest_.update->value, loop.name);
      (loop.extent <= kWindow && block == 1 ? windows_ : channels_)
          .push_back({loop.name, loop.name, loop.extent, loop.extent > block ? block : 1});
    }
  }

  // Vectors along the contiguous axis and rows along the next two, in blocks for caches; the sums of a tile, their
  // start and their results in nests of their own.
  void cut_output() {
    const int64_t blocks = (axes_.extent + axes_.lanes - 1) / axes_.lanes;
    const TileShape shape = first_shape(blocks);
    vectors_ = writer_.number("vectors", up_to(std::min<int64_t>(blocks, 8)), shape.vectors);
    if (has_row()) rows_ = writer_.number("rows", up_to(std::min<int64_t>(axes_.rows[0].extent, 28)), shape.rows);
    if (has_column()) columns_ = writer_.number("columns", up_to(std::min<int64_t>(axes_.rows[1].extent, 4)), 1);
    const Names v =
        writer_.line("{0}_0, {0}_1, {0}_2 = split({0}, [_, {1}, {2}])", axes_.vector, vectors_, axes_.lanes);
    Names w, h;
    if (has_row()) w = writer_.line("{0}_0, {0}_1 = split({0}, [_, {1}])", row(), rows_);
    if (has_column()) h = writer_.line("{0}_0, {0}_1 = split({0}, [_, {1}])", column(), columns_);
    // Blocks of vectors and of places, which stay in caches while the others pass by.
    const Names groups = writer_.tile(v[0], "groups", "group", 64);
    const Names places = has_row() ? writer_.tile(has_column() ? h[0] : w[0], "blocks", "block", 64) : Names{};
    Names order = axes_.ones;
    for (size_t i = axes_.rows.size(); i-- > 2;) order.push_back(axes_.rows[i].name);
    const size_t joinable = order.size() + 2;
    for (size_t i = 0; i < 2; ++i)
      for (const Names* part : {&groups, &places})
        if (i < part->size()) order.push_back((*part)[i]);
    if (has_column()) order.push_back(w[0]);
    joined_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), joinable)));
    tile_ = {v[1]};
    if (has_column()) tile_.push_back(h[1]);
    if (has_row()) tile_.push_back(w[1]);
    tile_.push_back(v[2]);
    order.insert(order.end(), tile_.begin(), tile_.end());
    writer_.line("reorder([{}])", fmt::join(order, ", "));
    writer_.line("store_at({}, {})", acc(), tile_[0]);
    writer_.line("fission({}, y)", tile_[0]);
    writer_.line("decompose_reduction({}, {}_before)", acc(), tile_[0]);
  }

  // By the rules' model of a core. Copies of the innermost loop are straight-line code in which loads move up and
  // registers spill: they leave room.
  TileShape first_shape(int64_t blocks) const {
    TileProblem problem;
    problem.rows = has_row() ? axes_.rows[0].extent : 1;
    problem.blocks = blocks;
    problem.registers_per_block = std::max<int64_t>(1, axes_.lanes / machine_lanes());
    for (const LoopFact& loop : nest_.reduced) problem.steps *= loop.extent;
    problem.registers = target_.vector_registers();
    if (channels_.empty() && windows_.back().extent > 1)
      problem.registers = problem.registers * (windows_.back().extent <= 3 ? 5 : 4) / 8;
    return choose_tile(problem);
  }

  // Blocked channels are walked block by block; some iterations of windows and of the innermost channels become copies.
  void cut_reduced() {
    std::vector<Part> channels;
    for (const Part& part : channels_) {
      if (part.block == 1) {
        channels.push_back(part);
        continue;
      }
      const Names names = writer_.line("{0}_0, {0}_1 = split({0}, [_, {1}])", part.loop, part.block);
      channels.push_back({names[0], fmt::format("{}/{}", part.digit, part.block), 0});
      const bool whole = part.extent % part.block == 0;
      channels.push_back({names[1], fmt::format("{}%{}", part.digit, part.block), whole ? part.block : 1});
    }
    channels_ = std::move(channels);
    for (size_t i = 0; i < windows_.size(); ++i)
      window_loops_.push_back(with_copies(windows_[i], fmt::format("copies{}", i), {1, windows_[i].extent},
                                          i + 1 == windows_.size() ? windows_[i].extent : 1));
  }

  Names with_copies(const Part& part, const std::string& name, const std::vector<int64_t>& counts, int64_t first) {
    if (part.extent == 1) return {part.loop};
    const std::string count = writer_.number(name, counts, first);
    const Names loops = writer_.line("{0}_o, {0}_c = split({0}, [_, {1}])", part.loop, count);
    copied_.push_back(loops[1]);
    return loops;
  }

  // Channels but the innermost, windows, the innermost channels; or windows last.
  void order_reduced() {
    constexpr int64_t kMostSteps = 8;
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (i + 1 == channels_.size() && kind_ != TileKind::kWindowsInside) add_windows();
      const bool last = i + 1 == channels_.size();
      const Part& part = channels_[i];
      const Names loops = last ? with_copies(part, "steps", divisors(part.extent, kMostSteps), 1) : Names{part.loop};
      order_.insert(order_.end(), loops.begin(), loops.end());
      digits_.push_back(part.digit);
    }
    if (channels_.empty() || kind_ == TileKind::kWindowsInside) add_windows();
  }

  void add_windows() {
    for (size_t part = 0; part < 2; ++part)
      for (const Names& loops : window_loops_)
        if (part < loops.size()) order_.push_back(loops[part]);
    for (const Part& window : windows_) digits_.push_back(window.digit);
  }

  PackOrder packing() const {
    PackOrder order;
    for (size_t i = axes_.rows.size(); i-- > 2;) order.outer.push_back(axes_.rows[i].name);
    order.outer.insert(order.outer.end(), digits_.begin(), digits_.end());
    order.inner = {axes_.vector};
    order.within[axes_.vector] = fmt::format("({} * {})", vectors_, axes_.lanes);
    if (has_column()) {
      order.inner.push_back(column());
      order.within[column()] = columns_;
    }
    if (has_row()) {
      order.inner.push_back(row());
      order.within[row()] = rows_;
    }
    order.lanes_of = axes_.vector;
    order.lanes = axes_.lanes;
    order.vectors = vectors_;
    return order;
  }

  const TensorProgram& kernel_;
  const Target& target_;
  TileKind kind_;
  Threads threads_;
  TraceWriter writer_;
  NaiveNest nest_;
  OutputAxes axes_;
  std::vector<Part> channels_, windows_;
  std::vector<Names> window_loops_;
  std::string vectors_ = "1", rows_ = "1", columns_ = "1";  // as other lines name them
  Names tile_;                                              // loops of a tile, the lanes' last
  Names joined_;                                            // outermost loops, for threads
  Names order_, copied_;                                    // of the reduction
  std::vector<std::string> digits_;                         // of the reduction, for packing
};

}  // namespace

Made tile_sketch(const TensorProgram& kernel, const Target& target, TileKind kind, Threads threads) {
  return TileSketch(kernel, target, kind, threads).run();
}

}  // namespace tessera::inline schedule
