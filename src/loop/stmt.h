// The loop IR: programs of loops and stores over buffers, one per kernel.
//
// Semantics (the interpreter in interp/loop_interp.h is the definition):
// - Expressions mean what arith/expr.h says. Statements run in order.
// - `for` runs its body for var = begin .. begin + extent - 1; extent <= 0 runs nothing. The kinds promise, and do not
//   change, the result:
//     serial       in order
//     unrolled     constant extent; the back end emits a copy per iteration
//     vectorized   constant extent; iterations are independent except through associative order: lanes of vectors
//     parallel     iterations are independent and may run on different threads; not nested in another parallel loop
//     blockIdx.x, .y, .z, threadIdx.x, .y, .z
//                  iterations are independent and may run along that axis of a GPU's threads; from 0, those of threads
//                  to a constant. Not inside a loop of the same axis, blocks not inside threads, neither with a
//                  parallel loop. Back ends without such axes go in order
// - Different buffers do not overlap, except parameters that the program says are the same memory.
// - A `register` buffer lives in registers: its indices are constants once the unrolled and vectorized loops around
//   the access are expanded. An allocation's contents are unspecified until stored to.
// - `tensorized` runs its body; the intrinsic's name tells a back end which instruction sequence implements it. The
//   body must match the intrinsic's declared pattern (loop/intrinsic.h).
// - A serial loop may name an element that each iteration prefetches. That changes no value, the element may lie
//   outside of its buffer, and any pass may leave it out.
// - A store outside its buffer is an error of the program. Vectors of a vectorized loop may be masked by an `if`.
// Nodes are immutable and shared.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arith/expr.h"

namespace tessera::inline loop {

enum class StmtKind : uint8_t { kSeq, kFor, kIf, kStore, kAlloc, kTensorized };
enum class ForKind : uint8_t {
  kSerial,
  kUnrolled,
  kVectorized,
  kParallel,
  kBlockX,
  kBlockY,
  kBlockZ,
  kThreadX,
  kThreadY,
  kThreadZ
};
const char* for_kind_name(ForKind kind);  // "serial", "unrolled", "vectorized", "parallel", "blockIdx.x", ...

inline bool is_block_axis(ForKind kind) { return kind >= ForKind::kBlockX && kind <= ForKind::kBlockZ; }
inline bool is_thread_axis(ForKind kind) { return kind >= ForKind::kThreadX && kind <= ForKind::kThreadZ; }
// Its iterations may run at the same time, each with registers of its own.
inline bool is_concurrent(ForKind kind) {
  return kind == ForKind::kParallel || is_block_axis(kind) || is_thread_axis(kind);
}
// Whether a loop of one kind may be inside, at any depth, of one of the other: of two concurrent ones.
bool may_nest(ForKind outer, ForKind inner);

struct StmtNode;
struct TensorIntrinsic;

class Stmt {
 public:
  Stmt() = default;
  explicit Stmt(std::shared_ptr<const StmtNode> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }
  const StmtNode* operator->() const { return node_.get(); }
  const StmtNode* get() const { return node_.get(); }
  bool same_node(const Stmt& other) const { return node_ == other.node_; }

 private:
  std::shared_ptr<const StmtNode> node_;
};

struct StmtNode {
  StmtKind kind;
  std::vector<Stmt> stmts;    // kSeq: children; kFor, kAlloc, kTensorized: [body]; kIf: [then] or [then, else]
  Var var;                    // kFor
  Expr begin, extent;         // kFor
  ForKind for_kind{};         // kFor
  Expr condition;             // kIf
  BufferPtr buffer;           // kStore, kAlloc; kFor: what each iteration prefetches, or none
  std::vector<Expr> indices;  // kStore; kFor: of the prefetch
  Expr value;                 // kStore; dtype is the buffer's
  const TensorIntrinsic* intrinsic = nullptr;  // kTensorized; static lifetime
};

Stmt seq(std::vector<Stmt> stmts);  // flattens nested sequences; one statement stays itself
Stmt for_loop(Var var, Expr begin, Expr extent, ForKind kind, Stmt body);
// A serial `loop` with a request, at the beginning of each iteration, to bring the cache line of an element into the
// second level of cache; the indices load nothing. Loops of other kinds stay as they are.
Stmt prefetching(const Stmt& loop, BufferPtr buffer, std::vector<Expr> indices);
// `loop`, made from `old`, with what `old` prefetches, if anything.
Stmt keep_prefetch(const Stmt& loop, const Stmt& old, const std::function<Expr(const Expr&)>& rewrite_index);
Stmt if_then(Expr condition, Stmt then, Stmt otherwise = {});  // folds constant conditions
Stmt store(BufferPtr buffer, std::vector<Expr> indices, Expr value);
Stmt alloc(BufferPtr buffer, Stmt body);
Stmt tensorized(const TensorIntrinsic* intrinsic, Stmt body);

// One kernel: a name, parameters in call order, a body.
struct LoopProgram {
  std::string name;
  std::vector<BufferPtr> params;  // kGlobal; inputs first, then outputs
  int num_outputs = 1;            // the last params
  std::vector<Var> symbols;       // values of named dimensions, passed at run time
  Stmt body;
};

// Rewrites expressions and statements bottom-up; null answers keep the node.
Stmt transform(const Stmt& s, const std::function<Expr(const Expr&)>& rewrite_expr,
               const std::function<Stmt(const Stmt&)>& rewrite_stmt);
Stmt substitute(const Stmt& s, const VarMap& map);
void walk(const Stmt& s, const std::function<void(const Stmt&)>& visit_stmt,
          const std::function<void(const Expr&)>& visit_expr);

}  // namespace tessera::inline loop
