#include <algorithm>
#include <bit>

#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/register_tile/tiling.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes

// What is asked for ahead of its use, while the steps of a tile's reduction run.
struct Prefetch {
  BufferPtr buffer;
  size_t loop = 0;  // number of the loop of the reduction whose steps ask
  // The elements that one step asks for: of its number, and of the values of the reduction's loops.
  std::function<std::vector<Expr>(const Expr& step, const VarMap& at)> elements;
};

// The number of the innermost loop of the reduction that is one; reduce.size() without any.
size_t last_loop(const Tiling& t) {
  for (size_t i = t.reduce.size(); i-- > 0;)
    if (!t.reduce[i].expanded) return i;
  return t.reduce.size();
}

int64_t iterations(const ReduceLoop& loop, const Tiling& t) {
  return &loop == &t.reduce.back() && t.unroll > 1 ? loop.extent / t.unroll : loop.extent;
}

class TileEmitter {
 public:
  TileEmitter(const Tiling& tiling, const VarMap& outer, const Expr& update, const Expr& first_block, int64_t vectors,
              int64_t lanes, bool is_last, const Expr& first_row, const RowRun& run,
              const std::optional<Prefetch>& prefetch, int64_t parts = 1)
      : t_(tiling),
        outer_(outer),
        update_(update),
        first_block_(first_block),
        vectors_(vectors),
        lanes_(lanes),
        valid_lanes_(lanes),
        stored_lanes_(is_last && tiling.stored_lanes != 0 ? tiling.stored_lanes : lanes),
        first_row_(first_row),
        run_(run),
        prefetch_(prefetch),
        parts_(parts),
        acc_(make_buffer("acc", tiling.kernel.reduce_dtype, {vectors, run.rows, lanes}, MemoryScope::kRegister)) {
    // A vector of as many lanes as the machine computes at once, of which some do not run, instead of several.
    if (lanes == tiling.partial_lanes && !tiling.dot && tiling.target->vectors().masked) {
      lanes_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lanes)));
      stored_lanes_ = lanes;
      acc_ = make_buffer("acc", acc_->dtype, {vectors, run.rows, lanes_}, MemoryScope::kRegister);
    }
    const bool whole_vector = lanes == tiling.width;
    intrinsic_ = !whole_vector ? nullptr
                 : tiling.dot  ? tiling.dot
                               : best_fma_intrinsic(*tiling.target, tiling.kernel.reduce_dtype);
    if (intrinsic_ && intrinsic_->lanes != lanes && !sums_bytes()) intrinsic_ = nullptr;
  }

  Stmt emit() {
    const Expr identity = combiner_identity(t_.kernel.combiner, acc_->dtype);
    const Stmt init =
        over_tile(0, run_.rows, [&](const std::vector<Expr>& at, const VarMap&) { return store(acc_, at, identity); });
    const BufferPtr sums =
        parts_ > 1 ? make_buffer("split", acc_->dtype, {1, run_.rows, lanes_}, MemoryScope::kRegister) : acc_;
    const auto finished = [&](const std::vector<Expr>& at, const VarMap& map) {
      VarMap values = map;
      values[t_.kernel.result_var.get()] = load(sums, at);
      Stmt body = store_each(t_.kernel, map, values);
      return t_.store_guard ? if_then(substitute(t_.store_guard, map), body) : body;
    };
    const int64_t whole = stored_lanes_ == lanes_ ? vectors_ : vectors_ - 1;
    std::vector<Stmt> finish;
    if (whole > 0) finish.push_back(over_vectors(0, whole, 0, run_.rows, outer_, finished));
    if (whole < vectors_)
      finish.push_back(over_vectors(whole, 1, 0, run_.rows, outer_, [&](const auto& at, const VarMap& map) {
        return if_then(at[2] < Expr(stored_lanes_), finished(at, map));
      }));
    Stmt sum = reduce_from(0, outer_, 0);
    if (prefetch_ && prefetch_->loop == t_.reduce.size())
      for (const Expr& element : prefetch_->elements(0, outer_))
        sum = with_prefetch(prefetch_->buffer, element, std::move(sum));
    if (t_.reduce.empty())
      for (const Expr& guard : t_.guards) sum = if_then(substitute(guard, outer_), sum);
    if (parts_ == 1) return alloc(acc_, seq({init, sum, seq(std::move(finish))}));
    return alloc(acc_, alloc(sums, seq({init, sum, add_parts(sums), seq(std::move(finish))})));
  }

 private:
  // The sums of the parts of each column, halving vectors; zeros in the lanes behind the columns.
  Stmt add_parts(const BufferPtr& sums) {
    return unrolled("p", 0, run_.rows, [&](const Var& p) {
      BufferPtr from = acc_;
      std::vector<BufferPtr> halves;
      std::vector<Stmt> steps;
      for (int64_t parts = parts_ / 2; parts > 0; parts /= 2) {
        const int64_t lanes = lanes_ / parts_ * parts;
        const BufferPtr half = make_buffer("half", acc_->dtype, {lanes}, MemoryScope::kRegister);
        steps.push_back(vectorized("l", lanes, [&](const Var& l) {
          const Expr first = floordiv(l, parts) * Expr(2 * parts) + floormod(l, parts);
          const auto at = [&](const Expr& lane) {
            return load(from, from == acc_ ? std::vector<Expr>{0, p, lane} : std::vector<Expr>{lane});
          };
          return store(half, {l}, at(first) + at(first + Expr(parts)));
        }));
        halves.push_back(half);
        from = half;
      }
      steps.push_back(vectorized("l", lanes_, [&](const Var& l) {
        return store(sums, {0, p, l}, combiner_identity(t_.kernel.combiner, sums->dtype));
      }));
      steps.push_back(
          vectorized("l", lanes_ / parts_, [&](const Var& l) { return store(sums, {0, p, l}, load(from, {l})); }));
      Stmt body = seq(std::move(steps));
      for (const BufferPtr& half : halves) body = alloc(half, body);
      return body;
    });
  }

  bool sums_bytes() const { return t_.dot && t_.dot->dtype == DType::kI32; }

  // The loops over vectors, rows [begin, end) and lanes.
  Stmt over_tile(int64_t begin, int64_t end, const std::function<Stmt(const std::vector<Expr>&, const VarMap&)>& body) {
    return over_tile(begin, end, outer_, body);
  }
  Stmt over_tile(int64_t begin, int64_t end, const VarMap& base,
                 const std::function<Stmt(const std::vector<Expr>&, const VarMap&)>& body) {
    return over_vectors(0, vectors_, begin, end, base, body);
  }
  Stmt over_vectors(int64_t first, int64_t count, int64_t begin, int64_t end, const VarMap& base,
                    const std::function<Stmt(const std::vector<Expr>&, const VarMap&)>& body) {
    return unrolled("v", first, count, [&](const Var& v) {
      return unrolled("p", begin, end - begin, [&](const Var& p) {
        return vectorized("l", lanes_, [&](const Var& l) {
          VarMap map = place_in_tile(base, v, p);
          map[t_.vector.var.get()] = l;
          return body({v, p, l}, map);
        });
      });
    });
  }

  VarMap place_in_tile(VarMap map, const Var& v, const Var& p) const {
    map[t_.block.var.get()] = first_block_ + v;
    if (t_.member) map[t_.member.get()] = v;
    if (t_.row) map[t_.row->var.get()] = first_row_ + p;
    return map;
  }

  // The nest of reduce loops from number `depth` on; `assignment` numbers the values of the expanded loops so far.
  Stmt reduce_from(size_t depth, const VarMap& at, int64_t assignment) {
    if (depth == t_.reduce.size()) return update(at, assignment);
    const ReduceLoop& loop = t_.reduce[depth];
    if (loop.expanded) {
      std::vector<Stmt> copies;
      for (int64_t i = 0; i < loop.extent; ++i) {
        VarMap inner = at;
        inner[loop.var.get()] = i;
        copies.push_back(guarded(depth, inner, reduce_from(depth + 1, inner, assignment * loop.extent + i)));
      }
      return seq(std::move(copies));
    }
    const Var var = make_var(loop.var->name);
    VarMap inner = at;
    inner[loop.var.get()] = var;
    if (depth + 1 == t_.reduce.size() && t_.unroll > 1) {
      const int64_t steps = t_.unroll;
      const Stmt body = unrolled("k", 0, steps, [&](const Var& step) {
        inner[loop.var.get()] = var * Expr(steps) + step;
        return guarded(depth, inner, reduce_from(depth + 1, inner, assignment));
      });
      return prefetching(for_loop(var, 0, loop.extent / steps, ForKind::kSerial, body), var, depth, at);
    }
    const Expr extent = loop.dynamic_extent ? substitute(loop.dynamic_extent, at) : Expr(loop.extent);
    const Stmt body = guarded(depth, inner, reduce_from(depth + 1, inner, assignment));
    return prefetching(for_loop(var, 0, extent, ForKind::kSerial, body), var, depth, at);
  }

  // The loop number `depth` with the prefetch, if it asks for one.
  Stmt prefetching(const Stmt& loop, const Var& var, size_t depth, const VarMap& at) const {
    if (!prefetch_ || depth != prefetch_->loop) return loop;
    Expr step = 0;
    for (size_t i = 0; i < depth; ++i)
      if (!t_.reduce[i].expanded) step = step * Expr(t_.reduce[i].extent) + at.at(t_.reduce[i].var.get());
    step = step * Expr(iterations(t_.reduce[depth], t_)) + var;
    VarMap inner = at;
    inner[t_.reduce[depth].var.get()] =
        t_.unroll > 1 && depth + 1 == t_.reduce.size() ? var * Expr(t_.unroll) : Expr(var);
    // A loop that runs once carries each further prefetch of a step.
    const std::vector<Expr> elements = prefetch_->elements(step, inner);
    Stmt body = loop->stmts[0];
    for (size_t i = 1; i < elements.size(); ++i) body = with_prefetch(prefetch_->buffer, elements[i], std::move(body));
    return tessera::prefetching(for_loop(var, loop->begin, loop->extent, loop->for_kind, body), prefetch_->buffer,
                                {elements[0]});
  }

  // Puts the conditions whose last loop is number `depth` around `body`.
  Stmt guarded(size_t depth, const VarMap& at, Stmt body) {
    for (const Expr& guard : t_.guards) {
      int last = -1;
      for (size_t i = 0; i < t_.reduce.size(); ++i)
        if (uses_var(guard, t_.reduce[i].var)) last = static_cast<int>(i);
      if (std::max(last, 0) == static_cast<int>(depth)) body = if_then(substitute(guard, at), body);
    }
    return body;
  }

  Stmt update(const VarMap& at, int64_t assignment) {
    const auto [begin, end] = run_.active[static_cast<size_t>(assignment)];
    if (begin == end) return seq({});
    const Expr& value = update_;
    if (sums_bytes()) return groups_of_bytes(at, begin, end);
    const bool product = t_.kernel.combiner == Combiner::kSum && value->kind == ExprKind::kBinary &&
                         value->binary == BinaryOp::kMul && is_float(value->dtype);
    const Stmt body = over_tile(begin, end, at, [&](const std::vector<Expr>& index, VarMap map) {
      const Expr old = load(acc_, index);
      if (parts_ > 1) {
        map[t_.vector.var.get()] = floordiv(index[2], parts_);
        map[t_.split.place.get()] = floormod(index[2], parts_);
      }
      const auto add_product = [&](const Expr& sum, VarMap values, int64_t place) {
        values[t_.place.get()] = place;
        return fma(substitute(value->operands[0], values), substitute(value->operands[1], values), sum);
      };
      if (t_.dot) return store(acc_, index, add_product(add_product(old, map, 0), map, 1));
      // Only reading depends on the lane: a sum that some lanes do not take part in needs another register.
      const auto factor = [&](const Expr& e) {
        const Expr own = substitute(e, map);
        if (valid_lanes_ == lanes_ || !uses_var(e, t_.vector.var)) return own;
        return select(index[2] < Expr(valid_lanes_), own, const_float(own->dtype, 0));
      };
      if (product) return store(acc_, index, fma(factor(value->operands[0]), factor(value->operands[1]), old));
      const Stmt body = store(acc_, index, combine(t_.kernel.combiner, old, substitute(value, map)));
      return valid_lanes_ < lanes_ ? if_then(index[2] < Expr(valid_lanes_), body) : body;
    });
    return product && intrinsic_ && match_intrinsic(*intrinsic_, body).empty() ? tensorized(intrinsic_, body) : body;
  }

  // One more group of products of bytes for rows [begin, end). A block may be several of the machine's vectors.
  Stmt groups_of_bytes(const VarMap& at, int64_t begin, int64_t end) {
    const auto add = [&](const std::vector<Expr>& index, VarMap map) {
      const Var place = make_var("q");
      map[t_.place.get()] = place;
      return for_loop(place, 0, t_.depth(), ForKind::kSerial,
                      store(acc_, index, load(acc_, index) + substitute(update_, map)));
    };
    const int64_t lanes = t_.dot->lanes;
    Stmt body;
    if (lanes == lanes_) {
      body = over_tile(begin, end, at, add);
    } else {
      body = unrolled("p", begin, end - begin, [&](const Var& p) {
        return unrolled("v", 0, vectors_, [&](const Var& v) {
          return unrolled("h", 0, lanes_ / lanes, [&](const Var& h) {
            return vectorized("l", lanes, [&](const Var& l) {
              VarMap map = place_in_tile(at, v, p);
              map[t_.vector.var.get()] = h * Expr(lanes) + l;
              return add({v, p, h * Expr(lanes) + l}, map);
            });
          });
        });
      });
    }
    return intrinsic_ && match_intrinsic(*intrinsic_, body).empty() ? tensorized(intrinsic_, body) : body;
  }

  const Tiling& t_;
  const VarMap& outer_;
  const Expr& update_;
  Expr first_block_;
  int64_t vectors_, lanes_;
  int64_t valid_lanes_;   // that operands have
  int64_t stored_lanes_;  // of the last vector
  Expr first_row_;
  const RowRun& run_;
  std::optional<Prefetch> prefetch_;
  int64_t parts_;  // lanes that are sums of one column
  BufferPtr acc_;
  const TensorIntrinsic* intrinsic_ = nullptr;
};

