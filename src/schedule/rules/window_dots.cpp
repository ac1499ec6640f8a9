#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>

#include "loop/intrinsic.h"
#include "schedule/kernel/guards.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/regions.h"
#include "schedule/rules/rules.h"

// Depthwise convolutions of bytes by dot products. Channels lie side by side, and each sums places of its own: a lane's
// factors lie a block of channels apart. A *window* of a few neighbouring places is therefore turned in registers, so
// that each channel's bytes of it stand together, and all outputs whose taps lie in it read it with weights of their
// own: those of the filter, *shifted* to where the taps lie in the window, and zeros elsewhere.
//
//   window       p0 p1 p2 p3     of a filter of 3 places, stride 1
//   output 1     w0 w1 w2  0     shift 0
//   output 2      0 w0 w1 w2     shift 1
//
// Rows of the filter are written out where all of them are in the image; at its upper and lower border they are a loop
// with conditions. Windows do not leave the image: where taps do, at its border, the window begins at the border and
// the shift is another one, so that padding needs no condition.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kMostTaps = 8;
constexpr int64_t kMostWrittenOut = 8;     // rows of a window
constexpr int64_t kEnoughIterations = 32;  // of the parallel loop

// Where the window of an output lies: its first place, counted from the first tap of output 0, and how many places the
// output's first tap is behind that.
struct WindowPlace {
  int64_t first = 0, shift = 0;
  bool operator==(const WindowPlace&) const = default;
};

// Tiles of so many outputs whose windows lie alike.
struct TileKind {
  int64_t first_tile = 0, num_tiles = 1, outputs = 0;
  std::vector<WindowPlace> windows;  // the first place counted from the first tap of the tile's first output
};

struct WindowDots {
  LinearKernel kernel;
  const TensorIntrinsic* dot = nullptr;
  OutputLoop lane, block, column;  // a block's channels, the blocks, and the outputs along which windows move
  std::vector<OutputLoop> others;  // outermost first
  size_t taps = 0;                 // number of the reduced axis along which a window's taps are
  int64_t num_taps = 0, stride = 1;
  int64_t places = 0;  // of a window
  Expr image;          // the load
  size_t weights = 0;  // the parameter
  Expr weight_address;
  std::vector<Expr> guards;                 // conditions on other axes than those of columns and taps
  std::vector<std::vector<bool>> in_image;  // by output and tap
  int64_t tile = 1;                         // outputs
  std::vector<TileKind> kinds;
  int64_t least_shift = 0, most_shift = 0;
  BufferPtr packed;
  PackedParam packing;
  size_t shift_dim = 0;  // number of the packed dimension of shifts
};

std::optional<int64_t> step_of(const WindowDots& w, const Expr& address, const Var& var) {
  return linear_coefficient(address, var, w.kernel.bounds);
}

// Takes `product` apart, a byte of the image times a weight; a reason where it is none.
std::string find_factors(WindowDots& w, const Expr& product) {
  const LinearKernel& k = w.kernel;
  if (product->kind != ExprKind::kBinary || product->binary != BinaryOp::kMul) return "it sums no products";
  const auto load_in = [](const Expr& factor) {
    const Expr e = factor->kind == ExprKind::kCast ? factor->operands[0] : factor;
    return e->kind == ExprKind::kLoad ? e : Expr();
  };
  const Expr loads[] = {load_in(product->operands[0]), load_in(product->operands[1])};
  if (!loads[0] || !loads[1]) return "a factor is not read as it lies";
  const auto param_of = [&](const Expr& load) {
    return static_cast<size_t>(std::ranges::find(k.params, load->buffer) - k.params.begin());
  };
  const size_t side = k.may_be_packed(param_of(loads[1])) ? 1 : 0;
  w.weights = param_of(loads[side]);
  w.image = loads[1 - side];
  w.weight_address = loads[side]->operands[0];
  if (!k.may_be_packed(w.weights) || k.may_be_packed(param_of(w.image))) return "its weights are not constant";
  if (is_float(loads[side].dtype()) || dtype_bits(loads[side].dtype()) > 32) return "its weights are no integers";
  if (w.image.dtype() != DType::kU8 && w.image.dtype() != DType::kI8) return "it reads no bytes";
  bool elsewhere = false;
  const auto look = [&](const Expr& value) {
    walk(value,
         [&](const Expr& node) { elsewhere |= node->kind == ExprKind::kLoad && node->buffer == loads[side]->buffer; });
  };
  look(k.value);
  for (const LinearResult& result : k.more_results) look(result.value);
  return elsewhere ? "its weights are read elsewhere, too" : "";
}

