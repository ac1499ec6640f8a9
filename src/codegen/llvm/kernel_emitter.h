// One kernel's loop program as LLVM functions of one module: `void kernel(ptr args, ptr host)`, and for every parallel
// loop a task of the ABI's type tsr_task_fn, called directly when the work is too small to split.
//
// `args` is an array of 8-byte slots: a pointer per parameter, the scratch memory of worker 0, a value per symbol; a
// task whose loop uses more than that (outer loop variables, allocations around it) gets a copy with these appended.
// Of a sequence, a loop over tiles that take most registers is a function of its own: next to other loops, whose
// constants are kept in registers all the way, LLVM spills the tiles in their innermost loop.
//
// The same code emits scalars and vectors. Inside a vectorized loop (`vec_`) an expression that depends on the loop's
// variable evaluates to a vector, every other one to a scalar, which is splat where a vector is needed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arith/simplify.h"
#include "codegen/common/local_plan.h"
#include "codegen/common/vector_plan.h"
#include "codegen/llvm/llvm_headers.h"
#include "codegen/llvm/ops.h"
#include "codegen/llvm/tile_ops.h"
#include "loop/unify.h"
#include "program/program.h"

namespace tessera::inline llvm_codegen {

class KernelEmitter {
 public:
  // `alias_classes`: a number per parameter; parameters with the same number may overlap, others do not.
  // `scratch_stride`: bytes of scratch per worker.
  KernelEmitter(llvm::Module& module, const EmitTarget& target, const LoopProgram& program, std::string symbol,
                std::vector<int> alias_classes, int64_t scratch_stride, std::vector<std::string>& remarks);
  llvm::Function* emit();

  static int scratch_slot(const LoopProgram& p) { return static_cast<int>(p.params.size()); }
  static int symbol_slot(const LoopProgram& p, int symbol) { return scratch_slot(p) + 1 + symbol; }
  static int num_slots(const LoopProgram& p) { return symbol_slot(p, static_cast<int>(p.symbols.size())); }

 private:
  using Value = llvm::Value;

  // Where a buffer lives.
  struct Place {
    enum Kind { kMemory, kRegister, kPrivate } kind = kMemory;
    Value* pointer = nullptr;       // kMemory: first element; kPrivate: [n x vector], a vector per element
    llvm::MDNode* scope = nullptr;  // kMemory: alias scope of its own, and those it does not overlap
    llvm::MDNode* noalias = nullptr;
    int64_t inner = 1;  // kRegister: innermost extent, cut into `chunks`; a cell per row and chunk
    std::vector<Chunk> chunks;
    std::vector<llvm::AllocaInst*> cells;
  };
  using Layer = std::unordered_map<const ExprNode*, Value*>;

  // An expression, or the arm of a select, that is being emitted as a whole: the loads that happen whenever it is
  // evaluated. A load that happens anyway needs no guard where it appears again in an arm.
  struct Evaluation {
    std::vector<Expr> certain_loads;
    std::unordered_map<const ExprNode*, bool> has_guarded_load;
  };

  // What belongs to the function being written.
  struct FunctionState {
    llvm::Function* function = nullptr;
    llvm::BasicBlock* allocas = nullptr;  // entry block: only allocas and loads of arguments
    Value* args = nullptr;
    Value* host = nullptr;     // null in tasks
    Value* scratch = nullptr;  // of this worker
    std::unordered_map<const Buffer*, Place> places;
    // Of allocations, for all copies of one that unrolling makes: by buffer, cell and type.
    std::map<std::tuple<const Buffer*, size_t, llvm::Type*>, llvm::AllocaInst*> slots;
    Layer vars;                           // loop variables and symbols
    std::vector<Layer> indices;           // load-free index values, a layer per block scope
    std::vector<Layer> values;            // of the statement being emitted, a layer per block scope
    std::vector<Evaluation> evaluations;  // like `values`, from the outside
    std::shared_ptr<TileOps> tiles;       // made by the first "tile_dot"
    std::vector<llvm::CallInst*> calls;   // of functions that may use tiles themselves
  };

  // What one copy of a vectorized loop's body has reduced, a lane each.
  struct Partial {
    llvm::AllocaInst* cell = nullptr;
    llvm::AllocaInst* has_run = nullptr;  // of all copies: that the cell was stored to; null: it surely is
  };

