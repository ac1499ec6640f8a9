#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loop/intrinsic.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

// Products of a matrix of weights with rows of anything, by instructions that sum pairs of products of bf16 or groups
// of four of 8-bit integers.
//
// The left factor is an expression of the row and the place in the sum; it is computed once for a block of rows and
// stored in the order of use, [row group][step][piece][row][places of a step: 32 of bf16, 64 of 8 bits]. The weights
// are stored at compile time as [column group][step][piece][16 columns of each][group of places][column][2 or 4]. Then
// groups of rows pass by groups of columns, in chunks of steps: those of a group of columns stay in the first level of
// the cache while the rows come by from the second, and those of the next one are fetched meanwhile.
//
// f32 as pieces (Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", 2019): x = x1 + x2 + x3, each the rounded rest, holds all 24 bits; of the nine products of pieces the
// six largest are summed, the small ones first. What is left out is at most 2^-25 of a product. Pieces of very small
// and very large numbers, infinities and NaN do not exist: while it is cut, each block of rows is looked through, and
// one that holds such a number is multiplied in f32, with the sums of the weights' pieces, which are exactly the
// weights.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 4;         // steps after which sums of pairs are added to the whole sum
constexpr int64_t kLeastRows = 16;    // fewer rows wait for the weights, of which pieces have more bytes
constexpr int64_t kFallbackRows = 4;  // of a register tile of f32
// Of weights in the first level of the cache, beside as many of the rows; pieces reuse each tile more often.
constexpr int64_t kChunkBytes = 16 << 10, kPiecesChunkBytes = 24 << 10;
constexpr int64_t kGroups = 8,
                  kImageGroups = 16;      // of rows in a block: more of an image, of which neighbours share places
constexpr int64_t kFarBytes = 128 << 10;  // weights that are not expected in the second level

// Which pieces are multiplied, in this order: one factor changes at a time.
using PiecePair = std::pair<int64_t, int64_t>;
constexpr std::array<PiecePair, 6> kSixProducts = {{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}}};

struct Product {
  LinearKernel kernel;
  const TensorIntrinsic* intrinsic = nullptr;
  int64_t pieces = 1;
  size_t weights = 0;            // parameter
  Expr left;                     // the left factor, in terms of the rows' loops and the reduced axes
  Expr right;                    // the load of the weights
  bool blocked = false;          // columns are blocks of the output's layout
  OutputLoop column;             // the remainder of a blocked axis, else the whole axis
  OutputLoop block;              // its quotient
  std::vector<OutputLoop> rows;  // outermost first
  size_t inner = 0;              // of the reduced axes: the one whose places lie side by side
  int64_t num_rows = 1, num_columns = 1;
  int64_t group_rows = 1;  // of the tiles
  // Steps of the inner axis, and of all axes.
  int64_t inner_extent = 1, inner_steps = 1, steps = 1;
  BufferPtr packed;
  // A window that slides by single places over an image (image_panel): the image in terms of the rows' loops, whose
  // extents then are the image's, and how far one step of each reduced axis is from place to place. Null: none.
  Expr image, in_image;            // in_image: where there is one, else zero
  std::vector<int64_t> extents;    // of rows
  std::vector<int64_t> distances;  // by reduced axis
  int64_t beyond = 0;              // places of the image that the window reaches behind its first one

  DType left_type() const { return intrinsic->factors; }
  DType right_type() const { return is_tiles() ? intrinsic->second_factors : intrinsic->factors; }
  DType sum_type() const { return intrinsic->dtype; }
  // Places of the sum that belong together, and that lie side by side.
  int64_t depth() const { return is_tiles() ? intrinsic->depth : 2; }
  int64_t step() const { return depth() * kTileSide; }
  bool is_tiles() const { return intrinsic->code == IntrinsicCode::kTileDot; }
  // Vectors or tiles of columns in a group.
  int64_t across() const { return 2; }
  int64_t column_blocks() const { return (num_columns + kLanes - 1) / kLanes; }
  int64_t column_groups() const { return (column_blocks() + across() - 1) / across(); }
  int64_t row_groups() const { return (num_rows + group_rows - 1) / group_rows; }
  // Elements of one step in the packed operands.
  int64_t left_step() const { return pieces * group_rows * step(); }
  int64_t right_step() const { return pieces * across() * kLanes * step(); }
};

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// The narrow type whose numbers all values of `e` are, if there is one: 16-bit floats as f32, bytes as i32.
std::optional<DType> narrow_type(const Expr& e) {
  if (e->kind == ExprKind::kSelect) {
    const auto is_zero = [](const Expr& arm) {
      return arm->kind == ExprKind::kConst && arm->float_value == 0 && arm->int_value == 0;
    };
    if (is_zero(e->operands[1])) return narrow_type(e->operands[2]);
    if (is_zero(e->operands[2])) return narrow_type(e->operands[1]);
    const auto first = narrow_type(e->operands[1]);
    return first && first == narrow_type(e->operands[2]) ? first : std::nullopt;
  }
  if (e->kind != ExprKind::kCast) return std::nullopt;
  const DType from = e->operands[0].dtype();
  const bool fits = e->dtype == DType::kF32 ? from == DType::kBF16 : e->dtype == DType::kI32 && is_byte(from);
  return fits ? std::optional(from) : std::nullopt;
}

// `e`, of which that is the type, in it.
Expr narrowed(const Expr& e, DType dtype) {
  if (e->kind == ExprKind::kSelect)
    return select(e->operands[0], narrowed(e->operands[1], dtype), narrowed(e->operands[2], dtype));
  if (e->kind == ExprKind::kConst) return is_float(dtype) ? const_float(dtype, 0) : const_int(dtype, 0);
  return e->operands[0];
}