// The output's loops by what they do; a reason where the channels do not lie side by side.
std::string find_loops(WindowDots& w) {
  const LinearKernel& k = w.kernel;
  if (k.loops.empty() || k.loops.back().part != LayoutDim::Part::kRemainder) return "channels are not stored in blocks";
  w.lane = k.loops.back();
  if (step_of(w, w.image->operands[0], w.lane.var) != 1) return "an output's lane does not read its own channel";
  const auto weight = step_of(w, w.weight_address, w.lane.var);
  if (!weight || *weight == 0) return "channels share their weights";
  for (const OutputLoop& loop : k.loops) {
    if (loop.var.same_node(w.lane.var)) continue;
    if (loop.part == LayoutDim::Part::kQuotient && loop.axis == w.lane.axis) w.block = loop;
    else if (loop.part == LayoutDim::Part::kWhole) w.others.push_back(loop);
    else return "the output's layout blocks another axis than the innermost";
  }
  return w.block.var ? "" : "channels are not stored in blocks";
}

// The axis of taps and the loop of outputs that go the same way over the image, by the shortest steps.
std::string find_window(WindowDots& w) {
  const LinearKernel& k = w.kernel;
  const Expr& address = w.image->operands[0];
  std::optional<size_t> column;
  int64_t least_step = 0;
  for (size_t a = 0; a < k.reduce.size(); ++a) {
    const auto extent = as_int(k.reduce[a].extent);
    const auto tap_step = step_of(w, address, k.reduce[a].var);
    if (!extent || !tap_step || !step_of(w, w.weight_address, k.reduce[a].var))
      return "an operand's address is not linear in a reduced axis";
    if (*extent < 2 || *extent > kMostTaps || *tap_step <= 0) continue;
    for (size_t o = 0; o < w.others.size(); ++o) {
      const auto step = step_of(w, address, w.others[o].var);
      if (!step || *step <= 0 || *step % *tap_step != 0 || (column && *step >= least_step) ||
          step_of(w, w.weight_address, w.others[o].var) != 0)
        continue;
      column = o;
      least_step = *step;
      w.taps = a;
      w.num_taps = *extent;
      w.stride = *step / *tap_step;
    }
  }
  if (!column) return "no window slides over the image";
  w.column = w.others[*column];
  w.others.erase(w.others.begin() + static_cast<std::ptrdiff_t>(*column));
  return "";
}

// Which taps of which outputs are in the image.
std::string find_taps_in_image(WindowDots& w, const std::vector<Expr>& conditions) {
  const Var tap = w.kernel.reduce[w.taps].var;
  w.in_image.assign(static_cast<size_t>(w.column.extent), std::vector<bool>(static_cast<size_t>(w.num_taps), true));
  for (const Expr& condition : conditions) {
    if (uses_var(condition, w.lane.var)) return "a condition depends on the channel";
    if (!uses_var(condition, tap) && !uses_var(condition, w.column.var)) {
      w.guards.push_back(condition);
      continue;
    }
    for (int64_t x = 0; x < w.column.extent; ++x)
      for (int64_t t = 0; t < w.num_taps; ++t) {
        const Expr answer =
            simplify(substitute(condition, {{w.column.var.get(), Expr(x)}, {tap.get(), Expr(t)}}), w.kernel.bounds);
        if (!is_true(answer) && !is_false(answer)) return "a condition mixes the window's axis with another";
        if (is_false(answer)) w.in_image[static_cast<size_t>(x)][static_cast<size_t>(t)] = false;
      }
  }
  return "";
}