  // The vectorized loop being emitted: its variable is base + lane for lane = 0 .. lanes - 1.
  struct Vector {
    Var var;
    Expr base;
    Var lane;
    int lanes = 1;
    Value* mask = nullptr;                                // lanes that run; null: all
    bool mask_may_be_empty = false;                       // then a load that is the same for all lanes needs a branch
    std::unordered_map<const Buffer*, Partial> partials;  // of reductions
  };

  // An access's flattened index, with the variables that are being replaced (unrolled ones and the vector variable)
  // taken out if it is linear in them.
  struct FlatIndex {
    Expr keep;  // keeps the key alive
    Expr flat;
    std::vector<std::pair<const ExprNode*, std::optional<int64_t>>> coefficients;
    std::vector<const ExprNode*> removed;
    Expr rest;
  };
  struct Resolved {
    Expr rest;                                    // does not depend on the lane
    std::vector<std::pair<Expr, int64_t>> added;  // expressions times factors
    int64_t offset = 0;
    std::optional<int64_t> lane_stride = 0;  // empty: `varying` is the whole index
    Expr varying;
    std::vector<int64_t> lane_offsets;  // with `varying`: constant distances from `rest`, when they are constant
  };

  // ---- functions and parallel loops (kernel_emitter.cpp)
  void begin_function(llvm::Function* function);
  void load_params();
  void end_function();
  // Buffers and variables that have a place here and that the statement uses; not those in `known`.
  struct Captured {
    std::vector<const Buffer*> buffers;
    std::vector<Var> vars;
  };
  Captured captured_by(const Stmt& s, std::unordered_set<const void*> known) const;
  void emit_parallel(const Stmt& s);
  bool is_part(const Stmt& s) const;
  bool emit_part(const Stmt& s);
  void emit_seq(const Stmt& s);
  llvm::Function* emit_task(const Stmt& loop, const std::vector<const Buffer*>& buffers, const std::vector<Var>& vars);
  llvm::AllocaInst* stack_slot(llvm::Type* type, const llvm::Twine& name, llvm::Align align);
  llvm::AllocaInst* buffer_slot(const Buffer& buffer, llvm::Type* type, size_t cell = 0);
  Value* slot_pointer(Value* args, int slot);
  Place memory_place(const Buffer* buffer, Value* pointer);
  llvm::MDNode* scope_of(int alias_class);
  llvm::MDNode* scopes_except(int alias_class);

  // ---- statements (kernel_stmts.cpp)
  void emit(const Stmt& s);
  void emit_for(const Stmt& s);
  // With the values of `at` for variables.
  void emit_prefetch(const Stmt& loop, bool whole_step, const VarMap& at = {});
  void emit_loop(const Var& var, Value* begin, Value* extent, bool runs, const std::function<void()>& body);
  void emit_unrolled(const Stmt& s);
  void emit_vectorized(const Stmt& s);
  void emit_chunks(const Stmt& s, int64_t first, int64_t count, int lanes, const VectorPlan& plan);
  // `body` with `var` as base + lane for lane = 0 .. lanes - 1.
  void in_vector(const Var& var, const Expr& base, int lanes, const std::function<void()>& body,
                 std::unordered_map<const Buffer*, Partial> partials = {});
  void join_partials(const VectorReduction& reduction, const std::vector<Partial>& copies, int lanes);
  void replace(const Var& var, int64_t place);  // by a constant, until it is erased from `replaced_`
  void emit_if(const Stmt& s);
  void emit_alloc(const Stmt& s);
  void bind(const Var& var, const Interval& interval);
  std::string where(const std::string& what) const;

  // ---- expressions (kernel_exprs.cpp)
  Value* evaluate(const Expr& e);           // with a memo of its own
  Value* value(const Expr& e);              // each shared node once per statement
  Value* known_value(const Expr& e) const;  // null where it has none yet
  Value* compute(const Expr& e);
  Value* emit_scaled(const Expr& e);
  Value* variable(const Expr& e);
  Value* emit_select(const Expr& condition, const Expr& a, const Expr& b);
  void evaluate_shared(const Expr& a, const Expr& b);
  Value* masked_arm(const Expr& arm, Value* condition);
  Value* branch_select(Value* condition, const std::function<Value*()>& a, const std::function<Value*()>& b);
  Value* index_value(const Expr& e);  // a load-free i64 expression, kept for the block scope
  Expr resolve(const Expr& condition);
  Value* lane_constants(const Expr& condition);
  bool has_load(const Expr& e);
  bool has_guarded_load(const Expr& e);
  void enter(const Expr& e);
  void leave();
  bool is_index(const Expr& e);
  Value* and_mask(Value* condition);

