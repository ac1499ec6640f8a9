#include "schedule/dynamic/dynamic_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "schedule/dynamic/cover.h"
#include "schedule/kernel/size_polynomial.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

bool is_fixed(const Expr& e) { return as_int(e).has_value(); }

bool is_fixed(const Shape& shape) { return static_dims(shape).has_value(); }

// The condition under which `transform` replaces: an expression and its value.
struct Replacement {
  Expr from;
  int64_t to;
};

Expr replaced(const Expr& e, const std::vector<Replacement>& replacements) {
  return transform(e, [&](const Expr& node) -> Expr {
    for (const Replacement& r : replacements)
      if (structurally_equal(node, r.from)) return Expr(r.to);
    return {};
  });
}

// extent = size * factor
struct SymbolicAxis {
  size_t axis = 0;  // of the output
  Expr size;
  int64_t factor = 1;
  Var base;  // of a tile: its first step, in units of `size`
};

SymbolicAxis symbolic_axis(size_t axis, const Expr& extent) {
  SymbolicAxis result{axis, extent, 1, make_var(fmt::format("b{}", axis))};
  if (extent->kind == ExprKind::kBinary && extent->binary == BinaryOp::kMul)
    for (const size_t side : {0U, 1U})
      if (const auto factor = as_int(extent->operands[side]); factor && *factor > 0) {
        result.size = extent->operands[1 - side];
        result.factor = *factor;
      }
  return result;
}

// The kernel for fixed numbers of steps, and how its memory moves.
struct Tile {
  TensorProgram program;
  // By parameter (the output is the last), then by symbolic axis: elements per unit of the axis' size.
  std::vector<std::vector<Expr>> moves;
};

class TileMaker {
 public:
  TileMaker(const TensorProgram& kernel, const std::vector<SymbolicAxis>& axes, const std::vector<int64_t>& steps)
      : kernel_(kernel), axes_(axes) {
    for (size_t a = 0; a < axes.size(); ++a) replacements_.push_back({axes[a].size, steps[a]});
  }

  // Empty with the reason in `why`.
  std::optional<Tile> make(std::string& why) {
    Tile tile;
    tile.program.name = kernel_.name;
    tile.moves.resize(kernel_.params.size() + 1);
    for (size_t p = 0; p < kernel_.params.size(); ++p) {
      const TensorParam& param = kernel_.params[p];
      tile.program.params.push_back({fixed(param.buffer), param.layout, param.kind});
      memory_[param.buffer.get()] = {p, tile.program.params.back().buffer, param.layout};
    }
    const Stage& output = kernel_.output();
    for (const Stage& stage : kernel_.stages) {
      Stage fixed_stage{fixed(stage.out), stage.layout, stage.body};
      if (&stage == &output) memory_[stage.out.get()] = {kernel_.params.size(), fixed_stage.out, stage.layout};
      else between_[stage.out.get()] = fixed_stage.out;
      if (!fix_stage(stage, fixed_stage, tile)) {
        why = why_;
        return std::nullopt;
      }
      tile.program.stages.push_back(std::move(fixed_stage));
    }
    return tile;
  }

 private:
  struct Memory {
    size_t param = 0;
    BufferPtr fixed;
    Layout layout;
  };

  bool fail(const std::string& why) {
    if (why_.empty()) why_ = why;
    return false;
  }

  BufferPtr fixed(const BufferPtr& buffer) {
    Shape shape;
    for (const Expr& dim : buffer->shape) shape.push_back(simplify(replaced(dim, replacements_)));
    if (!is_fixed(shape)) fail(fmt::format("{} has the shape {}", buffer->name, to_string(buffer->shape)));
    return make_buffer(buffer->name, buffer->dtype, std::move(shape), buffer->scope);
  }

