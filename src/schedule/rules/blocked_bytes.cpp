#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/blocked_product.h"

// Rows of bytes, whose groups have a scale each (scaled_matmul), times weights in blocks: bytes are multiplied, and
// their sums over a group, which are exact, become floats once. What a weight is made of is taken apart: over a group
// it is factor * number + offset, where the number is an expression of bytes that fits a byte itself, whatever the
// format is. So a group of a row adds x_scale * (factor * sum(x * number) + offset * sum(x)).
//
// Constants are packed by panels of columns as blocked_weights does it, but of bytes that make numbers as many as the
// instruction multiplies at once stand side by side for each column. A panel's numbers, factors and offsets are made in
// scratch: of a block at a time where few rows read them, of the whole panel, which stays in cache, for many. Groups
// are added one by one either way, so a result does not depend on how many rows there are.
//
// The sums of rows' own groups cost as much as a vector of columns. For many rows they are made once for a block of
// rows and a few panels, which then take turns in scratch.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kGroups[] = {32, 16};  // numbers whose products are summed as integers
constexpr int64_t kSmallTile = 2;        // rows
constexpr int64_t kManyRows = 8;         // from here on panels are made as a whole
constexpr int64_t kMostNumber = 255;
constexpr int64_t kTaskPanels = 3;   // panels of a task
constexpr int64_t kBlockRows = 128;  // whose groups' sums are kept

struct Range {
  int64_t lo = 0, hi = 0;
};

// What integers `e` may be, as far as the bytes it is made of say.
std::optional<Range> range_of(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kConst: return is_float(e->dtype) ? std::nullopt : std::optional(Range{e->int_value, e->int_value});
    case ExprKind::kLoad:
      if (e->dtype == DType::kU8) return Range{0, 255};
      return e->dtype == DType::kI8 ? std::optional(Range{-128, 127}) : std::nullopt;
    case ExprKind::kUnary:
      return e->unary == UnaryOp::kBitcast && e->dtype == DType::kI8 ? std::optional(Range{-128, 127}) : std::nullopt;
    case ExprKind::kCast: {
      const auto of = range_of(e->operands[0]);
      if (!of || is_float(e->dtype)) return std::nullopt;
      if (e->dtype == DType::kU8 && (of->lo < 0 || of->hi > 255)) return std::nullopt;
      if (e->dtype == DType::kI8 && (of->lo < -128 || of->hi > 127)) return std::nullopt;
      return of;
    }
    case ExprKind::kBinary: {
      const auto a = range_of(e->operands[0]), b = range_of(e->operands[1]);
      // By whatever place, a shift to the right makes nothing larger.
      if (e->binary == BinaryOp::kShr && a && !b && a->lo >= 0) return Range{0, a->hi};
      if (!a || !b) return std::nullopt;
      const bool is_shift = b->lo == b->hi && b->lo >= 0 && b->lo < 31 && a->lo >= 0;
      switch (e->binary) {
        case BinaryOp::kAdd: return Range{a->lo + b->lo, a->hi + b->hi};
        case BinaryOp::kSub: return Range{a->lo - b->hi, a->hi - b->lo};
        case BinaryOp::kAnd: return b->lo == b->hi && b->lo >= 0 ? std::optional(Range{0, b->lo}) : std::nullopt;
        case BinaryOp::kShl: return is_shift ? std::optional(Range{a->lo << b->lo, a->hi << b->lo}) : std::nullopt;
        case BinaryOp::kShr: return is_shift ? std::optional(Range{a->lo >> b->lo, a->hi >> b->lo}) : std::nullopt;
        case BinaryOp::kOr: {
          if (a->lo < 0 || b->lo < 0) return std::nullopt;
          int64_t most = 1;
          while (most <= std::max(a->hi, b->hi)) most *= 2;
          return Range{0, most - 1};
        }
        default: return std::nullopt;
      }
    }
    default: return std::nullopt;
  }
}

// A float expression as factor * number + offset, where only the number depends on a variable.
struct Affine {
  Expr factor, offset;  // null: 0
  Expr number;          // i32; null: there is none
};

