#include <algorithm>
#include <functional>

#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/packed_panels/panels.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kTurn = 16;  // steps are packed in multiples of it, so that whole tiles can be turned

int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

class PanelEmitter {
 public:
  PanelEmitter(const PanelProduct& product, const PanelTiling& tiling)
      : p_(product),
        t_(tiling),
        dtype_(product.kernel.reduce_dtype),
        steps_(round_up(block_steps(product, tiling), kTurn)),
        chunk_rows_(tiling.tiles_down * tiling.rows),
        chunk_columns_(tiling.panels * tiling.width()),
        all_panels_((product.num_columns + tiling.width() - 1) / tiling.width()),
        all_tiles_(product.num_rows / tiling.rows),
        last_rows_(product.num_rows % tiling.rows) {
    columns_ = make_buffer("columns", dtype_, {chunk_columns_ * steps_}, MemoryScope::kLocal);
    row_steps_ = steps_ + kTurn;
    rows_ = make_buffer("rows", dtype_, {chunk_rows_ * row_steps_}, MemoryScope::kLocal);
    sums_ = make_buffer("sums", dtype_, {chunk_rows_ * chunk_columns_}, MemoryScope::kLocal);
    const int64_t extent = *as_int(p_.steps[t_.cut].extent);
    blocks_ = (extent + t_.block - 1) / t_.block;
    int64_t before = 1;
    for (size_t i = 0; i < t_.cut; ++i) before *= *as_int(p_.steps[i].extent);
    one_block_ = blocks_ == 1 && before == 1;
    const TensorIntrinsic* turn = best_transpose_intrinsic(*t_.target, dtype_);
    if (turn && turn->dtype == dtype_ && t_.width() % turn->lanes == 0 && kTurn % turn->lanes == 0) turn_ = turn;
  }

  Stmt emit() {
    std::vector<OutputLoop> loops = p_.others;
    OutputLoop down, across;
    down.var = make_var("down");
    down.extent = (all_tiles_ + (last_rows_ != 0) + t_.tiles_down - 1) / t_.tiles_down;
    across.var = make_var("across");
    across.extent = (all_panels_ + t_.panels - 1) / t_.panels;
    loops.push_back(down);
    loops.push_back(across);
    return outer_nest(loops, kJoinAll, [&](const VarMap& outer) {
      at_ = outer;
      first_tile_ = outer.at(down.var.get()) * Expr(t_.tiles_down);
      first_panel_ = outer.at(across.var.get()) * Expr(t_.panels);
      panels_ = all_panels_ % t_.panels == 0 ? Expr(t_.panels) : min(Expr(t_.panels), Expr(all_panels_) - first_panel_);
      tiles_ = last_rows_ == 0 && all_tiles_ % t_.tiles_down == 0
                   ? Expr(t_.tiles_down)
                   : min(Expr(t_.tiles_down), Expr(all_tiles_) - first_tile_);
      return task();
    });
  }

 private:
  bool in_place() const { return t_.row_order == RowOrder::kInPlace; }
  bool by_step() const { return t_.row_order == RowOrder::kByStep; }

  // ---- One task: some rows and columns, all steps. ----

  Stmt task() {
    std::vector<Var> outside;
    VarMap at = at_;
    for (size_t i = 0; i < t_.cut; ++i) {
      outside.push_back(make_var(p_.steps[i].var->name));
      at[p_.steps[i].var.get()] = outside.back();
    }
    const Var number = make_var("b");
    const Axis& cut = p_.steps[t_.cut];
    const int64_t extent = *as_int(cut.extent);
    first_ = blocks_ == 1 ? Expr(0) : number * Expr(t_.block);
    count_ = extent % t_.block == 0 ? Expr(t_.block) : min(Expr(t_.block), Expr(extent) - first_);
    if (blocks_ == 1) count_ = extent;
    std::vector<Stmt> work = {pack_columns(at)};
    if (!in_place()) work.push_back(pack_rows(at));
    work.push_back(tiles(at));
    Stmt body = seq(std::move(work));
    if (blocks_ > 1) body = for_loop(number, 0, blocks_, ForKind::kSerial, body);
    for (size_t i = t_.cut; i-- > 0;) body = for_loop(outside[i], 0, p_.steps[i].extent, ForKind::kSerial, body);
    if (!one_block_) body = alloc(sums_, seq({cleared(sums_, chunk_rows_ * chunk_columns_), body, store_sums()}));
    if (!in_place()) body = alloc(rows_, body);
    return alloc(columns_, body);
  }