  bool fix_stage(const Stage& stage, Stage& result, Tile& tile) {
    // Stages compute the same elements.
    const Body& body = stage.body;
    if (body.axes.size() != kernel_.output().body.axes.size()) return fail("a stage has other axes than the output");
    bounds_ = Bounds();
    moving_.clear();
    loop_vars_.clear();
    for (size_t i = 0; i < body.axes.size(); ++i) {
      const Expr extent = simplify(replaced(body.axes[i].extent, replacements_));
      if (!as_int(extent)) return fail("an axis keeps a size that is not fixed");
      result.body.axes[i].extent = extent;
      bounds_.set(body.axes[i].var, 0, *as_int(extent) - 1);
      loop_vars_.insert(body.axes[i].var.get());
    }
    for (size_t a = 0; a < axes_.size(); ++a) {
      const Var& var = body.axes[axes_[a].axis].var;
      moving_.push_back(var);
      bounds_.set(axes_[a].base, Interval{0, std::nullopt});
    }
    for (size_t i = 0; i < body.reduce_axes.size(); ++i) {
      const auto extent = as_int(body.reduce_axes[i].extent);
      if (!extent) return fail("the extent of a reduced axis is not fixed");
      bounds_.set(body.reduce_axes[i].var, 0, *extent - 1);
      loop_vars_.insert(body.reduce_axes[i].var.get());
    }
    result.body.value = fixed_value(body.value, tile);
    if (&stage == &kernel_.output() && why_.empty()) check_address(stage.out, body.axis_vars(), tile);
    return why_.empty();
  }

  // The value with the loads of the fixed buffers, each checked on the way.
  Expr fixed_value(const Expr& e, Tile& tile) {
    if (const auto it = done_.find(e.get()); it != done_.end()) return it->second;
    keep_.push_back(e);
    Expr result;
    if (e->kind == ExprKind::kLoad) {
      result = fixed_load(e, tile);
    } else if (e->kind == ExprKind::kVar) {
      const bool moves = std::any_of(moving_.begin(), moving_.end(), [&](const Var& v) { return v.same_node(e); });
      if (moves) fail("a value depends on the place along an axis of unknown extent");
      else if (!loop_vars_.count(e.get())) fail(fmt::format("a value depends on {}", e->name));
      result = e;
    } else if (e->operands.empty()) {
      result = e;
    } else {
      std::vector<Expr> operands;
      for (const Expr& operand : e->operands) operands.push_back(fixed_value(operand, tile));
      result = with_operands(e, std::move(operands));
    }
    return done_[e.get()] = result;
  }

  static Expr with_operands(const Expr& e, std::vector<Expr> x) {
    switch (e->kind) {
      case ExprKind::kUnary: return e->unary == UnaryOp::kBitcast ? bitcast(e->dtype, x[0]) : unary(e->unary, x[0]);
      case ExprKind::kBinary: return binary(e->binary, x[0], x[1]);
      case ExprKind::kSelect: return select(x[0], x[1], x[2]);
      case ExprKind::kFma: return fma(x[0], x[1], x[2]);
      case ExprKind::kCast: return cast(e->dtype, x[0]);
      default: throw InternalError("an expression of another kind");
    }
  }

