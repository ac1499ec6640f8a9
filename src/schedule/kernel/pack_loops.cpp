#include "schedule/kernel/pack_loops.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/winograd_matrices.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kChunkWords = 256;       // of a lane: with 16 lanes, half of the first level of cache
constexpr int64_t kMostChunkWords = 8192;  // a window times the channels that lie side by side
constexpr int64_t kRowsOfBlock = 16;       // that are read at once where lanes lie side by side
constexpr int64_t kMostUnrolled = 8;       // vectors of a row that stand side by side
constexpr int64_t kEnoughIterations = 32;  // of the parallel loop
constexpr int64_t kSmallBytes = 1 << 16;   // not worth a second thread

DType unsigned_of(int64_t bits) {
  switch (bits) {
    case 8: return DType::kU8;
    case 16: return DType::kU16;
    case 32: return DType::kU32;
    default: return DType::kU64;
  }
}

Expr all_of(const std::vector<Expr>& conditions) {
  Expr result;
  for (const Expr& condition : conditions) result = result ? logical_and(result, condition) : condition;
  return result;
}

// A loop over a dimension of the packed part, or over a part of one.
struct PackLoop {
  Var var;
  int64_t extent = 1;
  int axis = 0;
  int64_t multiplier = 1;
  int64_t stride = 0;     // in packed elements
  bool in_chunk = false;  // its places of all lanes lie in one chunk
  Expr count;             // null: all of `extent`
};

class PackEmitter {
 public:
  PackEmitter(const PackedParam& packed, size_t part, DType dtype, int64_t elements, const Target& target)
      : spec_(packed.parts[part]), tile_(packed.winograd), elements_(elements), target_(target) {
    bits_ = dtype_bits(dtype);
    dtype_ = bits_ == 32 ? dtype : unsigned_of(bits_);
    if (tile_.rows != 0) take_window();
    const size_t dims = spec_.dims.size();
    group_ = dims > 1 && bits_ < 32 && spec_.dims.back().extent * bits_ == 32 &&
             spec_.dims.back().axis != spec_.dims[dims - 2].axis;
    const PackDim& lane = spec_.dims[dims - 1 - static_cast<size_t>(group_)];
    lanes_ = lane.extent;
    lane_axis_ = lane.axis;
    lane_step_ = lane.multiplier * axis(lane.axis).stride;
    lane_multiplier_ = lane.multiplier;
    int64_t stride = lanes_;  // in what is stored at once: elements, or groups
    for (size_t d = dims - 1 - static_cast<size_t>(group_); d-- > 0;) {
      loops_.insert(loops_.begin(), {make_var("d" + std::to_string(d)),
                                     spec_.dims[d].extent,
                                     spec_.dims[d].axis,
                                     spec_.dims[d].multiplier,
                                     stride,
                                     false,
                                     {}});
      stride *= spec_.dims[d].extent;
    }
    stored_ = group_ ? DType::kU32 : dtype_;
    to_ = make_buffer("packed", stored_, {spec_.num_elements() / (group_ ? spec_.dims.back().extent : 1) * planes()});
  }

  LoopProgram run(const std::string& name) {
    const bool turned = lane_step_ != 1 && find_chunk();
    check(turned || tile_.rows == 0, "filters whose windows do not lie side by side");
    if (!turned) from_ = make_buffer("weights", dtype_, {elements_});
    LoopProgram program;
    program.name = name;
    program.body = turned ? turned_loops() : straight_loops();
    program.params = {from_, to_};
    return program;
  }

 private:
  const PackAxis& axis(int number) const { return spec_.axes[static_cast<size_t>(number)]; }
  int64_t window() const { return tile_.rows == 0 ? 1 : tile_.height * tile_.width; }
  int64_t planes() const { return tile_.rows == 0 ? 1 : high() * wide(); }
  int64_t high() const { return winograd_matrices(tile_.rows, tile_.height).alpha; }
  int64_t wide() const { return winograd_matrices(tile_.columns, tile_.width).alpha; }
  int64_t per_word() const { return 32 / bits_; }
  DType word_type() const { return bits_ == 32 ? dtype_ : DType::kU32; }