Expr plus(const Expr& a, const Expr& b) { return !a ? b : !b ? a : a + b; }
Expr times(const Expr& a, const Expr& b) { return !a || !b ? Expr() : a * b; }

std::optional<Affine> affine_of(const Expr& e, const Var& var) {
  if (!uses_var(e, var)) return Affine{{}, e, {}};
  if (e->kind == ExprKind::kCast && e->dtype == DType::kF32 && !is_float(e->operands[0].dtype()))
    return Affine{const_float(DType::kF32, 1), {}, e->operands[0]};
  std::vector<Affine> of;
  for (const Expr& operand : e->operands) {
    auto part = affine_of(operand, var);
    if (!part) return std::nullopt;
    of.push_back(std::move(*part));
  }
  const auto sum = [](const Affine& a, const Affine& b) -> std::optional<Affine> {
    if (a.number && b.number) return std::nullopt;
    return Affine{a.number ? a.factor : b.factor, plus(a.offset, b.offset), a.number ? a.number : b.number};
  };
  const auto product = [](const Affine& a, const Affine& b) -> std::optional<Affine> {
    const Affine &varies = a.number ? a : b, &fixed = a.number ? b : a;
    if (fixed.number) return std::nullopt;
    return Affine{times(varies.factor, fixed.offset), times(varies.offset, fixed.offset), varies.number};
  };
  const auto negative = [](const Affine& a) {
    return Affine{a.factor ? -a.factor : Expr(), a.offset ? -a.offset : Expr(), a.number};
  };
  if (e->kind == ExprKind::kFma) {
    const auto first = product(of[0], of[1]);
    return first ? sum(*first, of[2]) : std::nullopt;
  }
  if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNeg) return negative(of[0]);
  if (e->kind != ExprKind::kBinary) return std::nullopt;
  if (e->binary == BinaryOp::kAdd) return sum(of[0], of[1]);
  if (e->binary == BinaryOp::kSub) return sum(of[0], negative(of[1]));
  return e->binary == BinaryOp::kMul ? product(of[0], of[1]) : std::nullopt;
}

// Elements of a block in a constant's row that are packed alike.
struct Region {
  int64_t begin = 0, count = 0;
  int64_t unit = 1;  // of what the instruction multiplies at once, so many of them make the numbers
  int64_t base = 0;  // in the packed constant
};

class BlockedBytes : public BlockedProduct {
 public:
  using BlockedProduct::BlockedProduct;

  RuleResult run() {
    if (std::string why = find_product(); !why.empty()) return Declined{std::move(why)};
    if (std::string why = find_bytes(); !why.empty()) return Declined{std::move(why)};
    vectors_ = knobs_.choose("vectors", {1, 2, 4}, 2);
    tile_rows_ = knobs_.choose("rows", {2, 4, 6}, target_.vector_registers() >= 32 ? 6 : 2);
    lanes_ = dot_->lanes;
    depth_ = dot_->depth;
    width_ = vectors_ * lanes_;
    panels_ = (columns_ + width_ - 1) / width_;
    std::string why = "its weights' groups are no sums of bytes";
    for (const int64_t group : kGroups)
      if (group_ == 0 && block_ % group == 0 && (why = cut_weights(group)).empty()) group_ = group;
    if (group_ == 0) return Declined{std::move(why)};
    begin_program([&](size_t p) { return pack(p); });
    find_bytes();  // of the program's own buffers
    const Var task = make_var("task");
    const int64_t tasks = (panels_ + kTaskPanels - 1) / kTaskPanels;
    bounds_.set(task, 0, tasks - 1);
    const Stmt body = few_or_many(task);
    result_.program.body =
        tasks == 1 ? substitute(body, {{task.get(), Expr(0)}}) : for_loop(task, 0, tasks, ForKind::kParallel, body);
    return std::move(result_);
  }

