#include "schedule/rules/winograd/winograd_emit.h"

#include <algorithm>

#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/winograd_matrices.h"
#include "schedule/rules/register_tile/tile_shape.h"

// Winograd convolution in blocked layout. A strip of tiles at a time: its inputs are transformed into V, one product
// per place of the transformed tile and group of output blocks gives M, whose tiles are transformed back, finished by
// the epilogue and stored. V and M are scratch of one thread. M stays in its L2 cache; V does, too, unless the weights,
// which every strip reads, are so many that fewer and larger strips pay. Threads get strips, or, where that would have
// each of them read all weights, parts of the outputs.
namespace tessera::inline schedule {
namespace {

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

int64_t weight_elements(const FilteredConv& conv, const WinogradPlan& plan) {
  return conv.groups * plan.places() * conv.out_blocks * conv.summed_channels() * conv.block;
}

class WinogradEmitter {
 public:
  WinogradEmitter(const FilteredConv& conv, const WinogradPlan& plan, const WinogradSizes& sizes,
                  const WinogradTile& tile, WinogradKernel& kernel, const Target& target)
      : conv_(conv),
        plan_(plan),
        sizes_(sizes),
        tile_(tile),
        kernel_(kernel),
        rows_(winograd_matrices(plan.m_rows, conv.window_height)),
        columns_(winograd_matrices(plan.m_cols, conv.window_width)),
        v_(make_buffer("v", DType::kF32, {plan.places() * plan.v_pitch(conv) * conv.block}, MemoryScope::kLocal)),
        m_(make_buffer("m", DType::kF32, {plan.places() * plan.m_pitch() * conv.block}, MemoryScope::kLocal)),
        weights_(make_buffer(kernel.params[conv.w]->name + "_winograd", DType::kF32, {weight_elements(conv, plan)})) {
    kernel.params[conv.w] = weights_;
    intrinsic_ = best_fma_intrinsic(target, DType::kF32);
    if (intrinsic_ && intrinsic_->lanes != conv.block) intrinsic_ = nullptr;
  }

  Stmt emit() {
    const Expr iterations = simplify(sizes_.images * sizes_.strips * Expr(plan_.cuts));
    const bool once = is_const_int(iterations, 1);
    const Var s = make_var("s");
    bounds_.set(s, below(iterations));
    const Expr at = once ? Expr(0) : s;
    image_ = at_most(floordiv(at, simplify(sizes_.strips * Expr(plan_.cuts))));
    first_ = at_most(floormod(floordiv(at, plan_.cuts), sizes_.strips) * sizes_.strip);
    const Var g = make_var("g");
    const int64_t blocks = conv_.out_blocks / plan_.cuts;
    const int64_t parts = blocks / plan_.group;
    bounds_.set(g, 0, parts - 1);
    const Expr first_block =
        at_most(floormod(at, plan_.cuts) * Expr(blocks) + (parts == 1 ? Expr(0) : g * Expr(plan_.group)));
    Stmt group = alloc(m_, seq({products(first_block), outputs(first_block)}));
    if (parts > 1) group = for_loop(g, 0, parts, ForKind::kSerial, group);
    const Stmt body = alloc(v_, seq({inputs(), group}));
    return once ? body : for_loop(s, 0, iterations, ForKind::kParallel, body);
  }