// A loop that runs block by block.
struct LoopBlock {
  OutputLoop whole;
  Var blocks, within;
  int64_t size = 1;
};

// Whether the loop runs within that over groups of blocks: all but the batch.
bool is_within_group(const Tiling& t, const OutputLoop& loop) { return loop.stride <= t.block.stride; }

// Of all channels of a pixel.
int64_t bytes_of_place(const Tiling& t, const Expr& image) {
  return dtype_bytes(image->buffer->dtype, t.reduce[0].extent * t.reduce.back().extent * t.depth());
}

// The loop over groups of weights (number `group_at`) and the next one over places of the image or rows: with blocks of
// both, a block of places passes by a block of groups while both stay in cache.
void block_loops(const Tiling& t, std::vector<OutputLoop>& loops, size_t group_at, std::vector<LoopBlock>& blocks) {
  if (t.place_block == 0 && t.group_block == 0) return;
  std::vector<OutputLoop> outer, inner;
  for (const auto& [number, wanted] : {std::pair(group_at, t.group_block), std::pair(group_at + 1, t.place_block)}) {
    const OutputLoop& whole = loops[number];
    if (wanted == 0 || wanted >= whole.extent) {
      inner.push_back(whole);
      continue;
    }
    LoopBlock block{whole, make_var(whole.var->name + "o"), make_var(whole.var->name), wanted};
    OutputLoop loop = whole;
    loop.var = block.blocks;
    loop.extent = (whole.extent + wanted - 1) / wanted;
    outer.push_back(loop);
    loop.var = block.within;
    loop.extent = wanted;
    inner.push_back(loop);
    blocks.push_back(std::move(block));
  }
  outer.insert(outer.end(), inner.begin(), inner.end());
  std::vector<OutputLoop> result(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(group_at));
  result.insert(result.end(), outer.begin(), outer.end());
  result.insert(result.end(), loops.begin() + static_cast<std::ptrdiff_t>(group_at) + 2, loops.end());
  loops = std::move(result);
}