  // The description is of transformed filters; what is read are windows. Its dimension of places becomes the planes'.
  void take_window() {
    const int64_t places = planes();
    int places_axis = -1;
    for (size_t a = 0; a < spec_.axes.size(); ++a) {
      if (spec_.axes[a].stride == 1) places_axis = static_cast<int>(a);
      else spec_.axes[a].stride = spec_.axes[a].stride / places * window();
    }
    check(places_axis >= 0 && spec_.offset == 0, "a packing of filters without places");
    int64_t stride = 1;
    for (size_t d = spec_.dims.size(); d-- > 0;) {
      if (spec_.dims[d].axis == places_axis) {
        plane_stride_ = stride;
        outside_planes_ = d;
      }
      stride *= spec_.dims[d].extent;
    }
    // The planes are the outermost dimension but for groups: loops over those go over all planes of one.
    spec_.dims.erase(spec_.dims.begin() + static_cast<std::ptrdiff_t>(outside_planes_));
  }

  // Elements of the packed part per step of a loop: behind the planes, what it was; before them, all planes more.
  int64_t packed_stride(size_t loop) const {
    return loops_[loop].stride * (tile_.rows != 0 && loop < outside_planes_ ? planes() : 1);
  }

  bool small() const { return elements_ * bits_ / 8 <= kSmallBytes || target_.num_threads == 1; }

  // ---- Places and addresses. ----

  Expr place(int axis_number, const VarMap& at) const {
    Expr sum = 0;
    for (const PackLoop& loop : loops_)
      if (loop.axis == axis_number) sum = sum + at.at(loop.var.get()) * Expr(loop.multiplier);
    return sum;
  }

  int64_t largest_place(int axis_number) const {
    int64_t most = 0;
    for (const PackLoop& loop : loops_)
      if (loop.axis == axis_number) most += (loop.extent - 1) * loop.multiplier;
    return most;
  }

  // Whether there are places beyond the end of an axis other than the lanes'; `group_place` more than the loops say.
  std::vector<Expr> inside(const VarMap& at, const Expr& group_place) const {
    std::vector<Expr> conditions;
    for (int a = 0; a < std::ssize(spec_.axes); ++a) {
      if (a == lane_axis_) continue;
      const bool grouped = group_ && spec_.dims.back().axis == a;
      const int64_t more = grouped ? (spec_.dims.back().extent - 1) * spec_.dims.back().multiplier : 0;
      if (largest_place(a) + more < axis(a).extent) continue;
      conditions.push_back(place(a, at) + (grouped ? group_place : Expr(0)) < Expr(axis(a).extent));
    }
    return conditions;
  }

  bool all_lanes_exist() const {
    return largest_place(lane_axis_) + (lanes_ - 1) * lane_multiplier_ < axis(lane_axis_).extent;
  }
  Expr lane_exists(const VarMap& at, const Expr& lane) const {
    return place(lane_axis_, at) + lane * Expr(lane_multiplier_) < Expr(axis(lane_axis_).extent);
  }

  // Of the source, for lane 0.
  Expr address(const VarMap& at) const {
    Expr sum = spec_.offset;
    for (int a = 0; a < std::ssize(spec_.axes); ++a) sum = sum + place(a, at) * Expr(axis(a).stride);
    return sum;
  }

  // From the first place of a group to another one, in the source.
  int64_t group_step(int64_t group_place) const {
    const PackDim& group = spec_.dims.back();
    return group_ ? group_place * group.multiplier * axis(group.axis).stride : 0;
  }

  Expr packed_address(const VarMap& at) const {
    Expr sum = 0;
    for (size_t i = 0; i < loops_.size(); ++i) sum = sum + at.at(loops_[i].var.get()) * Expr(packed_stride(i));
    return sum;
  }

  // When every element of the vectors at `at` exists.
  std::vector<Expr> vector_exists(const VarMap& at) const {
    const PackDim& group = spec_.dims.back();
    std::vector<Expr> conditions = inside(at, Expr(group_ ? (group.extent - 1) * group.multiplier : 0));
    if (!all_lanes_exist()) conditions.push_back(lane_exists(at, Expr(lanes_ - 1)));
    return conditions;
  }