// Finds the factors, and the instruction for them where f32 is not cut into pieces.
std::string find_factors(Product& t, const Target& target) {
  LinearKernel& k = t.kernel;
  if (k.loops.empty()) return "the output is a scalar";
  const Var last = k.loops.back().var;
  merge_loops(k, [&](const OutputLoop& outer, const OutputLoop& inner) {
    return outer.part == LayoutDim::Part::kWhole && inner.part == LayoutDim::Part::kWhole && !inner.var.same_node(last);
  });
  const Expr& value = k.reduce_value;
  const bool floats = k.reduce_dtype == DType::kF32, integers = k.reduce_dtype == DType::kI32 && t.pieces == 1;
  if (k.combiner != Combiner::kSum || !(floats || integers) || value->kind != ExprKind::kBinary ||
      value->binary != BinaryOp::kMul)
    return t.pieces == 1 ? "the kernel sums no products of f32 or i32" : "the kernel sums no products of f32";
  const auto weights_of = [&](const Expr& factor) {
    Expr e = factor;
    if (t.pieces == 1 && e->kind == ExprKind::kCast) e = e->operands[0];
    const bool fits = t.pieces > 1 ? e.dtype() == DType::kF32 : floats ? e.dtype() == DType::kBF16 : is_byte(e.dtype());
    return e->kind == ExprKind::kLoad && fits ? e : Expr();
  };
  for (size_t side = 0; side < 2 && !t.right; ++side) {
    const Expr load = weights_of(value->operands[side]);
    if (!load) continue;
    for (size_t p = 0; p + 1 < k.params.size(); ++p)
      if (k.params[p] == load->buffer && (t.pieces == 1 ? k.may_be_packed(p) : k.kinds[p] == OperandKind::kConstant) &&
          k.param_block[p] == 1) {
        t.weights = p;
        t.right = load;
        t.left = value->operands[1 - side];
      }
  }
  if (!t.right)
    return fmt::format("no factor is weights of {}", t.pieces > 1 ? "f32" : floats ? "bf16" : "8-bit integers");
  if (t.pieces == 1) {
    const auto left = narrow_type(t.left);
    if (!left) return fmt::format("the factors are not of {}", floats ? "bf16" : "8-bit integers");
    t.left = narrowed(t.left, *left);
    t.intrinsic = best_tile_intrinsic(target, *left, t.right.dtype());
    if (!t.intrinsic)
      return fmt::format("the machine has no tiles for {} and {}", dtype_name(*left), dtype_name(t.right.dtype()));
  }
  t.group_rows = t.is_tiles() ? 2 * kTileSide : 12;
  bool elsewhere = false;
  for (const Expr& e : {t.left, k.value})
    walk(e, [&](const Expr& node) { elsewhere |= node->kind == ExprKind::kLoad && node->buffer == t.right->buffer; });
  return elsewhere ? "the weights are read elsewhere, too" : "";
}

std::string find_axes(Product& t) {
  LinearKernel& k = t.kernel;
  t.column = k.loops.back();
  t.blocked = t.column.part == LayoutDim::Part::kRemainder;
  for (const OutputLoop& loop : k.loops) {
    if (loop.var.same_node(t.column.var)) continue;
    if (loop.part == LayoutDim::Part::kQuotient && loop.axis == t.column.axis) t.block = loop;
    else if (loop.part != LayoutDim::Part::kWhole) return "the output's layout blocks another axis than the innermost";
    else t.rows.push_back(loop);
  }
  if (t.blocked && t.column.extent != kLanes) return "the output's blocks are not of 16";
  t.num_columns = t.blocked ? t.block.extent * kLanes : t.column.extent;
  for (const OutputLoop& loop : t.rows) t.num_rows *= loop.extent;
  const Expr& address = t.right->operands[0];
  for (const OutputLoop& loop : t.rows)
    if (uses_var(address, loop.var)) return "the weights differ from row to row";
  if (uses_var(t.left, t.column.var) || (t.blocked && uses_var(t.left, t.block.var)))
    return "the left factor differs from column to column";
  if (t.num_rows < kLeastRows) return fmt::format("{} rows are too few to cut for", t.num_rows);
  if (t.num_columns < 2 * kLanes) return fmt::format("{} columns are too few", t.num_columns);
  return "";
}

// The places of the inner axis, 16 from `first` on.
Expr at_inner(const Product& t, const Expr& e, const Expr& first, const Var& lane) {
  return substitute(e, {{t.kernel.reduce[t.inner].var.get(), first + lane}});
}

std::string find_inner(Product& t) {
  LinearKernel& k = t.kernel;
  for (size_t i = k.reduce.size(); i-- > 0;) {
    const int64_t extent = *as_int(k.reduce[i].extent);
    if (extent < kLanes) continue;
    const Var unit = make_var("u"), lane = make_var("l");
    Bounds bounds = k.bounds;
    bounds.set(unit, 0, std::max<int64_t>(extent / kLanes, 1) - 1);
    bounds.set(lane, 0, kLanes - 1);
    const Expr left = simplify(at_inner(t, t.left, unit * Expr(kLanes), lane), bounds);
    bool contiguous = false, other = false;
    walk(left, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      const auto c = linear_coefficient(node->operands[0], lane, bounds);
      contiguous |= c == 1;
      other |= !c || (*c != 0 && *c != 1);
    });
    if (!contiguous || other) continue;
    t.inner = i;
    t.inner_extent = extent;
    t.inner_steps = (extent + t.step() - 1) / t.step();
    t.steps = t.inner_steps;
    for (size_t j = 0; j < k.reduce.size(); ++j)
      if (j != i) t.steps *= *as_int(k.reduce[j].extent);
    return "";
  }
  return "the left factor does not lie side by side along a reduced axis of at least 16";
}

