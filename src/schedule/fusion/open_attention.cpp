#include "schedule/fusion/open_attention.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "schedule/dynamic/cover.h"
#include "schedule/fusion/online_softmax.h"
#include "schedule/fusion/online_softmax_emit.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/size_polynomial.h"
#include "te/index_map.h"

namespace tessera::inline schedule {
namespace {

// Smaller blocks of rows and of columns than the chain's.
const std::vector<int64_t> kFewerRows = {8, 1};
constexpr int64_t kFewColumns = 16;
// Keys and values that a worker keeps for the largest number of columns.
constexpr int64_t kMostSharedBytes = 64 << 20;

// What the axes of a member's stage are to the chain.
enum class Role : uint8_t { kOther, kOuterRow, kOpenOuterRow, kRow, kColumn };

struct StageAxis {
  Var var;
  Role role = Role::kOther;
  size_t row = 0;  // the number of the row axis
  Expr extent;     // within a block
};

// An operand from outside as a block reads it.
struct Operand {
  BufferPtr buffer;           // of fixed shape
  std::vector<Expr> indices;  // of the load, by dimension
  Place place;
  Stmt copy;  // before the kernel; null: it reads the memory itself
  Stmt any;   // of a mask that is copied: whether anything in it is true
};

bool is_sole(const Expr& index, const Var& var) { return var && index.same_node(var); }

// What `index` is beside `var`, where that takes part once and no other axis does.
std::optional<Expr> behind(const Expr& index, const Var& var, const std::vector<StageAxis>& axes) {
  if (!var || !uses_var(index, var)) return std::nullopt;
  if (index.same_node(var)) return Expr(0);
  const Expr rest = simplify(index - var);
  const auto is_used = [&](const StageAxis& axis) { return uses_var(rest, axis.var); };
  return std::any_of(axes.begin(), axes.end(), is_used) ? std::nullopt : std::optional(rest);
}

// Whether `var` is more than an index of loads.
bool is_value(const Expr& e, const Var& var) {
  const Expr rest = transform(e, [](const Expr& node) -> Expr {
    return node->kind == ExprKind::kLoad ? load(node->buffer, std::vector<Expr>(node->operands.size(), Expr(0)))
                                         : Expr();
  });
  return uses_var(rest, var);
}

class OpenAttention {
 public:
  OpenAttention(const Chain& chain, const std::map<BufferId, Place>& outside, const std::vector<SymbolRange>& symbols,
                const Target& target, const AskRules& ask)
      : chain_(chain), outside_(outside), target_(target), ask_(ask) {
    for (const SymbolRange& symbol : symbols) bounds_.set(symbol.var, symbol.lo, symbol.hi);
    for (size_t r = 0; r < chain.rows.size(); ++r) {
      at_.push_back(make_var(fmt::format("row{}", r)));
      // Along an open axis a block has places of its own, from 0 on.
      const bool is_whole = chain.rows[r].extent > 0 && r + 1 < chain.rows.size();
      bases_.push_back(is_whole ? at_.back() : make_var("base"));
      bounds_.set(at_.back(), Interval{0, std::nullopt});
    }
    bounds_.set(first_, Interval{0, std::nullopt});
  }