 private:
  // x is bytes with a scale for each group.
  std::string find_bytes() {
    const std::string why = "its rows are no bytes with scales";
    if (x_->kind != ExprKind::kBinary || x_->binary != BinaryOp::kMul) return why;
    for (size_t side = 0; side < 2; ++side) {
      const Expr& bytes = x_->operands[side];
      if (bytes->kind != ExprKind::kCast || bytes->operands[0]->kind != ExprKind::kLoad) continue;
      if (bytes->operands[0].dtype() != DType::kI8) continue;
      bytes_ = bytes->operands[0];
      scale_ = x_->operands[1 - side];
    }
    if (!bytes_) return why;
    dot_ = byte_dot_intrinsic(target_, DType::kI8, DType::kU8);
    return dot_ ? "" : "the machine does not sum products of i8 and u8";
  }

  Expr at_step(const Expr& e, const Expr& step) const { return substitute(e, {{step_.get(), step}}); }

  // The place in its constant's row that a load of the weights reads.
  Expr in_row(const Expr& load) const {
    Expr place = 0;
    for (size_t d = 1; d < load->operands.size(); ++d)
      place = place * Expr(*as_int(load->buffer->shape[d])) + load->operands[d];
    return place;
  }
  int64_t row_elements(const BufferPtr& buffer) const {
    int64_t count = 1;
    for (size_t d = 1; d < buffer->shape.size(); ++d) count *= *as_int(buffer->shape[d]);
    return count;
  }

  // Takes the weights apart and finds regions; the reason why it cannot.
  std::string cut_weights(int64_t group) {
    parts_.clear();
    regions_.clear();
    if (steps_ % block_ != 0) return "the sum ends in the middle of a block";
    const int64_t blocks = steps_ / block_;
    block_var_ = make_var("kb");
    deep_var_ = make_var("q");
    bounds_.set(block_var_, 0, blocks - 1);
    bounds_.set(deep_var_, 0, depth_ - 1);
    std::map<const Buffer*, std::map<int64_t, int64_t>> read;  // offsets in a block: the unit that begins there
    std::string why;
    const auto note = [&](const Expr& e, bool may_be_deep) {
      walk(e, [&](const Expr& node) {
        if (node->kind != ExprKind::kLoad || !why.empty()) return;
        const int64_t row = row_elements(node->buffer);
        if (row % blocks != 0) {
          why = "a constant's rows are no blocks";
          return;
        }
        const auto place = place_in_block(node, row / blocks);
        if (!place || (place->unit > 1 && !may_be_deep)) {
          why = "bytes that are multiplied together are made of bytes that do not lie together";
          return;
        }
        const auto [it, is_new] = read[node->buffer.get()].try_emplace(place->offset, place->unit);
        if (it->second != place->unit) why = "an element is read in two ways";
        in_block_[node->buffer.get()] = row / blocks;
      });
    };
    for (int64_t p = 0; p < block_ / group; ++p) {
      Part part;
      for (int64_t j = 0; j < group / depth_; ++j) {
        const Expr step = block_var_ * Expr(block_) + Expr(p * group + j * depth_) + Expr(deep_var_);
        if (const Expr scale = simplify(at_step(scale_, step), bounds_); uses_var(scale, deep_var_))
          return "rows' scales are not those of groups";
        const auto cut = affine_of(simplify(at_step(weight_, step), bounds_), deep_var_);
        if (!cut || !cut->number) return "a weight is no multiple of a small number, and an offset";
        const auto range = range_of(cut->number);
        if (!range || range->hi - range->lo > kMostNumber) return "the numbers of the weights do not fit a byte";
        const Expr low = const_float(DType::kF32, static_cast<double>(range->lo));
        const Expr offset = range->lo == 0 ? cut->offset : plus(cut->offset, cut->factor * low);
        if (j == 0) {
          part.factor = cut->factor;
          part.offset = offset;
          part.low = range->lo;
          note(cut->factor, false);
          if (offset) note(offset, false);
        } else if (!structurally_equal(part.factor, cut->factor) || !part.offset != !offset ||
                   (offset && !structurally_equal(part.offset, offset)) || part.low != range->lo) {
          return fmt::format("factors of its weights are not those of {} numbers", group);
        }
        note(cut->number, true);
        if (!why.empty()) return why;
        part.numbers.push_back(cut->number);
      }
      has_offsets_ |= static_cast<bool>(part.offset);
      parts_.push_back(std::move(part));
    }
    for (const auto& [buffer, offsets] : read) {
      std::vector<Region>& regions = regions_[buffer];
      for (const auto& [offset, unit] : offsets) {
        Region* last = regions.empty() ? nullptr : &regions.back();
        if (last && last->begin + last->count > offset) return "an element is read in two ways";
        if (last && last->unit == unit && last->begin + last->count == offset) last->count += unit;
        else regions.push_back({offset, unit, unit});
      }
      int64_t base = 0;
      for (Region& region : regions) {
        region.base = base;
        base += panels_ * blocks * region.count * width_;
      }
    }
    return "";
  }