  // The loops of a block, from the cut one on; `body` gets their values and the step's number.
  Stmt over_block(const VarMap& outer, size_t end, const std::function<Stmt(const VarMap&, const Expr&)>& body) const {
    VarMap at = outer;
    Expr step = 0;
    std::vector<Var> vars;
    for (size_t i = t_.cut; i < end; ++i) {
      vars.push_back(make_var(p_.steps[i].var->name));
      at[p_.steps[i].var.get()] = i == t_.cut ? first_ + vars.back() : vars.back();
      step = step * p_.steps[i].extent + vars.back();
    }
    for (size_t i = end; i < p_.steps.size(); ++i) step = step * p_.steps[i].extent;
    Stmt nest = body(at, step);
    for (size_t i = end; i-- > t_.cut;) nest = for_loop(vars[i - t_.cut], 0, extent_of(i), ForKind::kSerial, nest);
    return nest;
  }
  Expr extent_of(size_t step) const { return step == t_.cut ? count_ : p_.steps[step].extent; }
  Expr steps_of_block() const {
    Expr all = count_;
    for (size_t i = t_.cut + 1; i < p_.steps.size(); ++i) all = all * p_.steps[i].extent;
    return all;
  }

  Expr at_place(const Expr& factor, const VarMap& at, const Var& var, const Expr& place) const {
    VarMap map = at;
    map[var.get()] = place;
    Expr value = substitute(factor, map);
    return value.dtype() == dtype_ ? value : cast(dtype_, value);
  }

  // The coefficient of a variable in the factor's address; empty where it is read in another way.
  std::optional<int64_t> step_along(const Expr& factor, const Var& var) const {
    if (factor->kind != ExprKind::kLoad && factor->kind != ExprKind::kCast) return std::nullopt;
    const Expr& load = factor->kind == ExprKind::kCast ? factor->operands[0] : factor;
    if (load->kind != ExprKind::kLoad) return std::nullopt;
    return linear_coefficient(load->operands[0], var, p_.kernel.bounds);
  }

  // ---- Columns, packed as [panel][step][column]: what stands behind the last one are numbers that nobody asks for.
  // ----

  Stmt pack_columns(const VarMap& at) const {
    if (step_along(p_.of_columns, p_.column) == 1) return copy_columns(at);
    const auto along = step_along(p_.of_columns, p_.steps.back().var);
    constexpr int64_t kFar = 4;  // elements further apart are no vectors
    if (turn_ && along && std::abs(*along) <= kFar && guards_are_intervals()) return turn_columns(at);
    return gather_columns(at);
  }

  // Whether those steps of the innermost axis at which a guard holds follow each other.
  bool guards_are_intervals() const {
    const Var& last = p_.steps.back().var;
    return std::all_of(p_.column_guards.begin(), p_.column_guards.end(), [&](const Expr& guard) {
      if (!uses_var(guard, last)) return true;
      const bool ordered =
          guard->kind == ExprKind::kBinary && (guard->binary == BinaryOp::kLe || guard->binary == BinaryOp::kLt ||
                                               guard->binary == BinaryOp::kGe || guard->binary == BinaryOp::kGt);
      return ordered && linear_coefficient(guard->operands[0], last, p_.kernel.bounds) &&
             linear_coefficient(guard->operands[1], last, p_.kernel.bounds);
    });
  }

  // Of the guards for which `of` answers true; null when there are none.
  Expr guards_at(const VarMap& at, const Expr& column, const std::function<bool(const Expr&)>& of) const {
    VarMap map = at;
    map[p_.column.get()] = column;
    Expr all;
    for (const Expr& guard : p_.column_guards)
      if (of(guard)) all = all ? logical_and(all, substitute(guard, map)) : substitute(guard, map);
    return all;
  }
  Expr column_at(const VarMap& at, const Expr& column) const {
    const Expr value = at_place(p_.of_columns, at, p_.column, column);
    const Expr guard = guards_at(at, column, [](const Expr&) { return true; });
    return guard ? select(guard, value, const_float(dtype_, 0)) : value;
  }

  Stmt over_panels(const std::function<Stmt(const Var&)>& body) const {
    const Var panel = make_var("panel");
    return for_loop(panel, 0, panels_, ForKind::kSerial, body(panel));
  }
  Expr packed_column(const Expr& panel, const Expr& step, const Expr& column) const {
    return (panel * Expr(steps_) + step) * Expr(t_.width()) + column;
  }
  bool has_all_columns() const { return p_.num_columns % t_.width() == 0; }

