// What the rules of GPUs are put together from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "loop/stmt.h"
#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

// Several axes that one index counts, the last of them fastest.
struct FlatAxes {
  std::vector<Axis> axes;
  Expr size = 1;
  int64_t extent = 1;  // the size, or, where a run decides about it, a typical one: to choose by, not to compute with

  void add(const Var& var, const Expr& axis_size) {
    axes.push_back({var, axis_size});
    size = size * axis_size;
    extent *= typical_size(axis_size);
  }
  // Whether tiles of so many leave no rest.
  bool has_whole(int64_t tile) const { return as_int(size) && extent % tile == 0; }
  // How many tiles of so many there are.
  Expr tiles(int64_t tile) const;
  // Whether there are at most so many, or tiles of so many each, whatever a run decides.
  bool is_at_most(int64_t most, int64_t tile = 1) const;
  // Gives each axis its value at a place of all of them. `bounds` knows the variables of `index`.
  void values_at(const Expr& index, const Bounds& bounds, VarMap& values) const;
};

// Whether the elements that an expression reads at neighbouring values of the variable are neighbours in memory, of
// each load that depends on it; some load does.
bool reads_neighbours(const Expr& value, const Var& var, const Bounds& bounds);

// What an expression loads whatever its conditions say, each once.
std::vector<Expr> certain_loads(const Expr& value);

// A buffer of one dimension for all elements of a row-major one.
BufferPtr flat_memory(const Buffer& buffer);

// A loop program of a linear kernel with this body.
LoopProgram gpu_program(const std::string& name, const LinearKernel& kernel, Stmt body);

inline constexpr int64_t kMostBlocksBeside = UINT16_MAX;  // along axes y and z of a grid

Stmt loop_over(const std::string& name, const Expr& extent, ForKind kind, const std::function<Stmt(const Var&)>& body,
               Bounds& bounds);
// A variable from 0 to below an extent.
Var var_below(const std::string& name, const Expr& extent, Bounds& bounds);
// Loops over axes x and y of a block's threads; of one axis where `height` is 1.
Stmt thread_nest(const std::string& name, int64_t height, int64_t width,
                 const std::function<Stmt(const Expr& y, const Expr& x)>& body, Bounds& bounds);
Stmt serial_loop(const std::string& name, const Expr& extent, const std::function<Stmt(const Var&)>& body,
                 Bounds& bounds);
// A loop that is written out.
Stmt unrolled_loop(const std::string& name, int64_t extent, const std::function<Stmt(const Var&)>& body,
                   Bounds& bounds);

}  // namespace tessera::inline schedule
