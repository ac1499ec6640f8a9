// Places in a loop program: where a statement stands, what is around it, and the program with something else there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "loop/stmt.h"

namespace tessera::inline schedule {

// From a root down to one statement: nodes[0] is the root, nodes[i + 1] the child number children[i] of nodes[i].
struct StmtPath {
  std::vector<Stmt> nodes;
  std::vector<size_t> children;

  const Stmt& stmt() const { return nodes.back(); }
  // The loops around the statement, outermost first; with itself when it is one and `inclusive`.
  std::vector<Stmt> loops(bool inclusive = false) const;
  // The path to the `count`-th node of it.
  StmtPath prefix(size_t count) const;
};

// In the order of the text. Every statement for which `wanted` holds.
std::vector<StmtPath> find_statements(const Stmt& root, const std::function<bool(const Stmt&)>& wanted);
std::optional<StmtPath> find_loop(const Stmt& root, const std::string& name);
std::optional<StmtPath> find_alloc(const Stmt& root, const Buffer* buffer);

// The root with `by` in the place of the path's statement; a null `by` removes it, and with it the loops, branches and
// sequences that become empty.
Stmt replaced(const StmtPath& path, Stmt by);

// The program with names that differ from each other, as its text has them (loop/printer.h): parameters and symbols
// keep their objects, loop variables and allocations whose name is taken get new ones.
LoopProgram with_unique_names(const LoopProgram& program);
// Names of all loops, or of all parameters and allocations, in the order of the text.
std::vector<std::string> loop_names(const LoopProgram& program);
std::vector<BufferPtr> buffers_of(const LoopProgram& program);
// `wish`, or `wish`_1, ... : the first that the program does not use.
std::string free_name(const LoopProgram& program, const std::string& wish);

// Ranges of the variables of these loops (and of symbols: not negative), for proofs.
Bounds bounds_of_loops(const LoopProgram& program, const std::vector<Stmt>& loops);

// Loads of `buffer` replaced; `rewrite` gets the indices.
Stmt rewrite_accesses(const Stmt& s, const Buffer* buffer,
                      const std::function<Expr(const std::vector<Expr>& indices)>& rewrite_load,
                      const std::function<Stmt(const Stmt& store)>& rewrite_store);
bool loads_buffer(const Expr& e, const Buffer* buffer);
bool reads_buffer(const Stmt& s, const Buffer* buffer);
bool writes_buffer(const Stmt& s, const Buffer* buffer);
// Buffers that the statement reads or writes and does not allocate itself.
std::vector<const Buffer*> buffers_read(const Stmt& s);
std::vector<const Buffer*> buffers_written(const Stmt& s);

// Whether the store folds a value into what it overwrites by an operator whose order does not matter (sum, product,
// minimum, maximum), and touches its buffer nowhere else.
bool is_reduction_update(const Stmt& store);
// The operand that is folded in, and the operator, of such a store: y[i] = y[i] + v, or fma(a, b, y[i]) with v = a * b.
struct ReductionUpdate {
  BinaryOp op = BinaryOp::kAdd;
  Expr value;
};
std::optional<ReductionUpdate> reduction_update(const Stmt& store);

}  // namespace tessera::inline schedule
