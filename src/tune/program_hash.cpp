#include "tune/program_hash.h"

#include <bit>
#include <unordered_map>

namespace tessera::inline tune {

namespace {

// Two rounds of multiply and xor-shift: all bits of both go into all bits of the result.
uint64_t mixed(uint64_t state, uint64_t value) {
  uint64_t x = state * 0x9e3779b97f4a7c15 + value;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

class ProgramHash {
 public:
  uint64_t run(const LoopProgram& program) {
    for (const Var& symbol : program.symbols) number_of(symbol.get());
    uint64_t hash = mixed(program.params.size(), static_cast<uint64_t>(program.num_outputs));
    for (const BufferPtr& param : program.params) hash = mixed(hash, buffer(*param));
    return mixed(hash, statement(program.body));
  }

 private:
  // Variables and buffers count by where they are met first.
  uint64_t number_of(const void* what) { return numbers_.try_emplace(what, numbers_.size() + 1).first->second; }

  uint64_t buffer(const Buffer& buffer) {
    uint64_t hash =
        mixed(number_of(&buffer), static_cast<uint64_t>(buffer.dtype) << 8 | static_cast<uint64_t>(buffer.scope));
    for (const Expr& dim : buffer.shape) hash = mixed(hash, expression(dim));
    return hash;
  }

  uint64_t expression(const Expr& e) {
    if (!e) return 1;
    if (e->kind == ExprKind::kVar) return mixed(2, number_of(e.get()));
    if (e->kind == ExprKind::kConst)
      return mixed(mixed(3, static_cast<uint64_t>(e->dtype)),
                   is_float(e->dtype) ? std::bit_cast<uint64_t>(e->float_value) : static_cast<uint64_t>(e->int_value));
    if (const auto known = known_.find(e.get()); known != known_.end()) return known->second;
    uint64_t hash = mixed(static_cast<uint64_t>(e->kind) << 24 | static_cast<uint64_t>(e->dtype) << 16 |
                              static_cast<uint64_t>(e->unary) << 8 | static_cast<uint64_t>(e->binary),
                          e->buffer ? number_of(e->buffer.get()) : 0);
    for (const Expr& operand : e->operands) hash = mixed(hash, expression(operand));
    return known_[e.get()] = hash;
  }

  uint64_t statement(const Stmt& s) {
    uint64_t hash = mixed(static_cast<uint64_t>(s->kind), static_cast<uint64_t>(s->for_kind));
    if (s->kind == StmtKind::kAlloc) hash = mixed(hash, buffer(*s->buffer));
    else if (s->buffer) hash = mixed(hash, number_of(s->buffer.get()));
    if (s->var) hash = mixed(hash, number_of(s->var.get()));
    for (const Expr* part : {&s->begin, &s->extent, &s->condition, &s->value})
      if (*part) hash = mixed(hash, expression(*part));
    for (const Expr& index : s->indices) hash = mixed(hash, expression(index));
    if (s->intrinsic) hash = mixed(hash, reinterpret_cast<uintptr_t>(s->intrinsic));
    for (const Stmt& child : s->stmts) hash = mixed(hash, statement(child));
    return hash;
  }

  std::unordered_map<const void*, uint64_t> numbers_;
  std::unordered_map<const ExprNode*, uint64_t> known_;
};

}  // namespace

uint64_t program_hash(const LoopProgram& program) { return ProgramHash().run(program); }

}  // namespace tessera::inline tune