 private:
  Expr at_most(const Expr& e) { return simplify(e, bounds_); }
  static Interval below(const Expr& extent) {
    const auto known = as_int(extent);
    return {0, known ? std::optional(*known - 1) : std::nullopt};
  }
  Stmt serial(const char* name, const Expr& extent, const std::function<Stmt(const Expr&)>& body) {
    if (is_const_int(extent, 1)) return body(Expr(0));
    const Var var = make_var(name);
    bounds_.set(var, below(extent));
    return for_loop(var, 0, extent, ForKind::kSerial, body(var));
  }
  // Where the outputs of a tile begin. Tiles of the same rows and columns of gaps come behind one another.
  Expr first_place(const Expr& number, int64_t size, int64_t gap) const {
    return floordiv(number, gap) * Expr(size * gap) + floormod(number, gap);
  }
  Expr first_row(const Expr& tile) const {
    return first_place(floordiv(tile, sizes_.tiles_wide), plan_.m_rows, conv_.row_gap);
  }
  Expr first_column(const Expr& tile) const {
    return first_place(floormod(tile, sizes_.tiles_wide), plan_.m_cols, conv_.column_gap);
  }
  bool padded_strips() const { return is_open() || plan_.strip * plan_.strips != plan_.tiles(); }
  bool is_open() const { return sizes_.step != 0; }
  Expr v_index(const Expr& place, const Expr& block, const Expr& tile, const Expr& lane) const {
    return (place * Expr(plan_.v_pitch(conv_)) + block * Expr(plan_.strip) + tile) * Expr(conv_.block) + lane;
  }
  Expr m_index(const Expr& place, const Expr& block, const Expr& tile, const Expr& lane) const {
    return (place * Expr(plan_.m_pitch()) + block * Expr(plan_.strip) + tile) * Expr(conv_.block) + lane;
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
    return serial("cb", conv_.channel_blocks, [&](const Expr& block) {
      return serial("z", conv_.frames, [&](const Expr& frame) {
        return serial("t", sizes_.strip, [&](const Expr& t) { return input_tile(block, frame, t); });
      });
    });
  }

  // Of one tile in a block of channels of a frame of the window.
  Stmt input_tile(const Expr& block, const Expr& frame, const Expr& t) {
    Expr tile = first_ + t;
    if (padded_strips()) tile = min(tile, simplify(sizes_.tiles - Expr(1)));
    InputTile input;
    input.top = at_most(first_row(tile) - Expr(conv_.pad_top));
    input.left = at_most(first_column(tile) - Expr(conv_.pad_left));
    const FilteredConv::Place place = conv_.place_of(image_, bounds_);
    input.volume = place.volume;
    input.block = at_most(place.group * Expr(conv_.channel_blocks) + block);
    input.depth = at_most(place.depth * Expr(conv_.stride) + frame * Expr(conv_.dilation) - Expr(conv_.pad_front));
    input.is_frame = at_most(logical_and(input.depth >= Expr(0), input.depth < Expr(conv_.depth)));
    const Expr v_block = block * Expr(conv_.frames) + frame;
    const auto within = [&](const Expr& first, int64_t count, int64_t gap, const Expr& extent) {
      return logical_and(first >= Expr(0), first < simplify(extent - Expr((count - 1) * gap)));
    };
    const Expr whole = at_most(
        logical_and(input.is_frame, logical_and(within(input.top, rows_.alpha, conv_.row_gap, sizes_.height),
                                                within(input.left, columns_.alpha, conv_.column_gap, sizes_.width))));
    if (is_true(whole)) return transformed_input(input, v_block, t, false);
    if (is_false(whole)) return transformed_input(input, v_block, t, true);
    return if_then(whole, transformed_input(input, v_block, t, false), transformed_input(input, v_block, t, true));
  }

  struct InputTile {
    Expr block, top, left, volume, depth;
    Expr is_frame;  // whether there is an image at `depth`
  };

  // What the window sees at row i and column j of a tile; zeros where that is padding, if it may be (`guarded`).
  Expr input_at(const InputTile& tile, int64_t i, int64_t j, const Expr& lane, bool guarded) const {
    Expr row = tile.top + Expr(i * conv_.row_gap), column = tile.left + Expr(j * conv_.column_gap), image = tile.depth;
    Expr condition;
    if (guarded) {
      condition = logical_and(logical_and(row >= Expr(0), row < sizes_.height),
                              logical_and(column >= Expr(0), column < sizes_.width));
      row = min(max(row, Expr(0)), simplify(sizes_.height - Expr(1)));
      column = min(max(column, Expr(0)), simplify(sizes_.width - Expr(1)));
      if (!is_true(tile.is_frame)) {
        condition = logical_and(tile.is_frame, condition);
        image = min(max(image, Expr(0)), Expr(conv_.depth - 1));
      }
    }
    const int64_t blocks = conv_.groups * conv_.channel_blocks;
    const Expr plane = (tile.volume * Expr(blocks) + tile.block) * Expr(conv_.depth) + image;
    const Expr place = (plane * sizes_.height + row) * sizes_.width + column;
    const Expr value = cast(DType::kF32, load(kernel_.params[conv_.x], {place * Expr(conv_.block) + lane}));
    return guarded ? select(condition, value, const_float(DType::kF32, 0)) : value;
  }

