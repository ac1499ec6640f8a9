// What the rules for products with weights in blocks share: what is such a product, and loops over its output.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/kernel/size_polynomial.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {

// out[.., column] = epilogue(sum over steps of x[.., step] * weight[column, step]). Weights are computed from elements
// of constants whose first index is the column, some of which are narrower than floats. The output's columns are cut
// into panels.
class BlockedProduct {
 public:
  BlockedProduct(const TensorProgram& kernel, const Target& target, Knobs& knobs)
      : kernel_(kernel), target_(target), knobs_(knobs) {}

 protected:
  // The reason why the kernel is no such product; empty when it is.
  std::string find_product();
  // After the panels are known, and how constants are packed: the program's parameters, and expressions of them.
  void begin_program(const std::function<PackedParam(size_t param)>& pack);
  bool is_weight(const BufferPtr& buffer) const;

  // The output's variables at a row; rows count through all axes but the last.
  VarMap at_row(const Expr& row) const;
  Expr num_rows() const;
  Expr flattened(const Expr& e);
  // Tiles of the largest size, then of smaller ones for the rows that are left.
  Stmt over_rows(const Expr& rows, const std::vector<int64_t>& sizes,
                 const std::function<Stmt(int64_t count, const Expr& first)>& tile) const;
  Stmt each_vector(const std::function<Stmt(int64_t v, const Expr& column, const Var& lane)>& body) const;
  // Stores what the sums in `acc`, [rows * vectors][lanes], become, at `count` rows from `first` on; their sums begin
  // with those of row `row_of_acc`.
  Stmt finish(const Expr& panel, int64_t count, const Expr& first, const BufferPtr& acc, const Expr& row_of_acc = 0);
  Stmt over_panels(const Var& panel, const Stmt& body) const;
  // A step of a loop, which is number `index` of `count`.
  struct StepOf {
    Expr index;
    int64_t count = 1;
  };
  // `body`, a step of what is done with `elements` of a packed constant from `first` on, which asks memory for its
  // share of elements that come some kilobytes later. Few rows wait for memory, and a core that asks by itself gets
  // more of it than one whose loads are guessed, which ends at each page.
  Stmt with_later_bytes(const Buffer* constant, const Expr& first, int64_t elements, const StepOf& step,
                        Stmt body) const;

  const TensorProgram& kernel_;
  const Target& target_;
  Knobs& knobs_;
  const Stage* reduction_ = nullptr;
  Var step_, column_;
  int64_t steps_ = 0, columns_ = 0;
  Expr x_, weight_;
  int64_t block_ = 1;  // the weights' bytes repeat their order after so many steps
  int64_t lanes_ = 1, vectors_ = 1, width_ = 1, panels_ = 1;
  std::unordered_map<const Buffer*, BufferPtr> flat_;
  Bounds bounds_;
  ScheduledKernel result_;

 private:
  std::string find_weights();
  Expr address(const BufferPtr& buffer, const std::vector<Expr>& index);

  SizePolynomial::Factors factors_;
  const Var result_var_ = make_var("result", DType::kF32);
  Expr value_, out_index_;
};

}  // namespace tessera::inline schedule