  // Where a load begins in a block of `elements`, and how many elements the numbers that are multiplied at once are
  // made of: one each, halves of bytes, or all of one, as bits that stand apart.
  struct BlockPlace {
    int64_t offset = 0, unit = 1;
  };
  std::optional<BlockPlace> place_in_block(const Expr& load, int64_t elements) const {
    const Expr place = in_row(load) - block_var_ * Expr(elements);
    for (int64_t unit = uses_var(load, deep_var_) ? depth_ : 1; unit > 0; unit /= 2) {
      const Expr own = unit == 1 ? Expr(0) : floordiv(deep_var_, Expr(depth_ / unit));
      if (const auto offset = as_int(simplify(place - own, bounds_))) return BlockPlace{*offset, unit};
    }
    return std::nullopt;
  }

  PackedParam pack(size_t p) const {
    const BufferPtr& buffer = kernel_.params[p].buffer;
    const int64_t row = row_elements(buffer), blocks = steps_ / block_;
    PackedParam packed{p, {}};
    for (const Region& region : regions_.at(buffer.get())) {
      PackSpec spec{{{columns_, row}, {blocks, row / blocks}, {region.count, 1}},
                    {{panels_, 0, width_}, {blocks, 1, 1}},
                    region.begin};
      if (region.unit > 1) {
        spec.dims.push_back({region.count / region.unit, 2, region.unit});
        spec.dims.push_back({width_, 0, 1});
        spec.dims.push_back({region.unit, 2, 1});
      } else {
        spec.dims.push_back({region.count, 2, 1});
        spec.dims.push_back({width_, 0, 1});
      }
      packed.parts.push_back(std::move(spec));
    }
    return packed;
  }