  Expr fixed_load(const Expr& e, Tile& tile) {
    if (const auto it = between_.find(e->buffer.get()); it != between_.end()) {
      // The epilogue reads the reduction where it is.
      for (size_t i = 0; i < e->operands.size(); ++i)
        if (!e->operands[i].same_node(kernel_.output().body.axes[i].var) && !is_const_int(e->operands[i], 0))
          fail("a stage is read at another place than its own");
      return load(it->second, e->operands);
    }
    // Indices may depend on where the tile is, as long as the address only moves with it.
    std::vector<Expr> opaque, fixed_index;
    for (const Expr& index : e->operands) {
      opaque.push_back(transform(index, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        Var& var = loads_[fixed_load_once(node, tile).get()];
        if (!var) var = make_var("loaded", node.dtype());
        loop_vars_.insert(var.get());
        return var;
      }));
      fixed_index.push_back(fixed_index_of(index, tile));
    }
    check_address(e->buffer, opaque, tile);
    const auto it = memory_.find(e->buffer.get());
    if (it == memory_.end()) {
      fail("a buffer that is no parameter");
      return e;
    }
    return load(it->second.fixed, std::move(fixed_index));
  }

  Expr fixed_load_once(const Expr& e, Tile& tile) {
    if (const auto it = done_.find(e.get()); it != done_.end()) return it->second;
    keep_.push_back(e);
    return done_[e.get()] = fixed_load(e, tile);
  }

  Expr fixed_index_of(const Expr& index, Tile& tile) {
    return replaced(transform(index,
                              [&](const Expr& node) -> Expr {
                                return node->kind == ExprKind::kLoad ? fixed_load_once(node, tile) : Expr();
                              }),
                    replacements_);
  }

  // With every tile at its base the address must be that of the fixed buffer and a distance.
  void check_address(const BufferPtr& buffer, const std::vector<Expr>& index, Tile& tile) {
    const auto it = memory_.find(buffer.get());
    if (it == memory_.end() || !why_.empty()) return;
    const Memory& memory = it->second;
    SizePolynomial::Factors factors;
    VarMap shift;
    for (size_t a = 0; a < axes_.size(); ++a)
      shift[moving_[a].get()] = moving_[a] + axes_[a].base * Expr(axes_[a].factor);
    std::vector<Expr> fixed_index, shifted;
    for (const Expr& i : index) {
      fixed_index.push_back(replaced(i, replacements_));
      shifted.push_back(substitute(i, shift));
    }
    const Shape shape = physical_shape(buffer->shape, memory.layout);
    const SizePolynomial moved =
        SizePolynomial::address(factors, shape, physical_index(shifted, memory.layout), bounds_);
    const SizePolynomial still = SizePolynomial::address(factors, physical_shape(memory.fixed->shape, memory.layout),
                                                         physical_index(fixed_index, memory.layout), bounds_);
    SizePolynomial rest = moved - still;
    std::vector<Expr> moves;
    const Expr distance = rest.expr();
    for (size_t a = 0; a < axes_.size(); ++a) {
      // The coefficient of a base is what the distance loses without it.
      VarMap one, zero;
      for (size_t b = 0; b < axes_.size(); ++b) {
        one[axes_[b].base.get()] = a == b ? 1 : 0;
        zero[axes_[b].base.get()] = 0;
      }
      const SizePolynomial step = SizePolynomial(factors, simplify(substitute(distance, one), bounds_), bounds_) -
                                  SizePolynomial(factors, simplify(substitute(distance, zero), bounds_), bounds_);
      moves.push_back(step.expr());
      rest = rest - step * SizePolynomial(factors, axes_[a].base, bounds_);
      bool varies = false;
      walk(moves.back(), [&](const Expr& node) { varies |= loop_vars_.count(node.get()) > 0; });
      if (varies) return (void)fail(fmt::format("{} does not move as a whole with the tiles", buffer->name));
    }
    if (!rest.is_zero()) return (void)fail(fmt::format("the addresses of {} depend on the sizes", buffer->name));
    std::vector<Expr>& known = tile.moves[memory.param];
    if (known.empty()) {
      known = std::move(moves);
      return;
    }
    for (size_t a = 0; a < axes_.size(); ++a)
      if (!(SizePolynomial(factors, known[a], bounds_) == SizePolynomial(factors, moves[a], bounds_)))
        return (void)fail(fmt::format("{} is read at places that move differently", buffer->name));
  }

  const TensorProgram& kernel_;
  const std::vector<SymbolicAxis>& axes_;
  std::vector<Replacement> replacements_;
  std::unordered_map<const Buffer*, Memory> memory_;
  std::unordered_map<const Buffer*, BufferPtr> between_;
  Bounds bounds_;
  std::vector<Var> moving_;  // the axes' variables in the stage at hand
  std::unordered_set<const ExprNode*> loop_vars_;
  std::unordered_map<const ExprNode*, Expr> done_;
  std::unordered_map<const ExprNode*, Var> loads_;
  std::vector<Expr> keep_;
  std::string why_;
};

Expr product(const Shape& shape) {
  Expr count = 1;
  for (const Expr& dim : shape) count = count * dim;
  return count;
}

int64_t fixed_product(const Shape& shape) {
  int64_t count = 1;
  for (const Expr& dim : shape) count *= as_int(dim).value_or(1);
  return count;
}