// The weights of the next group of blocks come from far away, and are asked for while the tiles of this group run: each
// step of the reduction asks for its share, a few cache lines at most. `place` is the tile's number among the `places`
// of one group. None where there are so many places that waiting for the weights of one group takes no time, and where
// a reduction's length is known at run time only.
std::optional<Prefetch> weights_ahead(const Tiling& t, const Expr& first_block, int64_t vectors, const Expr& place,
                                      int64_t places) {
  if (!t.prefetch || t.packed.size() != 1 || last_loop(t) == t.reduce.size()) return std::nullopt;
  if (places < 2 && !streams_weights(t)) return std::nullopt;
  int64_t steps = 1;
  for (const ReduceLoop& loop : t.reduce) {
    if (loop.dynamic_extent) return std::nullopt;
    if (!loop.expanded) steps *= iterations(loop, t);
  }
  const BufferPtr& weights = t.kernel.params[t.packed[0].param];
  const int64_t block = t.block_elements, group = vectors * block;
  // Weights that are the same for all places, one block behind the other.
  const bool has_rest = t.dots.count != 0 || t.split.columns != 0;
  const int64_t blocks = has_rest ? t.full_blocks : t.block.extent;
  if (*as_int(weights->shape[0]) != blocks * block + t.dots.elements + t.split.elements || 2 * group < places * steps)
    return std::nullopt;
  // Nothing follows the last group.
  if (const auto at = as_int(first_block); at && *at + vectors >= blocks) return std::nullopt;
  const int64_t line = kCacheLine * 8 / dtype_bits(weights->dtype);
  const int64_t most_lines = places < 2 ? 4 : 2;
  int64_t share = std::min((group + places * steps - 1) / (places * steps), most_lines * line);
  // Padding between blocks is not worth a line more.
  if (share > line && share % line <= line / 8) share -= share % line;
  const Expr first = (first_block + Expr(vectors)) * Expr(block) + place * Expr(steps * share);
  return Prefetch{weights, last_loop(t), [=](const Expr& step, const VarMap&) {
                    std::vector<Expr> elements;
                    for (int64_t i = 0; i < share; i += line) elements.push_back(first + step * Expr(share) + Expr(i));
                    return elements;
                  }};
}

