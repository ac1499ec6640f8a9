#include <fmt/format.h>

#include <algorithm>

#include "loop/intrinsic.h"
#include "schedule/guards.h"
#include "schedule/rules/loop_builder.h"
#include "schedule/rules/rules.h"
#include "schedule/rules/tile_shape.h"
#include "schedule/rules/winograd_matrices.h"
#include "support/error.h"

// Winograd convolution in blocked layout. A strip of tiles at a time: its inputs are transformed into V, one product
// per place of the transformed tile and group of output blocks gives M, whose tiles are transformed back, finished by
// the epilogue and stored. V and M are scratch of one thread. M stays in its L2 cache; V does, too, unless the weights,
// which every strip reads, are so many that fewer and larger strips pay. Threads get strips, or, where that would have
// each of them read all weights, parts of the outputs.
namespace tessera {
namespace {

struct Conv {
  size_t x = 0, w = 0;  // parameters
  int64_t block = 0;
  int64_t batch = 0, in_blocks = 0, height = 0, width = 0;
  int64_t out_blocks = 0, out_height = 0, out_width = 0;
  int64_t pad_top = 0, pad_left = 0;
  int64_t out_channels = 0;

  int64_t in_channels() const { return in_blocks * block; }
};

struct Plan {
  int64_t m = 0;
  int64_t wanted = 0;  // tiles of a strip, before strips are made equal
  int64_t tiles_high = 0, tiles_wide = 0;
  int64_t strip = 0, strips = 0;  // tiles of a strip, strips of an image
  int64_t cuts = 1;               // equal parts of the output blocks, which transform the same inputs on their own
  int64_t group = 0;              // output blocks whose M is there at a time
  double cost = 0;

