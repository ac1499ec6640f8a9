#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <unordered_map>

#include "program/symbolic_sizes.h"
#include "schedule/dynamic/kernel_at.h"
#include "schedule/rules/rules.h"
#include "schedule/rules/winograd/winograd_emit.h"

namespace tessera::inline schedule {
namespace {

// Sizes at which the kernel is held against a convolution: what is linear in them is known from two. Small ones, and
// one at which a picture that is halved a few times still has several places.
constexpr int kPoints = 6;
constexpr int64_t kSmallPlaces = 12, kManyPlaces = 130;
// How much larger than the usual picture one is at most for which strips are chosen, along each axis.
constexpr int64_t kLargest = 4;

int64_t at_most(const SymbolRange& symbol, int64_t value) {
  const int64_t hi = std::min(symbol.hi, std::max(value, symbol.lo));
  return symbol.lo + (hi - symbol.lo) / symbol.step * symbol.step;
}

// From small ones to one that is the largest along every axis.
std::vector<SizePoint> points_of(const std::vector<SymbolRange>& symbols) {
  std::mt19937_64 random(1);
  std::vector<SizePoint> points(kPoints);
  for (int i = 0; i < kPoints; ++i)
    for (const SymbolRange& symbol : symbols) {
      const auto steps = [&](int64_t places) { return std::max<int64_t>(places / symbol.step, 3); };
      const int64_t step = i == 0 ? (symbol.lo == 0 ? 1 : 0)
                           : i + 1 == kPoints
                               ? steps(kManyPlaces)
                               : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(steps(kSmallPlaces)));
      points[static_cast<size_t>(i)].push_back(at_most(symbol, symbol.lo + step * symbol.step));
    }
  return points;
}

bool same_window(const FilteredConv& a, const FilteredConv& b) {
  return a.x == b.x && a.w == b.w && a.block == b.block && a.groups == b.groups &&
         a.channel_blocks == b.channel_blocks && a.window_height == b.window_height &&
         a.window_width == b.window_width && a.row_gap == b.row_gap && a.column_gap == b.column_gap &&
         a.pad_top == b.pad_top && a.pad_left == b.pad_left && a.out_channels == b.out_channels && a.dims == b.dims;
}

// The convolution that the kernel is at every size, with the extents of the last of `points`; why it is none.
std::string match_open_conv(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                            const std::vector<SizePoint>& points, FilteredConv& conv) {
  for (size_t i = 0; i < points.size(); ++i) {
    FilteredConv one;
    if (std::string why = match_filtered_conv(kernel_at(kernel, symbols, points[i]), one); !why.empty()) return why;
    if (i > 0 && !same_window(conv, one)) return "the window depends on the sizes";
    conv = std::move(one);
  }
  if (conv.dims != FilteredConv::Dims::kColumn && conv.dims != FilteredConv::Dims::kRowColumn)
    return "volumes of open extents";
  // Strides of one place are not known.
  if ((conv.window_height > 1 && conv.out_height == 1) || (conv.window_width > 1 && conv.out_width == 1))
    return "the output has one place along an axis of the window";
  return "";
}

// The same convolution at another size.
FilteredConv conv_at(FilteredConv conv, const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                     const SizePoint& point) {
  const auto value = [&](const Expr& extent) { return value_at(extent, symbols, point); };
  const Shape& x = kernel.params[conv.x].buffer->shape;
  const Shape& y = kernel.output().out->shape;
  conv.images = value(y[0]) * conv.groups;
  conv.width = value(x.back());
  conv.out_width = value(y.back());
  if (conv.dims == FilteredConv::Dims::kRowColumn) {
    conv.height = value(x[2]);
    conv.out_height = value(y[2]);
  }
  return conv;
}

// What the loops of a blocked output read and write, addressed by expressions of the open extents.
std::variant<WinogradKernel, Declined> open_kernel(const TensorProgram& program, int64_t block) {
  const Stage& output = program.output();
  const Stage* reduction = program.reduction();
  const size_t rank = output.body.axes.size();
  if (program.stages.size() > 2 || !program.stages[0].body.is_reduction())
    return Declined{"more stages than one reduction and its epilogue"};
  WinogradKernel kernel;
  Bounds bounds;
  std::vector<Expr> logical;
  for (size_t i = 0; i < rank; ++i) {
    kernel.loops.push_back(make_var(fmt::format("i{}", i)));
    logical.emplace_back(kernel.loops.back());
  }
  kernel.loops.push_back(make_var("l"));
  bounds.set(kernel.loops.back(), 0, block - 1);
  logical[1] = kernel.loops[1] * Expr(block) + kernel.loops.back();
  for (const Var& loop : kernel.loops)
    if (!loop.same_node(kernel.loops.back())) bounds.set(loop, Interval{0, std::nullopt});

  std::unordered_map<const Buffer*, std::function<Expr(const std::vector<Expr>&)>> address;
  std::unordered_map<const Buffer*, BufferPtr> flat;
  const auto add = [&](const BufferPtr& logical_buffer, const Layout& layout) {
    const Shape shape = physical_shape(logical_buffer->shape, layout);
    Expr count = 1;
    for (const Expr& dim : shape) count = count * dim;
    kernel.params.push_back(make_buffer(logical_buffer->name, logical_buffer->dtype, {count}));
    flat[logical_buffer.get()] = kernel.params.back();
    address[logical_buffer.get()] = [shape, layout, &bounds](const std::vector<Expr>& index) {
      const std::vector<Expr> physical = physical_index(index, layout);
      Expr at = 0;
      for (size_t i = 0; i < physical.size(); ++i) at = at * shape[i] + physical[i];
      return simplify(at, bounds);
    };
  };
  for (const TensorParam& param : program.params) add(param.buffer, param.layout);
  add(output.out, output.layout);
  kernel.out_index = address.at(output.out.get())(logical);

  kernel.result_var = make_var("result", reduction->out->dtype);
  kernel.value = kernel.result_var;
  if (reduction != &output) {
    bool elsewhere = false;
    const Expr value = transform(output.body.value, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || node->buffer != reduction->out) return {};
      for (size_t i = 0; i < node->operands.size(); ++i)
        elsewhere |=
            !node->operands[i].same_node(output.body.axes[i].var) && !is_const_int(output.body.axes[i].extent, 1);
      return kernel.result_var;
    });
    if (elsewhere) return Declined{"the epilogue reads the reduction at another index than its own"};
    VarMap to_loops;
    for (size_t i = 0; i < rank; ++i) to_loops[output.body.axes[i].var.get()] = logical[i];
    kernel.value =
        simplify(transform(substitute(value, to_loops),
                           [&](const Expr& node) -> Expr {
                             if (node->kind != ExprKind::kLoad || !flat.count(node->buffer.get())) return {};
                             return load(flat.at(node->buffer.get()), {address.at(node->buffer.get())(node->operands)});
                           }),
                 bounds);
  }
  const int64_t channels = *as_int(output.out->shape[1]);
  if (channels % block != 0) kernel.inside = logical[1] < Expr(channels);
  return kernel;
}