  std::optional<Stmt> body() {
    const auto columns = bounds_of(chain_.columns->total, bounds_);
    if (!columns.hi || columns.lo.value_or(0) < 1) return std::nullopt;
    most_columns_ = (*columns.hi + kFewColumns - 1) / kFewColumns * kFewColumns;

    std::vector<int64_t> sizes = {chain_.block};
    for (const int64_t fewer : kFewerRows)
      if (fewer < chain_.block) sizes.push_back(fewer);
    const Expr rows = chain_.rows.back().size;
    const Var piece = make_var("piece");
    const Expr chunk = chain_.pieces == 1 ? rows : floordiv(rows + Expr(chain_.pieces - 1), Expr(chain_.pieces));
    const Expr begin = chain_.pieces == 1 ? Expr(0) : piece * chunk;
    const Expr extent = chain_.pieces == 1 ? rows : max(min(chunk, rows - begin), Expr(0));
    std::vector<Stmt> parts;
    for (const TileSegment& segment : cover_axis(extent, sizes, "rows")) {
      if (is_const_int(simplify(segment.count, bounds_), 0)) continue;
      const auto rows_of_size = rows_block(segment.size, parts);
      if (!rows_of_size) return std::nullopt;
      const Stmt moved = substitute(*rows_of_size, {{at_.back().get(), begin + segment.base}});
      parts.push_back(for_loop(segment.var, 0, segment.count, ForKind::kSerial, moved));
    }
    Stmt all = seq(std::move(parts));
    VarMap no_base;
    for (size_t r = 0; r < bases_.size(); ++r)
      if (!bases_[r].same_node(at_[r])) no_base[bases_[r].get()] = 0;
    all = substitute(all, no_base);
    all = alloc(any_, std::move(all));
    for (const BufferPtr& buffer : buffers_.all) all = alloc(buffer, std::move(all));
    for (const auto& [key, buffer] : copies_) all = alloc(buffer, std::move(all));

    const Var t = make_var("t");
    VarMap places;
    Expr rest = t, count = 1;
    std::vector<std::pair<Var, Expr>> loops;
    for (size_t r = 0; r + 1 < chain_.rows.size(); ++r) loops.emplace_back(at_[r], chain_.rows[r].size);
    if (chain_.pieces > 1) loops.emplace_back(piece, chain_.pieces);
    for (size_t i = loops.size(); i-- > 0;) {
      places[loops[i].first.get()] = i == 0 ? rest : floormod(rest, loops[i].second);
      rest = floordiv(rest, loops[i].second);
      count = count * loops[i].second;
    }
    return for_loop(t, 0, count, ForKind::kParallel, substitute(all, places));
  }

 private:
  // The chain for a block of rows and one of columns, whose sizes are fixed.
  struct BlockChain {
    Chain chain;
    std::deque<TensorProgram> kernels;  // that members point to
    std::map<BufferId, Place> outside;
    std::vector<std::vector<Stmt>> copies;  // by member: before its kernel
    Stmt visible;  // sets any_ to 0 where no row sees any of the columns; null where nothing says so
    std::unique_ptr<ColumnEmitter> code;
  };

  const TensorProgram& definition(size_t m) const { return *chain_.members[m].definition; }
  size_t product() const { return chain_.members.size() - 1; }

  // Blocks of `rows` rows at at_. `shared` gets what all rows share, where it is not there yet.
  std::optional<Stmt> rows_block(int64_t rows, std::vector<Stmt>& shared) {
    const Expr total = chain_.columns->total;
    const int64_t size = chain_.columns->size;
    const auto whole = block_chain(rows, size, true), rest = block_chain(rows, kFewColumns, false);
    if (!whole || !rest) return std::nullopt;
    if (buffers_.all.empty()) {
      whole->code->make_buffers(most_columns_);
      buffers_ = whole->code->buffers();
      int64_t bytes = 0;
      for (const BufferPtr& buffer : buffers_.all) bytes += bytes_of(*buffer);
      if (bytes > kMostSharedBytes) return std::nullopt;
    }
    whole->code->use_buffers(buffers_);
    rest->code->use_buffers(buffers_);
    Block block{bases_, rows, 0, 0, 0};
    const auto over_columns = [&](const auto& kernels) -> std::optional<Stmt> {
      const auto large = kernels(*whole, size), small = kernels(*rest, kFewColumns);
      if (!large || !small) return std::nullopt;
      const Var number = make_var("c"), small_number = make_var("c");
      const Expr count = floordiv(total, Expr(size)), left = floormod(total, Expr(size));
      const Expr first = count * Expr(size) + small_number * Expr(kFewColumns);
      return seq(
          {for_loop(number, 0, count, ForKind::kSerial, substitute(*large, {{first_.get(), number * Expr(size)}})),
           for_loop(
               small_number, 0, floordiv(left + Expr(kFewColumns - 1), Expr(kFewColumns)), ForKind::kSerial,
               substitute(*small, {{valid_.get(), min(Expr(kFewColumns), total - first)}, {first_.get(), first}}))});
    };
    if (has_shared(chain_) && shared.empty()) {
      const auto keys = over_columns(
          [&](const BlockChain& of, int64_t columns) { return of.code->shared_block(block, first_, columns); });
      if (!keys) return std::nullopt;
      shared.push_back(*keys);
    }
    const auto begin = whole->code->begin_rows(block);
    const auto columns = over_columns([&](const BlockChain& of, int64_t number) -> std::optional<Stmt> {
      const auto scored = of.code->columns_block(block, first_, number);
      if (!scored || !of.visible) return scored;
      return seq({with_fresh_definitions(of.visible), if_then(const_int(DType::kI32, 0) < load(any_, {0}), *scored)});
    });
    const auto end = whole->code->finish_rows(block);
    if (!begin || !columns || !end) return std::nullopt;
    return seq({*begin, *columns, *end});
  }