  // `e` of a panel and a block, at a column of the panel; of numbers at lane `column` of all columns' numbers.
  Expr of_packed(const Expr& e, const Expr& panel, const Expr& block, const Expr& column, bool is_number) const {
    const int64_t blocks = steps_ / block_;
    const Expr packed = transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const BlockPlace place = *place_in_block(node, in_block_.at(node->buffer.get()));
      const auto& regions = regions_.at(node->buffer.get());
      const auto region = std::find_if(regions.begin(), regions.end(), [&](const Region& r) {
        return r.begin <= place.offset && place.offset < r.begin + r.count;
      });
      const Expr first = (panel * Expr(blocks) + block) * Expr(region->count / place.unit) +
                         Expr((place.offset - region->begin) / place.unit);
      const Expr own = is_number && place.unit < depth_ ? floordiv(column, Expr(depth_ / place.unit)) : column;
      return load(flat_.at(node->buffer.get()), {Expr(region->base) + first * Expr(width_ * place.unit) + own});
    });
    return is_number ? substitute(packed, {{deep_var_.get(), floormod(column, Expr(depth_))}}) : packed;
  }

  // Makes numbers, factors and offsets of a block; `at` is its place in the scratch.
  Stmt fill(const Expr& panel, const Expr& block, const Expr& at) const {
    std::vector<Stmt> all;
    const int64_t groups = block_ / group_, quads = group_ / depth_;
    for (int64_t p = 0; p < groups; ++p) {
      const Part& part = parts_[static_cast<size_t>(p)];
      const Expr group = at * Expr(groups) + Expr(p);
      for (int64_t j = 0; j < quads; ++j)
        for (int64_t v = 0; v < vectors_; ++v)
          all.push_back(vectorized("l", lanes_ * depth_, [&](const Var& lane) {
            const Expr place = Expr(v * lanes_ * depth_) + lane;
            const Expr number = of_packed(part.numbers[static_cast<size_t>(j)], panel, block, place, true);
            const Expr from_zero = part.low == 0 ? number : number - const_int(number.dtype(), part.low);
            return store(numbers_, {(group * Expr(quads) + Expr(j)) * Expr(width_ * depth_) + place},
                         cast(DType::kU8, from_zero));
          }));
      all.push_back(each_vector([&](int64_t, const Expr& column, const Var&) {
        return store(factors_, {group * Expr(width_) + column}, of_packed(part.factor, panel, block, column, false));
      }));
      if (!has_offsets_) continue;
      all.push_back(each_vector([&](int64_t, const Expr& column, const Var&) {
        return store(offsets_, {group * Expr(width_) + column},
                     part.offset ? of_packed(part.offset, panel, block, column, false) : const_float(DType::kF32, 0));
      }));
    }
    return seq(std::move(all));
  }

  // The panels of a task, one after another.
  Stmt over_task(const Expr& task, const std::function<Stmt(const Expr& panel)>& body) {
    const Var number = make_var("panel");
    const int64_t count = std::min(kTaskPanels, panels_);
    bounds_.set(number, 0, count - 1);
    const Expr panel = task * Expr(kTaskPanels) + number;
    const Stmt one = body(panel);
    return for_loop(number, 0, count, ForKind::kSerial,
                    panels_ % count == 0 ? one : if_then(panel < Expr(panels_), one));
  }

  Stmt few_or_many(const Expr& task) {
    const Expr rows = num_rows();
    const int64_t blocks = steps_ / block_;
    ones_ = make_buffer("ones", DType::kU8, {lanes_ * depth_}, MemoryScope::kLocal);
    const auto with_scratch = [&](int64_t count, const std::function<Stmt()>& body) {
      const int64_t groups = count * (block_ / group_);
      numbers_ = make_buffer("numbers", DType::kU8, {groups * group_ * width_}, MemoryScope::kLocal);
      factors_ = make_buffer("factors", DType::kF32, {groups * width_}, MemoryScope::kLocal);
      offsets_ = make_buffer("offsets", DType::kF32, {groups * width_}, MemoryScope::kLocal);
      const Stmt one = vectorized("l", lanes_ * depth_,
                                  [&](const Var& lane) { return store(ones_, {lane}, const_int(DType::kU8, 1)); });
      Stmt all = has_offsets_ ? alloc(ones_, alloc(offsets_, seq({one, body()}))) : body();
      return alloc(numbers_, alloc(factors_, std::move(all)));
    };
    const auto few = [&] {
      return with_scratch(1, [&] {
        return over_task(task, [&](const Expr& panel) {
          return over_rows(rows, {kSmallTile, 1},
                           [&](int64_t count, const Expr& first) { return tile(panel, count, first, {}); });
        });
      });
    };
    const auto many = [&] {
      return with_scratch(blocks, [&] {
        std::vector<int64_t> sizes = {tile_rows_};
        if (tile_rows_ > kSmallTile) sizes.push_back(kSmallTile);
        sizes.push_back(1);
        const int64_t most = std::min(as_int(rows).value_or(kBlockRows), kBlockRows);
        row_sums_ = make_buffer("row_sums", DType::kF32, {most * (steps_ / group_)}, MemoryScope::kLocal);
        const Var number = make_var("rows"), block = make_var("kb");
        const Expr first = number * Expr(kBlockRows), count = min(rows - first, kBlockRows);
        const Stmt panels = over_task(task, [&](const Expr& panel) {
          return seq({for_loop(block, 0, blocks, ForKind::kSerial, fill(panel, block, block)),
                      over_rows(count, sizes, [&](int64_t n, const Expr& in_block) {
                        return tile(panel, n, first + in_block, in_block);
                      })});
        });
        const Stmt all = for_loop(number, 0, normalize_size(floordiv(rows + Expr(kBlockRows - 1), kBlockRows)),
                                  ForKind::kSerial, has_offsets_ ? seq({sum_rows(first, count), panels}) : panels);
        return has_offsets_ ? alloc(row_sums_, all) : all;
      });
    };
    if (const auto fixed = as_int(rows)) return *fixed < kManyRows ? few() : many();
    const Stmt of_few = few();
    return if_then(rows < Expr(kManyRows), of_few, many());
  }

  // The sums of the groups of `count` rows from `first` on.
  Stmt sum_rows(const Expr& first, const Expr& count) {
    const Var row = make_var("row"), group = make_var("group");
    const BufferPtr sum = make_buffer("sum", DType::kI32, {1, lanes_}, MemoryScope::kRegister);
    std::vector<Stmt> body = {
        vectorized("l", lanes_, [&](const Var& lane) { return store(sum, {0, lane}, const_int(DType::kI32, 0)); })};
    VarMap at = at_row(first + row);
    for (int64_t j = 0; j < group_ / depth_; ++j) {
      at[step_.get()] = group * Expr(group_) + Expr(j * depth_) + Expr(deep_var_);
      body.push_back(dot(substitute(bytes_, at), ones_, 0, sum, 0));
    }
    body.push_back(store(row_sums_, {row * Expr(steps_ / group_) + group}, cast(DType::kF32, load(sum, {0, 0}))));
    return for_loop(row, 0, count, ForKind::kSerial,
                    for_loop(group, 0, steps_ / group_, ForKind::kSerial, alloc(sum, seq(std::move(body)))));
  }

  // Adds sums of products of as many bytes as the instruction takes, in lanes, to those in `to`.
  Stmt dot(const Expr& bytes, const BufferPtr& numbers, const Expr& at, const BufferPtr& to, int64_t cell) const {
    const Var lane = make_var("l"), q = make_var("q");
    const Expr a = substitute(bytes, {{deep_var_.get(), q}});
    const Expr b = load(numbers, {at + lane * Expr(depth_) + q});
    const Expr sum = load(to, {Expr(cell), lane}) + cast(DType::kI32, a) * cast(DType::kI32, b);
    const Stmt nest = for_loop(lane, 0, lanes_, ForKind::kVectorized,
                               for_loop(q, 0, depth_, ForKind::kSerial, store(to, {Expr(cell), lane}, sum)));
    const std::string problem = match_intrinsic(*dot_, nest);
    check(problem.empty(), "a product of bytes is none: " + problem);
    return tensorized(dot_, nest);
  }

  // `count` rows from `first` on by a panel. Its numbers are in scratch, and the rows' sums there from row `in_block`
  // on, or, without that, all these are made block by block.
  Stmt tile(const Expr& panel, int64_t count, const Expr& first, const std::optional<Expr>& in_block) {
    const bool fills = !in_block;
    const BufferPtr acc = make_buffer("acc", DType::kF32, {count * vectors_, lanes_}, MemoryScope::kRegister);
    const BufferPtr sums = make_buffer("sums", DType::kI32, {count * vectors_, lanes_}, MemoryScope::kRegister);
    const BufferPtr of_x = make_buffer("of_x", DType::kI32, {count, lanes_}, MemoryScope::kRegister);
    const int64_t groups = block_ / group_, quads = group_ / depth_;
    const auto cells = [&](const BufferPtr& buffer, int64_t number, const Expr& value) {
      std::vector<Stmt> parts;
      for (int64_t cell = 0; cell < number; ++cell)
        parts.push_back(
            vectorized("l", lanes_, [&](const Var& lane) { return store(buffer, {Expr(cell), lane}, value); }));
      return seq(std::move(parts));
    };
    const auto row_at = [&](const Expr& e, int64_t row, const Expr& step) {
      VarMap at = at_row(first + Expr(row));
      at[step_.get()] = step;
      return substitute(e, at);
    };
    const Var block = make_var("kb"), part = make_var("kp");
    // The group's place in the scratch, and in the sum.
    const Expr in_scratch = (fills ? Expr(0) : block * Expr(groups)) + part;
    const Expr step = block * Expr(block_) + part * Expr(group_);
    std::vector<Stmt> body;
    body.push_back(cells(sums, count * vectors_, const_int(DType::kI32, 0)));
    const bool sums_rows = has_offsets_ && fills;
    if (sums_rows) body.push_back(cells(of_x, count, const_int(DType::kI32, 0)));
    for (int64_t j = 0; j < quads; ++j)
      for (int64_t row = 0; row < count; ++row) {
        const Expr bytes = row_at(bytes_, row, step + Expr(j * depth_) + Expr(deep_var_));
        for (int64_t v = 0; v < vectors_; ++v)
          body.push_back(dot(bytes, numbers_,
                             ((in_scratch * Expr(quads) + Expr(j)) * Expr(width_) + Expr(v * lanes_)) * Expr(depth_),
                             sums, row * vectors_ + v));
        if (sums_rows) body.push_back(dot(bytes, ones_, 0, of_x, row));
      }
    for (int64_t row = 0; row < count; ++row)
      body.push_back(each_vector([&](int64_t v, const Expr& column, const Var& lane) {
        const Expr cell = Expr(row * vectors_ + v), place = in_scratch * Expr(width_) + column;
        const auto as_float = [&](const BufferPtr& buffer, const Expr& at) {
          return cast(DType::kF32, load(buffer, {at, lane}));
        };
        Expr sum = load(factors_, {place}) * as_float(sums, cell);
        if (has_offsets_) {
          const Expr of_row = fills ? as_float(of_x, Expr(row))
                                    : load(row_sums_, {(*in_block + Expr(row)) * Expr(steps_ / group_) + in_scratch});
          sum = fma(load(offsets_, {place}), of_row, sum);
        }
        return store(acc, {cell, lane}, fma(row_at(scale_, row, step), sum, load(acc, {cell, lane})));
      }));
    Stmt group = alloc(sums, sums_rows ? alloc(of_x, seq(std::move(body))) : seq(std::move(body)));
    if (fills)
      for (const auto& [buffer, regions] : regions_)
        for (const Region& region : regions) {
          const int64_t elements = region.count * width_;
          const Expr first = Expr(region.base) + (panel * Expr(steps_ / block_) + block) * Expr(elements);
          group = with_later_bytes(buffer, first, elements, {part, groups}, std::move(group));
        }
    group = for_loop(part, 0, groups, ForKind::kSerial, std::move(group));
    const Stmt all = fills ? seq({fill(panel, block, 0), std::move(group)}) : std::move(group);
    return alloc(acc,
                 seq({cells(acc, count * vectors_, const_float(DType::kF32, 0)),
                      for_loop(block, 0, steps_ / block_, ForKind::kSerial, all), finish(panel, count, first, acc)}));
  }

  struct Part {  // a group of a block
    Expr factor, offset;
    int64_t low = 0;
    std::vector<Expr> numbers;  // of the steps that are multiplied at once
  };

  Expr bytes_, scale_;
  const TensorIntrinsic* dot_ = nullptr;
  int64_t depth_ = 1, group_ = 0, tile_rows_ = 1;
  Var block_var_, deep_var_;
  std::vector<Part> parts_;
  std::map<const Buffer*, std::vector<Region>> regions_;
  std::map<const Buffer*, int64_t> in_block_;  // elements of a block, in a row
  bool has_offsets_ = false;
  BufferPtr numbers_, factors_, offsets_, ones_, row_sums_;
};

}  // namespace

RuleResult blocked_bytes(const TensorProgram& kernel, const Target& target, Knobs& knobs) {
  return BlockedBytes(kernel, target, knobs).run();
}

}  // namespace tessera::inline schedule
