// Sketches: structures of schedules whose numbers are open. A sketch is a trace of primitives (trace.h) with sampling
// steps; a point of its space is the trace with all decisions, an ordinary schedule's text. Made from a kernel's naive
// loops by a few rules, after Ansor (Zheng et al., "Ansor: generating high-performance tensor programs for deep
// learning", OSDI 2020, section 4.1) and MetaSchedule (Shao et al., "Tensor program optimization with probabilistic
// programs", NeurIPS 2022):
//
//   tile     a reduction with a contiguous output axis: blocks for caches, a tile of sums in registers (vectors along
//            the axis, rows along up to two others), weights in the order of use, window loops as copies. "S S S R R S"
//            in Ansor's letters: the reduction is not cut around the tile, so that its sums never leave the registers.
//   rfactor  a reduction along contiguous memory: lanes of partial results, combined at the end
//   map      no reduction: contiguous vectors, in copies
//
// A sketch says which kernels it declines, and why. Everything is checked by the primitives themselves, so whatever a
// trace says, what comes out computes what the kernel does, or nothing comes out.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schedule/choose.h"
#include "schedule/kernel/knobs.h"
#include "schedule/primitives/trace_step.h"
#include "target/target.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// The meaning of a trace's text in records.
inline constexpr int kTraceFormat = 1;

struct Sketch {
  std::string name;              // "sketch.tile"
  std::vector<TraceStep> steps;  // decided by a model of the machine: where a search begins
};

struct SketchList {
  std::vector<Sketch> sketches;
  std::vector<std::string> declined;  // "sketch.rfactor: reason"
};

// The sketches of a kernel; none for kernels whose sizes a run decides about. Takes milliseconds.
SketchList make_sketches(const TensorProgram& kernel, const Target& target);

// ---- points
// The point of a trace whose decisions are all there: the sketch's name, decisions as values, the trace as text.
KnobPoint trace_point(const std::string& name, const std::vector<TraceStep>& steps);
// The same from the text of a record or a message: the sketch's name in a comment on the first line, then the trace.
// Empty with a reason when it is none, or longer than what anybody would search. Takes any bytes.
std::optional<KnobPoint> parse_trace_point(std::string_view text, std::string& why);
std::string trace_point_text(const KnobPoint& point);

// The kernel under the point's trace; Declined with the reason when a primitive refuses, the trace is not finished, or
// the code or memory would be out of proportion. REQUIRES: is_trace(point).
std::variant<ScheduledKernel, Declined> apply_trace_point(const KnobPoint& point, const TensorProgram& kernel,
                                                          const Target& target);

// ---- drawing
// All decisions anew.
std::optional<KnobPoint> draw_point(const Sketch& sketch, const TensorProgram& kernel, const Target& target,
                                    std::mt19937_64& random, std::string& why);
// One to three decisions of the point changed: a factor of a tile moved between its levels, a number by a neighbour or
// any other, a place by another. Decisions that are no longer legal behind a changed one are drawn anew.
// Empty when what came out is refused. REQUIRES: is_trace(point).
std::optional<KnobPoint> mutate_point(const KnobPoint& point, const TensorProgram& kernel, const Target& target,
                                      std::mt19937_64& random, std::string& why);
// Each decision from one of the two. REQUIRES: points of one sketch.
std::optional<KnobPoint> cross_points(const KnobPoint& a, const KnobPoint& b, const TensorProgram& kernel,
                                      const Target& target, std::mt19937_64& random, std::string& why);

// How many points there are at most, as far as numbers do not depend on each other; INT64_MAX when there are more.
int64_t sketch_size(const Sketch& sketch);

}  // namespace tessera::inline schedule