// Multiply-adds (or elements) above which a tile is worth threads of its own; and of one of several rows of a tile, all
// of which read the same weights.
constexpr int64_t kLargeTile = 4 << 20, kLargeRow = 1 << 17;

// Whether the loops are parallel ones behind one another, of which none reads what another one writes.
bool are_parallel(const Stmt& body, const Buffer* out) {
  if (body->kind == StmtKind::kSeq)
    return std::all_of(body->stmts.begin(), body->stmts.end(), [&](const Stmt& s) { return are_parallel(s, out); });
  if (body->kind != StmtKind::kFor || body->for_kind != ForKind::kParallel) return false;
  bool reads_output = false;
  walk(
      body, [](const Stmt&) {},
      [&](const Expr& e) {
        walk(e, [&](const Expr& node) { reads_output |= node->kind == ExprKind::kLoad && node->buffer.get() == out; });
      });
  return !reads_output;
}

struct Version {
  std::vector<int64_t> steps;  // by symbolic axis
  Tile tile;
  ScheduledKernel scheduled;
  bool alone = false;  // for axes of so many steps, beside one for what larger tiles leave
};

// Tiles of fewer rows stand behind those of so many, once each. Of few rows, those by themselves are of another shape.
constexpr int64_t kRows = 8, kFewRows = 4;

// Knobs of the tile of kRows rows that smaller ones have as well, so that they go over its parts of the weights.
KnobPoint shared_knobs(const ScheduleRule& rule, const Knobs& knobs) {
  KnobPoint point{std::string(rule.name), {}};
  for (const Knob& knob : knobs.seen())
    if (knob.name == "vectors") point.values.emplace_back(knob.name, knob.preferred);
  return point;
}

// The serial loop over parts of weights that a version has outside, null when it has none.
const StmtNode* parts_of(const Version& version) {
  const LoopProgram& program = version.scheduled.program;
  const Stmt& body = program.body;
  const bool has =
      body->kind == StmtKind::kFor && as_int(body->extent) && are_parallel(body, program.params.back().get());
  return has ? body.get() : nullptr;
}

// Versions [first, end) that go over parts of the weights together: all cut their work into multiples of the same
// number of parts, which are enough for all threads. Empty: none.
struct JoinedVersions {
  size_t first = 0, end = 0;
  int64_t parts = 0;

  bool contains(size_t version) const { return version >= first && version < end; }
};

JoinedVersions joined_versions(const std::vector<Version>& versions, int64_t threads) {
  // The largest tile may cut the weights in another way than the tiles that follow it.
  for (size_t first = 0; first < std::min<size_t>(2, versions.size()); ++first)
    for (size_t end = versions.size(); end > first + 1; --end) {
      if (versions[end - 1].alone) continue;
      int64_t parts = INT64_MAX;
      bool all = true;
      for (size_t v = first; v < end; ++v) {
        const StmtNode* loop = parts_of(versions[v]);
        all &= loop != nullptr;
        if (loop) parts = std::min(parts, *as_int(loop->extent));
      }
      for (size_t v = first; all && v < end; ++v) all = *as_int(parts_of(versions[v])->extent) % parts == 0;
      if (all && parts >= 8 * threads) return {first, end, parts};
    }
  return {};
}

int64_t work_of(const TensorProgram& program) {
  int64_t work = fixed_product(program.output().out->shape);
  if (const Stage* reduction = program.reduction())
    for (const Axis& axis : reduction->body.reduce_axes) work *= as_int(axis.extent).value_or(1);
  return work;
}

}  // namespace

bool same_packing(const std::vector<PackedParam>& first, const std::vector<PackedParam>& second) {
  const auto same_axis = [](const PackAxis& x, const PackAxis& y) {
    return x.extent == y.extent && x.stride == y.stride;
  };
  const auto same_dim = [](const PackDim& x, const PackDim& y) {
    return x.extent == y.extent && x.axis == y.axis && x.multiplier == y.multiplier;
  };
  const auto same_part = [&](const PackSpec& x, const PackSpec& y) {
    return x.offset == y.offset && std::equal(x.axes.begin(), x.axes.end(), y.axes.begin(), y.axes.end(), same_axis) &&
           std::equal(x.dims.begin(), x.dims.end(), y.dims.begin(), y.dims.end(), same_dim);
  };
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [&](const PackedParam& a, const PackedParam& b) {
                      return a.param == b.param && a.winograd == b.winograd &&
                             std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), same_part);
                    });
}