// A row of tiles may be read where it lies, if what the next row reads lies a fixed distance behind. Where a window
// slides over an image by single places, with 64 bytes side by side, that holds for an image with its padding, place
// after place: then each place is stored once, not once for each place of the window. Rows that begin at the image's
// right border are computed and not stored.
void find_image(Product& t) {
  const LinearKernel& k = t.kernel;
  if (!t.is_tiles() || t.pieces != 1 || t.inner_extent % t.step() != 0) return;
  std::vector<int64_t> extents;
  for (const OutputLoop& loop : t.rows) extents.push_back(loop.extent);
  std::vector<size_t> row_of(k.reduce.size(), SIZE_MAX);
  VarMap first;
  for (size_t a = 0; a < k.reduce.size(); ++a) {
    const int64_t extent = *as_int(k.reduce[a].extent);
    if (a == t.inner) continue;
    first[k.reduce[a].var.get()] = Expr(0);
    if (extent == 1) continue;
    for (size_t r = 0; r < t.rows.size() && row_of[a] == SIZE_MAX; ++r) {
      if (extents[r] != t.rows[r].extent) continue;  // another axis moves along it
      Bounds bounds = k.bounds;
      bounds.set(t.rows[r].var, 0, t.rows[r].extent + extent - 2);
      const Expr moved = substitute(t.left, {{t.rows[r].var.get(), t.rows[r].var - k.reduce[a].var}});
      if (uses_var(simplify(moved, bounds), k.reduce[a].var)) continue;
      row_of[a] = r;
      extents[r] += extent - 1;
    }
    if (row_of[a] == SIZE_MAX) return;
  }
  int64_t places = 1, pitch = 1, beyond = 0;
  std::vector<int64_t> distances(k.reduce.size(), 0);
  for (size_t r = t.rows.size(); r-- > 0; pitch *= extents[r]) {
    places += (t.rows[r].extent - 1) * pitch;
    for (size_t a = 0; a < k.reduce.size(); ++a) {
      if (row_of[a] != r) continue;
      distances[a] = pitch;
      beyond += (*as_int(k.reduce[a].extent) - 1) * pitch;
    }
  }
  constexpr int64_t kMostMore = 4;  // of so many row groups one may be for nothing
  const int64_t groups = (places + t.group_rows - 1) / t.group_rows;
  if (beyond == 0 || groups > t.row_groups() + std::max<int64_t>(1, t.row_groups() / kMostMore)) return;
  Bounds bounds = k.bounds;
  for (size_t r = 0; r < t.rows.size(); ++r) bounds.set(t.rows[r].var, 0, extents[r] - 1);
  t.image = simplify(substitute(t.left, first), bounds);
  if (t.image->kind == ExprKind::kSelect && t.image->operands[2]->kind == ExprKind::kConst &&
      t.image->operands[2]->int_value == 0) {
    t.in_image = t.image->operands[0];
    t.image = t.image->operands[1];
  }
  t.extents = std::move(extents);
  t.distances = std::move(distances);
  t.beyond = beyond;
  t.num_rows = places;
}

// [column group][step][piece][tile][group of places][column][2 or 4]
std::string pack_weights(Product& t, PackedParam& packed) {
  LinearKernel& k = t.kernel;
  const Expr& address = t.right->operands[0];
  const auto coefficient = [&](const Var& var) { return linear_coefficient(address, var, k.bounds); };
  const auto column = coefficient(t.column.var);
  if (!column || *column == 0) return "the weights are not linear along the columns";
  if (t.blocked && t.block.extent > 1 && coefficient(t.block.var) != *column * kLanes)
    return "the weights are not linear along the columns";
  PackSpec spec;
  spec.axes.push_back({t.blocked ? k.extents[static_cast<size_t>(t.column.axis)] : t.num_columns, *column});
  spec.dims.push_back({t.column_groups(), 0, t.across() * kLanes});
  VarMap zero{{t.column.var.get(), Expr(0)}};
  if (t.blocked) zero[t.block.var.get()] = Expr(0);
  const auto add_axis = [&](size_t number) {
    const Axis& axis = k.reduce[number];
    const auto c = coefficient(axis.var);
    zero[axis.var.get()] = 0;
    spec.axes.push_back({*as_int(axis.extent), c.value_or(0)});
    return c.has_value();
  };
  for (size_t i = 0; i < k.reduce.size(); ++i) {
    if (i == t.inner) continue;
    if (!add_axis(i)) return "the weights are not linear along a reduced axis";
    spec.dims.push_back({*as_int(k.reduce[i].extent), static_cast<int>(spec.axes.size()) - 1, 1});
  }
  if (!add_axis(t.inner)) return "the weights are not linear along a reduced axis";
  const int inner = static_cast<int>(spec.axes.size()) - 1;
  spec.dims.push_back({t.inner_steps, inner, t.step()});
  const auto offset = as_int(simplify(substitute(address, zero), k.bounds));
  if (!offset) return "the weights begin at no fixed place";
  spec.offset = *offset;
  if (t.pieces > 1) {
    spec.axes.push_back({t.pieces, *as_int(t.right->buffer->shape[0])});
    spec.dims.push_back({t.pieces, static_cast<int>(spec.axes.size()) - 1, 1});
    packed.pieces = t.pieces;
  }
  spec.dims.push_back({t.across(), 0, kLanes});
  spec.dims.push_back({kTileSide, inner, t.depth()});
  spec.dims.push_back({kLanes, 0, 1});
  spec.dims.push_back({t.depth(), inner, 1});
  packed.param = t.weights;
  packed.parts.push_back(std::move(spec));
  t.packed = make_buffer(k.params[t.weights]->name + "_packed", t.right_type(), {packed.num_elements()});
  k.params[t.weights] = t.packed;
  return "";
}