  int64_t tiles() const { return tiles_high * tiles_wide; }
  int64_t places() const { return (m + 2) * (m + 2); }
};

// Whether `terms` hold exactly where 0 <= axis + k - pad < extent, for all axis and k (0..2).
bool is_padding_test(const std::vector<Expr>& terms, const Axis& axis, const Var& k, int64_t pad, int64_t extent) {
  for (int64_t place = 0; place < 3; ++place)
    for (int64_t at = 0; at < *as_int(axis.extent); ++at) {
      bool inside = true;
      for (const Expr& term : terms) {
        const Expr answer = simplify(substitute(term, {{axis.var.get(), Expr(at)}, {k.get(), Expr(place)}}));
        if (!is_true(answer) && !is_false(answer)) return false;
        inside &= is_true(answer);
      }
      const int64_t row = at + place - pad;
      if (inside != (row >= 0 && row < extent)) return false;
    }
  return true;
}

bool is_zero(const Expr& e) { return e->kind == ExprKind::kConst && is_float(e->dtype) && e->float_value == 0; }

std::optional<size_t> param_of(const TensorProgram& program, const BufferPtr& buffer) {
  for (size_t i = 0; i < program.params.size(); ++i)
    if (program.params[i].buffer == buffer) return i;
  return std::nullopt;
}

// Recognises a 3x3 convolution of stride 1 between blocked images; the reason when it is something else.
std::string match_conv(const TensorProgram& program, Conv& conv) {
  if (!program.windows.empty()) return "only a window is computed";
  const Stage* reduction = program.reduction();
  if (!reduction || reduction->body.combiner != Combiner::kSum || reduction->out->dtype != DType::kF32)
    return "the kernel is no sum of f32";
  const Body& body = reduction->body;
  if (body.axes.size() != 4 || body.reduce_axes.size() != 3) return "the kernel is no image convolution";
  if (body.value->kind != ExprKind::kBinary || body.value->binary != BinaryOp::kMul)
    return "the kernel sums no products";
  Expr image = body.value->operands[0];
  Expr filter = body.value->operands[1];
  std::vector<Expr> conditions;
  if (image->kind == ExprKind::kSelect && is_zero(image->operands[2])) {
    split_conjunction(image->operands[0], conditions);
    image = image->operands[1];
  }
  if (image->kind == ExprKind::kCast && is_float(image->operands[0].dtype())) image = image->operands[0];
  if (image->kind != ExprKind::kLoad || filter->kind != ExprKind::kLoad) return "an operand is computed in the kernel";
  const auto x = param_of(program, image->buffer);
  const auto w = param_of(program, filter->buffer);
  if (!x || !w || !program.params[*w].is_constant) return "the weights are not constant";
  const Layout& layout = program.output().layout;
  conv.block = layout.inner_block().block;
  if (layout.row_major() || !(layout == Layout::blocked(4, 1, conv.block)) || !(program.params[*x].layout == layout) ||
      !program.params[*w].layout.row_major())
    return "the images are not blocked by channels";

  const auto x_dims = static_dims(image->buffer->shape);
  const auto w_dims = static_dims(filter->buffer->shape);
  const auto y_dims = static_dims(reduction->out->shape);
  if (!x_dims || !w_dims || !y_dims || x_dims->size() != 4 || w_dims->size() != 4) return "a shape is not fixed";
  Bounds bounds;
  for (const std::vector<Axis>* axes : {&body.axes, &body.reduce_axes})
    for (const Axis& axis : *axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
  Var k[2];
  for (size_t d = 0; d < 2; ++d) {
    if ((*w_dims)[d + 2] != 3) return "the window is not 3x3";
    k[d] = filter->operands[d + 2];
    if (k[d]->kind != ExprKind::kVar) return "the weights are read in another order";
  }
  const auto is_axis = [](const Expr& e, const Axis& axis) { return e.same_node(axis.var); };
  const auto is_reduced = [&](const Expr& e) {
    return std::any_of(body.reduce_axes.begin(), body.reduce_axes.end(), [&](const Axis& a) { return is_axis(e, a); });
  };
  const Expr& channel = filter->operands[1];
  if (!is_axis(filter->operands[0], body.axes[1]) || !is_reduced(channel) || !is_reduced(k[0]) || !is_reduced(k[1]) ||
      channel.same_node(k[0]) || channel.same_node(k[1]) || k[0].same_node(k[1]))
    return "the weights are read in another order";
  if (!is_axis(image->operands[0], body.axes[0]) || !image->operands[1].same_node(channel) ||
      (*x_dims)[1] != (*w_dims)[1])
    return "the channels are in groups";
  int64_t pads[2];
  for (size_t d = 0; d < 2; ++d) {
    const Expr index = simplify(image->operands[d + 2], bounds);
    const auto rest =
        as_int(simplify(substitute(index, {{body.axes[d + 2].var.get(), Expr(0)}, {k[d].get(), Expr(0)}}), bounds));
    if (linear_coefficient(index, body.axes[d + 2].var, bounds) != 1 || linear_coefficient(index, k[d], bounds) != 1 ||
        !rest)
      return "strides or dilations are not 1";
    pads[d] = -*rest;
    std::vector<Expr> own;
    for (const Expr& condition : conditions)
      if (uses_var(condition, body.axes[d + 2].var) || uses_var(condition, k[d])) own.push_back(condition);
    if (!is_padding_test(own, body.axes[d + 2], k[d], pads[d], (*x_dims)[d + 2])) return "the padding is not of zeros";
  }
  if ((*x_dims)[1] % conv.block != 0) return "the input channels do not fill their blocks";
  conv.x = *x;
  conv.w = *w;
  conv.batch = (*y_dims)[0];
  conv.in_blocks = (*x_dims)[1] / conv.block;
  conv.height = (*x_dims)[2];
  conv.width = (*x_dims)[3];
  conv.out_channels = (*y_dims)[1];
  conv.out_blocks = (conv.out_channels + conv.block - 1) / conv.block;
  conv.out_height = (*y_dims)[2];
  conv.out_width = (*y_dims)[3];
  conv.pad_top = pads[0];
  conv.pad_left = pads[1];
  return "";
}

constexpr int64_t kFarBytes = 64 << 10;

// Cost of bringing in `bytes` of weights `times` times, in issue slots of a vector multiply-add, on `threads` that have
// caches of their own and one memory. In a whole network they come from memory the first time and, as far as they fit,
// from a cache after that.
constexpr double kL3 = 1.0 / 9, kL2 = 1.0 / 48;  // per byte

// The same for memory. Where a core has one multiply-add of 512 bits a cycle instead of two (Zen 4), slots are longer.
double memory_cost(const Target& target) {
  const bool half_rate = target.vector_bits() == 512 && target.has("clzero") && !target.has("avxvnni");
  return half_rate ? 0.25 : 0.37;
}

double stream_cost(int64_t bytes, int64_t times, const Target& target, double threads) {
  const double memory = memory_cost(target);
  const double again = bytes < target.l2_bytes / 2   ? kL2 / threads
                       : bytes < target.l3_bytes / 2 ? kL3 / threads
                                                     : memory;
  return static_cast<double>(bytes) * (memory + static_cast<double>(times - 1) * again);
}

// Weights are prefetched while products are computed.
double overlapped(double compute, double stream) {
  return std::max(compute, stream) + 0.25 * std::min(compute, stream);
}

double direct_cost(const Conv& conv, const Target& target) {
  const int64_t rest = conv.out_channels % conv.block;
  const auto steps = static_cast<double>(9 * conv.in_channels());
  double row = static_cast<double>(conv.out_blocks) * steps;
  if (rest != 0 && 2 * rest <= conv.block)
    row += std::min(split_block_cost(rest, conv.block, steps, conv.out_width) - steps, 0.0);
  const double products = static_cast<double>(conv.batch * conv.out_height * conv.out_width) * row;
  const auto threads = static_cast<double>(std::max(1, target.num_threads));
  const int64_t weights = 9 * conv.in_channels() * conv.out_blocks * conv.block * 4;
  return overlapped(products / 0.9 / threads, stream_cost(weights, 1, target, threads));
}

// In issue slots of a vector multiply-add of one thread. The weights of a place are read once for each strip.
double plan_cost(const Conv& conv, const Plan& plan, const Target& target) {
  const int64_t tiles = conv.batch * plan.strips * plan.strip;
  const int64_t iterations = conv.batch * plan.strips * plan.cuts;
  const int64_t threads = std::min<int64_t>(std::max(1, target.num_threads), iterations);
  const int64_t rounds = (iterations + threads - 1) / threads;
  const int64_t weights = plan.places() * conv.in_channels() * conv.out_blocks * conv.block * 4;
  const auto products =
      static_cast<double>(tiles * plan.places() * conv.in_channels() * conv.out_blocks) / (plan.m == 2 ? 0.9 : 0.85);
  // The transformed tiles of a strip are read again for each group of outputs; from behind the second level of cache
  // they come more slowly than weights, which lie in the order of use.
  const int64_t v_bytes = plan.places() * conv.block * 4 * conv.in_blocks * plan.strip;
  const auto reads = static_cast<double>(conv.batch * plan.strips * (conv.out_blocks / plan.group) * v_bytes);
  const auto shared = static_cast<double>(threads);
  const double stream = stream_cost(weights, conv.batch * plan.strips, target, shared) +
                        reads * (v_bytes <= target.l2_bytes * 3 / 4 ? kL2 : 2 * kL3) / shared;
  const auto transforms = (plan.m == 2 ? 4.0 : 5.0) * static_cast<double>(tiles * plan.places()) *
                          static_cast<double>(conv.in_blocks * plan.cuts + conv.out_blocks);
  const double share = static_cast<double>(rounds) / static_cast<double>(iterations);
  return overlapped(products * share, stream) + transforms * share;
}

Plan make_plan(const Conv& conv, int64_t m, int64_t wanted, int64_t cuts, const Target& target) {
  Plan plan;
  plan.m = m;
  plan.wanted = wanted;
  plan.cuts = cuts;
  plan.tiles_high = (conv.out_height + m - 1) / m;
  plan.tiles_wide = (conv.out_width + m - 1) / m;
  plan.strips = std::max<int64_t>(1, (plan.tiles() + wanted - 1) / wanted);
  const int64_t threads_of_strips = (target.num_threads + cuts - 1) / cuts;
  if (conv.batch * plan.strips < threads_of_strips) plan.strips = std::min<int64_t>(plan.tiles(), threads_of_strips);
  plan.strip = (plan.tiles() + plan.strips - 1) / plan.strips;
  const int64_t tile_bytes = plan.places() * conv.block * 4;
  const int64_t blocks = conv.out_blocks / cuts;
  plan.group = std::clamp<int64_t>(target.l2_bytes / 3 / (tile_bytes * plan.strip), 1, blocks);
  while (blocks % plan.group != 0) --plan.group;
  plan.cost = plan_cost(conv, plan, target);
  return plan;
}

// Of V and M.
constexpr int64_t kMostScratch = 16 << 20;
int64_t scratch_bytes(const Conv& conv, const Plan& plan) {
  return plan.places() * plan.strip * (conv.in_blocks + plan.group) * conv.block * 4;
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) result.push_back(d);
  return result;
}

std::optional<Plan> choose_plan(const Conv& conv, const std::vector<int64_t>& sizes, const Target& target) {
  std::optional<Plan> best;
  for (const int64_t m : sizes)
    for (const int64_t cuts : divisors(conv.out_blocks)) {
      if (cuts > std::max(1, target.num_threads)) break;
      for (int64_t wanted = 8; wanted <= 64; ++wanted) {
        const Plan plan = make_plan(conv, m, wanted, cuts, target);
        if (scratch_bytes(conv, plan) > kMostScratch) continue;
        if (!best || plan.cost < best->cost) best = plan;
      }
    }
  return best;
}

// The plan that the knobs name, whose own choice is `plan`; a reason when their values do not go together.
std::string ask_plan(const Conv& conv, const Target& target, Knobs& knobs, std::optional<Plan>& plan) {
  const int64_t m = knobs.choose("m", {2, 4}, plan->m);
  if (m != plan->m) plan = choose_plan(conv, {m}, target);
  if (!plan) return "no strip of tiles fits the caches";
  const int64_t wanted = knobs.choose("strip", {8, 12, 16, 24, 32, 48, 64, 96, 128}, plan->wanted);
  const int64_t cuts = knobs.choose("cuts", divisors(conv.out_blocks), plan->cuts);
  if (wanted != plan->wanted || cuts != plan->cuts) plan = make_plan(conv, m, wanted, cuts, target);
  plan->group = knobs.choose("group", divisors(conv.out_blocks), plan->group);
  if (conv.out_blocks / cuts % plan->group != 0)
    return fmt::format("groups of {} blocks do not divide {} of {} blocks", plan->group, conv.out_blocks / cuts,
                       conv.out_blocks);
  const int64_t scratch = scratch_bytes(conv, *plan);
  if (scratch > kMostScratch)
    return fmt::format("a strip takes {} bytes of scratch, more than {}", scratch, kMostScratch);
  return "";
}

// matrix * inputs, as few operations as the pairs of rows or columns that differ only in signs allow: the points of
// the construction come as +p and -p.
std::vector<Expr> multiply(const Matrix& matrix, const std::vector<Expr>& inputs) {
  const auto weighted = [](const std::vector<std::pair<double, Expr>>& terms) {
    Expr sum;
    for (const auto& [factor, value] : terms) {
      if (factor == 0) continue;
      if (!sum) sum = factor == 1 ? value : factor == -1 ? -value : const_float(DType::kF32, factor) * value;
      else if (factor == 1) sum = sum + value;
      else if (factor == -1) sum = sum - value;
      else sum = fma(const_float(DType::kF32, factor), value, sum);
    }
    return sum;
  };
  const size_t columns = inputs.size();
  // Columns j and j + 1 with equal or opposite factors in every row: their sum and difference serve all rows.
  std::vector<int> pair_of(columns, -1);
  for (size_t j = 0; j + 1 < columns; ++j) {
    if (pair_of[j] >= 0) continue;
    bool paired = matrix.size() > 1;
    bool opposite = false;
    for (const auto& row : matrix) {
      paired &= row[j] != 0 && (row[j] == row[j + 1] || row[j] == -row[j + 1]);
      opposite |= row[j] == -row[j + 1];
    }
    if (paired && opposite) pair_of[j] = pair_of[j + 1] = static_cast<int>(j);
  }
  std::vector<Expr> sums(columns), differences(columns);
  for (size_t j = 0; j < columns; ++j)
    if (pair_of[j] == static_cast<int>(j)) {
      sums[j] = inputs[j] + inputs[j + 1];
      differences[j] = inputs[j] - inputs[j + 1];
    }
  std::vector<Expr> results;
  for (size_t i = 0; i < matrix.size(); ++i) {
    // Rows i and i + 1 that differ in the signs of some columns: their common and their changing part.
    std::vector<std::pair<double, Expr>> same, changing, whole;
    bool rows_paired = i + 1 < matrix.size();
    for (size_t j = 0; j < columns; ++j) {
      const double factor = matrix[i][j];
      if (pair_of[j] >= 0) {
        if (pair_of[j] == static_cast<int>(j))
          whole.emplace_back(factor, factor == matrix[i][j + 1] ? sums[j] : differences[j]);
        rows_paired = false;
        continue;
      }
      whole.emplace_back(factor, inputs[j]);
      if (!rows_paired) continue;
      const double next = matrix[i + 1][j];
      if (factor == next) same.emplace_back(factor, inputs[j]);
      else if (factor == -next) changing.emplace_back(factor, inputs[j]);
      else rows_paired = false;
    }
    const Expr even = rows_paired ? weighted(same) : Expr();
    const Expr odd = rows_paired ? weighted(changing) : Expr();
    if (even && odd) {
      results.push_back(even + odd);
      results.push_back(even - odd);
      ++i;
    } else {
      results.push_back(weighted(whole));
    }
  }
  return results;
}

class WinogradEmitter {
 public:
  WinogradEmitter(const Conv& conv, const Plan& plan, FlatKernel& kernel, const Target& target, Knobs& knobs)
      : conv_(conv),
        plan_(plan),
        kernel_(kernel),
        matrices_(winograd_matrices(plan.m)),
        v_(make_buffer("v", DType::kF32, {plan.places() * conv.in_blocks * plan.strip * conv.block},
                       MemoryScope::kLocal)),
        m_(make_buffer("m", DType::kF32, {plan.places() * plan.group * plan.strip * conv.block}, MemoryScope::kLocal)),
        weights_(make_buffer(kernel.params[conv.w]->name + "_winograd", DType::kF32,
                             {plan.places() * conv.out_blocks * conv.in_channels() * conv.block})) {
    kernel.params[conv.w] = weights_;
    intrinsic_ = best_fma_intrinsic(target, DType::kF32);
    if (intrinsic_ && intrinsic_->lanes != conv.block) intrinsic_ = nullptr;
    TileProblem problem;
    problem.rows = plan.strip;
    problem.blocks = plan.group;
    problem.registers_per_block = std::max<int64_t>(1, conv.block * 32 / target.vector_bits());
    problem.steps = conv.in_channels();
    problem.registers = target.vector_registers();
    tile_ = ask_tile(problem, knobs);
    // Other layers have been through the second level of cache since these weights were used, if they are not small.
    const int64_t bytes = *as_int(weights_->shape[0]) * 4;
    prefetch_ = knobs.choose_flag("prefetch", bytes >= kFarBytes);
    if (kernel.padded && !loads_in_bounds(kernel.value, kernel.bounds)) inside_ = kernel.inside();
  }