  // BT x B: along rows, then along columns; one of the two where windows have one place along the other.
  Stmt transformed_input(const InputTile& tile, const Expr& v_block, const Expr& t, bool guarded) {
    const bool both = rows_.alpha > 1 && columns_.alpha > 1;
    // Of each copy its own: a buffer is defined once.
    const BufferPtr half =
        make_buffer("rows", DType::kF32, {rows_.alpha * columns_.alpha * conv_.block}, MemoryScope::kLocal);
    const auto half_at = [&](int64_t i, int64_t j, const Expr& l) {
      return Expr((i * columns_.alpha + j) * conv_.block) + l;
    };
    const auto to_v = [&](int64_t i, int64_t j, const Expr& l, const Expr& value) {
      return store(v_, {v_index(Expr(i * columns_.alpha + j), v_block, t, l)}, value);
    };
    std::vector<Stmt> steps;
    for (int64_t i = 0; columns_.alpha > 1 && i < rows_.alpha; ++i)
      steps.push_back(transform_line(
          columns_.bt, [&](int64_t j, const Expr& l) { return input_at(tile, i, j, l, guarded); },
          [&](int64_t j, const Expr& l, const Expr& value) {
            return both ? store(half, {half_at(i, j, l)}, value) : to_v(i, j, l, value);
          }));
    for (int64_t j = 0; rows_.alpha > 1 && j < columns_.alpha; ++j)
      steps.push_back(transform_line(
          rows_.bt,
          [&](int64_t i, const Expr& l) {
            return both ? load(half, {half_at(i, j, l)}) : input_at(tile, i, j, l, guarded);
          },
          [&](int64_t i, const Expr& l, const Expr& value) { return to_v(i, j, l, value); }));
    return both ? alloc(half, seq(std::move(steps))) : seq(std::move(steps));
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
    const int64_t tiles = (sizes_.usual_strip + tile_.rows - 1) / tile_.rows;
    const auto rows = [&](const Expr& begin, const Expr& count, int64_t height) {
      if (!is_const_int(count, 0))
        parts.push_back(serial("p", count, [&](const Expr& i) {
          const Expr tile = i * Expr(height) + begin;
          const Prefetch next =
              next_weights(place, first_block, block, vectors, i + floordiv(begin, tile_.rows), tiles);
          return product_tile(place, first_block, block, vectors, tile, height, next);
        }));
    };
    if (is_open()) {
      open_rows(rows, parts);
    } else {
      rows(0, plan_.strip / tile_.rows, tile_.rows);
      const int64_t rest = plan_.strip % tile_.rows;
      rows(plan_.strip - rest, rest > 0 ? 1 : 0, rest);
    }
    return seq(std::move(parts));
  }

  // Whole tiles of rows, then one of as many as are left.
  template <typename Rows>
  void open_rows(const Rows& rows, std::vector<Stmt>& parts) const {
    const Expr whole = floordiv(sizes_.strip, tile_.rows);
    rows(0, whole, tile_.rows);
    const Expr begin = whole * Expr(tile_.rows), rest = sizes_.strip - begin;
    for (int64_t height = sizes_.step; height < tile_.rows; height += sizes_.step) {
      rows(begin, 1, height);
      parts.back() = if_then(equal(rest, Expr(height)), parts.back());
    }
  }

