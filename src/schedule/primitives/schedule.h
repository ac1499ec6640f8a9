// A loop program and the primitives that rewrite it, under the names of the field (Ragan-Kelley et al., Halide, PLDI
// 2013; Chen et al., TVM, OSDI 2018; Feng et al., TensorIR, ASPLOS 2023). Every primitive keeps what the program
// computes, up to the order in which a sum, product, minimum or maximum is taken: it is checked first (dependence.h,
// region.h) and refused by a UserError TSR-34xx that names the loop or statement in the way and what would be legal.
// After a refusal the schedule is as it was.
//
// - Loops are named by their variable. Names are unique: the constructor renames as the printed text does.
// - A stage is all statements that store to one buffer, named by the buffer. One store is named "C" when the buffer has
//   one, else "C.init" (the value does not read the old element), "C.update" (it does), or "C#2": number 2 of its
//   stores in the order of the text, from 0. "C.update#1" counts updates only.
// - What a primitive makes gets the names in `as`, or names of its own where `as` is empty.
//
// The schedule writes down what was applied, with all names given: trace(), the text that schedule/primitives/trace.h
// replays to the same program, byte for byte.
//
// Thread safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "loop/intrinsic.h"
#include "loop/stmt.h"
#include "schedule/kernel/pack.h"
#include "schedule/primitives/trace_step.h"
#include "target/target.h"

namespace tessera::inline schedule {

using Names = std::vector<std::string>;
// Where a stage is computed that compute_at leaves alone.
inline constexpr char kRootLocation[] = "root";
struct StmtPath;

class Schedule {
 public:
  // `target` says which tensor intrinsics there are; without it none is refused for the machine's sake. `declared`:
  // intrinsics besides those of the table (loop/intrinsic_text.h).
  explicit Schedule(LoopProgram program, std::optional<Target> target = std::nullopt, Intrinsics declared = {});

  // Parameters whose contents are known before a run (weights): transform_layout stores them otherwise. REQUIRES:
  // before the first primitive.
  void set_constants(Names parameters) { constants_ = std::move(parameters); }

  const LoopProgram& program() const { return program_; }
  // How parameters are stored after transform_layout.
  const std::vector<PackedParam>& packed() const { return packed_; }
  const std::vector<TraceStep>& steps() const { return steps_; }
  std::string trace() const;  // one primitive a line

  // ---- loops
  // Loops of the given extents instead of one, outermost first; one factor may be open (empty): it becomes as large as
  // needed. Where they do not divide, an `if` leaves out what is too much. REQUIRES: a serial loop.
  Names split(const std::string& loop, const std::vector<std::optional<int64_t>>& factors, Names as = {});
  // One loop instead of several that stand directly in each other.
  std::string fuse(const Names& loops, std::string as = "");
  // The named loops, which stand directly in each other (others may be between), take each other's places so that they
  // are in the given order.
  void reorder(const Names& loops);
  // split of both loops, then the order i0 j0 i1 j1.
  Names tile(const std::string& i, const std::string& j, int64_t i_factor, int64_t j_factor, Names as = {});
  void vectorize(const std::string& loop);
  void unroll(const std::string& loop);
  void parallel(const std::string& loop);
  // Rounds the loop's extent up to a multiple; the added iterations do nothing.
  void pad(const std::string& loop, int64_t multiple);

  // ---- reductions
  // The loop becomes two, one after the other: the first has the statements before the one that holds `block` (a store,
  // by its name), the second that and what follows (loop distribution). Loops of which both have
  // one get names that end in "_before" in the first.
  void fission(const std::string& loop, const std::string& block);
  // The store that the reduction starts from moves out of `loop`, into a nest of its own before it, whose loops have
  // the names with "_init" behind them. `block`: a buffer with one such store, or the store's name.
  void decompose_reduction(const std::string& block, const std::string& loop);
  // Partial results for each iteration of `loop` of the reduction, in a buffer of one more dimension (the first), which
  // a second nest then combines. The sum is taken in another order. Loops of the nest that clears them have names with
  // "_init", those of the one that combines them with "_final".
  std::string rfactor(const std::string& block, const std::string& loop, std::string as = "");
  // Conditions of selects in what an update adds (folds in), under which it adds nothing, become an `if` around the
  // store, as far outside as the loops directly around it allow: padding is not computed instead of being zero. A
  // product with such a zero counts as nothing whatever the other factor is.
  void predicate(const std::string& statement);