class ProductEmitter {
 public:
  ProductEmitter(const Product& t, const Target& target) : t_(t) {
    const int64_t threads = target.num_threads;
    const int64_t group_bytes = dtype_bytes(t.left_type(), (t.image ? t.inner_steps : t.steps) * t.left_step());
    // Three quarters of the second level: the rest is for sums, and for weights on their way. Blocks of about one size.
    block_groups_ = std::clamp<int64_t>(target.l2_bytes * 3 / 4 / group_bytes, 1, t.image ? kImageGroups : kGroups);
    // Weights from far are read once when threads share them out by columns; the rows, which each thread then stores
    // for itself, are little beside them.
    const int64_t weight_bytes = dtype_bytes(t.right_type(), t.packed->shape[0]->int_value);
    const bool by_columns = weight_bytes > target.l2_bytes / 2 && t.column_groups() >= 4 * threads;
    if (!by_columns) block_groups_ = std::min(block_groups_, std::max<int64_t>(1, t.row_groups() / threads));
    int64_t blocks = (t.row_groups() + block_groups_ - 1) / block_groups_;
    if (blocks > 1) blocks = (blocks + threads - 1) / threads * threads;
    block_groups_ = (t.row_groups() + blocks - 1) / blocks;
    blocks = (t.row_groups() + block_groups_ - 1) / block_groups_;
    parts_ = std::min(t.column_groups(), (threads + blocks - 1) / blocks);
    part_groups_ = (t.column_groups() + parts_ - 1) / parts_;
    parts_ = (t.column_groups() + part_groups_ - 1) / part_groups_;
    // Chunks of about the same size. Vectors keep their sums in registers for a few steps anyway.
    const int64_t chunk_bytes = t.pieces > 1 ? kPiecesChunkBytes : kChunkBytes;
    const int64_t most_steps = std::max<int64_t>(1, chunk_bytes / dtype_bytes(t.right_type(), t.right_step()));
    chunks_ = t.is_tiles() ? (t.steps + most_steps - 1) / most_steps : 1;
    chunk_steps_ = (t.steps + chunks_ - 1) / chunks_;
    chunks_ = (t.steps + chunk_steps_ - 1) / chunk_steps_;
    prefetches_ = weight_bytes >= kFarBytes;
    places_ = block_groups_ * t.group_rows + t.beyond;
    panel_ = make_buffer("panel", t.left_type(),
                         {t.image ? t.inner_steps * places_ * t.step() : block_groups_ * t.steps * t.left_step()},
                         MemoryScope::kLocal);
    sum_ = make_buffer("sum", t.sum_type(), {(chunks_ > 1 ? block_groups_ : 1) * t.group_rows, t.across(), kLanes},
                       MemoryScope::kLocal);
    most_ = make_buffer("most", DType::kF32, {kLanes}, MemoryScope::kRegister);
    least_ = make_buffer("least", DType::kF32, {kLanes}, MemoryScope::kRegister);
    limits_ = make_buffer("limits", DType::kF32, {2}, MemoryScope::kLocal);
    row_limit_ = t.num_rows % (block_groups_ * t.group_rows) == 0 ? 0 : t.num_rows;
  }

  Stmt emit() const {
    OutputLoop blocks, parts;
    blocks.var = make_var("rb");
    blocks.extent = (t_.row_groups() + block_groups_ - 1) / block_groups_;
    parts.var = make_var("cb");
    parts.extent = parts_;
    return outer_nest({blocks, parts}, kJoinAll, [&](const VarMap& at) {
      const Expr first_row = at.at(blocks.var.get()) * Expr(block_groups_ * t_.group_rows);
      const Expr first_group = at.at(parts.var.get()) * Expr(part_groups_);
      const Stmt tiles = over_groups(first_group, [&](const Expr& group) { return row_groups(group, first_row); });
      if (t_.pieces == 1) return alloc(panel_, alloc(sum_, seq({fill_panel(first_row), tiles})));
      const Stmt in_f32 = over_groups(first_group, [&](const Expr& group) {
        const Var q = make_var("q");
        return for_loop(q, 0, block_groups_ * t_.group_rows / kFallbackRows, ForKind::kSerial,
                        rows_in_f32(group, first_row + q * Expr(kFallbackRows)));
      });
      const int64_t bounds_at = *as_int(t_.packed->shape[0]) - 2;
      const auto limit = [&](int64_t i) { return cast(DType::kF32, load(t_.packed, {Expr(bounds_at + i)})); };
      const Expr fits = logical_and(load(limits_, {Expr(0)}) >= limit(0), load(limits_, {Expr(1)}) <= limit(1));
      return alloc(panel_, alloc(sum_, alloc(limits_, seq({fill_panel(first_row), if_then(fits, tiles, in_f32)}))));
    });
  }

 private:
  Stmt over_groups(const Expr& first, const std::function<Stmt(const Expr&)>& body) const {
    const Var g = make_var("g");
    const Expr group = first + g;
    Stmt inner = body(group);
    if (parts_ * part_groups_ != t_.column_groups()) inner = if_then(group < Expr(t_.column_groups()), inner);
    return for_loop(g, 0, part_groups_, ForKind::kSerial, inner);
  }

  // The rows' variables at row number `row`.
  VarMap at_row(const Expr& row) const {
    VarMap at;
    Expr rest = row;
    for (size_t i = t_.rows.size(); i-- > 0;) {
      const int64_t extent = t_.image ? t_.extents[i] : t_.rows[i].extent;
      at[t_.rows[i].var.get()] = i == 0 ? rest : floormod(rest, extent);
      rest = floordiv(rest, extent);
    }
    return at;
  }

  // Whether the row is one of the output's; null when it is. The last one is not past the image.
  Expr is_row(const VarMap& rows) const {
    Expr inside;
    for (size_t i = 1; t_.image && i < t_.rows.size(); ++i) {
      if (t_.extents[i] == t_.rows[i].extent) continue;
      const Expr fits = rows.at(t_.rows[i].var.get()) < Expr(t_.rows[i].extent);
      inside = inside ? logical_and(inside, fits) : fits;
    }
    return inside;
  }

  // Loops over the reduced axes other than the inner one; `body` gets the number of their combination.
  Stmt over_outer_axes(VarMap& at, const std::function<Stmt(const Expr&)>& body) const {
    std::vector<std::pair<Var, Expr>> loops;
    Expr number = 0;
    for (size_t i = 0; i < t_.kernel.reduce.size(); ++i) {
      if (i == t_.inner) continue;
      const Axis& axis = t_.kernel.reduce[i];
      const Var var = make_var(axis.var->name);
      at[axis.var.get()] = var;
      number = number * axis.extent + var;
      loops.emplace_back(var, axis.extent);
    }
    Stmt nest = body(number);
    for (size_t i = loops.size(); i-- > 0;) nest = for_loop(loops[i].first, 0, loops[i].second, ForKind::kSerial, nest);
    return nest;
  }