  // Number of the weights of a place and block of outputs, in the image's group.
  Expr panel_at(const Expr& place, const Expr& block) const {
    const Expr group = conv_.place_of(image_, bounds_).group;
    return (group * Expr(plan_.places()) + place) * Expr(conv_.out_blocks) + block;
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
    const int64_t panel = conv_.summed_channels() * conv_.block;  // elements of one block
    Prefetch next;
    next.lines = ceildiv(vectors * conv_.block, tiles * kLineElements)->int_value;
    const Expr here = panel_at(place, first_block + block);
    const Expr next_place = panel_at(place + Expr(1), first_block);
    const Expr at = select(block + Expr(vectors) < Expr(plan_.group), here + Expr(vectors), next_place);
    next.first = at * Expr(panel) + row_tile * Expr(next.lines * kLineElements * conv_.summed_channels());
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
    const Stmt sum = serial("cb", conv_.summed_blocks(), [&](const Expr& cb) {
      return serial("c", conv_.block, [&](const Expr& c) {
        const Stmt body = over_tile([&](const Var& u, const Var& q, const Var& l) {
          const Expr a = load(v_, {v_index(place, cb, tile + q, c)});
          const Expr panel = panel_at(place, first_block + block + u);
          const Expr b = load(
              weights_, {(panel * Expr(conv_.summed_channels()) + cb * Expr(conv_.block) + c) * Expr(conv_.block) + l});
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

  // `body`, step number `step` of a tile's sum, with its prefetches.
  Stmt asking(const Prefetch& next, const Expr& step, Stmt body) const {
    constexpr int64_t kLineElements = 16;
    for (int64_t line = next.lines; tile_.prefetch && line-- > 0;) {
      const Expr at = next.first + (step * Expr(next.lines) + Expr(line)) * Expr(kLineElements);
      body = with_prefetch(weights_, at, std::move(body));
    }
    return body;
  }

  // The strip's part of the output: AT M A, finished by the epilogue.
  Stmt outputs(const Expr& first_block) {
    return serial("ob", plan_.group, [&](const Expr& ob) {
      return serial("t", sizes_.strip, [&](const Expr& t) {
        const Expr tile = first_ + t;
        const Stmt body = output_tile(first_block, ob, t, at_most(first_row(tile)), at_most(first_column(tile)));
        return padded_strips() ? if_then(tile < sizes_.tiles, body) : body;
      });
    });
  }

  Stmt output_tile(const Expr& first_block, const Expr& ob, const Expr& t, const Expr& top, const Expr& left) {
    const bool both = rows_.alpha > 1 && columns_.alpha > 1;
    const BufferPtr half =
        make_buffer("columns", DType::kF32, {plan_.m_rows * columns_.alpha * conv_.block}, MemoryScope::kLocal);
    const auto half_at = [&](int64_t i, int64_t j, const Expr& l) {
      return Expr((i * columns_.alpha + j) * conv_.block) + l;
    };
    const auto from_m = [&](int64_t i, int64_t j, const Expr& l) {
      return load(m_, {m_index(Expr(i * columns_.alpha + j), ob, t, l)});
    };
    const auto row_at = [&](int64_t i) { return top + Expr(i * conv_.row_gap); };
    const auto column_at = [&](int64_t j) { return left + Expr(j * conv_.column_gap); };
    // Rows beyond the image are left out; without gaps a tile has a first one.
    const bool all = fills(sizes_.out_height, plan_.m_rows * conv_.row_gap);
    const auto in_image = [&](int64_t i, const Stmt& row) {
      return all || (i == 0 && conv_.row_gap == 1) ? row : if_then(row_at(i) < sizes_.out_height, row);
    };
    std::vector<Stmt> steps;
    for (int64_t j = 0; rows_.alpha > 1 && j < columns_.alpha; ++j)
      steps.push_back(transform_line(
          rows_.at, [&](int64_t i, const Expr& l) { return from_m(i, j, l); },
          [&](int64_t i, const Expr& l, const Expr& value) {
            if (both) return store(half, {half_at(i, j, l)}, value);
            return in_image(i, finish(first_block + ob, row_at(i), column_at(j), l, value));
          }));
    for (int64_t i = 0; columns_.alpha > 1 && i < plan_.m_rows; ++i)
      steps.push_back(in_image(
          i, transform_line(
                 columns_.at,
                 [&](int64_t j, const Expr& l) { return both ? load(half, {half_at(i, j, l)}) : from_m(i, j, l); },
                 [&](int64_t j, const Expr& l, const Expr& value) {
                   return finish(first_block + ob, row_at(i), column_at(j), l, value);
                 })));
    return both ? alloc(half, seq(std::move(steps))) : seq(std::move(steps));
  }

  // Whether tiles of `size` places end where the image does.
  static bool fills(const Expr& extent, int64_t size) {
    const auto known = as_int(extent);
    return size == 1 || (known && *known % size == 0);
  }

  Stmt finish(const Expr& block, const Expr& row, const Expr& column, const Expr& lane, const Expr& value) {
    VarMap map;
    const std::vector<Expr> at = conv_.loops_at(image_, block, row, column, lane, bounds_);
    for (size_t i = 0; i < kernel_.loops.size(); ++i) map[kernel_.loops[i].get()] = at[i];
    map[kernel_.result_var.get()] = value;
    Stmt body = store(kernel_.params.back(), {substitute(kernel_.out_index, map)}, substitute(kernel_.value, map));
    if (kernel_.inside) body = if_then(substitute(kernel_.inside, map), body);
    if (!fills(sizes_.out_width, plan_.m_cols * conv_.column_gap)) body = if_then(column < sizes_.out_width, body);
    return body;
  }

  const FilteredConv& conv_;
  const WinogradPlan& plan_;
  const WinogradSizes& sizes_;
  const WinogradTile& tile_;
  WinogradKernel& kernel_;
  const WinogradMatrices &rows_, &columns_;
  BufferPtr v_, m_, weights_;
  const TensorIntrinsic* intrinsic_ = nullptr;
  Bounds bounds_;
  Expr image_, first_;  // of the strip: its image, its first tile
};

}  // namespace

WinogradSizes fixed_sizes(const FilteredConv& conv, const WinogradPlan& plan) {
  WinogradSizes sizes{conv.images,  conv.height,     conv.width,  conv.out_height, conv.out_width,
                      plan.tiles(), plan.tiles_wide, plan.strips, plan.strip};
  sizes.usual_strip = plan.strip;
  return sizes;
}

WinogradTile ask_winograd_tile(const FilteredConv& conv, const WinogradPlan& plan, const Target& target, Knobs& knobs) {
  TileProblem problem;
  problem.rows = plan.strip;
  problem.blocks = plan.group;
  problem.registers_per_block = std::max<int64_t>(1, conv.block * 32 / target.vector_bits());
  problem.steps = conv.summed_channels();
  problem.registers = target.vector_registers();
  const AskedTile tile = ask_tile(problem, knobs);
  // Other layers have been through the second level of cache since these weights were used, if they are not small.
  const bool prefetch = knobs.choose_flag("prefetch", weight_elements(conv, plan) * 4 >= kFarWeights);
  return {tile.rows, tile.vectors, tile.refused, prefetch};
}

Stmt emit_winograd(const FilteredConv& conv, const WinogradPlan& plan, const WinogradSizes& sizes,
                   const WinogradTile& tile, WinogradKernel& kernel, const Target& target) {
  return WinogradEmitter(conv, plan, sizes, tile, kernel, target).emit();
}

PackedParam winograd_packing(const FilteredConv& conv, const WinogradPlan& plan) {
  const int64_t places = plan.places(), channels = conv.summed_channels();
  PackSpec spec;
  spec.axes = {{conv.groups * conv.out_channels, channels * places}, {channels, places}, {places, 1}};
  // The weights have the frames of a channel side by side; here they stand in front of the block's channels.
  spec.dims = {{conv.groups, 0, conv.out_blocks * conv.block},
               {places, 2, 1},
               {conv.out_blocks, 0, conv.block},
               {conv.channel_blocks, 1, conv.block * conv.frames},
               {conv.frames, 1, 1},
               {conv.block, 1, conv.frames},
               {conv.block, 0, 1}};
  return {conv.w, {spec}, {plan.m_rows, plan.m_cols, conv.window_height, conv.window_width}};
}

}  // namespace tessera::inline schedule