  std::unique_ptr<BlockChain> block_chain(int64_t rows, int64_t columns, bool is_whole) {
    auto block = std::make_unique<BlockChain>();
    block->chain = chain_;
    block->chain.pieces = 1;
    block->chain.block = rows;
    for (size_t r = 0; r < chain_.rows.size(); ++r) {
      RowAxis& row = block->chain.rows[r];
      if (r + 1 == chain_.rows.size()) row.extent = rows;
      else if (row.extent == 0) row.extent = 1;
      row.size = row.extent;
    }
    block->chain.columns->extent = block->chain.columns->size = columns;
    block->chain.columns->total = columns;
    block->copies.resize(chain_.members.size());
    for (size_t m = 0; m < chain_.members.size(); ++m)
      if (!cut_member(m, rows, columns, is_whole, *block)) return nullptr;
    block->code = std::make_unique<ColumnEmitter>(block->chain, block->outside, target_, ask_);
    block->code->set_outside_at_block();
    const BlockChain* of = block.get();
    const size_t scores = writer_in(chain_, chain_.members[chain_.columns->maximum].args[0]);
    if (chain_.columns->axis[scores] + 1 != definition(scores).output().out->shape.size()) return nullptr;
    block->code->set_around(
        [of](size_t m) {
          if (of->copies[m].empty()) return Stmt();
          std::vector<Stmt> fresh;
          for (const Stmt& copy : of->copies[m]) fresh.push_back(with_fresh_definitions(copy));
          return seq(std::move(fresh));
        },
        [this, of, scores, rows, columns, is_whole](size_t m) {
          if (m != scores || is_whole) return Stmt();
          return hide_columns(of->code->buffers().by_member[m], rows * enclosed_rows(m), columns);
        });
    return block;
  }

  // Rows of member `m` for each one of the last row axis: those along axes that a block has as a whole, as heads that
  // share keys.
  int64_t enclosed_rows(size_t m) const {
    const Shape& shape = definition(m).output().out->shape;
    int64_t rows = 1;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto is_axis = [&](const RowAxis& row) { return row.axis[m] == axis; };
      if (axis != chain_.columns->axis[m] && std::none_of(chain_.rows.begin(), chain_.rows.end(), is_axis))
        rows *= as_int(shape[axis]).value_or(1);
    }
    return rows;
  }