  // The block's places of the image, in order: [step along the inner axis][place][64 bytes].
  Stmt fill_image(const Expr& first_row) const {
    const Var r = make_var("r");
    const Expr place = first_row + r;
    const VarMap at = at_row(place);
    const auto copies = [&](bool inside) {
      const Var s = make_var("s");
      const Stmt vectors = unrolled("h", 0, t_.step() / kLanes, [&](const Var& h) {
        return vectorized("l", kLanes, [&](const Var& l) {
          const Expr first = s * Expr(t_.step()) + h * Expr(kLanes);
          const Expr to = (s * Expr(places_) + r) * Expr(t_.step()) + h * Expr(kLanes) + l;
          return store(panel_, {to}, inside ? substitute(at_inner(t_, t_.image, first, l), at) : zero(t_.left_type()));
        });
      });
      return for_loop(s, 0, t_.inner_steps, ForKind::kSerial, vectors);
    };
    int64_t total = 1;
    for (const int64_t extent : t_.extents) total *= extent;
    Expr inside = place < Expr(total);
    if (t_.in_image) inside = logical_and(inside, substitute(t_.in_image, at));
    return for_loop(r, 0, places_, ForKind::kSerial, if_then(inside, copies(true), copies(false)));
  }

  // The block's rows of the left factor, in pieces; with their greatest magnitude and the least that is not 0.
  Stmt fill_panel(const Expr& first_row) const {
    if (t_.image) return fill_image(first_row);
    const Var r = make_var("r");
    const Expr row = first_row + r;
    VarMap at = at_row(row);
    const Expr group = floordiv(r, t_.group_rows), row_in_group = floormod(r, t_.group_rows);
    const Stmt one_row = over_outer_axes(at, [&](const Expr& number) {
      const auto part_of_step = [&](const Expr& s, const Expr& h, bool guarded) {
        return vectorized("l", kLanes, [&](const Var& l) {
          const Expr first = s * Expr(t_.step()) + h * Expr(kLanes);
          Expr value = at_inner(t_, t_.left, first, l);
          if (guarded) value = select(first + l < Expr(t_.inner_extent), value, zero(value.dtype()));
          value = substitute(value, at);
          const Expr step = group * Expr(t_.steps) + number * Expr(t_.inner_steps) + s;
          const Expr place = step * Expr(t_.left_step()) + row_in_group * Expr(t_.step()) + h * Expr(kLanes) + l;
          std::vector<Stmt> stores;
          Expr rest = value;
          for (int64_t p = 0; p < t_.pieces; ++p) {
            const Expr piece = t_.pieces == 1 ? rest : cast(t_.left_type(), rest);
            stores.push_back(store(panel_, {place + Expr(p * t_.group_rows * t_.step())}, piece));
            if (p + 1 < t_.pieces) rest = rest - cast(DType::kF32, piece);
          }
          if (t_.pieces > 1) {
            const Expr magnitude = unary(UnaryOp::kAbs, value);
            const Expr infinity = const_float(DType::kF32, std::numeric_limits<double>::infinity());
            stores.push_back(store(most_, {l}, max(load(most_, {l}), magnitude)));
            stores.push_back(store(
                least_, {l}, min(load(least_, {l}), select(equal(value, zero(DType::kF32)), infinity, magnitude))));
          }
          return seq(std::move(stores));
        });
      };
      const int64_t whole = t_.inner_extent / t_.step(), vectors = t_.step() / kLanes;
      const Var s = make_var("s");
      std::vector<Stmt> parts;
      if (whole > 0)
        parts.push_back(for_loop(s, 0, whole, ForKind::kSerial,
                                 unrolled("h", 0, vectors, [&](const Var& h) { return part_of_step(s, h, false); })));
      for (int64_t h = 0; h < vectors && whole < t_.inner_steps; ++h)
        parts.push_back(part_of_step(whole, h, whole * t_.step() + (h + 1) * kLanes > t_.inner_extent));
      return seq(std::move(parts));
    });
    Stmt filled = one_row;
    if (row_limit_ != 0) {
      // Rows that are not there are zeros: what they are multiplied to is not stored.
      const Var s = make_var("s");
      const int64_t vectors = t_.step() / kLanes;
      const Stmt zeros =
          for_loop(s, 0, t_.steps * t_.pieces * vectors, ForKind::kSerial, vectorized("l", kLanes, [&](const Var& l) {
                     const Expr step = group * Expr(t_.steps * t_.pieces) + floordiv(s, vectors);
                     const Expr place = step * Expr(t_.group_rows * t_.step()) + row_in_group * Expr(t_.step()) +
                                        floormod(s, vectors) * Expr(kLanes) + l;
                     return store(panel_, {place}, zero(t_.left_type()));
                   }));
      filled = if_then(row < Expr(row_limit_), one_row, zeros);
    }
    const Stmt all = for_loop(r, 0, block_groups_ * t_.group_rows, ForKind::kSerial, filled);
    if (t_.pieces == 1) return all;
    const auto start = [&](const BufferPtr& buffer, double value) {
      return vectorized("l", kLanes, [&](const Var& l) { return store(buffer, {l}, const_float(DType::kF32, value)); });
    };
    const auto finish = [&](const BufferPtr& lanes, int64_t place, Combiner combiner) {
      const Var l = make_var("l");
      const Expr total = load(limits_, {Expr(place)});
      return seq({store(limits_, {Expr(place)}, combiner_identity(combiner, DType::kF32)),
                  for_loop(l, 0, kLanes, ForKind::kUnrolled,
                           store(limits_, {Expr(place)}, combine(combiner, total, load(lanes, {l}))))});
    };
    return alloc(most_, alloc(least_, seq({start(most_, 0), start(least_, std::numeric_limits<double>::infinity()), all,
                                           finish(least_, 0, Combiner::kMin), finish(most_, 1, Combiner::kMax)})));
  }