// Tiles and strips of the open extents. A strip has as many tiles as all others, in steps that products come in.
WinogradSizes open_sizes(const TensorProgram& program, const FilteredConv& conv, const FilteredConv& usual,
                         WinogradPlan& plan, const WinogradTile& tile, const Target& target) {
  constexpr int64_t kSteps = 4;  // heights of the last tile of products
  WinogradSizes sizes;
  sizes.step = (tile.rows + kSteps - 1) / kSteps;
  const Shape& x = program.params[conv.x].buffer->shape;
  const Shape& y = program.output().out->shape;
  const bool image = conv.dims == FilteredConv::Dims::kRowColumn;
  sizes.images = simplify(y[0] * Expr(conv.groups));
  sizes.height = image ? x[2] : Expr(1);
  sizes.width = x.back();
  sizes.out_height = image ? y[2] : Expr(1);
  sizes.out_width = y.back();
  const auto tiles = [](const Expr& outputs, int64_t gap, int64_t size) {
    return simplify(Expr(gap) * ceildiv(ceildiv(outputs, gap), size));
  };
  sizes.tiles_wide = tiles(sizes.out_width, conv.column_gap, plan.m_cols);
  sizes.tiles = simplify(tiles(sizes.out_height, conv.row_gap, plan.m_rows) * sizes.tiles_wide);
  const auto in_steps = [&](const Expr& count) {
    const Expr whole = floordiv(count, tile.rows);
    const Expr rest = count - whole * Expr(tile.rows);
    return simplify(whole * Expr(tile.rows) + min(Expr(tile.rows), ceildiv(rest, sizes.step) * Expr(sizes.step)));
  };
  // At least so many strips as all threads need, of the tiles that there are.
  Expr strips = ceildiv(sizes.tiles, plan.strip);
  if (const int64_t threads = (target.num_threads + plan.cuts - 1) / plan.cuts; threads > 1)
    strips = max(strips, min(sizes.tiles, ceildiv(threads, max(sizes.images, Expr(1)))));
  sizes.strip = in_steps(ceildiv(sizes.tiles, max(strips, Expr(1))));
  sizes.strips = simplify(ceildiv(sizes.tiles, max(sizes.strip, Expr(1))));
  plan.strip = *as_int(in_steps(plan.strip));
  const auto usual_tiles = as_int(simplify(tiles(usual.out_height, conv.row_gap, plan.m_rows) *
                                           tiles(usual.out_width, conv.column_gap, plan.m_cols)));
  sizes.usual_strip = std::clamp<int64_t>(usual_tiles.value_or(plan.strip), 1, plan.strip);
  return sizes;
}

}  // namespace

