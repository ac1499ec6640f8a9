// Products by the warps of a block on tensor cores: operands in memory of the block, sums in registers, as the
// instructions cuda.mma.* deal them (target/cuda/intrinsics.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "loop/stmt.h"

namespace tessera::inline schedule {

inline constexpr int64_t kWarpThreads = 32;
inline constexpr int64_t kWarpRows = 16, kWarpColumns = 8, kWarpTerms = 16;  // of one instruction
inline constexpr int64_t kWarpVector = 8;                                    // elements that are moved at once

// A factor of 16 bits that is converted to f32, or that padding makes zero, as what it was; null for any other.
Expr narrow_factor(const Expr& factor);

struct WarpThread {
  Expr warp, lane;
  Expr number() const { return warp * Expr(kWarpThreads) + lane; }
};

// An operand: places, which are rows of the one or columns of the other factor, by steps of the sum. Neighbours in
// global memory are neighbours here.
class WarpOperand {
 public:
  struct Layout {
    DType dtype = DType::kBF16;
    bool by_steps = false;  // neighbours are steps
    int64_t places = 1, steps = 1, stages = 1;
    int64_t lanes = 1;  // elements that are moved at once: kWarpVector, or one by one
    // Elements from one row of neighbours to the next: 16 bytes more than they are, for eight rows side by side lie in
    // all banks.
    int64_t pitch() const { return fast() + kWarpVector; }
    int64_t fast() const { return by_steps ? steps : places; }
    int64_t slow() const { return by_steps ? places : steps; }
    int64_t elements() const { return slow() * pitch(); }  // of a stage
    int64_t bytes() const { return dtype_bytes(dtype, stages * elements()); }
  };
  struct Element {
    Expr value;   // a load, where lanes are moved at once
    Expr inside;  // whether there is one: of the lanes of a move, all or none
  };
  using Read = std::function<Element(const Expr& place, const Expr& step)>;

  WarpOperand() = default;
  WarpOperand(const std::string& name, const Layout& layout);

  const Layout& layout() const { return layout_; }
  const BufferPtr& buffer() const { return buffer_; }
  std::vector<Expr> at(const Expr& stage, const Expr& place, const Expr& step) const {
    return layout_.by_steps ? std::vector<Expr>{stage, place, step} : std::vector<Expr>{stage, step, place};
  }
  // For each group of lanes that a thread moves: its number among the thread's, and its first element's place and step.
  Stmt each_move(const WarpThread& thread, int64_t num_threads,
                 const std::function<Stmt(const Expr& round, const Expr& place, const Expr& step)>& body,
                 Bounds& bounds) const;
  int64_t rounds(int64_t num_threads) const;
  // The next element of a move's.
  std::pair<Expr, Expr> lane(const Expr& place, const Expr& step, const Expr& lane) const {
    return layout_.by_steps ? std::pair(place, step + lane) : std::pair(place + lane, step);
  }
  // Brings a stage, zeros where nothing is: by asynchronous copies where lanes are moved at once.
  Stmt copy(const Expr& stage, const WarpThread& thread, int64_t num_threads, const Read& read, Bounds& bounds) const;

 private:
  Layout layout_;
  BufferPtr buffer_;  // [stage, steps, places], or the last two the other way round
};

// A warp's sums, of `down` by `across` tiles, in [warp, lane, ...].
struct WarpSums {
  BufferPtr buffer;
  int64_t down = 1, across = 1;

  WarpSums() = default;
  WarpSums(const std::string& name, int64_t warps, int64_t rows, int64_t columns);
  // Which tile down and across, which of its two rows, and of the row's two columns.
  using Body = std::function<Stmt(const Expr& i, const Expr& j, const Expr& h, const Expr& l)>;
  std::vector<Expr> at(const WarpThread& thread, const Expr& i, const Expr& j, const Expr& h, const Expr& l) const {
    return {thread.warp, thread.lane, i * Expr(across * 4) + j * Expr(4) + h * Expr(2) + l};
  }
  Stmt each(const Body& body, Bounds& bounds) const;
  Stmt clear(const WarpThread& thread, Bounds& bounds) const;
};
// Rows and columns of a thread's sums, of those of the warp.
Expr row_of_sum(const WarpThread& thread, const Expr& i, const Expr& h);
Expr column_of_sum(const WarpThread& thread, const Expr& j, const Expr& l);

// sums += a * b over all steps of their stages; the warp's rows and columns begin at these. `meanwhile`, if any, stands
// behind the products of the first steps, which the tensor cores are busy with.
struct WarpFactor {
  const WarpOperand& operand;
  Expr stage, first;
};
Stmt multiply_warp(const WarpFactor& a, const WarpFactor& b, const WarpSums& sums, const WarpThread& thread,
                   Bounds& bounds, const Stmt& meanwhile = {});

// Loops over the threads of `warps` warps.
Stmt each_warp_thread(const std::string& name, int64_t warps, const std::function<Stmt(const WarpThread&)>& body,
                      Bounds& bounds);

}  // namespace tessera::inline schedule