  Stmt copy_columns(const VarMap& at) const {
    return over_panels([&](const Var& panel) {
      const Expr first = (first_panel_ + panel) * Expr(t_.width());
      const auto copy = [&](bool guarded) {
        return over_block(at, p_.steps.size(), [&](const VarMap& inner, const Expr& step) {
          return unrolled("v", 0, t_.vectors, [&](const Var& v) {
            return vectorized("l", t_.lanes, [&](const Var& l) {
              const Expr column = v * Expr(t_.lanes) + l;
              Expr value = column_at(inner, first + column);
              if (guarded) value = select(first + column < Expr(p_.num_columns), value, const_float(dtype_, 0));
              return store(columns_, {packed_column(panel, step, column)}, value);
            });
          });
        });
      };
      if (has_all_columns()) return copy(false);
      return if_then(first + Expr(t_.width()) <= Expr(p_.num_columns), copy(false), copy(true));
    });
  }

  Stmt gather_columns(const VarMap& at) const {
    return over_panels([&](const Var& panel) {
      const Var within = make_var("c");
      const Expr column = (first_panel_ + panel) * Expr(t_.width()) + within;
      return for_loop(within, 0, t_.width(), ForKind::kSerial,
                      over_block(at, p_.steps.size(), [&](const VarMap& inner, const Expr& step) {
                        Expr value = column_at(inner, column);
                        if (!has_all_columns())
                          value = select(column < Expr(p_.num_columns), value, const_float(dtype_, 0));
                        return store(columns_, {packed_column(panel, step, within)}, value);
                      }));
    });
  }

  // Columns as rows of steps first, as many as a tile that is turned in registers has.
  Stmt turn_columns(const VarMap& at) const {
    const int64_t side = turn_->lanes;
    const BufferPtr flat = make_buffer("flat", dtype_, {side * steps_}, MemoryScope::kLocal);
    const Stmt body = over_panels([&](const Var& panel) {
      const Var group = make_var("g"), lane = make_var("c"), tile = make_var("s");
      const Expr column = (first_panel_ + panel) * Expr(t_.width()) + group * Expr(side) + lane;
      const Stmt read = over_block(at, p_.steps.size() - 1, [&](const VarMap& inner, const Expr& step) {
        return copy_steps(inner, column, [&](const Expr& place) { return lane * Expr(steps_) + step + place; }, flat);
      });
      const Stmt lanes = for_loop(lane, 0, side, ForKind::kSerial,
                                  has_all_columns() ? read : if_then(column < Expr(p_.num_columns), read));
      const Var r = make_var("r"), l = make_var("l");
      const Expr step = tile * Expr(side) + r;
      const Stmt turned = for_loop(r, 0, side, ForKind::kUnrolled,
                                   for_loop(l, 0, side, ForKind::kVectorized,
                                            store(columns_, {packed_column(panel, step, group * Expr(side) + l)},
                                                  load(flat, {l * Expr(steps_) + step}))));
      const Stmt tiles = for_loop(tile, 0, floordiv(steps_of_block() + Expr(side - 1), side), ForKind::kSerial,
                                  match_intrinsic(*turn_, turned).empty() ? tensorized(turn_, turned) : turned);
      return for_loop(group, 0, t_.width() / side, ForKind::kSerial, seq({lanes, tiles}));
    });
    return alloc(flat, seq({cleared(flat, side * steps_), body}));
  }

  // The innermost steps of a block, in vectors; where guards hold for both ends of one, they do for all of it.
  Stmt copy_steps(const VarMap& at, const Expr& column, const std::function<Expr(const Expr&)>& to,
                  const BufferPtr& buffer) const {
    const size_t last = p_.steps.size() - 1;
    const Var& var = p_.steps[last].var;
    const auto moves = [&](const Expr& guard) { return uses_var(guard, var); };
    const auto place_at = [&](const Expr& place) {
      VarMap inner = at;
      inner[var.get()] = last == t_.cut ? first_ + place : place;
      return inner;
    };
    const auto vector = [&](const Expr& begin, int64_t lanes) {
      const auto copy = [&](bool guarded) {
        return vectorized("l", lanes, [&](const Var& l) {
          const VarMap inner = place_at(begin + l);
          Expr value = at_place(p_.of_columns, inner, p_.column, column);
          if (guarded) value = select(guards_at(inner, column, moves), value, const_float(dtype_, 0));
          return store(buffer, {to(begin + l)}, value);
        });
      };
      const Expr first = guards_at(place_at(begin), column, moves);
      if (!first) return copy(false);
      return if_then(logical_and(first, guards_at(place_at(begin + Expr(lanes - 1)), column, moves)), copy(false),
                     copy(true));
    };
    const Expr extent = extent_of(last);
    const Expr inside = guards_at(at, column, [&](const Expr& guard) { return !moves(guard); });
    if (!inside) return in_vectors(extent, vector);
    return if_then(inside, in_vectors(extent, vector), in_vectors(extent, [&](const Expr& begin, int64_t lanes) {
                     return vectorized("l", lanes, [&](const Var& l) {
                       return store(buffer, {to(begin + l)}, const_float(dtype_, 0));
                     });
                   }));
  }