// The rows of the image that tiles further down read and those above them do not: a network's first layer, whose image
// nobody has read before it.
std::optional<Prefetch> image_ahead(const Tiling& t, const VarMap& outer, const Expr& first_row, int64_t rows) {
  constexpr int64_t kRowsAhead = 4;  // of the output; one is done before its image's rows are there
  if (!t.prefetch || t.others.empty()) return std::nullopt;
  const Expr image = image_of(t);
  if (!image) return std::nullopt;
  const int64_t line = kCacheLine * 8 / dtype_bits(image->buffer->dtype);
  const auto pitch = [&](const Var& var) {
    return std::abs(linear_coefficient(image->operands[0], var, t.kernel.bounds).value_or(0));
  };
  // Steps along a row read the same lines: the loop around them asks.
  size_t asks = t.reduce.size();
  for (size_t i = t.reduce.size(); i-- > 0;)
    if (!t.reduce[i].expanded && (asks == t.reduce.size() || pitch(t.reduce[asks].var) < line)) asks = i;
  VarMap below = outer;
  const Var& down = t.others.back().var;
  // What the copies of expanded loops read: all channels, and of the window's rows those that are new.
  std::vector<VarMap> copies = {{}};
  for (size_t i = 0; i < t.reduce.size(); ++i) {
    const ReduceLoop& loop = t.reduce[i];
    if (!loop.expanded && i <= asks) continue;
    below[loop.var.get()] = loop.extent / 2;
    if (!loop.expanded || pitch(loop.var) < line) continue;
    const int64_t rows = std::clamp<int64_t>(pitch(down) / pitch(loop.var), 1, loop.extent);
    const bool channels = pitch(loop.var) > pitch(down);
    std::vector<VarMap> more;
    for (const VarMap& copy : copies)
      for (int64_t r = channels ? 0 : loop.extent - rows; r < loop.extent; ++r) {
        more.push_back(copy);
        more.back()[loop.var.get()] = r;
      }
    copies = std::move(more);
  }
  if (t.dot) below[t.place.get()] = 0;
  below[down.get()] = outer.at(down.get()) + Expr(kRowsAhead);
  // A place in each line of memory from the first to the last of the tile's rows.
  const int64_t lines = std::max<int64_t>(1, (rows * pitch(t.row->var) + line - 1) / line);
  return Prefetch{image->buffer, asks, [=, &t](const Expr&, const VarMap& at) {
                    std::vector<Expr> places;
                    for (const VarMap& copy : copies) {
                      VarMap all = below;
                      for (size_t i = 0; i <= asks && i < t.reduce.size(); ++i)
                        if (!t.reduce[i].expanded) all[t.reduce[i].var.get()] = at.at(t.reduce[i].var.get());
                      for (const auto& [var, value] : copy) all[var] = value;
                      for (int64_t i = 0; i < lines; ++i) {
                        all[t.row->var.get()] = first_row + Expr((2 * i + 1) * rows / (2 * lines));
                        places.push_back(substitute(image->operands[0], all));
                      }
                    }
                    return places;
                  }};
}