  // The factors at place `i` of the group `k` of places of step `s`.
  Expr left_at(const Expr& q, const Expr& s, int64_t piece, const Expr& row, const Expr& k, const Expr& i) const {
    if (t_.image) {
      Expr place = q * Expr(t_.group_rows) + row, number = floordiv(s, t_.inner_steps);
      for (size_t a = t_.kernel.reduce.size(); a-- > 0;) {
        if (a == t_.inner) continue;
        const Expr& extent = t_.kernel.reduce[a].extent;
        place = place + floormod(number, extent) * Expr(t_.distances[a]);
        number = floordiv(number, extent);
      }
      const Expr at =
          (floormod(s, t_.inner_steps) * Expr(places_) + place) * Expr(t_.step()) + k * Expr(t_.depth()) + i;
      return cast(t_.sum_type(), load(panel_, {at}));
    }
    const Expr step = q * Expr(t_.steps) + s;
    return cast(t_.sum_type(), load(panel_, {step * Expr(t_.left_step()) + Expr(piece * t_.group_rows * t_.step()) +
                                             row * Expr(t_.step()) + k * Expr(t_.depth()) + i}));
  }
  Expr right_at(const Expr& group, const Expr& s, int64_t piece, const Expr& v, const Expr& k, const Expr& lane,
                const Expr& i) const {
    const Expr step = group * Expr(t_.steps) + s;
    return cast(t_.sum_type(), load(t_.packed, {step * Expr(t_.right_step()) +
                                                (Expr(piece * t_.across()) + v) * Expr(kLanes * t_.step()) +
                                                k * Expr(t_.depth() * kLanes) + lane * Expr(t_.depth()) + i}));
  }

  std::vector<PiecePair> products() const {
    return t_.pieces == 1 ? std::vector<PiecePair>{{0, 0}}
                          : std::vector<PiecePair>(kSixProducts.begin(), kSixProducts.end());
  }

  static Expr zero(DType dtype) { return is_float(dtype) ? const_float(dtype, 0) : const_int(dtype, 0); }

  // A group of columns with all groups of rows of the block.
  Stmt row_groups(const Expr& group, const Expr& first_row) const {
    const auto over_rows = [&](const std::function<Stmt(const Expr& q)>& body) {
      const Var q = make_var("q");
      Stmt inner = body(q);
      const Expr first = first_row + q * Expr(t_.group_rows);
      if (row_limit_ != 0) inner = if_then(first < Expr(row_limit_), inner);
      return for_loop(q, 0, block_groups_, ForKind::kSerial, inner);
    };
    const auto finish = [&](const Expr& q, const Expr& sums) {
      const Var r = make_var("r");
      const Expr first = first_row + q * Expr(t_.group_rows);
      return for_loop(
          r, 0, t_.group_rows, ForKind::kSerial,
          store_row(group, first + r, [&](const Expr& v, const Expr& l) { return load(sum_, {sums + r, v, l}); }));
    };
    if (!t_.is_tiles())
      return over_rows(
          [&](const Expr& q) { return seq({clear_in_vectors(), sum_in_vectors(group, q), finish(q, 0)}); });
    if (chunks_ == 1)
      return over_rows([&](const Expr& q) { return seq({sum_in_tiles(group, q, 0, 0, true), finish(q, 0)}); });
    const auto sums_of = [&](const Expr& q) { return q * Expr(t_.group_rows); };
    const Var chunk = make_var("n");
    return seq({over_rows([&](const Expr& q) { return sum_in_tiles(group, q, sums_of(q), 0, true); }),
                for_loop(chunk, 1, chunks_ - 1, ForKind::kSerial,
                         over_rows([&](const Expr& q) { return sum_in_tiles(group, q, sums_of(q), chunk, false); })),
                over_rows([&](const Expr& q) { return finish(q, sums_of(q)); })});
  }

  // One chunk of steps: sums from row `first_sum` of the sums on, which start from 0 when it `clears` them.
  Stmt sum_in_tiles(const Expr& group, const Expr& q, const Expr& first_sum, const Expr& chunk, bool clears) const {
    const auto over_tiles = [&](const std::function<Stmt(const Expr& p, const Expr& v)>& body) {
      return unrolled("p", 0, t_.group_rows / kTileSide, [&](const Var& p) {
        return unrolled("v", 0, t_.across(), [&](const Var& v) { return body(p, v); });
      });
    };
    const Var step = make_var("s");
    const Expr s = chunk * Expr(chunk_steps_) + step;
    std::vector<Stmt> parts;
    for (const auto& [a, b] : products())
      parts.push_back(over_tiles([&](const Expr& p, const Expr& v) {
        const Var r = make_var("r"), c = make_var("c"), k = make_var("k"), i = make_var("i");
        const Expr row = p * Expr(kTileSide) + r;
        const std::vector<Expr> at = {first_sum + row, v, c};
        const Expr product = left_at(q, s, a, row, k, i) * right_at(group, s, b, v, k, c, i);
        Stmt nest = for_loop(i, 0, t_.depth(), ForKind::kSerial, store(sum_, at, load(sum_, at) + product));
        for (const Var& var : {k, c, r}) nest = for_loop(var, 0, kTileSide, ForKind::kSerial, nest);
        return nest;
      }));
    const bool whole = t_.steps % chunk_steps_ == 0;
    const Expr count =
        whole ? Expr(chunk_steps_) : min(Expr(chunk_steps_), Expr(t_.steps) - chunk * Expr(chunk_steps_));
    Stmt steps = for_loop(step, 0, count, ForKind::kSerial, seq(std::move(parts)));
    if (prefetches_) {
      // Each group of rows asks for a share of the next chunk, which lies behind this one.
      const int64_t share = t_.right_step() / block_groups_;
      const Expr next = (group * Expr(t_.steps) + (chunk + Expr(1)) * Expr(chunk_steps_)) * Expr(t_.right_step());
      steps = prefetching(steps, t_.packed, {next + (q * Expr(chunk_steps_) + step) * Expr(share)});
    }
    if (!clears) return tensorized(t_.intrinsic, steps);
    const Stmt clear = over_tiles([&](const Expr& p, const Expr& v) {
      const Var r = make_var("r"), c = make_var("c");
      Stmt nest = store(sum_, {first_sum + p * Expr(kTileSide) + r, v, c}, zero(t_.sum_type()));
      for (const Var& var : {c, r}) nest = for_loop(var, 0, kTileSide, ForKind::kSerial, nest);
      return nest;
    });
    return tensorized(t_.intrinsic, seq({clear, steps}));
  }