  // ---- memory (kernel_memory.cpp)
  Value* emit_load(const Expr& e);
  void emit_store(const Stmt& s);
  Stmt as_bits(const Stmt& s);
  Resolved resolve_index(const void* key, const Expr& keep, const Buffer& buffer, const std::vector<Expr>& indices,
                         const std::vector<bool>& runs = {});
  Value* element_pointer(const Place& place, DType dtype, const Resolved& index);
  Value* load_memory(const Place& place, DType dtype, const Resolved& index);
  Value* last_lane(Value* stored);
  void store_memory(const Place& place, DType dtype, const Resolved& index, Value* v);
  Value* load_parts(const Place& place, DType dtype, Value* first, const std::vector<int64_t>& offsets,
                    const std::vector<bool>& runs);
  std::vector<bool> known_lanes() const;
  Value* lane_pointers(const Place& place, DType dtype, const Resolved& index);
  Value* access_cell(const Place& place, DType dtype, const Resolved& index, Value* stored, const std::string& name);
  Value* load_private(const Place& place, const Buffer& buffer, const Resolved& index);
  Value* private_pointer(const Place& place, const Buffer& buffer, const Resolved& index);
  static bool cell_is_byte(DType dtype);
  llvm::Type* cell_type(DType dtype, int lanes) const;
  Value* cell_to_value(DType dtype, Value* cell);
  Value* value_to_cell(DType dtype, Value* v);
  // Elements of fewer than 8 bits (kernel_packed.cpp); values in their storage type.
  Value* element_number(const Resolved& index);
  Value* bit_position(DType dtype, Value* number);
  Value* load_packed(const Place& place, DType dtype, const Resolved& index);
  void store_packed(const Place& place, const Buffer& buffer, const Resolved& index, Value* stored);
  template <typename Instruction>
  Instruction* mark(Instruction* access, const Place& place);
  Value* identity(Combiner combiner, DType dtype, int lanes);

  // ---- register tiles (kernel_tile.cpp)
  bool emit_tensorized(const Stmt& s);
  bool emit_tile(const TensorIntrinsic& intrinsic, const Stmt& body);
  bool emit_dot(const TensorIntrinsic& intrinsic, const Stmt& body);
  bool emit_transpose(const TensorIntrinsic& intrinsic, const Stmt& body);
  bool emit_tile_dot(const TensorIntrinsic& intrinsic, const Stmt& body);
  TileOps& tiles(const TensorIntrinsic& intrinsic);
  // ---- intrinsics whose pattern is loop IR (kernel_pattern.cpp)
  bool emit_pattern(const Stmt& s);
  bool emit_products(const TensorIntrinsic& intrinsic, const Stmt& nest);
  bool emit_pack(const TensorIntrinsic& intrinsic, const Stmt& nest);
  bool emit_call(const TensorIntrinsic& intrinsic, const Stmt& nest);
  Value* region_pointer(const PatternRegion& region);
  Value* interleaved_rows(const PatternRegion& rows, int64_t step, unsigned lanes, unsigned depth);
  Value* sum_of_products(const TensorIntrinsic& intrinsic, Value* acc, Value* a, Value* b);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  const EmitTarget emit_for_;
  const Target& target_;  // emit_for_.machine
  Ops ops_;
  const LoopProgram& program_;
  std::string symbol_;
  std::vector<int> alias_classes_;
  int64_t scratch_stride_;
  std::vector<std::string>& remarks_;
  LocalPlan locals_;

  FunctionState f_;
  VarMap replaced_;  // unrolled variables: constants; the vector variable: base + lane
  std::optional<Vector> vec_;
  Bounds bounds_;
  std::unordered_map<const void*, FlatIndex> flat_;
  std::unordered_map<const ExprNode*, bool> has_load_;
  std::unordered_map<const StmtNode*, std::pair<Stmt, Stmt>> moves_;  // stores, and what as_bits makes of them
  std::unordered_map<const Buffer*, BufferPtr> bits_of_;              // 16-bit floats as u16
  std::vector<Expr> keep_;  // expressions and statements made here: their nodes are keys of the maps above
  std::vector<Stmt> kept_stmts_;
  int num_tasks_ = 0, num_parts_ = 0;
  llvm::MDNode* alias_domain_ = nullptr;
  std::map<int, llvm::MDNode*> scopes_;  // by alias class
  std::unordered_map<const Buffer*, int> classes_;
};

// The combiner as the binary operator that applies it.
BinaryOp combiner_op(Combiner combiner);

}  // namespace tessera::inline llvm_codegen