// The windows of all outputs, the fewest different ones in each tile.
std::string place_windows(WindowDots& w) {
  struct Taps {
    int64_t first = 0, last = -1;
  };
  std::vector<Taps> taps;                    // in the image, as places
  int64_t first_place = 0, last_place = -1;  // of the image
  for (int64_t x = 0; x < w.column.extent; ++x) {
    const auto& valid = w.in_image[static_cast<size_t>(x)];
    const auto first = std::ranges::find(valid, true), end = std::ranges::find(std::views::reverse(valid), true).base();
    if (first == valid.end()) return "an output has no tap in the image";
    if (std::find(first, end, false) != end) return "the taps in the image are not neighbours";
    taps.push_back({x * w.stride + (first - valid.begin()), x * w.stride + (end - valid.begin()) - 1});
    first_place = x == 0 ? taps.back().first : std::min(first_place, taps.back().first);
    last_place = std::max(last_place, taps.back().last);
  }
  const int64_t depth = w.dot->depth;
  // A pair more than the taps is what two neighbours share; a quad has room for them already.
  w.places = (w.num_taps + (depth == 2 ? 1 : 0) + depth - 1) / depth * depth;
  const int64_t last_window = last_place + 1 - w.places;
  if (last_window < first_place) return fmt::format("a row of the image is shorter than {} places", w.places);
  w.least_shift = w.places, w.most_shift = -w.num_taps;
  for (int64_t begin = 0; begin < w.column.extent; begin += w.tile) {
    TileKind kind{begin / w.tile, 1, std::min(w.tile, w.column.extent - begin), {}};
    for (int64_t x = begin; x < begin + kind.outputs; ++x) {
      const Taps& own = taps[static_cast<size_t>(x)];
      int64_t first = std::min(own.first, last_window);
      if (!kind.windows.empty()) {
        const int64_t before = kind.windows.back().first + begin * w.stride;
        if (own.first >= before && own.last < before + w.places) first = before;
      }
      const int64_t shift = x * w.stride - first;
      for (int64_t t = 0; t < w.num_taps; ++t)
        if (t + shift >= 0 && t + shift < w.places && !w.in_image[static_cast<size_t>(x)][static_cast<size_t>(t)])
          return "a window holds places that do not count";
      kind.windows.push_back({first - begin * w.stride, shift});
      w.least_shift = std::min(w.least_shift, shift);
      w.most_shift = std::max(w.most_shift, shift);
    }
    if (!w.kinds.empty() && w.kinds.back().windows == kind.windows) ++w.kinds.back().num_tiles;
    else w.kinds.push_back(std::move(kind));
  }
  return "";
}

// Stores the weights of each shift as vectors: [others][block][reduced axes][shift][group of places][lane][place of the
// group], for shifts from 0 on, and behind them the same for each shift below.
std::string pack_weights(WindowDots& w) {
  const LinearKernel& k = w.kernel;
  PackSpec spec;
  VarMap zero{{w.lane.var.get(), Expr(0)}, {w.block.var.get(), Expr(0)}};
  const auto step = [&](const Var& var) { return *step_of(w, w.weight_address, var); };
  const auto add_axis = [&](const Var& var, int64_t extent) {
    spec.axes.push_back({extent, step(var)});
    zero[var.get()] = 0;
    return static_cast<int>(spec.axes.size()) - 1;
  };
  add_axis(w.lane.var, k.extents[static_cast<size_t>(w.lane.axis)]);
  if (w.block.extent > 1 && step_of(w, w.weight_address, w.block.var) != step(w.lane.var) * w.lane.extent)
    return "the weights' address is not linear in the channels";
  for (const OutputLoop& loop : w.others) {
    const auto c = step_of(w, w.weight_address, loop.var);
    if (!c) return "the weights' address is not linear";
    zero[loop.var.get()] = 0;
    if (*c != 0) spec.dims.push_back({loop.extent, add_axis(loop.var, loop.extent), 1});
  }
  zero[w.column.var.get()] = 0;
  spec.dims.push_back({w.block.extent, 0, w.lane.extent});
  for (size_t a = 0; a < k.reduce.size(); ++a)
    if (a != w.taps) {
      const int64_t extent = *as_int(k.reduce[a].extent);
      spec.dims.push_back({extent, add_axis(k.reduce[a].var, extent), 1});
    }
  // The tap at a window's place is the place less the shift.
  const int taps = add_axis(k.reduce[w.taps].var, w.num_taps);
  w.shift_dim = spec.dims.size();
  spec.dims.push_back({std::max<int64_t>(w.most_shift + 1, 1), taps, -1});
  spec.dims.push_back({w.places / w.dot->depth, taps, w.dot->depth});
  spec.dims.push_back({w.lane.extent, 0, 1});
  spec.dims.push_back({w.dot->depth, taps, 1});
  const auto offset = as_int(simplify(substitute(w.weight_address, zero), k.bounds));
  if (!offset) return "the weights' address is not linear";
  spec.offset = *offset;
  w.packing = {w.weights, {spec}};
  for (int64_t shift = -1; shift >= w.least_shift; --shift) {
    PackSpec below = spec;
    PackAxis& axis = below.axes[static_cast<size_t>(taps)];
    axis.extent = std::max<int64_t>(axis.extent + shift, 0);
    below.offset -= shift * axis.stride;
    below.dims[w.shift_dim].extent = 1;
    w.packing.parts.push_back(std::move(below));
  }
  const Buffer& weights = *k.params[w.weights];
  w.packed = make_buffer(weights.name + "_packed", weights.dtype, {w.packing.num_elements()});
  return "";
}

