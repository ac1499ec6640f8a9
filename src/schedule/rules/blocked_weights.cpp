#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/blocked_product.h"

// Weights that are stored as less than floats (blocks of 4-bit numbers with a scale, bytes with a scale, halves) are
// packed by panels of columns, byte by byte of a row, so that the same byte of neighbouring columns makes a vector:
// what the kernel computes of a row's bytes is then computed in lanes, whatever the format is. Nothing here knows
// formats: of an index along the sum it matters only by which numbers it is divided.
//
// Few rows: a panel's weights are made in registers and multiplied at once, so that memory gives each byte once and
// nothing is stored. Many rows: a panel is made once, into scratch that stays in cache, and multiplied as other
// products are. Each sum is taken step by step either way, so a result does not depend on how many rows there are.
//
// Where a weight is a small number times a scale that a block's neighbours share, sums over these neighbours are taken
// of numbers, and scaled once.
//
// Where rows and weights are rounded to bf16 (--precision bf16) and the machine has tiles of it, many rows take these:
// a panel is made once in scratch, in the order that tiles want. Their sums are taken in another order, and few rows
// multiply the weights as they are before they are rounded, so there results do depend on how many rows there are.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kStraight = 32;     // steps along the sum that are written out: of a block, which shares scales
constexpr int64_t kLeastScaled = 16;  // steps that share a scale: fewer gain nothing
constexpr int64_t kFewSteps = 8;      // of weights that are in no blocks
constexpr int64_t kSmallTile = 4;     // rows
constexpr int64_t kManyRows = 8;      // from here on panels go through scratch
constexpr int64_t kTileTerms = 2 * kTileSide;   // of a sum, in tiles of bf16
constexpr int64_t kChunkBytes = 40 << 10;       // of a panel, which stay in the first level while rows come by
constexpr int64_t kBlockRows = 16 * kTileSide;  // whose sums are kept between chunks

// Bits of a byte as a float, less a constant: (byte >> s & mask) - c. The bits are put, where they are, into the
// fraction of the float 2^(23 - s), whose last place counts what the lowest of them does; less 2^(23 - s) + c that is
// exact. One operation merges the bits, one subtracts, where shift, conversion and subtraction take three.
Expr number_by_its_bits(const Expr& e) {
  constexpr int64_t kFraction = 23, kBias = 127, kByte = 8;
  if (e->kind != ExprKind::kBinary || e->binary != BinaryOp::kSub || e->dtype != DType::kF32) return {};
  const Expr &number = e->operands[0], &less = e->operands[1];
  if (number->kind != ExprKind::kCast || less->kind != ExprKind::kConst) return {};
  const double c = less->float_value;
  if (c != std::floor(c) || std::abs(c) > 1 << kByte) return {};
  Expr bits = number->operands[0];
  int64_t mask = (1 << kByte) - 1, shift = 0;
  const auto takes = [&](BinaryOp op, int64_t& value) {
    if (bits->kind != ExprKind::kBinary || bits->binary != op || bits->operands[1]->kind != ExprKind::kConst) return;
    value = bits->operands[1]->int_value;
    bits = bits->operands[0];
  };
  if (bits.dtype() != DType::kI32) return {};
  takes(BinaryOp::kAnd, mask);
  takes(BinaryOp::kShr, shift);
  if (bits->kind != ExprKind::kCast || bits->operands[0].dtype() != DType::kU8 || shift < 0 || shift >= kByte ||
      mask < 0)
    return {};
  mask &= ((1 << kByte) - 1) >> shift;
  const Expr merged = binary(BinaryOp::kOr, binary(BinaryOp::kAnd, bits, const_int(DType::kI32, mask << shift)),
                             const_int(DType::kI32, (kBias + kFraction - shift) << kFraction));
  return bitcast(DType::kF32, merged) - const_float(DType::kF32, std::ldexp(1.0, kFraction - shift) + c);
}

// A small number times a scale.
struct Scaled {
  Expr number, scale;
};

// Whether `e` is an integer that became a float, less a constant.
bool is_whole_number(const Expr& e) {
  if (e->kind == ExprKind::kCast) return e->dtype == DType::kF32 && !is_float(e->operands[0].dtype());
  return e->kind == ExprKind::kBinary && e->binary == BinaryOp::kSub && e->operands[1]->kind == ExprKind::kConst &&
         is_whole_number(e->operands[0]);
}