  // Whole vectors from place 0 on, and what is left behind them: of the innermost steps of a block, of which the last
  // one may have fewer.
  Stmt in_vectors(const Expr& extent, const std::function<Stmt(const Expr& begin, int64_t lanes)>& vector) const {
    const auto all = [&](int64_t count) {
      std::vector<Stmt> parts;
      const Var v = make_var("v");
      if (count >= t_.lanes)
        parts.push_back(for_loop(v, 0, count / t_.lanes, ForKind::kSerial, vector(v * Expr(t_.lanes), t_.lanes)));
      const int64_t rest = count % t_.lanes;
      if (rest != 0) parts.push_back(vector(count - rest, rest));
      return seq(std::move(parts));
    };
    if (const auto known = as_int(extent)) return all(*known);
    return if_then(extent < Expr(t_.block), all(*as_int(p_.steps[t_.cut].extent) % t_.block), all(t_.block));
  }

  // ---- Rows, copied as [tile][step][row] or as [row][step]. ----

  // Of a row of the task.
  Expr copied_row(const Expr& tile, const Expr& step, const Expr& r) const {
    if (by_step()) return (tile * Expr(row_steps_) + step) * Expr(t_.rows) + r;
    return (tile * Expr(t_.rows) + r) * Expr(row_steps_) + step;
  }

  // A step's rows lie side by side in memory: those of several tiles are read at once, which are whole cache lines.
  Stmt pack_rows_by_step(const VarMap& at) const {
    constexpr int64_t kTogether = 8;
    const auto copy = [&](const VarMap& inner, const Expr& step, const Expr& tile, int64_t rows) {
      return vectorized("r", rows, [&](const Var& r) {
        return store(rows_, {copied_row(tile, step, r)},
                     at_place(p_.of_rows, inner, p_.row, (first_tile_ + tile) * Expr(t_.rows) + r));
      });
    };
    const Var group = make_var("g"), tile = make_var("tile");
    const Expr first = group * Expr(kTogether);
    const Stmt whole = for_loop(group, 0, floordiv(tiles_ + Expr(kTogether - 1), kTogether), ForKind::kSerial,
                                over_block(at, p_.steps.size(), [&](const VarMap& inner, const Expr& step) {
                                  return for_loop(tile, first, min(Expr(kTogether), tiles_ - first), ForKind::kSerial,
                                                  copy(inner, step, tile, t_.rows));
                                }));
    std::vector<Stmt> parts;
    if (all_tiles_ > 0) parts.push_back(whole);
    if (last_rows_ != 0) {
      const Expr last = Expr(all_tiles_) - first_tile_;
      parts.push_back(if_then(last < Expr(t_.tiles_down), over_block(
                                                              at, p_.steps.size(),
                                                              [&](const VarMap& inner, const Expr& step) {
                                                                return copy(inner, step, last, last_rows_);
                                                              })));
    }
    return seq(std::move(parts));
  }

  Stmt pack_rows(const VarMap& at) const {
    if (by_step()) return pack_rows_by_step(at);
    return over_tiles([&](const Expr& tile, int64_t rows) {
      const auto move = [&](const VarMap& inner, const Expr& step, const Expr& r) {
        return store(rows_, {copied_row(tile, step, r)},
                     at_place(p_.of_rows, inner, p_.row, (first_tile_ + tile) * Expr(t_.rows) + r));
      };
      const Var r = make_var("r");
      // Vectors of neighbouring steps, where these are neighbours in memory.
      constexpr int64_t kFar = 4;
      const size_t last = p_.steps.size() - 1;
      const auto along = step_along(p_.of_rows, p_.steps[last].var);
      const bool vectors = along && std::abs(*along) <= kFar;
      const Stmt steps = over_block(at, vectors ? last : last + 1, [&](const VarMap& inner, const Expr& step) {
        if (!vectors) return move(inner, step, r);
        return in_vectors(extent_of(last), [&](const Expr& begin, int64_t lanes) {
          return vectorized("l", lanes, [&](const Var& l) {
            VarMap place = inner;
            place[p_.steps[last].var.get()] = last == t_.cut ? first_ + begin + l : begin + l;
            return move(place, step + begin + l, r);
          });
        });
      });
      return for_loop(r, 0, rows, ForKind::kSerial, steps);
    });
  }