  // A vector of lanes to where `at` says; `element` is that of a lane at a place of the group (0 without groups).
  template <typename Element>
  Stmt vector(const VarMap& at, const Element& element, bool all_exist = false) const {
    const auto with_all = [&](const Var& lane, bool ask) {
      const auto value = [&](int64_t group_place) {
        const int64_t step = group_ ? group_place * spec_.dims.back().multiplier : 0;
        Expr e = element(lane, group_place);
        std::vector<Expr> conditions = ask ? inside(at, Expr(step)) : std::vector<Expr>{};
        if (ask && !all_lanes_exist()) conditions.push_back(lane_exists(at, lane));
        return conditions.empty() ? e : select(all_of(conditions), e, const_of(e.dtype(), 0));
      };
      Expr stored;
      if (!group_) {
        stored = value(0);
      } else {
        for (int64_t p = 0; p < spec_.dims.back().extent; ++p) {
          Expr part = cast(DType::kU32, value(p));
          if (p > 0) part = binary(BinaryOp::kShl, part, const_int(DType::kU32, p * bits_));
          stored = stored ? binary(BinaryOp::kOr, stored, part) : part;
        }
      }
      return store(to_, {packed_address(at) + Expr(lane)}, stored);
    };
    const auto loop = [&](bool ask) {
      return vectorized("l", lanes_, [&](const Var& lane) { return with_all(lane, ask); });
    };
    const std::vector<Expr> conditions = all_exist ? std::vector<Expr>{} : vector_exists(at);
    if (conditions.empty()) return loop(false);
    return if_then(all_of(conditions), loop(false), loop(true));
  }

  // ---- Lanes side by side, or at any distance. ----

  // Several rows at a time, of all vectors: each row is read from its begin to its end, and what is written of each
  // vector's column lies side by side.
  Stmt straight_loops() {
    size_t row = loops_.size();
    for (size_t i = 0; i < loops_.size(); ++i)
      if (loops_[i].axis != lane_axis_) row = i;
    std::vector<OutputLoop> outer;
    Var block;
    const auto add = [&](const PackLoop& loop) { outer.push_back({loop.var, loop.extent}); };
    std::vector<size_t> behind;  // vectors that stand behind the row in memory
    int64_t rows = 1;
    if (row == loops_.size()) {
      for (const PackLoop& loop : loops_) add(loop);
    } else {
      for (size_t i = 0; i < loops_.size(); ++i)
        if (i != row && loops_[i].axis != lane_axis_) add(loops_[i]);
      rows = std::min(kRowsOfBlock, loops_[row].extent);
      block = make_var("block");
      outer.push_back({block, (loops_[row].extent + rows - 1) / rows});
      for (size_t i = 0; i < loops_.size(); ++i)
        if (loops_[i].axis == lane_axis_) {
          if (i < row) add(loops_[i]);
          else behind.push_back(i);
        }
    }
    return outer_nest(outer, small() ? 1 : kEnoughIterations, [&](const VarMap& outside) {
      Expr first = 0, count = 1;  // of the rows
      if (row < loops_.size()) {
        first = outside.at(block.get()) * Expr(rows);
        count = loops_[row].extent % rows == 0 ? Expr(rows) : min(Expr(rows), Expr(loops_[row].extent) - first);
      }
      const auto nest = [&](bool all_exist) {
        VarMap at = outside;
        Var within;
        if (row < loops_.size()) {
          within = make_var("r");
          at[loops_[row].var.get()] = first + within;
        }
        std::vector<Var> vectors;
        for (const size_t i : behind) {
          vectors.push_back(make_var(loops_[i].var->name));
          at[loops_[i].var.get()] = vectors.back();
        }
        const auto element = [&](const Var& lane, int64_t group_place) {
          return load(from_, {address(at) + Expr(group_step(group_place)) + lane * Expr(lane_step_)});
        };
        Stmt body = vector(at, element, all_exist);
        for (size_t i = behind.size(); i-- > 0;) {
          const int64_t extent = loops_[behind[i]].extent;
          body = for_loop(vectors[i], 0, extent, extent <= kMostUnrolled ? ForKind::kUnrolled : ForKind::kSerial, body);
        }
        return within ? for_loop(within, 0, count, ForKind::kSerial, body) : body;
      };
      VarMap last = outside;  // the last vector of the last row
      for (const size_t i : behind) last[loops_[i].var.get()] = loops_[i].extent - 1;
      if (row < loops_.size()) last[loops_[row].var.get()] = first + count - Expr(1);
      const std::vector<Expr> conditions = vector_exists(last);
      return conditions.empty() ? nest(true) : if_then(all_of(conditions), nest(true), nest(false));
    });
  }