  // Not empty: the tile that the knobs name is none.
  std::string refusal() const { return tile_.refused; }

  Stmt emit() {
    const int64_t iterations = conv_.batch * plan_.strips * plan_.cuts;
    const Var s = make_var("s");
    bounds_.set(s, 0, iterations - 1);
    const Expr at = iterations == 1 ? Expr(0) : s;
    image_ = at_most(floordiv(at, plan_.strips * plan_.cuts));
    first_ = at_most(floormod(floordiv(at, plan_.cuts), plan_.strips) * Expr(plan_.strip));
    const Var g = make_var("g");
    const int64_t blocks = conv_.out_blocks / plan_.cuts;
    const int64_t groups = blocks / plan_.group;
    bounds_.set(g, 0, groups - 1);
    const Expr first_block =
        at_most(floormod(at, plan_.cuts) * Expr(blocks) + (groups == 1 ? Expr(0) : g * Expr(plan_.group)));
    Stmt group = alloc(m_, seq({products(first_block), outputs(first_block)}));
    if (groups > 1) group = for_loop(g, 0, groups, ForKind::kSerial, group);
    const Stmt body = alloc(v_, seq({inputs(), group}));
    return iterations == 1 ? body : for_loop(s, 0, iterations, ForKind::kParallel, body);
  }