  // The tiles of the task, and the one that has fewer rows where it is the task's.
  Stmt over_tiles(const std::function<Stmt(const Expr& tile, int64_t rows)>& body) const {
    const Var tile = make_var("tile");
    std::vector<Stmt> parts;
    if (all_tiles_ > 0) parts.push_back(for_loop(tile, 0, tiles_, ForKind::kSerial, body(tile, t_.rows)));
    if (last_rows_ != 0) {
      const Expr last = Expr(all_tiles_) - first_tile_;
      parts.push_back(if_then(last < Expr(t_.tiles_down), body(last, last_rows_)));
    }
    return seq(std::move(parts));
  }

  // ---- Sums. ----

  Stmt tiles(const VarMap& at) const {
    return over_panels([&](const Var& panel) {
      return over_tiles([&](const Expr& tile, int64_t rows) { return one_tile(at, panel, tile, rows); });
    });
  }

  Stmt over_registers(int64_t rows, const std::function<Stmt(const Var& v, const Var& r, const Var& l)>& body) const {
    return unrolled("v", 0, t_.vectors, [&](const Var& v) {
      return unrolled("p", 0, rows, [&](const Var& r) {
        return vectorized("l", t_.lanes, [&](const Var& l) { return body(v, r, l); });
      });
    });
  }

  Stmt one_tile(const VarMap& at, const Expr& panel, const Expr& tile, int64_t rows) const {
    const BufferPtr acc = make_buffer("acc", dtype_, {t_.vectors, rows, t_.lanes}, MemoryScope::kRegister);
    const Stmt clear = over_registers(
        rows, [&](const Var& v, const Var& r, const Var& l) { return store(acc, {v, r, l}, const_float(dtype_, 0)); });
    const Expr first_row = (first_tile_ + tile) * Expr(t_.rows);
    const Stmt sum = over_merged_block(at, [&](const VarMap& inner, const Expr& step) {
      const Stmt update = over_registers(rows, [&](const Var& v, const Var& r, const Var& l) {
        const Expr row =
            !in_place() ? load(rows_, {copied_row(tile, step, r)}) : at_place(p_.of_rows, inner, p_.row, first_row + r);
        const Expr column = load(columns_, {packed_column(panel, step, v * Expr(t_.lanes) + l)});
        return store(acc, {v, r, l}, fma(row, column, load(acc, {v, r, l})));
      });
      const TensorIntrinsic* intrinsic = best_fma_intrinsic(*t_.target, dtype_);
      const bool fits = intrinsic && intrinsic->lanes == t_.lanes && match_intrinsic(*intrinsic, update).empty();
      return fits ? tensorized(intrinsic, update) : update;
    });
    Stmt finish;
    if (one_block_) {
      const auto stored = [&](bool guarded) {
        return over_registers(rows, [&](const Var& v, const Var& r, const Var& l) {
          const Expr column = (first_panel_ + panel) * Expr(t_.width()) + v * Expr(t_.lanes) + l;
          const Stmt move = store_output(first_row + r, column, load(acc, {v, r, l}));
          return guarded ? if_then(column < Expr(p_.num_columns), move) : move;
        });
      };
      finish = has_all_columns() ? stored(false)
                                 : if_then(first_panel_ + panel < Expr(all_panels_ - 1), stored(false), stored(true));
    } else {
      finish = over_registers(rows, [&](const Var& v, const Var& r, const Var& l) {
        const Expr place =
            (tile * Expr(t_.rows) + r) * Expr(chunk_columns_) + panel * Expr(t_.width()) + v * Expr(t_.lanes) + l;
        return store(sums_, {place}, load(sums_, {place}) + load(acc, {v, r, l}));
      });
    }
    return alloc(acc, seq({clear, sum, finish}));
  }