class TileEmitter {
 public:
  TileEmitter(const WindowDots& w, const VarMap& at, const Expr& first_column, const TileKind& kind)
      : w_(w),
        at_(at),
        first_column_(first_column),
        kind_(kind),
        acc_(make_buffer("acc", DType::kI32, {kind.outputs, w.lane.extent}, MemoryScope::kRegister)) {}

  Stmt emit() {
    const auto over_outputs = [&](const std::function<Stmt(const VarMap&, const std::vector<Expr>&)>& body) {
      return unrolled("p", 0, kind_.outputs, [&](const Var& p) {
        return vectorized("l", w_.lane.extent, [&](const Var& l) {
          VarMap map = at_;
          map[w_.column.var.get()] = first_column_ + p;
          map[w_.lane.var.get()] = l;
          return body(map, {p, l});
        });
      });
    };
    const Stmt clear = over_outputs(
        [&](const VarMap&, const std::vector<Expr>& index) { return store(acc_, index, const_int(DType::kI32, 0)); });
    const Expr guard = guard_of(w_.kernel);
    const Stmt finish = over_outputs([&](const VarMap& map, const std::vector<Expr>& index) {
      VarMap values = map;
      values[w_.kernel.result_var.get()] = load(acc_, index);
      const Stmt stores = store_each(w_.kernel, map, values);
      return guard ? if_then(substitute(guard, map), stores) : stores;
    });
    return alloc(acc_, seq({clear, rows(), finish}));
  }

 private:
  // Rows of the window: written out where all of them are in the image, a loop with conditions at its border.
  Stmt rows() {
    int64_t count = 1;
    for (size_t axis = 0; axis < w_.kernel.reduce.size(); ++axis)
      if (axis != w_.taps) count *= *as_int(w_.kernel.reduce[axis].extent);
    if (count > kMostWrittenOut) return rows_of_window(0, at_);
    Expr all_in_image = const_int(DType::kBool, 1);
    std::vector<Stmt> written_out;
    for (const VarMap& at : rows_from(0, at_)) {
      for (const Expr& guard : w_.guards) all_in_image = logical_and(all_in_image, substitute(guard, at));
      written_out.push_back(window_row(at));
    }
    const Expr condition = simplify(all_in_image, w_.kernel.bounds);
    if (is_true(condition)) return seq(std::move(written_out));
    return if_then(condition, seq(std::move(written_out)), rows_of_window(0, at_));
  }

  // Values of the reduced axes from number `axis` on, but for that of taps.
  std::vector<VarMap> rows_from(size_t axis, const VarMap& at) const {
    if (axis == w_.kernel.reduce.size()) return {at};
    if (axis == w_.taps) return rows_from(axis + 1, at);
    std::vector<VarMap> all;
    for (int64_t i = 0; i < *as_int(w_.kernel.reduce[axis].extent); ++i) {
      VarMap inner = at;
      inner[w_.kernel.reduce[axis].var.get()] = i;
      std::ranges::copy(rows_from(axis + 1, inner), std::back_inserter(all));
    }
    return all;
  }

  // The loops over the reduced axes from number `axis` on, but for that of taps.
  Stmt rows_of_window(size_t axis, const VarMap& at) {
    const LinearKernel& k = w_.kernel;
    if (axis == k.reduce.size()) {
      Stmt sums = window_row(at);
      for (const Expr& guard : w_.guards) sums = if_then(substitute(guard, at), std::move(sums));
      return sums;
    }
    if (axis == w_.taps) return rows_of_window(axis + 1, at);
    const Var var = make_var(k.reduce[axis].var->name);
    VarMap inner = at;
    const int64_t extent = *as_int(k.reduce[axis].extent);
    inner[k.reduce[axis].var.get()] = extent == 1 ? Expr(0) : Expr(var);
    const Stmt body = rows_of_window(axis + 1, inner);
    return extent == 1 ? body : for_loop(var, 0, extent, ForKind::kSerial, body);
  }