  Stmt clear_in_vectors() const {
    const Var r = make_var("r");
    return for_loop(r, 0, t_.group_rows, ForKind::kSerial, unrolled("v", 0, t_.across(), [&](const Var& v) {
                      return vectorized("l", kLanes, [&](const Var& l) {
                        return store(sum_, {r, v, l}, const_float(DType::kF32, 0));
                      });
                    }));
  }

  // Vectors of pairs: sums over some steps, of the small products first, are added to the whole sum.
  Stmt sum_in_vectors(const Expr& group, const Expr& q) const {
    const BufferPtr acc = make_buffer("acc", DType::kF32, {t_.across(), t_.group_rows, kLanes}, MemoryScope::kRegister);
    const auto over_acc = [&](const std::function<Stmt(const Expr&, const Expr&, const Expr&)>& body) {
      return unrolled("v", 0, t_.across(), [&](const Var& v) {
        return unrolled("p", 0, t_.group_rows, [&](const Var& p) {
          return vectorized("l", kLanes, [&](const Var& l) { return body(v, p, l); });
        });
      });
    };
    const Var chunk = make_var("n");
    const auto sweep = [&](size_t begin, size_t end) {
      const Var step = make_var("s"), k = make_var("k");
      const Expr s = chunk * Expr(kChunk) + step;
      std::vector<Stmt> parts;
      for (size_t i = begin; i < end; ++i) {
        const auto [a, b] = products()[i];
        parts.push_back(tensorized(t_.intrinsic, over_acc([&](const Expr& v, const Expr& p, const Expr& l) {
                                     const auto add = [&](const Expr& sum, int64_t pair) {
                                       return fma(left_at(q, s, a, p, k, pair), right_at(group, s, b, v, k, l, pair),
                                                  sum);
                                     };
                                     return store(acc, {v, p, l}, add(add(load(acc, {v, p, l}), 0), 1));
                                   })));
      }
      const Expr count =
          t_.steps % kChunk == 0 ? Expr(kChunk) : min(Expr(kChunk), Expr(t_.steps) - chunk * Expr(kChunk));
      return for_loop(step, 0, count, ForKind::kSerial,
                      for_loop(k, 0, kTileSide, ForKind::kSerial, seq(std::move(parts))));
    };
    const size_t last = products().size() - 1;
    std::vector<Stmt> body;
    body.push_back(over_acc([&](const Expr& v, const Expr& p, const Expr& l) {
      return store(acc, {v, p, l}, const_float(DType::kF32, 0));
    }));
    if (last > 0) body.push_back(sweep(0, last));
    body.push_back(sweep(last, last + 1));
    body.push_back(over_acc([&](const Expr& v, const Expr& p, const Expr& l) {
      return store(sum_, {p, v, l}, load(sum_, {p, v, l}) + load(acc, {v, p, l}));
    }));
    return for_loop(chunk, 0, (t_.steps + kChunk - 1) / kChunk, ForKind::kSerial, alloc(acc, seq(std::move(body))));
  }

  // The epilogue of one row of a group of columns.
  Stmt store_row(const Expr& group, const Expr& row, const std::function<Expr(const Expr&, const Expr&)>& sum) const {
    const LinearKernel& k = t_.kernel;
    const VarMap rows = at_row(row);
    const auto lanes_of = [&](const Expr& block, const Expr& v, int64_t lanes) {
      return vectorized("l", lanes, [&](const Var& l) {
        VarMap at = rows;
        if (t_.blocked) at[t_.block.var.get()] = block;
        at[t_.column.var.get()] = t_.blocked ? Expr(l) : block * Expr(kLanes) + l;
        VarMap values = at;
        values[k.result_var.get()] = sum(v, l);
        const Stmt body = store(k.out(), {substitute(k.out_index, at)}, substitute(k.value, values));
        const bool guarded = k.padded && !loads_in_bounds(k.value, k.bounds);
        return guarded ? if_then(substitute(k.inside(), at), body) : body;
      });
    };
    const int64_t whole = t_.num_columns / kLanes, rest = t_.num_columns % kLanes;
    const Stmt body = unrolled("v", 0, t_.across(), [&](const Var& v) {
      const Expr block = group * Expr(t_.across()) + v;
      Stmt columns = lanes_of(block, v, kLanes);
      if (rest != 0)
        columns = if_then(block < Expr(whole), columns, if_then(equal(block, whole), lanes_of(whole, v, rest)));
      else if (whole % t_.across() != 0) columns = if_then(block < Expr(whole), columns);
      return columns;
    });
    Expr stored = is_row(rows);
    if (row_limit_ != 0) stored = stored ? logical_and(row < Expr(row_limit_), stored) : row < Expr(row_limit_);
    return stored ? if_then(stored, body) : body;
  }