// The pixels of the tile in a block of channels some steps further.
std::optional<Prefetch> blocks_ahead(const Tiling& t, const VarMap& outer, const Expr& first_row, int64_t rows) {
  constexpr int64_t kAhead = 3;  // steps of the loop that asks
  if (!t.prefetch) return std::nullopt;
  const Expr image = scattered_image_of(t);
  if (!image) return std::nullopt;
  const size_t asks = t.reduce.size() - 2;
  const int64_t blocks = asks == 0 ? kAhead : (kAhead + t.reduce[asks].extent - 1) / t.reduce[asks].extent;
  return Prefetch{image->buffer, asks, [=](const Expr&, const VarMap& at) {
                    VarMap all = outer;
                    for (size_t i = 0; i <= asks; ++i) all[t.reduce[i].var.get()] = at.at(t.reduce[i].var.get());
                    all[t.reduce[0].var.get()] = at.at(t.reduce[0].var.get()) + Expr(blocks);
                    all[t.reduce.back().var.get()] = 0;
                    if (t.dot) all[t.place.get()] = 0;
                    std::vector<Expr> places;
                    for (int64_t i = 0; i < rows; ++i) {
                      all[t.row->var.get()] = first_row + Expr(i);
                      places.push_back(substitute(image->operands[0], all));
                    }
                    return places;
                  }};
}