std::optional<Scaled> scaled_number(const Expr& e) {
  if (e->kind != ExprKind::kBinary || e->binary != BinaryOp::kMul) return std::nullopt;
  const Expr &a = e->operands[0], &b = e->operands[1];
  if (is_whole_number(a) == is_whole_number(b)) return std::nullopt;
  return is_whole_number(a) ? Scaled{a, b} : Scaled{b, a};
}

class BlockedWeights : public BlockedProduct {
 public:
  using BlockedProduct::BlockedProduct;

  RuleResult run() {
    if (std::string why = find_product(); !why.empty()) return Declined{std::move(why)};
    straight_ = block_ == 1 ? std::min(kFewSteps, steps_) : std::min(kStraight, block_);
    if (block_ == 1) block_ = straight_;
    if (block_ % straight_ != 0) return Declined{fmt::format("blocks of {} elements", block_)};
    lanes_ = target_.f32_lanes();
    const bool wide = target_.vector_registers() >= 32;
    vectors_ = knobs_.choose("vectors", {1, 2, 4}, 2);
    tile_rows_ = knobs_.choose("rows", {4, 6, 8, 12}, wide ? 12 : 6);
    width_ = vectors_ * lanes_;
    panels_ = (columns_ + width_ - 1) / width_;
    take_rounding();
    find_scales();
    begin_program([&](size_t p) { return pack(p); });
    find_tiles();
    const Var panel = make_var("panel");
    bounds_.set(panel, 0, panels_ - 1);
    result_.program.body = over_panels(panel, few_or_many(panel));
    return std::move(result_);
  }

 private:
  PackedParam pack(size_t p) const {
    Expr count = 1;
    for (const Expr& dim : kernel_.params[p].buffer->shape) count = count * dim;
    const int64_t row = *as_int(count) / columns_;
    return {p, {PackSpec{{{columns_, row}, {row, 1}}, {{panels_, 0, width_}, {row, 1, 1}, {width_, 0, 1}}, 0}}};
  }

  // Weights that are rounded to bf16 are taken apart into what they are before, and the rounding.
  void take_rounding() {
    const Expr& narrow = weight_->kind == ExprKind::kCast ? weight_->operands[0] : weight_;
    if (weight_->kind != ExprKind::kCast || narrow.dtype() != DType::kBF16 || narrow->kind != ExprKind::kCast) return;
    weight_ = narrow->operands[0];
    rounds_ = true;
  }

  // Whether so many neighbouring steps share a scale, of which there are as many as are written out, or half of that.
  void find_scales() {
    if (steps_ % block_ != 0) return;
    for (const int64_t count : {straight_, straight_ / 2}) {
      if (count < kLeastScaled || block_ % count != 0) continue;
      const Var first = make_var("first");
      Bounds bounds = bounds_;
      bounds.set(first, 0, steps_ / count - 1);
      const auto at = [&](int64_t step) {
        return scaled_number(simplify(substitute(weight_, {{step_.get(), first * Expr(count) + Expr(step)}}), bounds));
      };
      const auto one = at(0);
      scales_once_ = one.has_value();
      for (int64_t step = 1; step < count && scales_once_; ++step) {
        const auto other = at(step);
        scales_once_ = other && structurally_equal(one->scale, other->scale);
      }
      if (!scales_once_) continue;
      straight_ = count;
      return;
    }
  }

  // Rows of bf16 that lie in memory, and a sum of whole tiles.
  void find_tiles() {
    if (!rounds_ || steps_ % kTileTerms != 0 || lanes_ != kTileSide || vectors_ > 2) return;
    if (x_->kind != ExprKind::kCast || x_->operands[0]->kind != ExprKind::kLoad ||
        x_->operands[0].dtype() != DType::kBF16)
      return;
    const auto as_rows = num_open_axes();
    const Expr& address = x_->operands[0]->operands[0];
    if (as_rows != 1 || linear_coefficient(address, step_, bounds_) != 1) return;
    const Var row = make_var("row");
    const auto stride = linear_coefficient(substitute(address, at_row(row)), row, bounds_);
    if (!stride || *stride < steps_) return;
    tiles_ = best_tile_intrinsic(target_);
  }
  // Axes of rows of more than one place.
  int64_t num_open_axes() const {
    const std::vector<Axis>& axes = kernel_.output().body.axes;
    return std::count_if(axes.begin(), axes.end() - 1, [](const Axis& axis) { return !is_const_int(axis.extent, 1); });
  }