Stmt without_threads(const Stmt& s) {
  return transform(s, nullptr, [](const Stmt& node) -> Stmt {
    if (node->kind != StmtKind::kFor || node->for_kind != ForKind::kParallel) return {};
    return for_loop(node->var, node->begin, node->extent, ForKind::kSerial, node->stmts[0]);
  });
}

bool is_symbolic(const TensorProgram& kernel) {
  for (const TensorParam& param : kernel.params)
    if (!is_fixed(param.buffer->shape)) return true;
  for (const Stage& stage : kernel.stages) {
    if (!is_fixed(stage.out->shape)) return true;
    for (const Axis& axis : stage.body.reduce_axes)
      if (!is_fixed(axis.extent)) return true;
  }
  return false;
}

std::variant<ScheduledKernel, Declined> apply_by_tiles(const ScheduleRule& rule, const TensorProgram& kernel,
                                                       const Target& target) {
  std::vector<SymbolicAxis> axes;
  const Shape& shape = kernel.output().out->shape;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!is_fixed(shape[i])) axes.push_back(symbolic_axis(i, shape[i]));
  if (axes.empty()) return Declined{"what is not fixed is no axis of the output"};
  for (size_t a = 0; a < axes.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (structurally_equal(axes[a].size, axes[b].size))
        return Declined{"two axes of the output have one unknown size"};

  // Few steps along the others; along the last as many as make a good kernel, unless one step is enough of a kernel.
  std::string why;
  const std::vector<int64_t> ones(axes.size(), 1);
  auto single = TileMaker(kernel, axes, ones).make(why);
  if (!single) return Declined{why};
  const Shape& one = single->program.output().out->shape;
  const int64_t elements = fixed_product(one);
  const bool reduces = single->program.reduction() != nullptr;
  const int64_t work = work_of(single->program);
  const int64_t rows = one.empty() ? 1 : elements / std::max<int64_t>(1, as_int(one.back()).value_or(1));
  std::vector<int64_t> sizes{1};
  if (reduces ? rows < 16 && rule.name != "row_reduce" : elements < 256) {
    if (reduces) sizes = {32, kRows, 7, 6, 5, 4, 3, 2, 1};
    else sizes = elements == 1 ? std::vector<int64_t>{64, 16, 1} : std::vector<int64_t>{32, 8, 1};
  }

  std::vector<Version> versions, alone;
  KnobPoint shared;
  const auto add_version = [&](int64_t size, const Tile& tile, Knobs& knobs,
                               std::vector<Version>& to) -> std::optional<Declined> {
    auto answer = rule.apply(tile.program, target, knobs);
    if (auto* declined = std::get_if<Declined>(&answer)) return std::move(*declined);
    to.push_back({ones, tile, std::move(std::get<ScheduledKernel>(answer)), &to == &alone});
    to.back().steps.back() = size;
    return std::nullopt;
  };
  const bool shares_weights = reduces && sizes.size() > 1 && work >= kLargeRow;
  for (const int64_t size : sizes) {
    std::vector<int64_t> steps = ones;
    steps.back() = size;
    const auto tile = size == 1 ? single : TileMaker(kernel, axes, steps).make(why);
    if (!tile) continue;  // of more than one step: memory is not moved evenly
    const bool is_shared = shares_weights && size < kRows && !shared.values.empty();
    if (is_shared) {
      Knobs knobs = Knobs::sharing_weights(&shared);
      add_version(size, *tile, knobs, versions);
      if (size > kFewRows) continue;
    }
    Knobs knobs = Knobs::sharing_weights();
    const auto declined = add_version(size, *tile, knobs, is_shared ? alone : versions);
    if (declined && size == 1) return *declined;
    if (!declined && size == kRows) shared = shared_knobs(rule, knobs);
  }
  versions.insert(versions.end(), alone.begin(), alone.end());
  // A transposition moves evenly place by place alone: windows have vectors of it.
  constexpr int64_t kFewElements = 16;
  if (!reduces && elements < kFewElements && sizes.size() > 1 && versions.size() == 1)
    return Declined{why.empty() ? "tiles would have few elements" : why};
  // Weights are stored once: larger tiles that want them otherwise are left out.
  const std::vector<PackedParam> packed = versions.back().scheduled.packed;
  std::erase_if(versions, [&](const Version& v) { return !same_packing(v.scheduled.packed, packed); });

  ScheduledKernel result;
  result.program.name = kernel.name;
  result.packed = packed;
  for (size_t p = 0; p <= kernel.params.size(); ++p) {
    const bool is_output = p == kernel.params.size();
    const BufferPtr& logical = is_output ? kernel.output().out : kernel.params[p].buffer;
    const Layout& layout = is_output ? kernel.output().layout : kernel.params[p].layout;
    const BufferPtr& flat = versions.back().scheduled.program.params[p];
    if (flat->shape.size() != 1) return Declined{"the rule does not address memory by one index"};
    const bool fixed = is_fixed(logical->shape);
    result.program.params.push_back(
        fixed ? flat : make_buffer(flat->name, flat->dtype, {product(physical_shape(logical->shape, layout))}));
  }

  std::vector<Stmt> nests;
  std::vector<int64_t> taken;
  for (const Version& version : versions)
    if (!version.alone) taken.push_back(version.steps.back());
  const Expr extent = axes.back().size;
  const std::string name = fmt::format("w{}", axes.back().axis);
  const bool has_all = std::count_if(taken.begin(), taken.end(), [](int64_t size) { return size <= kRows; }) == kRows;
  std::vector<TileSegment> segments =
      has_all ? cover_axis_once(extent, taken, kRows, name) : cover_axis(extent, taken, name);
  for (const Version& version : versions) {
    if (!version.alone) continue;
    const int64_t size = version.steps.back();
    const Expr is_all = equal(extent, Expr(size));
    for (TileSegment& segment : segments)
      if (segment.size == size) segment.count = select(is_all, Expr(0), segment.count);
    segments.push_back({size, make_var(name), select(is_all, Expr(1), Expr(0)), Expr(0)});
  }
  // Rows of an output that is no sum: their tiles follow one another, so that places are found once for each row.
  const bool by_rows = !reduces && axes.size() > 1 && versions.size() > 1;
  std::vector<Var> vars;
  for (size_t a = 0; a + 1 < axes.size(); ++a) vars.push_back(make_var(fmt::format("w{}", axes[a].axis)));
  const auto in_parallel = [&](const std::vector<Var>& over, const std::vector<Expr>& counts, Stmt body) {
    const Var t = make_var("t");
    VarMap split;
    Expr rest = t, all = 1;
    for (size_t a = over.size(); a-- > 0;) {
      split[over[a].get()] = a == 0 ? rest : floormod(rest, counts[a]);
      rest = floordiv(rest, counts[a]);
    }
    for (const Expr& count : counts) all = all * count;
    return for_loop(t, 0, all, ForKind::kParallel, substitute(body, split));
  };
  std::vector<Expr> row_counts;
  for (size_t a = 0; a + 1 < axes.size(); ++a) row_counts.push_back(axes[a].size);
  const JoinedVersions together = shares_weights ? joined_versions(versions, target.num_threads) : JoinedVersions();
  const Var shared_part = make_var("p");
  std::vector<Stmt> joined;  // what versions that go over the weights together do with one part
  for (size_t v = 0; v < versions.size(); ++v) {
    const Version& version = versions[v];
    const TileSegment& segment = segments[v];
    // Where the tile is.
    VarMap bases;
    for (size_t a = 0; a + 1 < axes.size(); ++a) bases[axes[a].base.get()] = vars[a];
    bases[axes.back().base.get()] = segment.base;
    const std::vector<BufferPtr>& own = version.scheduled.program.params;
    const auto param_of = [&](const BufferPtr& buffer) -> std::optional<size_t> {
      const auto it = std::find(own.begin(), own.end(), buffer);
      if (it == own.end()) return std::nullopt;
      return static_cast<size_t>(it - own.begin());
    };
    const auto moved = [&](size_t p, const Expr& index) {
      Expr at = index;
      const std::vector<Expr>& moves = version.tile.moves[p];
      for (size_t a = 0; a < moves.size(); ++a) at = at + moves[a] * bases.at(axes[a].base.get());
      return at;
    };
    Stmt body = transform(
        version.scheduled.program.body,
        [&](const Expr& node) -> Expr {
          if (node->kind != ExprKind::kLoad) return {};
          const auto p = param_of(node->buffer);
          return p ? load(result.program.params[*p], {moved(*p, node->operands[0])}) : Expr();
        },
        [&](const Stmt& node) -> Stmt {
          if (node->kind != StmtKind::kStore && node->kind != StmtKind::kFor) return {};
          const auto p = param_of(node->buffer);
          if (!p) return {};
          const BufferPtr& param = result.program.params[*p];
          if (node->kind == StmtKind::kStore) return store(param, {moved(*p, node->indices[0])}, node->value);
          const Stmt loop = for_loop(node->var, node->begin, node->extent, node->for_kind, node->stmts[0]);
          return prefetching(loop, param, {moved(*p, node->indices[0])});
        });
    // Large tiles share their own work among threads; small ones are shared out.
    const bool large = shares_weights || (!by_rows && work_of(version.tile.program) >= kLargeTile);
    if (!large) body = without_threads(body);
    if (together.contains(v)) {
      // All tiles and what they leave: one pass over the weights.
      if (v > together.first) body = with_fresh_definitions(body);
      const Expr each = floordiv(body->extent, Expr(together.parts));
      const Var first = make_var("q");
      const Stmt part = substitute(body->stmts[0], {{body->var.get(), body->begin + shared_part * each + first}});
      joined.push_back(
          for_loop(first, 0, each, ForKind::kSerial, for_loop(segment.var, 0, segment.count, ForKind::kSerial, part)));
      if (v + 1 < together.end) continue;
      std::vector<Var> over = vars;
      std::vector<Expr> counts = row_counts;
      over.push_back(shared_part);
      counts.emplace_back(together.parts);
      body = in_parallel(over, counts, seq(std::move(joined)));
    } else if (shares_weights && are_parallel(body, result.program.params.back().get())) {
      // What a tile reads of the weights at once stays near while all tiles go over it.
      std::vector<Stmt> loops = body->kind == StmtKind::kSeq ? body->stmts : std::vector<Stmt>{body};
      for (Stmt& loop : loops) {
        std::vector<Var> over = vars;
        std::vector<Expr> counts = row_counts;
        const Var part = make_var("p");
        over.insert(over.end(), {part, segment.var});
        counts.insert(counts.end(), {loop->extent, segment.count});
        loop = in_parallel(over, counts, substitute(loop->stmts[0], {{loop->var.get(), loop->begin + part}}));
      }
      body = seq(std::move(loops));
    } else if (large) {
      body = for_loop(segment.var, 0, segment.count, ForKind::kSerial, body);
      for (size_t a = vars.size(); a-- > 0;) body = for_loop(vars[a], 0, row_counts[a], ForKind::kSerial, body);
    } else if (by_rows) {
      body = for_loop(segment.var, 0, segment.count, ForKind::kSerial, body);
    } else {
      std::vector<Var> over = vars;
      std::vector<Expr> counts = row_counts;
      over.push_back(segment.var);
      counts.push_back(segment.count);
      body = in_parallel(over, counts, body);
    }
    // Versions may have variables of the kernel in common.
    nests.push_back(nests.empty() ? std::move(body) : with_fresh_definitions(body));
  }
  if (by_rows) nests = {in_parallel(vars, row_counts, seq(std::move(nests)))};
  result.program.body = nests.size() == 1 ? nests[0] : seq(std::move(nests));
  return result;
}

}  // namespace tessera::inline schedule