  // ---- Lanes that are rows of the source. ----

  // The axes along which the source is contiguous, and how much of them is a chunk. False where there are none.
  bool find_chunk() {
    const TensorIntrinsic* turn = best_transpose_intrinsic(target_, DType::kF32);
    const bool fits = turn && lanes_ % turn->lanes == 0;
    if ((!fits && tile_.rows == 0) || bits_ > 32 || elements_ % per_word() != 0 || lane_step_ % per_word() != 0 ||
        spec_.offset % per_word() != 0)
      return false;
    turn_ = fits ? turn : nullptr;
    std::vector<int> chain;
    int64_t run = window();
    for (bool grown = true; grown;) {
      grown = false;
      for (int a = 0; a < std::ssize(spec_.axes); ++a)
        if (a != lane_axis_ && axis(a).extent > 1 && axis(a).stride == run &&
            std::find(chain.begin(), chain.end(), a) == chain.end()) {
          chain.push_back(a);
          run *= axis(a).extent;
          grown = true;
          break;
        }
    }
    if (chain.empty()) {
      // A single window, or nothing at all beside the lanes.
      if (tile_.rows == 0) return false;
      chunk_ = window();
      return chunk_words() <= kMostChunkWords && set_source();
    }
    const int last = chain.back();
    const int64_t inner = run / axis(last).extent;
    const auto in_chain = [&](int a) { return std::find(chain.begin(), chain.end(), a) != chain.end(); };
    if (group_ && !in_chain(spec_.dims.back().axis)) return false;
    // The outermost dimension of the last axis is cut; what is within it, and the other axes, are the chunk's.
    size_t outermost = loops_.size();
    for (size_t i = 0; i < loops_.size(); ++i)
      if (loops_[i].axis == last && (outermost == loops_.size() || loops_[i].multiplier > loops_[outermost].multiplier))
        outermost = i;
    if (outermost == loops_.size()) return false;
    for (PackLoop& loop : loops_) loop.in_chunk = in_chain(loop.axis);
    const int64_t least = loops_[outermost].multiplier * inner;  // elements of a step
    const int64_t extent = loops_[outermost].extent;
    int64_t steps = std::clamp<int64_t>(kChunkWords * per_word() / least, 1, extent);
    // A divisor, if one is near; and whole words.
    for (int64_t s = steps; s >= (steps + 1) / 2; --s)
      if (extent % s == 0 && s * least % per_word() == 0) {
        steps = s;
        break;
      }
    while (steps * least % per_word() != 0 && steps < extent) ++steps;
    chunk_ = steps * least;
    if (chunk_ % per_word() != 0 && steps < extent) return false;
    if (chunk_words() > kMostChunkWords) return false;
    if (steps < extent) {
      PackLoop& within = loops_[outermost];
      PackLoop chunks = within;
      chunks.var = make_var("chunk");
      chunks.extent = (extent + steps - 1) / steps;
      chunks.multiplier *= steps;
      chunks.stride *= steps;
      chunks.in_chunk = false;
      if (extent % steps != 0) within.count = min(Expr(steps), Expr(extent) - chunks.var * Expr(steps));
      within.extent = steps;
      loops_.insert(loops_.begin() + static_cast<std::ptrdiff_t>(outermost), chunks);
      if (outermost < outside_planes_) ++outside_planes_;
    }
    // Words begin at even places: every loop outside must go by whole words.
    for (const PackLoop& loop : loops_)
      if (!loop.in_chunk && loop.multiplier * axis(loop.axis).stride % per_word() != 0) return false;
    return set_source();
  }

  int64_t chunk_words() const { return (chunk_ + per_word() - 1) / per_word(); }

  bool set_source() {
    from_ = make_buffer("weights", word_type(), {elements_ / per_word()});
    return true;
  }