 private:
  Expr at_most(const Expr& e) { return simplify(e, bounds_); }
  Stmt serial(const char* name, int64_t extent, const std::function<Stmt(const Expr&)>& body) {
    if (extent == 1) return body(Expr(0));
    const Var var = make_var(name);
    bounds_.set(var, 0, extent - 1);
    return for_loop(var, 0, extent, ForKind::kSerial, body(var));
  }
  bool padded_strips() const { return plan_.strip * plan_.strips != plan_.tiles(); }
  Expr v_index(const Expr& place, const Expr& block, const Expr& tile, const Expr& lane) const {
    return ((place * Expr(conv_.in_blocks) + block) * Expr(plan_.strip) + tile) * Expr(conv_.block) + lane;
  }
  Expr m_index(const Expr& place, const Expr& block, const Expr& tile, const Expr& lane) const {
    return ((place * Expr(plan_.group) + block) * Expr(plan_.strip) + tile) * Expr(conv_.block) + lane;
  }

  // `count` vectors come in through `read`, are multiplied by `matrix` and go out through `write`.
  Stmt transform_line(const Matrix& matrix, const std::function<Expr(int64_t, const Expr& lane)>& read,
                      const std::function<Stmt(int64_t, const Expr& lane, const Expr& value)>& write) {
    const auto count = static_cast<int64_t>(matrix[0].size());
    const BufferPtr line = make_buffer("line", DType::kF32, {count, conv_.block}, MemoryScope::kRegister);
    std::vector<Stmt> steps;
    for (int64_t i = 0; i < count; ++i)
      steps.push_back(vectorized("l", conv_.block, [&](const Var& l) { return store(line, {i, l}, read(i, l)); }));
    for (size_t k = 0; k < matrix.size(); ++k)
      steps.push_back(vectorized("l", conv_.block, [&](const Var& l) {
        std::vector<Expr> values;
        for (int64_t i = 0; i < count; ++i) values.push_back(load(line, {i, l}));
        return write(static_cast<int64_t>(k), l, multiply(matrix, values)[k]);
      }));
    return alloc(line, seq(std::move(steps)));
  }