// The rows of a tile of the split block, in pieces of so few that their sums stay in registers beside what is loaded.
Stmt emit_split_block(const Tiling& split, const VarMap& outer, const Expr& first_row, const RowRun& run) {
  constexpr int64_t kMostRows = 14;
  const int64_t pieces = (run.rows + kMostRows - 1) / kMostRows;
  std::vector<Stmt> tiles;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * run.rows / pieces, end = (i + 1) * run.rows / pieces;
    RowRun piece = run;
    piece.rows = end - begin;
    for (auto& [first, last] : piece.active) {
      first = std::clamp(first, begin, end) - begin;
      last = std::clamp(last, begin, end) - begin;
    }
    tiles.push_back(TileEmitter(split, outer, split.update, split.full_blocks, 1, split.width, true,
                                first_row + Expr(begin), piece, std::nullopt, split.width / split.split.lanes)
                        .emit());
  }
  return seq(std::move(tiles));
}

}  // namespace

Expr image_of(const Tiling& t) {
  constexpr int64_t kFarBytes = 128 << 10, kMostSteps = 32;
  if (!t.blocked || t.row == std::nullopt || t.others.empty()) return {};
  int64_t steps = 1;
  for (const Axis& axis : t.kernel.reduce) {
    const auto extent = as_int(axis.extent);
    if (!extent || (steps *= *extent) > kMostSteps) return {};
  }
  Expr image;
  bool other = false;
  walk(t.update, [&](const Expr& node) {
    if (node->kind != ExprKind::kLoad) return;
    const auto& params = t.kernel.params;
    const auto p = static_cast<size_t>(std::find(params.begin(), params.end(), node->buffer) - params.begin());
    if (p + 1 >= params.size() || t.kernel.may_be_packed(p)) return;
    if (image && !image.same_node(node)) other = true;
    image = node;
    other |= t.kernel.param_block[p] != 1 || uses_var(node, t.vector.var) || uses_var(node, t.block.var);
  });
  if (!image || other || !uses_var(image, t.others.back().var)) return {};
  const auto size = as_int(image->buffer->shape[0]);
  return size && dtype_bytes(image->buffer->dtype, *size) >= kFarBytes ? image : Expr();
}