  // A few rows by multiply-adds of f32.
  Stmt rows_in_f32(const Expr& group, const Expr& first_row) const {
    const BufferPtr acc = make_buffer("acc", DType::kF32, {kFallbackRows, t_.across(), kLanes}, MemoryScope::kRegister);
    const auto over_acc = [&](const std::function<Stmt(const Expr&, const Expr&, const Expr&)>& body) {
      return unrolled("p", 0, kFallbackRows, [&](const Var& p) {
        return unrolled("v", 0, t_.across(), [&](const Var& v) {
          return vectorized("l", kLanes, [&](const Var& l) { return body(p, v, l); });
        });
      });
    };
    const Stmt clear = over_acc([&](const Expr& p, const Expr& v, const Expr& l) {
      return store(acc, {p, v, l}, const_float(DType::kF32, 0));
    });
    VarMap axes;
    const Stmt sums = over_outer_axes(axes, [&](const Expr& number) {
      const Var i = make_var("i");
      const Expr s = number * Expr(t_.inner_steps) + floordiv(i, t_.step());
      const Expr pair = floordiv(floormod(i, t_.step()), 2);
      VarMap at = axes;
      at[t_.kernel.reduce[t_.inner].var.get()] = i;
      const Stmt body = over_acc([&](const Expr& p, const Expr& v, const Expr& l) {
        // A row that is not there is the last one once more.
        const Expr row = row_limit_ != 0 ? min(first_row + p, Expr(row_limit_ - 1)) : first_row + p;
        VarMap rows = at_row(row);
        rows.insert(at.begin(), at.end());
        Expr weight = right_at(group, s, 0, v, pair, l, floormod(i, 2));
        for (int64_t piece = 1; piece < t_.pieces; ++piece)
          weight = weight + right_at(group, s, piece, v, pair, l, floormod(i, 2));
        return store(acc, {p, v, l}, fma(substitute(t_.left, rows), weight, load(acc, {p, v, l})));
      });
      return for_loop(i, 0, t_.inner_extent, ForKind::kSerial, body);
    });
    const Stmt finish = unrolled("p", 0, kFallbackRows, [&](const Var& p) {
      return store_row(group, first_row + p, [&](const Expr& v, const Expr& l) { return load(acc, {p, v, l}); });
    });
    const Stmt all = alloc(acc, seq({clear, sums, finish}));
    return row_limit_ != 0 ? if_then(first_row < Expr(row_limit_), all) : all;
  }

  const Product& t_;
  int64_t block_groups_ = 1;             // row groups of a block
  int64_t parts_ = 1, part_groups_ = 1;  // of the columns, and column groups in each
  int64_t row_limit_ = 0;                // rows that are there; 0 when blocks are full
  int64_t places_ = 0;                   // of an image in the panel
  int64_t chunks_ = 1, chunk_steps_ = 1;
  bool prefetches_ = false;  // the weights
  BufferPtr panel_, sum_, most_, least_, limits_;
};

// Why multiply-adds are expected to be no slower than pieces; empty when they are. Of a processor with AMX: a core's
// rates with everything included, and the bytes that all cores read from memory, which weights beyond the second level
// of the cache come from. Pieces of weights are 6 bytes instead of 4, and rows come in groups.
std::string slower_than_vectors(const Product& t, const Target& target) {
  constexpr double kTileFlops = 400, kVectorFlops = 235, kMemoryBytes = 18;  // in 10^9 a second
  const double rows = static_cast<double>(t.num_rows), computed = static_cast<double>(t.row_groups() * t.group_rows);
  int64_t terms = 1;
  for (const Axis& axis : t.kernel.reduce) terms *= *as_int(axis.extent);
  const bool far = terms * t.num_columns * 4 > target.l2_bytes / 2;
  const double bytes = far ? kMemoryBytes / target.num_threads : std::numeric_limits<double>::infinity();
  const double pieces = std::max(6 / bytes, 2 * computed / kTileFlops);
  const double vectors = std::max(4 / bytes, 2 * rows / kVectorFlops);
  if (pieces < vectors) return "";
  return fmt::format("for {} rows multiply-adds are expected to be as fast (--fp32 auto)", t.num_rows);
}

// Why the kernel is no product that `t` describes; empty when it is. `intrinsic` of pieces; of narrow factors it is
// chosen by their types.
std::string find_product(const TensorProgram& program, const Target& target, const TensorIntrinsic* intrinsic,
                         int64_t pieces, Product& t) {
  if (!program.windows.empty()) return "only a window is computed";
  std::string why;
  auto made = make_linear_kernel(program, why);
  if (!made) return why;
  t.kernel = std::move(*made);
  t.intrinsic = intrinsic;
  t.pieces = pieces;
  if (why = find_factors(t, target); !why.empty()) return why;
  if (why = find_axes(t); !why.empty()) return why;
  return find_inner(t);
}

RuleResult make_product(const TensorProgram& program, const Target& target, const TensorIntrinsic* intrinsic,
                        int64_t pieces) {
  Product t;
  PackedParam packed;
  std::string why = find_product(program, target, intrinsic, pieces, t);
  if (!why.empty()) return Declined{why};
  find_image(t);
  if (why = pack_weights(t, packed); !why.empty()) return Declined{why};
  ScheduledKernel result;
  result.packed.push_back(std::move(packed));
  result.program.name = program.name;
  result.program.params = t.kernel.params;
  result.program.body = ProductEmitter(t, target).emit();
  return result;
}

// Null when the machine has none.
const TensorIntrinsic* of_pieces(const Target& target) {
  const TensorIntrinsic* tiles = best_tile_intrinsic(target);
  return tiles ? tiles : best_dot_intrinsic(target, DType::kBF16);
}

}  // namespace

std::string bf16x3_not_wanted(const TensorProgram& program, const Target& target, Fp32Products fp32) {
  if (fp32 == Fp32Products::kFma) return "--fp32 fma leaves it out, as --fp32 auto does where the machine has no AMX";
  if (fp32 == Fp32Products::kPieces) return "";
  // What is no product, the rule says itself.
  Product t;
  const TensorIntrinsic* intrinsic = of_pieces(target);
  if (!intrinsic || !find_product(program, target, intrinsic, 3, t).empty()) return "";
  return slower_than_vectors(t, target);
}

RuleResult matrix_tile(const TensorProgram& program, const Target& target, Knobs&) {
  if (!best_tile_intrinsic(target) && !best_tile_intrinsic(target, DType::kU8, DType::kI8))
    return Declined{"the machine has no two-dimensional tiles"};
  return make_product(program, target, nullptr, 1);
}

RuleResult bf16x3(const TensorProgram& program, const Target& target, Knobs&) {
  const TensorIntrinsic* intrinsic = of_pieces(target);
  if (!intrinsic) return Declined{"the machine has no dot products of bf16"};
  return make_product(program, target, intrinsic, 3);
}

}  // namespace tessera::inline schedule