  // A column of a panel and a step as the float that it is.
  Expr weight(const Expr& panel, const Expr& column, const Expr& step) const {
    return of_packed(at_step(step), panel, column);
  }
  // What is summed of it: the weight, or its number.
  Expr summand(const Expr& panel, const Expr& column, const Expr& step) const {
    const Expr whole = at_step(step);
    return of_packed(scales_once_ ? scaled_number(whole)->number : whole, panel, column);
  }
  Expr scale(const Expr& panel, const Expr& column, const Expr& step) const {
    return of_packed(scaled_number(at_step(step))->scale, panel, column);
  }
  Expr at_step(const Expr& step) const { return simplify(substitute(weight_, {{step_.get(), step}}), bounds_); }

  Expr of_packed(const Expr& e, const Expr& panel, const Expr& column) const {
    return transform(transform(e, number_by_its_bits), [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      Expr in_row = 0;
      int64_t row = 1;
      for (size_t d = 1; d < node->operands.size(); ++d) {
        const int64_t extent = *as_int(node->buffer->shape[d]);
        in_row = in_row * Expr(extent) + node->operands[d];
        row *= extent;
      }
      in_row = simplify(in_row, bounds_);
      return load(flat_.at(node->buffer.get()), {(panel * Expr(row) + in_row) * Expr(width_) + column});
    });
  }

  Stmt few_or_many(const Expr& panel) {
    const Expr rows = num_rows();
    const auto few = [&] {
      return over_rows(rows, {kSmallTile, 1},
                       [&](int64_t count, const Expr& first) { return tile(panel, count, first, nullptr); });
    };
    const auto many = [&] {
      const BufferPtr scratch = make_buffer("panel", DType::kF32, {steps_ * width_}, MemoryScope::kLocal);
      const auto tile_of = [&](int64_t count, const Expr& first) { return tile(panel, count, first, scratch); };
      std::vector<int64_t> sizes = {tile_rows_};
      if (tile_rows_ > kSmallTile) sizes.push_back(kSmallTile);
      sizes.push_back(1);
      return alloc(scratch, seq({fill(panel, scratch), over_rows(rows, sizes, tile_of)}));
    };
    const auto in_tiles = [&] { return tiles(panel, rows); };
    const int64_t from = tiles_ ? kTileSide : kManyRows;
    if (const auto fixed = as_int(rows)) return *fixed < from ? few() : tiles_ ? in_tiles() : many();
    return if_then(rows < Expr(from), few(), tiles_ ? in_tiles() : many());
  }