Expr own_load(const Tiling& t) {
  Expr own;
  walk(t.update, [&](const Expr& node) {
    if (node->kind == ExprKind::kLoad && t.row && uses_var(node, t.row->var) &&
        (uses_var(node, t.vector.var) || uses_var(node, t.block.var)))
      own = node;
  });
  return own;
}

int64_t places_beside_rows(const Tiling& t) {
  int64_t places = 1;
  for (const OutputLoop& loop : t.others)
    if (is_within_group(t, loop)) places *= loop.extent;
  return places;
}

bool streams_weights(const Tiling& t) {
  constexpr int64_t kFewRows = 4, kFewPlaces = 20;
  if (t.target->vector_registers() < 32 || t.packed.size() != 1 || own_load(t)) return false;
  const int64_t places = (t.row ? t.row->extent : 1) * places_beside_rows(t);
  return places > kFewRows && places <= kFewPlaces;
}

Expr scattered_image_of(const Tiling& t) {
  constexpr int64_t kManyBlocks = 24;
  // Blocks of channels, perhaps the frames or rows of a window, and the channels of a block.
  if (!t.row || t.reduce.size() < 2 || t.reduce.size() > 3 || t.reduce[0].axis != t.reduce.back().axis) return {};
  int64_t streams = 1;
  for (const ReduceLoop& loop : t.reduce) {
    if (loop.expanded) return {};
    if (&loop != &t.reduce.back()) streams *= loop.extent;
  }
  if (streams < kManyBlocks) return {};
  Expr image;
  walk(t.update, [&](const Expr& node) {
    if (node->kind == ExprKind::kLoad && uses_var(node, t.row->var) && !uses_var(node, t.vector.var)) image = node;
  });
  if (!image) return {};
  int64_t bytes = t.row->extent * bytes_of_place(t, image);
  for (const OutputLoop& loop : t.others)
    if (is_within_group(t, loop)) bytes *= loop.extent;
  return bytes > t.target->l2_bytes ? image : Expr();
}

int64_t near_places(const Tiling& t) {
  constexpr int64_t kMost = 32;
  const Expr image = scattered_image_of(t);
  if (!image || t.full_blocks <= t.shape.vectors) return 0;
  // Of one step of the loop behind that over groups.
  int64_t bytes = 0;
  for (const OutputLoop& loop : t.others)
    if (is_within_group(t, loop)) bytes = bytes == 0 ? t.row->extent * bytes_of_place(t, image) : bytes * loop.extent;
  if (bytes == 0) bytes = t.shape.rows * bytes_of_place(t, image);
  int64_t places = bytes <= t.target->l2_bytes ? 1 : 0;
  while (places > 0 && places < kMost && 2 * places * bytes <= t.target->l2_bytes) places *= 2;
  return places;
}

std::vector<BlockGroups> block_groups(const Tiling& t) {
  std::vector<BlockGroups> groups;
  const int64_t vectors = t.shape.vectors;
  int64_t equal = t.full_blocks / vectors, rest = t.full_blocks % vectors;
  // The group that does not store all of its lanes, or is followed by columns of another kind, stands alone.
  if (rest == 0 && equal > 0 && (t.stored_lanes != 0 || t.dots.count != 0 || t.split.columns != 0))
    --equal, rest = vectors;
  if (equal > 0) groups.push_back({0, equal, vectors, t.width});
  if (rest > 0) groups.push_back({equal * vectors, 1, rest, t.width});
  if (t.partial_lanes != 0) groups.push_back({t.full_blocks, 1, 1, t.partial_lanes});
  if (groups.empty()) groups.push_back({0, 1, 0, t.width});  // columns of another kind alone
  return groups;
}