  // ---- stages and memory
  // The stage's computation of what one iteration of `loop` needs moves into it, and its memory shrinks to that. "root"
  // is no loop: nothing moves.
  void compute_at(const std::string& stage, const std::string& loop);
  // The stage moves to the end of the iteration of `loop` that finishes what it reads, whose memory shrinks to that.
  void reverse_compute_at(const std::string& stage, const std::string& loop);
  // The stage's value stands where it was loaded; the stage and its memory are gone.
  void compute_inline(const std::string& stage);
  // A copy of a buffer, in front of the outermost statement that reads it, which all of them (or those of the stage
  // `reader`) read instead. Answers the copy; its loops are called copy_0, copy_1, ...
  std::string cache_read(const std::string& buffer, MemoryScope scope, const std::string& reader = "",
                         std::string as = "");
  // The stage computes into a new buffer, which is copied to the old one behind it. Answers the new buffer; the loops
  // of the copy are called stage_0, stage_1, ...
  std::string cache_write(const std::string& stage, MemoryScope scope, std::string as = "");
  void set_scope(const std::string& buffer, MemoryScope scope);
  // The allocation moves out of `loop` and of all loops between, with a dimension for each that is not reduced over:
  // every iteration keeps its own (scalar expansion).
  void store_at(const std::string& buffer, const std::string& loop);
  // The buffer is stored under another index. `vars` name its dimensions; each element of `index` is one of them, or
  // floordiv or floormod of one by a constant, and together they keep elements apart. Of a constant parameter they are
  // all digits of all dimensions, each once; packed() then says how it is stored.
  void transform_layout(const std::string& buffer, const std::vector<Var>& vars, const std::vector<Expr>& index);

  // ---- hardware
  // The numbers that a schedule tiles and packs by for an intrinsic, lanes and depth, which `tensorize` without a name
  // then means. `decision`: empty, or those that are expected.
  std::vector<int64_t> intrinsic(const std::string& name, const std::vector<int64_t>& decision = {}, Names as = {});
  // The nest at `loop`, or the block that begins with it, becomes the intrinsic, if it matches: loops of one iteration
  // do not count, and a multiply and add becomes an fma where the intrinsic has one.
  void tensorize(const std::string& loop, const std::string& intrinsic = "");
  // The nest at `loop` becomes one piece, that primitives on loops around it take as it is, until it is tensorized.
  void blockize(const std::string& loop);
  // Iterations side by side: each statement in the loop is copied per iteration, innermost and unrolled.
  void virtual_thread(const std::string& loop);
  // The first `count` statements of the loop's body run one iteration ahead of the others; what they fill for them is
  // kept twice.
  void software_pipeline(const std::string& loop, int64_t count);
  // `axis` is blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y or threadIdx.z of a GPU: the loop's
  // iterations are independent, and may run there. Back ends for CPUs run them in order.
  void bind(const std::string& loop, const std::string& axis);
  // `key` "fma": multiply and add of a statement in one rounding (value 1).
  void annotate(const std::string& statement, const std::string& key, int64_t value);

  // ---- sampled decisions
  // Extents for `split` whose product is the loop's extent, the last at most `max_innermost`. Drawn from `random`, or
  // those of `decision`; recorded with the trace.
  std::vector<int64_t> sample_perfect_tile(const std::string& loop, int64_t count, int64_t max_innermost,
                                           std::mt19937_64* random, const std::vector<int64_t>& decision = {},
                                           Names as = {});

  // One of the numbers.
  int64_t sample_categorical(const std::vector<int64_t>& candidates, std::mt19937_64* random,
                             const std::vector<int64_t>& decision = {}, std::string as = "");
  // One of the loops into which compute_at takes the stage (its number among them, outermost first), or "root" (-1): it
  // stays where it is.
  std::string sample_compute_location(const std::string& stage, std::mt19937_64* random,
                                      const std::vector<int64_t>& decision = {}, std::string as = "");

  // The answer of the last sample_compute_location.
  const std::string& sampled_place() const { return sampled_place_; }

  // What only the finished program can be asked: register buffers are indexed by constants once unrolled and vectorized
  // loops are expanded. UserError TSR-3412 that names the buffer and the loop.
  void check_finished() const;

  // Verified by loop/verify.h after every primitive; off only where a caller verifies itself.
  bool verify_each = true;

 private:
  void commit(Stmt body, TraceStep step);
  void commit(LoopProgram next, TraceStep step);
  const TensorIntrinsic& intrinsic_named(const std::string& name) const;
  void tensorize_nest(const StmtPath& path, const Stmt& nest, const std::string& loop_name, const std::string& name);

  LoopProgram program_;
  std::optional<Target> target_;
  Intrinsics declared_;
  std::string chosen_;  // by the last intrinsic()
  std::string sampled_place_;
  Names constants_;
  std::vector<PackedParam> packed_;
  std::vector<TraceStep> steps_;
};

}  // namespace tessera::inline schedule
