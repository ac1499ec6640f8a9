// One kernel as a C function.
//
//   static void k0_conv(const f32 *restrict x, const f32 *restrict w, f32 *restrict y)
//
// or as what the threads of a device run of one of its launches. Buffers are flat arrays, indices `ptrdiff_t`, of
// devices `i32` where that holds them. What an expression uses more than once, and what would make a line too long,
// becomes a constant of its own before the statement; what only one arm of a select needs, in a block of that arm.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arith/simplify.h"
#include "codegen/common/local_plan.h"
#include "codegen/source/c_text.h"
#include "device/thread_form.h"
#include "loop/stmt.h"

namespace tessera::inline source_codegen {

// Whether what a launch's blocks share is the language's one array, whose size the launch says.
bool is_shared_dynamic(const Launch& launch, const Dialect& dialect);

class KernelPrinter {
 public:
  // `alias_classes`: a number per parameter; parameters with the same number may overlap, others do not. `launch`: of
  // the program's thread form; null for the whole program as a function. `aligned`: of each parameter, whether it
  // begins at a multiple of 16 bytes; none does where there is no list. Everything outlives the printer.
  KernelPrinter(const LoopProgram& program, std::string function, std::vector<int> alias_classes, COps& ops,
                const Launch* launch = nullptr, std::vector<bool> aligned = {});

  std::string print();
  // Whether the function has one more parameter, `scratch`, behind the buffers and before the symbols.
  bool uses_scratch() const { return locals_.scratch_bytes > 0; }
  int64_t scratch_bytes() const { return locals_.scratch_bytes; }

 private:
  using Layer = std::unordered_map<const ExprNode*, std::string>;

  std::string signature();
  std::string device_signature();
  void declare_shared();
  void line(const std::string& text);
  void emit(const Stmt& s);
  void emit_statement(const Stmt& s);
  void emit_for(const Stmt& s);
  void emit_axis(const Stmt& s);
  int64_t copies_of(const Stmt& s) const;
  // A vectorized loop that moves neighbours from a parameter to registers, or back.
  struct VectorMove {
    std::string_view type;  // of the vector; empty: it is none
    std::string to, from;   // addresses
    std::string_view to_space, from_space;
    bool from_params = false, to_shared = false;
  };
  VectorMove vector_move(const Stmt& s);
  // An intrinsic's exp as a statement; empty where it is printed as it is.
  std::string short_exp(const Stmt& s);
  // A vectorized loop that rounds two neighbours of f32 to 16 bits, as one assignment; else empty.
  std::string narrow_pair(const Stmt& s);
  // Such a move of an asynchronous copy's, from a parameter to memory of the block; empty where it is printed as it is.
  std::string async_copy(const Stmt& s);
  // A warp's product of tiles as a call of tsr_mma_bf16 or tsr_mma_f16; empty where the nest is printed as it is.
  std::string warp_product(const Stmt& s);
  static Expr flat_index(const Buffer& buffer, const std::vector<Expr>& indices);
  bool is_shared(const Buffer& buffer) const;
  std::string vector_at(const Buffer& buffer, const std::vector<Expr>& indices, const Stmt& loop);
  void emit_if(const Stmt& s);
  void emit_store(const Stmt& s);
  void emit_alloc(const Stmt& s);
  void emit_block(const Stmt& s);  // with one more level of indentation

  // The text of an expression; statements that it needs go before it.
  std::string value(const Expr& e);
  std::string compute(const Expr& e);
  // Arithmetic on loop variables alone: as ptrdiff_t, or, for a device, in 32 bits where all of it fits.
  std::string index(const Expr& e);
  std::string index_text(const Expr& e, std::string_view type, bool widen);
  bool is_narrow_index(const Expr& e) const;
  std::string index_type(const Interval& range) const;
  std::string emit_select(const Expr& condition, const Expr& a, const Expr& b);
  std::string element(const Buffer& buffer, const std::vector<Expr>& indices);
  std::string temporary(DType dtype, const std::string& text);
  const std::string* known_value(const Expr& e) const;
  void evaluate_shared(const Expr& a, const Expr& b);
  // An arm: its statements, indented, and its value.
  std::pair<std::string, std::string> arm(const Expr& e);

  bool has_load(const Expr& e);
  bool has_guarded_load(const Expr& e);
  bool is_index(const Expr& e);
  void count_uses(const Expr& e);
  void begin_expression(const std::vector<Expr>& roots);
  std::string fresh(const std::string& text);
  std::string where(const std::string& what) const { return "kernel " + program_.name + ": " + what; }

  const LoopProgram& program_;
  const std::string function_;
  const std::vector<int> alias_classes_;
  COps& ops_;
  const Dialect& dialect_;
  const Launch* const launch_;
  const std::vector<bool> aligned_;
  const LocalPlan locals_;
  std::string out_;
  int depth_ = 1;
  Var lane_;  // along x of the threads around the current statement
  int temporaries_ = 0;
  Bounds bounds_;
  std::unordered_map<std::string, int> names_;
  std::unordered_map<const Buffer*, std::string> buffers_;
  std::unordered_map<const ExprNode*, std::string> variables_;
  std::vector<Layer> values_;
  std::unordered_map<const ExprNode*, int> uses_;
  std::unordered_map<const ExprNode*, bool> has_load_, is_index_;
  std::unordered_map<const ExprNode*, bool> guarded_;  // as has_guarded_load answered, since a layer ended
  std::unordered_set<const Buffer*> scalars_;          // local buffers of one element
  std::vector<Expr> keep_;                             // nodes that the maps above name
};

}  // namespace tessera::inline source_codegen