  Stmt turned_loops() {
    const int64_t columns = (chunk_words() + tile_lanes() - 1) / tile_lanes() * tile_lanes();
    const BufferPtr tile = make_buffer("tile", word_type(), {columns * lanes_}, MemoryScope::kLocal);
    std::vector<OutputLoop> outer;
    for (const PackLoop& loop : loops_)
      if (!loop.in_chunk) outer.push_back({loop.var, loop.extent});
    return outer_nest(outer, small() ? 1 : kEnoughIterations, [&](const VarMap& outside) {
      VarMap first = outside;  // the chunk's first place
      for (const PackLoop& loop : loops_)
        if (loop.in_chunk) first[loop.var.get()] = 0;
      VarMap at = outside;
      std::vector<std::pair<Var, Expr>> inner;
      for (const PackLoop& loop : loops_)
        if (loop.in_chunk) {
          inner.emplace_back(make_var(loop.var->name),
                             loop.count ? substitute(loop.count, outside) : Expr(loop.extent));
          at[loop.var.get()] = inner.back().first;
        }
      Stmt body = tile_.rows != 0 ? transform(at, tile) : take_apart(at, tile);
      for (size_t i = inner.size(); i-- > 0;)
        body = for_loop(inner[i].first, 0, inner[i].second, ForKind::kSerial, body);
      return alloc(tile, seq({turn(first, tile, columns), body}));
    });
  }

  int64_t tile_lanes() const { return turn_ ? turn_->lanes : lanes_; }

  // The chunk's words, column by column with all lanes side by side.
  Stmt turn(const VarMap& first, const BufferPtr& tile, int64_t columns) const {
    const int64_t lanes = tile_lanes(), step = lane_step_ / per_word();
    const Expr word = per_word() == 1 ? address(first) : floordiv(address(first), per_word());
    const Var column = make_var("c");
    std::vector<Stmt> parts;
    for (int64_t lane0 = 0; lane0 < lanes_; lane0 += lanes) {
      const Expr begin = word + column * Expr(lanes) + Expr(lane0 * step);
      const auto to = [&](const Expr& row, const Expr& lane) {
        return column * Expr(lanes * lanes_) + row * Expr(lanes_) + Expr(lane0) + lane;
      };
      // At the end of the weights, one column after the other, as far as there are elements.
      std::vector<Expr> fits = {begin + Expr((lanes - 1) * step + lanes - 1) < Expr(elements_ / per_word())};
      if (!all_lanes_exist()) fits.push_back(lane_exists(first, Expr(lane0 + lanes - 1)));
      const Var row = make_var("r");
      const Stmt single = vectorized("l", lanes, [&](const Var& lane) {
        const Expr from = begin + lane * Expr(step) + row;
        Expr exists = from < Expr(elements_ / per_word());
        if (!all_lanes_exist()) exists = logical_and(exists, lane_exists(first, Expr(lane0) + lane));
        return store(tile, {to(row, lane)}, select(exists, load(from_, {from}), const_of(word_type(), 0)));
      });
      const Stmt singles = for_loop(row, 0, lanes, ForKind::kSerial, single);
      if (!turn_) {
        parts.push_back(singles);
        continue;
      }
      const Var r = make_var("r"), l = make_var("l");
      const Stmt move = store(tile, {to(r, l)}, load(from_, {begin + l * Expr(step) + r}));
      const Stmt whole = for_loop(r, 0, lanes, ForKind::kUnrolled, for_loop(l, 0, lanes, ForKind::kVectorized, move));
      check(match_intrinsic(*turn_, whole).empty(), "a tile that cannot be turned");
      parts.push_back(if_then(all_of(fits), tensorized(turn_, whole), singles));
    }
    return for_loop(column, 0, columns / lanes, ForKind::kSerial, seq(std::move(parts)));
  }

  // Where in the chunk a place is.
  Expr in_chunk(const VarMap& at) const {
    Expr sum = 0;
    for (const PackLoop& loop : loops_)
      if (loop.in_chunk) sum = sum + at.at(loop.var.get()) * Expr(loop.multiplier * axis(loop.axis).stride);
    return sum;
  }

  Stmt take_apart(const VarMap& at, const BufferPtr& tile) const {
    const Expr element = in_chunk(at);
    return vector(at, [&](const Var& lane, int64_t group_place) {
      const Expr number = element + Expr(group_step(group_place));
      if (per_word() == 1) return load(tile, {number * Expr(lanes_) + lane});
      const Expr word = load(tile, {floordiv(number, per_word()) * Expr(lanes_) + lane});
      const Expr shift = cast(DType::kU32, floormod(number, per_word()) * Expr(bits_));
      return cast(dtype_, binary(BinaryOp::kShr, word, shift));
    });
  }