  // Scores of columns behind the end are those of no column.
  Stmt hide_columns(const BufferPtr& scores, int64_t rows, int64_t columns) const {
    const int64_t lanes = std::min<int64_t>(target_.f32_lanes(), columns);
    const Var row = make_var("r"), step = make_var("s");
    const Stmt vector = vectorized("l", lanes, [&](const Var& l) {
      const Expr column = step * Expr(lanes) + l, at = row * Expr(columns) + column;
      return store(scores, {at},
                   select(column < valid_, load(scores, {at}),
                          const_float(DType::kF32, -std::numeric_limits<double>::infinity())));
    });
    return for_loop(row, 0, rows, ForKind::kSerial, for_loop(step, 0, columns / lanes, ForKind::kSerial, vector));
  }

  std::vector<StageAxis> axes_of(size_t m, const Stage& stage, int64_t rows, int64_t columns) const {
    std::vector<StageAxis> result;
    for (size_t i = 0; i < stage.body.axes.size(); ++i) {
      const Axis& axis = stage.body.axes[i];
      StageAxis own{axis.var, Role::kOther, 0, axis.extent};
      for (size_t r = 0; r < chain_.rows.size(); ++r) {
        if (chain_.rows[r].axis[m] != i) continue;
        const bool is_last = r + 1 == chain_.rows.size(), is_open = chain_.rows[r].extent == 0;
        own.role = is_last ? Role::kRow : is_open ? Role::kOpenOuterRow : Role::kOuterRow;
        own.row = r;
        if (is_last) own.extent = rows;
        else if (is_open) own.extent = 1;
      }
      if (chain_.columns->axis[m] == i) own = {axis.var, Role::kColumn, 0, columns};
      result.push_back(own);
    }
    const bool sums_columns = m == chain_.columns->maximum || m == chain_.columns->sum || m == product();
    for (const Axis& axis : stage.body.reduce_axes)
      result.push_back(sums_columns ? StageAxis{axis.var, Role::kColumn, 0, columns}
                                    : StageAxis{axis.var, Role::kOther, 0, axis.extent});
    return result;
  }

  // Whether `mask` makes scores, which member `m` computes, -inf where it is false: those of a block in which it is
  // false everywhere change neither maxima nor sums.
  bool hides_scores(size_t m, const BufferPtr& mask) const {
    if (m != writer_in(chain_, chain_.members[chain_.columns->maximum].args[0])) return false;
    const Expr& value = definition(m).output().body.value;
    if (value->kind != ExprKind::kSelect || value->operands[0]->kind != ExprKind::kLoad) return false;
    const Expr& otherwise = value->operands[2];
    return value->operands[0]->buffer == mask && otherwise->kind == ExprKind::kConst && is_float(otherwise->dtype) &&
           otherwise->float_value == -std::numeric_limits<double>::infinity();
  }

  // Sets any_ to the number of elements that are true, of `rows` rows whose `columns` elements lie side by side.
  Stmt count_true(const Place& memory, const Expr& source, const std::vector<Var>& vars, int64_t rows,
                  int64_t columns) const {
    const int64_t lanes = target_.f32_lanes();
    const BufferPtr sums = make_buffer("seen", DType::kI32, {lanes}, MemoryScope::kRegister);
    const auto over_lanes = [&](const std::function<Stmt(const Var&)>& body) { return vectorized("l", lanes, body); };
    const Var step = make_var("s");
    const Stmt add = over_lanes([&](const Var& l) {
      const Expr at = substitute(source, {{vars[1].get(), step * Expr(lanes) + l}});
      return store(sums, {l}, load(sums, {l}) + cast(DType::kI32, load(memory.buffer, {at})));
    });
    const Stmt all =
        for_loop(vars[0], 0, rows, ForKind::kSerial, for_loop(step, 0, columns / lanes, ForKind::kSerial, add));
    return alloc(sums, seq({over_lanes([&](const Var& l) { return store(sums, {l}, const_int(DType::kI32, 0)); }), all,
                            store(any_, {0}, const_int(DType::kI32, 0)), over_lanes([&](const Var& l) {
                              return store(any_, {0}, load(any_, {0}) + load(sums, {l}));
                            })}));
  }