  // One row of the window of each output.
  Stmt window_row(const VarMap& at) {
    std::vector<Stmt> sums;
    for (int64_t p = 0; p < kind_.outputs; ++p) {
      const WindowPlace& window = kind_.windows[static_cast<size_t>(p)];
      for (int64_t g = 0; g * w_.dot->depth < w_.places; ++g) {
        const int64_t first_tap = g * w_.dot->depth - window.shift;
        if (first_tap >= w_.num_taps || first_tap + w_.dot->depth <= 0) continue;
        for (int64_t h = 0; h < w_.lane.extent / w_.dot->lanes; ++h) sums.push_back(group(at, p, window, g, h));
      }
    }
    return seq(std::move(sums));
  }

  // A group of the places of output p's window, for a vector of its channels.
  Stmt group(const VarMap& at, int64_t p, const WindowPlace& window, int64_t g, int64_t h) {
    const Stmt sum = vectorized("l", w_.dot->lanes, [&](const Var& l) {
      const Expr lane = Expr(h * w_.dot->lanes) + l;
      const Var q = make_var("q");
      VarMap map = at;
      map[w_.column.var.get()] = first_column_;
      map[w_.lane.var.get()] = lane;
      map[w_.kernel.reduce[w_.taps].var.get()] = Expr(window.first + g * w_.dot->depth) + q;
      const Expr byte = load(w_.image->buffer, {substitute(w_.image->operands[0], map)});
      const Expr weight = load(w_.packed, {weight_place(at, window.shift, g, lane, q)});
      const std::vector<Expr> sum = {p, lane};
      return for_loop(q, 0, w_.dot->depth, ForKind::kSerial,
                      store(acc_, sum, load(acc_, sum) + cast(DType::kI32, byte) * cast(DType::kI32, weight)));
    });
    return match_intrinsic(*w_.dot, sum).empty() ? tensorized(w_.dot, sum) : sum;
  }

  Expr weight_place(const VarMap& at, int64_t shift, int64_t g, const Expr& lane, const Expr& q) const {
    const auto& parts = w_.packing.parts;
    const size_t part = shift < 0 ? static_cast<size_t>(-shift) : 0;
    int64_t begin = 0;
    for (size_t i = 0; i < part; ++i) begin += parts[i].num_elements();
    Expr place = 0;
    size_t dim = 0;
    const auto add = [&](const Expr& index) { place = place * Expr(parts[part].dims[dim++].extent) + index; };
    for (const OutputLoop& loop : w_.others)
      if (step_of(w_, w_.weight_address, loop.var) != 0) add(at.at(loop.var.get()));
    add(at.at(w_.block.var.get()));
    for (size_t a = 0; a < w_.kernel.reduce.size(); ++a)
      if (a != w_.taps) add(at.at(w_.kernel.reduce[a].var.get()));
    add(std::max<int64_t>(shift, 0));
    add(g);
    add(lane);
    add(q);
    return place + Expr(begin);
  }

  const WindowDots& w_;
  const VarMap& at_;
  Expr first_column_;
  const TileKind& kind_;
  BufferPtr acc_;
};

// Whether it has a form in which each lane has first factors of its own, whose distance is a symbol of the pattern.
bool multiplies_lanes(const TensorIntrinsic& dot) {
  return std::ranges::any_of(dot.patterns, [](const IntrinsicPattern& p) { return !p.program->symbols.empty(); });
}

