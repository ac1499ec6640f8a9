// What the writers of sketches share: traces that are applied as they are written, and a kernel's naive loops taken
// apart.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schedule/choose.h"
#include "schedule/primitives/loop_tree.h"
#include "schedule/primitives/schedule.h"
#include "schedule/primitives/trace.h"

namespace tessera::inline schedule {

// Writes a trace line by line, and applies it as it goes, so that a line that would be refused is known at once: a
// UserError, as of the primitives.
class TraceWriter {
 public:
  TraceWriter(const TensorProgram& kernel, const Target& target);

  const LoopProgram& program() const { return schedule_.program(); }
  const std::vector<TraceStep>& steps() const { return steps_; }

  // Answers the names of what the line makes.
  template <typename... Args>
  Names line(fmt::format_string<Args...> text, Args&&... args) {
    return add(fmt::format(text, std::forward<Args>(args)...));
  }
  // One of several numbers under a name; without a choice no line. Answers what stands for the number in other lines.
  std::string number(const std::string& name, std::vector<int64_t> candidates, int64_t first);
  // A loop in two, as far as numbers divide it; the outer one first.
  Names tile(const std::string& loop, const std::string& outer, const std::string& inner, int64_t most);

 private:
  Names add(const std::string& line);

  Schedule schedule_;
  Replayer replayer_;
  std::vector<TraceStep> steps_;
};

struct LoopFact {
  std::string name;
  int64_t extent = 1;
};

// The naive program of a kernel, taken apart.
struct NaiveNest {
  std::vector<LoopFact> outputs, reduced;
  Stmt result;  // the store to y
  Stmt update;  // null without a reduction
};

NaiveNest nest_of(const LoopProgram& program);

std::vector<Expr> loads_of(const Expr& e);
bool mentions(const Expr& e, const std::string& var);
// The block in which some load walks along the loop's variable: c of floormod(r, c); 1 when there is none.
int64_t block_of(const Expr& e, const std::string& var);
// A sum of products, which one instruction adds to.
bool is_product_of_floats(const Stmt& update);

std::vector<int64_t> divisors(int64_t extent, int64_t most);
std::vector<int64_t> up_to(int64_t most);

using Made = std::variant<std::vector<TraceStep>, Declined>;

// How the output is walked over: which loop lies along contiguous memory, and others from the inside out.
struct OutputAxes {
  std::string vector;
  int64_t extent = 1, lanes = 1;
  std::vector<LoopFact> rows;  // longer than 1, the innermost in memory first
  std::vector<std::string> ones;
};

// `lanes`: of the machine's vectors, where no block of the layout says how many lie together.
std::variant<OutputAxes, Declined> output_axes(const NaiveNest& nest, int64_t lanes);

// Which loops run on threads, when there are several: the outermost two joined, in pieces, or the longest of them
// alone, where it cannot be told that iterations of the joined one are independent.
enum class Threads : uint8_t { kJoined, kOneLoop };
void run_on_threads(TraceWriter& writer, const Target& target, const Names& outer, Threads threads);

// What a tile of sums in registers is about beyond the plain one (sketch.h).
enum class TileKind : uint8_t { kPlain, kWindowsInside, kPackedOperands };
Made tile_sketch(const TensorProgram& kernel, const Target& target, TileKind kind, Threads threads);

}  // namespace tessera::inline schedule