  // The result of member `m` for a block.
  BufferPtr cut_result(size_t m, int64_t rows, int64_t columns) const {
    const Stage& output = definition(m).output();
    const std::vector<StageAxis> axes = axes_of(m, output, rows, columns);
    Shape shape;
    for (size_t i = 0; i < output.body.axes.size(); ++i) shape.push_back(axes[i].extent);
    return make_buffer(output.out->name, output.out->dtype, std::move(shape));
  }

  bool cut_member(size_t m, int64_t rows, int64_t columns, bool is_whole, BlockChain& block) {
    const Member& member = chain_.members[m];
    block.kernels.push_back(definition(m));
    TensorProgram& kernel = block.kernels.back();
    std::map<const Buffer*, BufferPtr> buffers;  // that are read at the indices that they were read at
    std::map<const Buffer*, Operand> operands;
    Member& own = block.chain.members[m];
    own.definition = &kernel;
    const auto from_outside = [&](size_t p, Place place) {
      own.args[p] = next_outside_++;
      block.outside[own.args[p]] = std::move(place);
    };
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      TensorParam& param = kernel.params[p];
      const BufferPtr old = param.buffer;
      param.kind = OperandKind::kActivation;
      if (chain_.inner.contains(member.args[p])) {
        param.buffer = buffers[old.get()] = cut_result(writer_in(chain_, member.args[p]), rows, columns);
        continue;
      }
      auto operand = outside_operand(m, p, rows, columns, is_whole);
      if (!operand) return false;
      param.buffer = operand->buffer;
      from_outside(p, operand->place);
      if (operand->copy) block.copies[m].push_back(operand->copy);
      if (is_whole && hides_scores(m, old)) block.visible = operand->any;
      operands[old.get()] = *std::move(operand);
    }
    for (Stage& stage : kernel.stages) {
      const std::vector<StageAxis> axes = axes_of(m, stage, rows, columns);
      const bool is_result = &stage == &kernel.stages.back() && m == product();
      if (is_result) {
        auto result = operand_at(m, stage, stage.out, stage.body.axis_vars(), stage.layout, rows, columns, false,
                                 outside_.at(member.args.back()), SIZE_MAX);
        if (!result || result->copy) return false;
        from_outside(member.args.size() - 1, result->place);
        stage.out = result->buffer;
      }
      for (size_t i = 0; i < axes.size(); ++i) {
        const size_t reduced = i - stage.body.axes.size();
        (i < stage.body.axes.size() ? stage.body.axes[i] : stage.body.reduce_axes[reduced]).extent = axes[i].extent;
        if (!as_int(axes[i].extent)) return false;
      }
      if (!is_result) {
        Shape shape;
        for (const Axis& axis : stage.body.axes) shape.push_back(axis.extent);
        const BufferPtr old = stage.out;
        stage.out = buffers[old.get()] = make_buffer(old->name, old->dtype, std::move(shape));
      }
      bool ok = std::none_of(axes.begin(), axes.end(), [&](const StageAxis& axis) {
        return axis.role != Role::kOther && axis.role != Role::kOuterRow && is_value(stage.body.value, axis.var);
      });
      stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
        if (node->kind == ExprKind::kLoad) {
          if (const auto it = operands.find(node->buffer.get()); it != operands.end())
            return load(it->second.buffer, local_indices(it->second, node->operands, axes));
          if (const auto it = buffers.find(node->buffer.get()); it != buffers.end())
            return load(it->second, node->operands);
          ok = false;
        }
        return {};
      });
      for (BufferPtr& input : stage.body.inputs) {
        if (const auto it = operands.find(input.get()); it != operands.end()) input = it->second.buffer;
        else if (const auto other = buffers.find(input.get()); other != buffers.end()) input = other->second;
      }
      if (!ok) return false;
    }
    return true;
  }

  // A copied operand has one place along dimensions that the block does not go along.
  static std::vector<Expr> local_indices(const Operand& operand, const std::vector<Expr>& indices,
                                         const std::vector<StageAxis>& axes) {
    VarMap none;
    for (const StageAxis& axis : axes)
      if (axis.role == Role::kOpenOuterRow) none[axis.var.get()] = 0;
    std::vector<Expr> result;
    for (size_t d = 0; d < indices.size(); ++d)
      result.push_back(operand.indices[d] ? operand.indices[d] : simplify(substitute(indices[d], none)));
    return result;
  }

  std::optional<Operand> outside_operand(size_t m, size_t p, int64_t rows, int64_t columns, bool is_whole) {
    const TensorParam& param = definition(m).params[p];
    std::optional<Operand> found;
    for (const Stage& stage : definition(m).stages)
      for (const IndexMap& map : index_maps(stage.body, param.buffer.get())) {
        // A second place would need another offset, or another copy.
        if (found) return std::nullopt;
        if (std::any_of(map.dims.begin(), map.dims.end(), [](const IndexDim& dim) { return dim.by_data; }))
          return std::nullopt;
        found = operand_at(m, stage, param.buffer, map.load->operands, param.layout, rows, columns, !is_whole,
                           outside_.at(chain_.members[m].args[p]), p);
        if (!found) return std::nullopt;
      }
    return found;
  }

  // `buffer` as `stage` of member `m` reads it, or writes it, at `indices`. One that has columns is copied when the
  // block's last columns are not there.
  std::optional<Operand> operand_at(size_t m, const Stage& stage, const BufferPtr& buffer,
                                    const std::vector<Expr>& indices, const Layout& layout, int64_t rows,
                                    int64_t columns, bool ends_within, const Place& memory, size_t p) {
    if (!layout.row_major()) return std::nullopt;
    const std::vector<StageAxis> axes = axes_of(m, stage, rows, columns);
    Bounds bounds = bounds_;
    VarMap none, moved, outer;
    Var row, column;
    for (const StageAxis& axis : axes) {
      bounds.set(axis.var, Interval{0, as_int(axis.extent) ? std::optional(*as_int(axis.extent) - 1) : std::nullopt});
      if (axis.role == Role::kOpenOuterRow) {
        none[axis.var.get()] = 0;
        moved[axis.var.get()] = at_[axis.row];
      } else if (axis.role == Role::kOuterRow) {
        moved[axis.var.get()] = outer[axis.var.get()] = at_[axis.row];
      } else if (axis.role == Role::kRow) {
        row = axis.var;
        moved[axis.var.get()] = axis.var + at_[axis.row];
      } else if (axis.role == Role::kColumn) {
        column = axis.var;
        moved[axis.var.get()] = axis.var + first_;
      }
    }
    Operand operand;
    operand.indices.resize(indices.size());
    Shape shape;
    std::vector<Expr> still, there;
    bool has_columns = false;
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr local = simplify(substitute(indices[d], none));
      has_columns |= column && uses_var(local, column);
      there.push_back(substitute(indices[d], moved));
      const Expr& dim = buffer->shape[d];
      // Rows of one sequence begin behind those of another one: a block's own begin at 0.
      const bool is_row = !as_int(dim) && behind(local, row, axes).has_value();
      if (is_row) operand.indices[d] = row;
      still.push_back(is_row ? Expr(row) : substitute(local, outer));
      if (as_int(dim)) shape.push_back(dim);
      else if (is_sole(local, column)) shape.push_back(columns);
      else if (is_row) shape.push_back(rows);
      else if (is_const_int(local, 0)) shape.push_back(1);
      else return std::nullopt;
    }
    SizePolynomial::Factors factors;
    const Expr distance = (SizePolynomial::address(factors, buffer->shape, there, bounds) -
                           SizePolynomial::address(factors, shape, still, bounds))
                              .expr();
    const bool moves =
        std::none_of(axes.begin(), axes.end(), [&](const StageAxis& axis) { return uses_var(distance, axis.var); });
    if (moves && !(has_columns && ends_within)) {
      operand.buffer = make_buffer(buffer->name, buffer->dtype, std::move(shape));
      operand.place = {memory.buffer, {}, distance};
      return operand;
    }
    if (p == SIZE_MAX) {
      operand.copy = seq({});
      return operand;
    }
    return copied(m, p, buffer, indices, axes, row, column, rows, columns, ends_within, memory, std::move(operand));
  }

  // The places along a dimension that a block reads: `base` and `extent` of them. `offset` is the index from `base` on,
  // null for the whole dimension.
  struct Window {
    Expr base = 0, offset;
    int64_t extent = 0;
  };

  // Of a dimension of `dim` places, read at `index`: one head's columns where queries, keys and values of all heads lie
  // in one row.
  Window window_of(const Expr& index, const std::vector<StageAxis>& axes, int64_t dim) const {
    const Window whole{0, {}, dim};
    VarMap origin;
    Bounds bounds = bounds_;
    for (const StageAxis& axis : axes) {
      if (axis.role != Role::kOther) continue;
      const auto extent = as_int(axis.extent);
      if (!extent) return whole;
      origin[axis.var.get()] = 0;
      bounds.set(axis.var, 0, *extent - 1);
    }
    const Expr base = simplify(substitute(index, origin), bounds), offset = simplify(index - base, bounds);
    const Interval places = bounds_of(offset, bounds);
    const bool is_fixed = std::none_of(at_.begin(), at_.end(), [&](const Var& at) { return uses_var(offset, at); });
    if (!is_fixed || places.lo != 0 || !places.hi || *places.hi + 1 >= dim) return whole;
    return {base, offset, *places.hi + 1};
  }

  static Expr source_of(const BufferPtr& buffer, const std::vector<Expr>& from, const Bounds& bounds) {
    SizePolynomial::Factors factors;
    return SizePolynomial::address(factors, buffer->shape, from, bounds).expr();
  }

  std::optional<Operand> copied(size_t m, size_t p, const BufferPtr& buffer, const std::vector<Expr>& indices,
                                const std::vector<StageAxis>& axes, const Var& row, const Var& column, int64_t rows,
                                int64_t columns, bool ends_within, const Place& memory, Operand operand) {
    VarMap here;
    for (const StageAxis& axis : axes)
      if (axis.role == Role::kOpenOuterRow || axis.role == Role::kOuterRow) here[axis.var.get()] = at_[axis.row];
    Shape shape;
    std::vector<Expr> from, to, counts;
    std::vector<Var> vars;
    int64_t most = 1;  // elements for the largest block
    Bounds bounds = bounds_;
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr local = substitute(indices[d], here);
      const auto first_row = behind(local, row, axes);
      const bool is_row = first_row.has_value(), is_column = is_sole(local, column);
      const bool varies =
          std::any_of(axes.begin(), axes.end(), [&](const StageAxis& axis) { return uses_var(local, axis.var); });
      const auto dim = as_int(buffer->shape[d]);
      if (!varies) {
        shape.push_back(1);
        from.push_back(local);
        to.push_back(0);
        operand.indices[d] = 0;
        continue;
      }
      if (!is_row && !is_column && (!dim || (row && uses_var(local, row)) || (column && uses_var(local, column))))
        return std::nullopt;
      const Window window = is_row || is_column ? Window{} : window_of(local, axes, *dim);
      if (window.offset) operand.indices[d] = window.offset;
      if (is_row) operand.indices[d] = row;
      const int64_t extent = is_row ? rows : is_column ? columns : window.extent;
      most *= is_row ? chain_.block : is_column ? chain_.columns->size : window.extent;
      vars.push_back(make_var("i"));
      bounds.set(vars.back(), 0, extent - 1);
      shape.push_back(extent);
      counts.push_back(is_column && ends_within ? Expr(valid_) : Expr(extent));
      from.push_back(vars.back() + (is_row ? at_.back() + *first_row : is_column ? first_ : window.base));
      to.push_back(vars.back());
    }
    const bool is_rows = vars.size() == 2 && linear_coefficient(source_of(buffer, from, bounds), vars[1], bounds) == 1;
    if (buffer->dtype == DType::kBool && is_rows && row && column && !ends_within && columns % target_.f32_lanes() == 0)
      operand.any = count_true(memory, source_of(buffer, from, bounds), vars, rows, columns);
    BufferPtr& copy = copies_[{m, p}];
    if (!copy) copy = make_buffer(fmt::format("copy{}_{}", m, p), buffer->dtype, {Expr(most)}, MemoryScope::kLocal);
    SizePolynomial::Factors factors;
    const Expr source = source_of(buffer, from, bounds);
    const Expr target = SizePolynomial::address(factors, shape, to, bounds).expr();
    const auto element = [&](const VarMap& map) {
      return store(copy, {substitute(target, map)}, load(memory.buffer, {substitute(source, map)}));
    };
    std::vector<Stmt> parts;
    const int64_t lanes = target_.f32_lanes();
    if (ends_within) {
      int64_t elements = 1;
      for (const Expr& dim : shape) elements *= *as_int(dim);
      const auto zeros = [&](const Expr& begin, int64_t count) {
        return vectorized("l", count, [&](const Var& l) {
          return store(copy, {begin + l}, cast(buffer->dtype, const_int(DType::kI64, 0)));
        });
      };
      const Var step = make_var("s");
      parts.push_back(for_loop(step, 0, elements / lanes, ForKind::kSerial, zeros(step * Expr(lanes), lanes)));
      if (elements % lanes != 0) parts.push_back(zeros(elements / lanes * lanes, elements % lanes));
    }
    Stmt body;
    size_t inner = vars.size();
    if (!vars.empty() && linear_coefficient(source, vars.back(), bounds) == 1) {
      inner = vars.size() - 1;
      const Expr count = counts.back(), whole = floordiv(count, Expr(lanes));
      const Var step = make_var("s"), single = make_var("i"), last = vars.back();
      body = seq({for_loop(step, 0, whole, ForKind::kSerial,
                           vectorized("l", lanes,
                                      [&](const Var& l) { return element({{last.get(), step * Expr(lanes) + l}}); })),
                  for_loop(single, 0, count - whole * Expr(lanes), ForKind::kSerial,
                           element({{last.get(), whole * Expr(lanes) + single}}))});
    } else {
      body = element({});
    }
    for (size_t i = inner; i-- > 0;) body = for_loop(vars[i], 0, counts[i], ForKind::kSerial, body);
    parts.push_back(body);
    operand.buffer = make_buffer(buffer->name, buffer->dtype, std::move(shape));
    operand.place = {copy, {}, {}};
    operand.copy = seq(std::move(parts));
    return operand;
  }

  const Chain& chain_;
  const std::map<BufferId, Place>& outside_;
  const Target& target_;
  const AskRules& ask_;
  Bounds bounds_;
  std::vector<Var> at_;                                              // by row axis: where the block is
  std::vector<Var> bases_;                                           // the same in the block's own kernels
  const Var first_ = make_var("first"), valid_ = make_var("valid");  // columns of a block: the first, and how many
  int64_t most_columns_ = 0;
  ColumnEmitter::Buffers buffers_;
  std::map<std::pair<size_t, size_t>, BufferPtr> copies_;  // by member and parameter
  const BufferPtr any_ = make_buffer("any", DType::kI32, {1}, MemoryScope::kLocal);
  BufferId next_outside_ = 1 << 24;  // no buffer of a program
};

}  // namespace

std::optional<Stmt> emit_open_attention(const Chain& chain, const std::map<BufferId, Place>& outside,
                                        const std::vector<SymbolRange>& symbols, const Target& target,
                                        const AskRules& ask) {
  return OpenAttention(chain, outside, symbols, target, ask).body();
}

}  // namespace tessera::inline schedule