// Channels outside, as the weights of a block stay near; then the other axes, and tiles of outputs.
Stmt emit_loops(const WindowDots& w, int64_t parallel) {
  OutputLoop tiles;
  tiles.var = make_var("w");
  tiles.extent = w.kinds.back().first_tile + w.kinds.back().num_tiles;
  std::vector<OutputLoop> loops;
  const auto is_outside = [&](const OutputLoop& loop) { return loop.stride > w.block.stride; };
  std::ranges::copy_if(w.others, std::back_inserter(loops), is_outside);
  loops.push_back(w.block);
  std::ranges::copy_if(w.others, std::back_inserter(loops), std::not_fn(is_outside));
  int64_t iterations = 1;
  for (const OutputLoop& loop : loops) iterations *= loop.extent;
  // One kind of tiles after the other, where there is enough to share among threads without them.
  if (iterations >= kEnoughIterations)
    return outer_nest(loops, parallel, [&](const VarMap& at) {
      std::vector<Stmt> kinds;
      for (const TileKind& kind : w.kinds) {
        const Var tile = make_var("w");
        const bool once = kind.num_tiles == 1;
        const Expr first = (once ? Expr(kind.first_tile) : Expr(tile)) * Expr(w.tile);
        const Stmt own = TileEmitter(w, at, first, kind).emit();
        kinds.push_back(once ? own : for_loop(tile, kind.first_tile, kind.num_tiles, ForKind::kSerial, own));
      }
      return seq(std::move(kinds));
    });
  loops.push_back(tiles);
  return outer_nest(loops, parallel, [&](const VarMap& at) {
    const Expr tile = at.at(tiles.var.get());
    Stmt result;
    for (const TileKind& kind : std::views::reverse(w.kinds)) {
      const Expr first = kind.num_tiles == 1 ? Expr(kind.first_tile * w.tile) : tile * Expr(w.tile);
      const Stmt own = TileEmitter(w, at, first, kind).emit();
      result = result ? if_then(tile < Expr(kind.first_tile + kind.num_tiles), own, result) : own;
    }
    return result;
  });
}

}  // namespace

RuleResult window_dots(const TensorProgram& program, const Target& target, Knobs& knobs) {
  const Stage* reduction = program.reduction();
  if (!reduction || reduction->body.combiner != Combiner::kSum || reduction->out->dtype != DType::kI32)
    return Declined{"the kernel does not sum integers of 32 bits"};
  std::string why;
  auto made = make_linear_kernel(program, why, Results::kSeveral);
  if (!made) return Declined{why};
  if (!made->more_reductions.empty()) return Declined{"the kernel has several reductions"};
  WindowDots w;
  w.kernel = std::move(*made);
  VarMap once;  // axes of one step need no variable
  for (const Axis& axis : w.kernel.reduce)
    if (as_int(axis.extent) == 1) once[axis.var.get()] = 0;
  std::vector<Expr> conditions;
  const Expr product = take_guards(simplify(substitute(w.kernel.reduce_value, once), w.kernel.bounds),
                                   w.kernel.combiner, conditions, true);
  if (why = find_factors(w, product); !why.empty()) return Declined{why};
  if (why = find_loops(w); !why.empty()) return Declined{why};
  if (why = find_window(w); !why.empty()) return Declined{why};
  w.dot = byte_dot_intrinsic(target, w.image.dtype(), w.kernel.params[w.weights]->dtype);
  if (!w.dot || !multiplies_lanes(*w.dot) || w.lane.extent % w.dot->lanes != 0)
    return Declined{"the machine has no such dot products in lanes"};
  if (why = find_taps_in_image(w, conditions); !why.empty()) return Declined{why};

  // Sums of a tile stay in registers, beside a window and weights.
  const int64_t registers = target.vector_registers() >= 32 ? 14 : 8;
  const int64_t most = std::max<int64_t>(registers * w.dot->lanes / w.lane.extent, 2);
  const int64_t tiles = (w.column.extent + most - 1) / most;
  const int64_t even = ((w.column.extent + tiles - 1) / tiles + 1) / 2 * 2;
  const int64_t preferred = std::min(tiles == 1 ? w.column.extent : even, w.column.extent);
  w.tile = std::min(knobs.choose("columns", {2, 4, 6, 8, 10, 14, 16, 20}, preferred), w.column.extent);
  const int64_t parallel = knobs.choose("parallel", kParallelChoices, kJoinAll);
  if (why = place_windows(w); !why.empty()) return Declined{why};
  if (w.kinds.size() > 12)
    return Declined{fmt::format("there are {} different kinds of tiles, more than 12", w.kinds.size())};
  if (knobs.shares_weights()) {
    // All that a window may ask for.
    w.least_shift = 1 - w.num_taps;
    w.most_shift = w.places - 1;
  }
  if (why = pack_weights(w); !why.empty()) return Declined{why};

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = w.kernel.params;
  result.program.params[w.weights] = w.packed;
  result.program.num_outputs = static_cast<int>(w.kernel.num_results());
  result.program.body = emit_loops(w, parallel);
  result.packed = {w.packing};
  return result;
}

}  // namespace tessera::inline schedule
