// What the rules for attention share: the members of a joined program that is attention, their kernels with loops as
// rows and the rest, and which tiles of keys are seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/fusion/chain.h"
#include "schedule/gpu/gpu_loops.h"
#include "schedule/kernel/linear_kernel.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// A member's kernel, with its loops as rows and the rest.
struct AttentionPart {
  LinearKernel kernel;
  std::vector<Var> rows;         // by row axis
  std::vector<OutputLoop> rest;  // loops that are no rows
  VarMap fixed;                  // loops of one iteration
};

class AttentionMembers {
 public:
  // `joined` outlives the object.
  AttentionMembers(const JoinedProgram& joined, const JoinedContext& context);

 protected:
  // Finds the members. The reason why the program is no attention; empty when it is.
  std::string find_members();

  LoopProgram program_of(Stmt body) const;

  // Tiles of `columns` keys that some row of a tile of `rows` queries sees.
  Expr visible(const Expr& tile, int64_t rows, int64_t columns) const;
  // A member's rows at a query of the block's plane.
  VarMap rows_at(const AttentionPart& part, const Expr& query) const;
  static Expr below(const Expr& place, const FlatAxes& axes, int64_t tile) {
    return axes.has_whole(tile) ? const_int(DType::kBool, 1) : place < axes.size;
  }
  static Expr value_if(const Expr& inside, const Expr& value, double otherwise) {
    return is_true(inside) ? value : select(inside, value, const_float(DType::kF32, otherwise));
  }
  // The score of a query and a key, as the members define it, from the sum of its products.
  Expr score(const Expr& query, const Expr& key, const Expr& sum) const;
  // Stores the result's column of a query from what was summed, and from the sum of its exponentials.
  Stmt store_result(const Expr& query, const Expr& column, const Expr& mixed, const Expr& sum) const;

  const JoinedProgram& joined_;
  Chain chain_;
  std::vector<TensorPtr> constants_;
  std::vector<BufferPtr> params_;
  AttentionPart scores_, product_;
  Expr query_, key_, value_;          // factors
  FlatAxes queries_, keys_, planes_;  // the last axis of rows, and the others
  FlatAxes steps_, columns_;          // what scores sum; of the result
  Bounds bounds_;
  VarMap plane_;  // where a block is along the other rows

 private:
  std::string make_part(size_t m, AttentionPart& part) const;
  std::string find_scores();
  std::string find_product(size_t product);

  Var total_ = make_var("total", DType::kF32);
  Expr sum_;  // the finished sum, or its inverse, in terms of
  Var sum_result_;
};

}  // namespace tessera::inline schedule