  // V[place][block][tile] = BT x B of the strip's tiles.
  Stmt inputs() {
    const int64_t alpha = matrices_.alpha;
    return serial("cb", conv_.in_blocks, [&](const Expr& cb) {
      return serial("t", plan_.strip, [&](const Expr& t) {
        Expr tile = first_ + t;
        if (padded_strips()) tile = min(tile, Expr(plan_.tiles() - 1));
        const Expr top = at_most(floordiv(tile, plan_.tiles_wide) * Expr(plan_.m) - Expr(conv_.pad_top));
        const Expr left = at_most(floormod(tile, plan_.tiles_wide) * Expr(plan_.m) - Expr(conv_.pad_left));
        const Expr plane = (image_ * Expr(conv_.in_blocks) + cb) * Expr(conv_.height);
        const auto both = [&](bool guarded) {
          // Of each copy its own: a buffer is defined once.
          const BufferPtr rows = make_buffer("rows", DType::kF32, {alpha * alpha * conv_.block}, MemoryScope::kLocal);
          std::vector<Stmt> steps;
          for (int64_t i = 0; i < alpha; ++i)
            steps.push_back(transform_line(
                matrices_.bt,
                [&](int64_t j, const Expr& l) {
                  Expr row = top + Expr(i);
                  Expr column = left + Expr(j);
                  Expr condition;
                  if (guarded) {
                    condition = logical_and(logical_and(row >= Expr(0), row < Expr(conv_.height)),
                                            logical_and(column >= Expr(0), column < Expr(conv_.width)));
                    row = min(max(row, Expr(0)), Expr(conv_.height - 1));
                    column = min(max(column, Expr(0)), Expr(conv_.width - 1));
                  }
                  const Expr value =
                      cast(DType::kF32, load(kernel_.params[conv_.x],
                                             {((plane + row) * Expr(conv_.width) + column) * Expr(conv_.block) + l}));
                  return guarded ? select(condition, value, const_float(DType::kF32, 0)) : value;
                },
                [&](int64_t j, const Expr& l, const Expr& value) {
                  return store(rows, {Expr((i * alpha + j) * conv_.block) + l}, value);
                }));
          for (int64_t j = 0; j < alpha; ++j)
            steps.push_back(transform_line(
                matrices_.bt,
                [&](int64_t i, const Expr& l) { return load(rows, {Expr((i * alpha + j) * conv_.block) + l}); },
                [&](int64_t i, const Expr& l, const Expr& value) {
                  return store(v_, {v_index(Expr(i * alpha + j), cb, t, l)}, value);
                }));
          return alloc(rows, seq(std::move(steps)));
        };
        const Expr whole = simplify(logical_and(logical_and(top >= Expr(0), top <= Expr(conv_.height - alpha)),
                                                logical_and(left >= Expr(0), left <= Expr(conv_.width - alpha))),
                                    bounds_);
        if (is_true(whole)) return both(false);
        if (is_false(whole)) return both(true);
        return if_then(whole, both(false), both(true));
      });
    });
  }