  // A filter's window becomes a place of each plane: G w GT.
  Stmt transform(const VarMap& at, const BufferPtr& tile) const {
    const WinogradMatrices& rows = winograd_matrices(tile_.rows, tile_.height);
    const WinogradMatrices& columns = winograd_matrices(tile_.columns, tile_.width);
    const Expr element = in_chunk(at);
    const BufferPtr half = make_buffer("half", DType::kF32, {high() * tile_.width, lanes_}, MemoryScope::kRegister);
    const auto sum = [](const std::vector<double>& factors, const auto& term) {
      Expr result;
      for (size_t i = 0; i < factors.size(); ++i) {
        if (factors[i] == 0) continue;
        const Expr x = term(static_cast<int64_t>(i));
        if (!result) result = factors[i] == 1 ? x : x * const_float(DType::kF32, factors[i]);
        else result = fma(x, const_float(DType::kF32, factors[i]), result);
      }
      return result ? result : const_float(DType::kF32, 0);
    };
    std::vector<Stmt> parts;
    for (int64_t x = 0; x < tile_.width; ++x)
      for (int64_t i = 0; i < high(); ++i)
        parts.push_back(vectorized("l", lanes_, [&](const Var& lane) {
          return store(half, {Expr(i * tile_.width + x), lane}, sum(rows.g[static_cast<size_t>(i)], [&](int64_t y) {
                         return load(tile, {(element + Expr(y * tile_.width + x)) * Expr(lanes_) + lane});
                       }));
        }));
    for (int64_t i = 0; i < high(); ++i)
      for (int64_t j = 0; j < wide(); ++j)
        parts.push_back(vectorized("l", lanes_, [&](const Var& lane) {
          return store(to_, {packed_address(at) + Expr((i * wide() + j) * plane_stride_) + lane},
                       sum(columns.g[static_cast<size_t>(j)],
                           [&](int64_t x) { return load(half, {Expr(i * tile_.width + x), lane}); }));
        }));
    const Stmt all = alloc(half, seq(std::move(parts)));
    std::vector<Expr> conditions = inside(at, Expr(0));
    if (conditions.empty()) return all;
    std::vector<Stmt> zeros;
    for (int64_t p = 0; p < planes(); ++p)
      zeros.push_back(vectorized("l", lanes_, [&](const Var& lane) {
        return store(to_, {packed_address(at) + Expr(p * plane_stride_) + lane}, const_float(DType::kF32, 0));
      }));
    return if_then(all_of(conditions), all, seq(std::move(zeros)));
  }

  PackSpec spec_;
  const PackedParam::FilterTransform tile_;
  const int64_t elements_;
  const Target& target_;
  int64_t bits_ = 32;
  DType dtype_ = DType::kF32;   // of an element where it is moved
  DType stored_ = DType::kF32;  // of what is stored at once
  bool group_ = false;          // the last dimension is a group that fills a word
  int64_t lanes_ = 1, lane_step_ = 1, lane_multiplier_ = 1;
  int lane_axis_ = 0;
  std::vector<PackLoop> loops_;  // over all dimensions but the lanes' and the group's, outermost first
  // Winograd: the distance between planes, and how many dimensions stand before them.
  int64_t plane_stride_ = 0;
  size_t outside_planes_ = 0;
  const TensorIntrinsic* turn_ = nullptr;
  int64_t chunk_ = 0;  // elements of a lane in a chunk
  BufferPtr from_, to_;
};

}  // namespace

std::string run_time_packing_problem(const PackedParam& packed, DType dtype) {
  if (packed.pieces != 0) return "weights are cut into pieces by their values, which a run decides";
  for (const PackSpec& part : packed.parts)
    if (std::any_of(part.dims.begin(), part.dims.end(), [](const PackDim& dim) { return dim.multiplier < 0; }))
      return "weights are shifted, which constants alone are";
  if (dtype_bits(dtype) < 8) return "elements of less than a byte";
  return "";
}

LoopProgram pack_loops(const std::string& name, const PackedParam& packed, size_t part, DType dtype, int64_t elements,
                       const Target& target) {
  check(run_time_packing_problem(packed, dtype).empty(), "weights that cannot be packed at run time");
  return PackEmitter(packed, part, dtype, elements, target).run(name);
}

}  // namespace tessera::inline schedule