  // The loops of a block, those joined that the rows pass through as one.
  Stmt over_merged_block(const VarMap& outer, const std::function<Stmt(const VarMap&, const Expr&)>& body) const {
    struct Loop {
      Var var;
      Expr extent;
      Expr steps;  // of the block, per iteration
    };
    VarMap at = outer;
    std::vector<Loop> loops;  // innermost first
    Expr within = 1;          // steps of an iteration
    int64_t distance = 0;     // of the steps' rows, along the loops joined so far
    for (size_t i = p_.steps.size(); i-- > t_.cut;) {
      const Var& axis = p_.steps[i].var;
      const auto along = !in_place() ? std::optional<int64_t>(1) : step_along(p_.of_rows, axis);
      const Expr first = i == t_.cut ? first_ : Expr(0);
      const bool joins = !loops.empty() && (!in_place() || (along && *along == distance));
      if (joins) {
        // The inner variable goes on, which the outer one's multiples are the same as.
        loops.back().extent = loops.back().extent * extent_of(i);
        at[axis.get()] = first;
      } else {
        loops.push_back({make_var(axis->name), extent_of(i), within});
        at[axis.get()] = first + loops.back().var;
        distance = along.value_or(0);
      }
      within = within * extent_of(i);
      distance *= as_int(p_.steps[i].extent).value_or(0);
    }
    Expr step = 0;
    for (const Loop& loop : loops) step = step + loop.var * loop.steps;
    Stmt nest = body(at, step);
    for (const Loop& loop : loops) nest = for_loop(loop.var, 0, loop.extent, ForKind::kSerial, nest);
    return nest;
  }

  Stmt store_output(const Expr& row, const Expr& column, const Expr& sum) const {
    VarMap map = at_;
    map[p_.row.get()] = row;
    map[p_.column.get()] = column;
    map[p_.kernel.result_var.get()] = sum;
    return store_each(p_.kernel, map, map);
  }

  Expr rows_of_task() const { return min(Expr(chunk_rows_), Expr(p_.num_rows) - first_tile_ * Expr(t_.rows)); }

  // REQUIRES: whole vectors of elements.
  Stmt cleared(const BufferPtr& buffer, int64_t elements) const {
    const Var v = make_var("v");
    return for_loop(v, 0, elements / t_.lanes, ForKind::kSerial, vectorized("l", t_.lanes, [&](const Var& l) {
                      return store(buffer, {v * Expr(t_.lanes) + l}, const_float(dtype_, 0));
                    }));
  }

  Stmt store_sums() const {
    const Var r = make_var("r"), v = make_var("v");
    const Expr first_column = first_panel_ * Expr(t_.width());
    const Expr columns = min(panels_ * Expr(t_.width()), Expr(p_.num_columns) - first_column);
    const auto vector = [&](const Expr& number, bool guarded) {
      return vectorized("l", t_.lanes, [&](const Var& l) {
        const Expr place = number * Expr(t_.lanes) + l;
        const Stmt move = store_output(first_tile_ * Expr(t_.rows) + r, first_column + place,
                                       load(sums_, {r * Expr(chunk_columns_) + place}));
        return guarded ? if_then(place < columns, move) : move;
      });
    };
    std::vector<Stmt> row = {for_loop(v, 0, floordiv(columns, t_.lanes), ForKind::kSerial, vector(v, false))};
    if (p_.num_columns % t_.lanes != 0)
      row.push_back(if_then(Expr(0) < floormod(columns, t_.lanes), vector(floordiv(columns, t_.lanes), true)));
    return for_loop(r, 0, rows_of_task(), ForKind::kSerial, seq(std::move(row)));
  }

  const PanelProduct& p_;
  const PanelTiling& t_;
  DType dtype_;
  int64_t steps_, row_steps_ = 0;  // room for those of a block
  int64_t chunk_rows_, chunk_columns_;
  int64_t all_panels_, all_tiles_, last_rows_;
  int64_t blocks_ = 1;
  bool one_block_ = false;
  BufferPtr columns_, rows_, sums_;
  const TensorIntrinsic* turn_ = nullptr;
  // Of the task.
  VarMap at_;
  Expr first_tile_, first_panel_, panels_, tiles_;
  Expr first_, count_;  // of the block's iterations of the cut axis
};

}  // namespace

int64_t block_steps(const PanelProduct& product, const PanelTiling& tiling) {
  int64_t steps = tiling.block;
  for (size_t i = tiling.cut + 1; i < product.steps.size(); ++i) steps *= *as_int(product.steps[i].extent);
  return steps;
}

Stmt emit_panels(const PanelProduct& product, const PanelTiling& tiling) {
  return PanelEmitter(product, tiling).emit();
}

}  // namespace tessera::inline schedule