  // M[place][block][tile] = sum over channels of V[place] * weights[place].
  Stmt products(const Expr& first_block) {
    return serial("place", plan_.places(), [&](const Expr& place) {
      std::vector<Stmt> parts;
      const auto blocks = [&](int64_t begin, int64_t count, int64_t vectors) {
        if (count > 0)
          parts.push_back(serial("ob", count, [&](const Expr& i) {
            return row_tiles(place, first_block, i * Expr(vectors) + Expr(begin), vectors);
          }));
      };
      blocks(0, plan_.group / tile_.vectors, tile_.vectors);
      const int64_t rest = plan_.group % tile_.vectors;
      blocks(plan_.group - rest, rest > 0 ? 1 : 0, rest);
      return seq(std::move(parts));
    });
  }

  Stmt row_tiles(const Expr& place, const Expr& first_block, const Expr& block, int64_t vectors) {
    std::vector<Stmt> parts;
    const int64_t tiles = (plan_.strip + tile_.rows - 1) / tile_.rows;
    const auto rows = [&](int64_t begin, int64_t count, int64_t height) {
      if (count > 0)
        parts.push_back(serial("p", count, [&](const Expr& i) {
          const Expr tile = i * Expr(height) + Expr(begin);
          const Prefetch next = next_weights(place, first_block, block, vectors, i + Expr(begin / tile_.rows), tiles);
          return product_tile(place, first_block, block, vectors, tile, height, next);
        }));
    };
    rows(0, plan_.strip / tile_.rows, tile_.rows);
    const int64_t rest = plan_.strip % tile_.rows;
    rows(plan_.strip - rest, rest > 0 ? 1 : 0, rest);
    return seq(std::move(parts));
  }