Stmt emit_tiling_loops(const Tiling& t) {
  const std::vector<BlockGroups> groups = block_groups(t);
  int64_t num_groups = 0;
  for (const BlockGroups& group : groups) num_groups += group.count;
  const int64_t tiles = t.runs.back().first_tile + t.runs.back().num_tiles;
  const std::optional<Tiling> split = t.split.columns != 0 ? std::optional(tiling_of_split_block(t)) : std::nullopt;

  // Outermost to innermost: other axes before the blocks in memory (batch), blocks, the other axes, row tiles. The
  // packed weights of one block group stay in cache while the image passes by.
  std::vector<OutputLoop> loops;
  OutputLoop group_loop;
  group_loop.var = make_var("g");
  group_loop.extent = num_groups;
  OutputLoop tile_loop;
  tile_loop.var = make_var("w");
  tile_loop.extent = tiles;
  for (const OutputLoop& loop : t.others)
    if (!is_within_group(t, loop)) loops.push_back(loop);
  const size_t group_at = loops.size();
  loops.push_back(group_loop);
  for (const OutputLoop& loop : t.others)
    if (is_within_group(t, loop)) loops.push_back(loop);
  loops.push_back(tile_loop);
  std::vector<LoopBlock> blocks;
  int64_t places = 1;
  for (size_t i = group_at + 1; i < loops.size(); ++i) places *= loops[i].extent;
  const std::vector<OutputLoop> place_loops(loops.begin() + static_cast<std::ptrdiff_t>(group_at) + 1, loops.end());
  const auto tiles_at = [&](const VarMap& at) {
    Expr place = 0;
    for (const OutputLoop& loop : place_loops) place = place * Expr(loop.extent) + at.at(loop.var.get());
    const Expr g = at.at(group_loop.var.get());
    const Expr w = at.at(tile_loop.var.get());
    Stmt by_group;
    int64_t group_end = num_groups;
    for (size_t i = groups.size(); i-- > 0;) {
      const BlockGroups& group = groups[i];
      const int64_t group_begin = group_end - group.count;
      VarMap within = at;
      if (t.group) within[t.group.get()] = group.count == 1 ? Expr(0) : g - Expr(group_begin);
      const Expr& update = t.updates.empty() ? t.update : t.updates[i];
      const Expr first_block = group.count == 1
                                   ? Expr(group.first_block)
                                   : (g - Expr(group_begin)) * Expr(group.vectors) + Expr(group.first_block);
      Stmt by_run;
      for (size_t r = t.runs.size(); r-- > 0;) {
        const RowRun& run = t.runs[r];
        const Expr first_row = run.num_tiles == 1 ? Expr(run.first_tile * t.shape.rows) : w * Expr(t.shape.rows);
        auto prefetch = blocks.empty() ? weights_ahead(t, first_block, group.vectors, place, places) : std::nullopt;
        if (!prefetch) prefetch = image_ahead(t, within, first_row, run.rows);
        if (!prefetch) prefetch = blocks_ahead(t, within, first_row, run.rows);
        const bool is_last = &group == &groups.back();
        Stmt tile = seq({});
        if (group.vectors > 0)
          tile =
              TileEmitter(t, within, update, first_block, group.vectors, group.lanes, is_last, first_row, run, prefetch)
                  .emit();
        if (is_last && t.dots.count != 0) tile = seq({tile, emit_dot_columns(t, at, first_row, run.rows)});
        if (is_last && split) tile = seq({tile, emit_split_block(*split, at, first_row, run)});
        by_run = by_run ? if_then(w < Expr(run.first_tile + run.num_tiles), tile, by_run) : tile;
      }
      by_group = by_group ? if_then(g < Expr(group_end), by_run, by_group) : by_run;
      group_end = group_begin;
    }
    return by_group;
  };
  block_loops(t, loops, group_at, blocks);
  return outer_nest(loops, t.parallel, [&](const VarMap& outer) {
    VarMap at = outer;
    Expr inside = const_int(DType::kBool, 1);
    for (const LoopBlock& block : blocks) {
      const Expr place = at.at(block.blocks.get()) * Expr(block.size) + at.at(block.within.get());
      at[block.whole.var.get()] = place;
      if (block.whole.extent % block.size != 0) inside = logical_and(inside, place < Expr(block.whole.extent));
    }
    return if_then(inside, tiles_at(at));
  });
}

}  // namespace tessera::inline schedule