  // All rows by a panel, in tiles of bf16.
  Stmt tiles(const Expr& panel, const Expr& rows) {
    const BufferPtr weights = make_buffer("panel", DType::kBF16, {steps_ * width_}, MemoryScope::kLocal);
    const BufferPtr own = make_buffer("rows", DType::kBF16, {kTileSide * steps_}, MemoryScope::kLocal);
    const int64_t tile_steps = steps_ / kTileTerms, step_bytes = kTileTerms * width_ * 2;
    const int64_t chunks = (tile_steps * step_bytes + kChunkBytes - 1) / kChunkBytes;
    const int64_t chunk = (tile_steps + chunks - 1) / chunks;
    const int64_t most = std::min(as_int(rows).value_or(kBlockRows), kBlockRows);
    const BufferPtr sums = make_buffer(
        "sums", DType::kF32, {(most + kTileSide - 1) / kTileSide * kTileSide * vectors_, lanes_}, MemoryScope::kLocal);
    const Var number = make_var("rows");
    const Expr begin = number * Expr(kBlockRows), count = min(rows - begin, Expr(kBlockRows));
    const Expr whole = floordiv(count, Expr(kTileSide)), left = floormod(count, Expr(kTileSide));
    // Rows of memory, and the last ones of all, which are copied: behind them there is nothing to be read.
    const auto from_memory = [&](const Expr& first) {
      return [this, first](const Expr& row, const Expr& step) {
        VarMap at = at_row(first + row);
        at[step_.get()] = step;
        return substitute(x_, at);
      };
    };
    const auto from_copy = [&](const Expr& row, const Expr& step) {
      return cast(DType::kF32, load(own, {row * Expr(steps_) + step}));
    };
    const Var copied = make_var("r"), vector = make_var("s");
    const Expr last = begin + whole * Expr(kTileSide);
    const Stmt copy = for_loop(
        copied, 0, left, ForKind::kSerial,
        for_loop(vector, 0, steps_ / kTileTerms, ForKind::kSerial, vectorized("l", kTileTerms, [&](const Var& lane) {
                   const Expr step = vector * Expr(kTileTerms) + lane;
                   return store(own, {copied * Expr(steps_) + step}, from_memory(last)(copied, step)->operands[0]);
                 })));
    std::vector<Stmt> parts;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first_step = c * chunk, steps = std::min(chunk, tile_steps - first_step);
      if (steps <= 0) break;
      const Var pair = make_var("pair");
      const auto two = floordiv(whole, Expr(2));
      parts.push_back(for_loop(pair, 0, two, ForKind::kSerial,
                               sum_tiles(2, from_memory(begin + pair * Expr(2 * kTileSide)), weights, first_step, steps,
                                         sums, pair * Expr(2 * kTileSide))));
      const Var single = make_var("single");
      const Expr odd = begin + two * Expr(2 * kTileSide);
      parts.push_back(
          for_loop(single, 0, whole - two * Expr(2), ForKind::kSerial,
                   sum_tiles(1, from_memory(odd), weights, first_step, steps, sums, two * Expr(2 * kTileSide))));
      parts.push_back(
          if_then(Expr(0) < left, sum_tiles(1, from_copy, weights, first_step, steps, sums, whole * Expr(kTileSide))));
    }
    const Var row = make_var("row");
    parts.push_back(for_loop(row, 0, count, ForKind::kSerial, finish(panel, 1, begin + row, sums, row)));
    const Stmt block = seq({if_then(Expr(0) < left, copy), seq(std::move(parts))});
    const Stmt all =
        for_loop(number, 0, normalize_size(floordiv(rows + Expr(kBlockRows - 1), kBlockRows)), ForKind::kSerial, block);
    return alloc(weights, alloc(own, alloc(sums, seq({fill_pairs(panel, weights), all}))));
  }

  // A panel as tiles have it: [tile of steps][vector][pair of steps][column][2]. Its rounded floats are stored as they
  // come, and neighbouring steps of a column brought together a block of steps later.
  Stmt fill_pairs(const Expr& panel, const BufferPtr& weights) {
    const BufferPtr made = make_buffer("made", DType::kBF16, {kTileTerms * width_}, MemoryScope::kLocal);
    const Var number = make_var("ks");
    bounds_.set(number, 0, steps_ / kTileTerms - 1);
    std::vector<Stmt> parts;
    for (int64_t step = 0; step < kTileTerms; ++step)
      parts.push_back(each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        const int64_t place = ((v * kTileSide + step / 2) * 2 + step % 2) * lanes_;
        return store(made, {Expr(place) + lane},
                     cast(DType::kBF16, weight(panel, column, number * Expr(kTileTerms) + Expr(step))));
      }));
    const Var pair = make_var("pair");
    parts.push_back(for_loop(
        pair, 0, kTileSide * vectors_, ForKind::kSerial, vectorized("l", 2 * lanes_, [&](const Var& lane) {
          const Expr from = floormod(lane, Expr(2)) * Expr(lanes_) + floordiv(lane, Expr(2));
          const Expr first = pair * Expr(2 * lanes_);
          return store(weights, {number * Expr(kTileTerms * width_) + first + lane}, load(made, {first + from}));
        })));
    return alloc(made, for_loop(number, 0, steps_ / kTileTerms, ForKind::kSerial, seq(std::move(parts))));
  }

  // `down` tiles of rows, whose sums begin with those of `row`, by `count` tiles of steps.
  Stmt sum_tiles(int64_t down, const std::function<Expr(const Expr& row, const Expr& step)>& left,
                 const BufferPtr& weights, int64_t first_step, int64_t count, const BufferPtr& sums,
                 const Expr& row) const {
    const auto over_tiles = [&](const std::function<Stmt(const Expr& p, const Expr& v)>& body) {
      return unrolled("p", 0, down, [&](const Var& p) {
        return unrolled("v", 0, vectors_, [&](const Var& v) { return body(p, v); });
      });
    };
    const auto at = [&](const Expr& p, const Expr& v, const Var& r, const Var& c) {
      return std::vector<Expr>{(row + p * Expr(kTileSide) + r) * Expr(vectors_) + v, c};
    };
    const Var step = make_var("s");
    const Expr tile_step = Expr(first_step) + step;
    const Stmt steps = for_loop(
        step, 0, count, ForKind::kSerial, over_tiles([&](const Expr& p, const Expr& v) {
          const Var r = make_var("r"), c = make_var("c"), k = make_var("k"), i = make_var("i");
          const Expr a = left(p * Expr(kTileSide) + r, tile_step * Expr(kTileTerms) + k * Expr(2) + i);
          const Expr b =
              cast(DType::kF32, load(weights, {tile_step * Expr(kTileTerms * width_) + v * Expr(kTileTerms * lanes_) +
                                               k * Expr(2 * lanes_) + c * Expr(2) + i}));
          Stmt nest =
              for_loop(i, 0, 2, ForKind::kSerial, store(sums, at(p, v, r, c), load(sums, at(p, v, r, c)) + a * b));
          for (const Var& var : {k, c, r}) nest = for_loop(var, 0, kTileSide, ForKind::kSerial, nest);
          return nest;
        }));
    Stmt body = steps;
    if (first_step == 0) {
      const Stmt clear = over_tiles([&](const Expr& p, const Expr& v) {
        const Var r = make_var("r"), c = make_var("c");
        Stmt nest = store(sums, at(p, v, r, c), const_float(DType::kF32, 0));
        for (const Var& var : {c, r}) nest = for_loop(var, 0, kTileSide, ForKind::kSerial, nest);
        return nest;
      });
      body = seq({clear, steps});
    }
    const std::string problem = match_intrinsic(*tiles_, body);
    check(problem.empty(), "a product of tiles is none: " + problem);
    return tensorized(tiles_, body);
  }

  // `body` for each step of the sum, `kStraight` of them written out; `around` gets these with the block and the part
  // of it that they are.
  using Around = std::function<Stmt(const Expr& block, const StepOf& part, Stmt steps)>;
  template <typename Body>
  Stmt over_steps(const Body& body, const Around& around = {}) {
    const Var block = make_var("kb"), part = make_var("kp");
    const int64_t blocks = steps_ / block_, parts = block_ / straight_;
    bounds_.set(block, 0, std::max<int64_t>(blocks - 1, 0));
    bounds_.set(part, 0, parts - 1);
    const auto straight = [&](const Expr& first, int64_t count) {
      std::vector<Stmt> all;
      for (int64_t c = 0; c < count; ++c) all.push_back(body(first + Expr(c)));
      return seq(std::move(all));
    };
    std::vector<Stmt> result;
    if (blocks > 0) {
      const Expr begin = block * Expr(block_);
      const auto of_part = [&](const Expr& number) {
        Stmt steps = straight(begin + number * Expr(straight_), straight_);
        return around ? around(block, {number, parts}, std::move(steps)) : steps;
      };
      Stmt inner = parts == 1 ? of_part(0) : for_loop(part, 0, parts, ForKind::kSerial, of_part(part));
      result.push_back(for_loop(block, 0, blocks, ForKind::kSerial, std::move(inner)));
    }
    if (steps_ % block_ != 0) result.push_back(straight(blocks * block_, steps_ % block_));
    return seq(std::move(result));
  }

  Stmt fill(const Expr& panel, const BufferPtr& scratch) {
    return over_steps([&](const Expr& step) {
      return each_vector([&](int64_t, const Expr& column, const Var&) {
        return store(scratch, {step * Expr(width_) + column}, summand(panel, column, step));
      });
    });
  }

  // `count` rows from `first` on by a panel, whose weights are in `scratch` or, if that is null, made on the way.
  Stmt tile(const Expr& panel, int64_t count, const Expr& first, const BufferPtr& scratch) {
    const BufferPtr acc = make_buffer("acc", DType::kF32, {count * vectors_, lanes_}, MemoryScope::kRegister);
    const BufferPtr made = make_buffer("w", DType::kF32, {vectors_, lanes_}, MemoryScope::kRegister);
    // Of steps that share a scale.
    const BufferPtr part_sum =
        scales_once_ ? make_buffer("part", DType::kF32, {count * vectors_, lanes_}, MemoryScope::kRegister) : acc;
    const auto each_row = [&](const auto& body) {
      std::vector<Stmt> parts;
      for (int64_t row = 0; row < count; ++row)
        parts.push_back(each_vector([&](int64_t v, const Expr& column, const Var& lane) {
          return body(row, row * vectors_ + v, v, column, lane);
        }));
      return seq(std::move(parts));
    };
    const auto clear = [&](const BufferPtr& sums) {
      return each_row([&](int64_t, int64_t cell, int64_t, const Expr&, const Var& lane) {
        return store(sums, {Expr(cell), lane}, const_float(DType::kF32, 0));
      });
    };
    const auto step = [&](const Expr& k) {
      const Stmt prepare = each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        return store(made, {Expr(v), lane},
                     scratch ? load(scratch, {k * Expr(width_) + column}) : summand(panel, column, k));
      });
      const Stmt multiply = each_row([&](int64_t row, int64_t cell, int64_t v, const Expr&, const Var& lane) {
        VarMap at = at_row(first + Expr(row));
        at[step_.get()] = k;
        return store(part_sum, {Expr(cell), lane},
                     fma(substitute(x_, at), load(made, {Expr(v), lane}), load(part_sum, {Expr(cell), lane})));
      });
      return seq({prepare, multiply});
    };
    // `steps` of the sum from step `k` on, which share a scale.
    const auto scaled = [&](const Expr& k, Stmt steps) {
      const Stmt prepare = each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        return store(made, {Expr(v), lane}, scale(panel, column, k));
      });
      const Stmt add = each_row([&](int64_t, int64_t cell, int64_t v, const Expr&, const Var& lane) {
        return store(
            acc, {Expr(cell), lane},
            fma(load(made, {Expr(v), lane}), load(part_sum, {Expr(cell), lane}), load(acc, {Expr(cell), lane})));
      });
      return alloc(part_sum, seq({clear(part_sum), std::move(steps), prepare, add}));
    };
    constexpr int64_t kUnroll = 4;
    // `number` steps from `begin` on, of weights in scratch.
    const auto from_scratch = [&](const Expr& begin, int64_t number) {
      const Var k = make_var("k"), rest = make_var("k");
      std::vector<Stmt> copies;
      for (int64_t c = 0; c < kUnroll; ++c) copies.push_back(step(begin + k * Expr(kUnroll) + Expr(c)));
      std::vector<Stmt> loops;
      if (number >= kUnroll)
        loops.push_back(for_loop(k, 0, number / kUnroll, ForKind::kSerial, seq(std::move(copies))));
      if (number % kUnroll != 0)
        loops.push_back(
            for_loop(rest, number / kUnroll * kUnroll, number % kUnroll, ForKind::kSerial, step(begin + rest)));
      return seq(std::move(loops));
    };
    Stmt sum;
    if (scratch && scales_once_) {
      const Var part = make_var("kp");
      bounds_.set(part, 0, steps_ / straight_ - 1);
      const Expr begin = part * Expr(straight_);
      sum = for_loop(part, 0, steps_ / straight_, ForKind::kSerial, scaled(begin, from_scratch(begin, straight_)));
    } else if (scratch) {
      sum = from_scratch(0, steps_);
    } else {
      sum = over_steps(step, [&](const Expr& block, const StepOf& part, Stmt steps) {
        if (scales_once_) steps = scaled(block * Expr(block_) + part.index * Expr(straight_), std::move(steps));
        for (const TensorParam& param : kernel_.params) {
          if (!is_weight(param.buffer)) continue;
          const int64_t row = *as_int(flat_.at(param.buffer.get())->shape[0]) / (panels_ * width_);
          const int64_t elements = row * block_ / steps_ * width_;
          const Expr first = panel * Expr(row * width_) + block * Expr(elements);
          steps = with_later_bytes(param.buffer.get(), first, elements, part, std::move(steps));
        }
        return steps;
      });
    }
    return alloc(acc, alloc(made, seq({clear(acc), sum, finish(panel, count, first, acc)})));
  }

  bool scales_once_ = false;                // the sum of `straight_` steps
  bool rounds_ = false;                     // weights, to bf16
  const TensorIntrinsic* tiles_ = nullptr;  // of many rows
  int64_t straight_ = 1;                    // steps that are written out
  int64_t tile_rows_ = 1;
};

}  // namespace

RuleResult blocked_weights(const TensorProgram& kernel, const Target& target, Knobs& knobs) {
  return BlockedWeights(kernel, target, knobs).run();
}

}  // namespace tessera::inline schedule