  // What a tile of rows asks for while it is computed: its share of the weights that come next, so many cache lines in
  // each step.
  struct Prefetch {
    Expr first;
    int64_t lines = 0;
  };

  // For tile of rows number `row_tile` of `tiles`, whose weights are `vectors` blocks from `block` on.
  Prefetch next_weights(const Expr& place, const Expr& first_block, const Expr& block, int64_t vectors,
                        const Expr& row_tile, int64_t tiles) const {
    constexpr int64_t kLineElements = 16;
    const int64_t panel = conv_.in_channels() * conv_.block;  // elements of one block
    Prefetch next;
    next.lines = ceildiv(vectors * conv_.block, tiles * kLineElements)->int_value;
    const Expr here = place * Expr(conv_.out_blocks) + first_block + block;
    const Expr next_place = (place + Expr(1)) * Expr(conv_.out_blocks) + first_block;
    const Expr at = select(block + Expr(vectors) < Expr(plan_.group), here + Expr(vectors), next_place);
    next.first = at * Expr(panel) + row_tile * Expr(next.lines * kLineElements * conv_.in_channels());
    return next;
  }

  Stmt product_tile(const Expr& place, const Expr& first_block, const Expr& block, int64_t vectors, const Expr& tile,
                    int64_t height, const Prefetch& next) {
    const BufferPtr acc = make_buffer("acc", DType::kF32, {vectors, height, conv_.block}, MemoryScope::kRegister);
    const auto over_tile = [&](const std::function<Stmt(const Var&, const Var&, const Var&)>& body) {
      return unrolled("u", 0, vectors, [&](const Var& u) {
        return unrolled("q", 0, height, [&](const Var& q) {
          return vectorized("l", conv_.block, [&](const Var& l) { return body(u, q, l); });
        });
      });
    };
    const Stmt init = over_tile(
        [&](const Var& u, const Var& q, const Var& l) { return store(acc, {u, q, l}, const_float(DType::kF32, 0)); });
    const Stmt sum = serial("cb", conv_.in_blocks, [&](const Expr& cb) {
      return serial("c", conv_.block, [&](const Expr& c) {
        const Stmt body = over_tile([&](const Var& u, const Var& q, const Var& l) {
          const Expr a = load(v_, {v_index(place, cb, tile + q, c)});
          const Expr panel = place * Expr(conv_.out_blocks) + first_block + block + u;
          const Expr b = load(
              weights_, {(panel * Expr(conv_.in_channels()) + cb * Expr(conv_.block) + c) * Expr(conv_.block) + l});
          return store(acc, {u, q, l}, fma(a, b, load(acc, {u, q, l})));
        });
        return asking(next, cb * Expr(conv_.block) + c,
                      intrinsic_ && match_intrinsic(*intrinsic_, body).empty() ? tensorized(intrinsic_, body) : body);
      });
    });
    const Stmt finish = over_tile([&](const Var& u, const Var& q, const Var& l) {
      return store(m_, {m_index(place, block + u, tile + q, l)}, load(acc, {u, q, l}));
    });
    return alloc(acc, seq({init, sum, finish}));
  }

  // `body`, step number `step` of a tile's sum, with its prefetches: a loop that runs once for each.
  Stmt asking(const Prefetch& next, const Expr& step, Stmt body) const {
    constexpr int64_t kLineElements = 16;
    for (int64_t line = next.lines; prefetch_ && line-- > 0;) {
      const Expr at = next.first + (step * Expr(next.lines) + Expr(line)) * Expr(kLineElements);
      body = prefetching(for_loop(make_var("z"), 0, 1, ForKind::kSerial, body), weights_, {at});
    }
    return body;
  }