RuleResult open_winograd(const TensorProgram& program, const std::vector<SymbolRange>& symbols, const Target& target) {
  FilteredConv conv;
  if (std::string why = match_open_conv(program, symbols, points_of(symbols), conv); !why.empty()) return Declined{why};
  SizePoint middle, average, end;
  {
    const KnownSymbols known(symbols);
    for (const SymbolRange& symbol : symbols) {
      middle.push_back(std::max<int64_t>(typical_size(symbol.var), 1));
      end.push_back(at_most(symbol, middle.back() * kLargest));
      average.push_back(at_most(symbol, (std::max<int64_t>(symbol.lo, 1) + end.back()) / 2));
    }
  }
  const FilteredConv usual = conv_at(conv, program, symbols, middle);
  const FilteredConv mean = conv_at(conv, program, symbols, average);
  const FilteredConv large = conv_at(conv, program, symbols, end);
  auto plan = choose_open_plan(usual, large, target);
  const auto other = choose_winograd_plan(mean, {2, 4, 6}, target);
  if (!plan || !other) return Declined{"no strip of tiles fits the caches"};
  // Of all time, most is spent on the larger pictures.
  const double cost = plan->cost + other->cost, direct = direct_cost(usual, target) + direct_cost(mean, target);
  if (cost > 0.9 * direct)
    return Declined{fmt::format("predicted cost {:.3g} against {:.3g} for direct summation", cost, direct)};
  auto kernel = open_kernel(program, conv.block);
  if (auto* declined = std::get_if<Declined>(&kernel)) return std::move(*declined);
  auto& parts = std::get<WinogradKernel>(kernel);
  Knobs knobs;
  const WinogradTile tile = ask_winograd_tile(conv, *plan, target, knobs);
  const WinogradSizes sizes = open_sizes(program, conv, usual, *plan, tile, target);
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.body = emit_winograd(conv, *plan, sizes, tile, parts, target);
  result.program.params = parts.params;
  result.packed.push_back(winograd_packing(conv, *plan));
  return result;
}

}  // namespace tessera::inline schedule