  // The strip's part of the output: AT M A, finished by the epilogue.
  Stmt outputs(const Expr& first_block) {
    const int64_t alpha = matrices_.alpha;
    const int64_t m = plan_.m;
    return serial("ob", plan_.group, [&](const Expr& ob) {
      return serial("t", plan_.strip, [&](const Expr& t) {
        const Expr tile = first_ + t;
        const Expr top = at_most(floordiv(tile, plan_.tiles_wide) * Expr(m));
        const Expr left = at_most(floormod(tile, plan_.tiles_wide) * Expr(m));
        const BufferPtr columns = make_buffer("columns", DType::kF32, {m * alpha * conv_.block}, MemoryScope::kLocal);
        std::vector<Stmt> steps;
        for (int64_t j = 0; j < alpha; ++j)
          steps.push_back(transform_line(
              matrices_.at,
              [&](int64_t i, const Expr& l) { return load(m_, {m_index(Expr(i * alpha + j), ob, t, l)}); },
              [&](int64_t i, const Expr& l, const Expr& value) {
                return store(columns, {Expr((i * alpha + j) * conv_.block) + l}, value);
              }));
        for (int64_t i = 0; i < m; ++i) {
          Stmt row = transform_line(
              matrices_.at,
              [&](int64_t j, const Expr& l) { return load(columns, {Expr((i * alpha + j) * conv_.block) + l}); },
              [&](int64_t j, const Expr& l, const Expr& value) {
                return finish(first_block + ob, top + Expr(i), left + Expr(j), l, value);
              });
          if (conv_.out_height % m != 0 && i > 0) row = if_then(top + Expr(i) < Expr(conv_.out_height), row);
          steps.push_back(row);
        }
        const Stmt body = alloc(columns, seq(std::move(steps)));
        return padded_strips() ? if_then(tile < Expr(plan_.tiles()), body) : body;
      });
    });
  }

  Stmt finish(const Expr& block, const Expr& row, const Expr& column, const Expr& lane, const Expr& value) {
    VarMap map;
    const Expr at[] = {image_, block, row, column, lane};
    for (size_t i = 0; i < kernel_.loops.size(); ++i) map[kernel_.loops[i].var.get()] = at[i];
    map[kernel_.result_var.get()] = value;
    Stmt body = store(kernel_.out(), {substitute(kernel_.out_index, map)}, substitute(kernel_.value, map));
    if (inside_) body = if_then(substitute(inside_, map), body);
    if (conv_.out_width % plan_.m != 0) body = if_then(column < Expr(conv_.out_width), body);
    return body;
  }

  const Conv& conv_;
  const Plan& plan_;
  FlatKernel& kernel_;
  const WinogradMatrices& matrices_;
  BufferPtr v_, m_, weights_;
  const TensorIntrinsic* intrinsic_ = nullptr;
  AskedTile tile_;
  bool prefetch_ = false;
  Expr inside_;
  Bounds bounds_;
  Expr image_, first_;  // of the strip: its image, its first tile
};

}  // namespace

RuleResult winograd(const TensorProgram& program, const Target& target, Knobs& knobs) {
  Conv conv;
  if (std::string why = match_conv(program, conv); !why.empty()) return Declined{why};
  auto plan = choose_plan(conv, {2, 4}, target);
  if (!plan) return Declined{"no strip of tiles fits the caches"};
  const double direct = direct_cost(conv, target);
  if (plan->cost > 0.9 * direct && !knobs.asked())
    return Declined{fmt::format("predicted cost {:.3g} against {:.3g} for direct summation", plan->cost, direct)};
  std::string why;
  auto kernel = make_flat_kernel(program, why);
  if (!kernel) return Declined{why};
  if (kernel->loops.size() != 5) return Declined{"the output has other loops than a blocked image"};

  if (why = ask_plan(conv, target, knobs, plan); !why.empty()) return Declined{why};
  ScheduledKernel result;
  result.program.name = program.name;
  WinogradEmitter emitter(conv, *plan, *kernel, target, knobs);
  if (why = emitter.refusal(); !why.empty()) return Declined{why};
  result.program.body = emitter.emit();
  result.program.params = kernel->params;
  const int64_t alpha = plan->m + 2;
  const int64_t channels = conv.in_channels();
  PackSpec spec;
  spec.axes = {{conv.out_channels, channels * alpha * alpha}, {channels, alpha * alpha}, {alpha * alpha, 1}};
  spec.dims = {{alpha * alpha, 2, 1}, {conv.out_blocks, 0, conv.block}, {channels, 1, 1}, {conv.block, 0, 1}};
  result.packed.push_back({conv.w, {spec}, plan->m});
  return result;
}

}  // namespace tessera
