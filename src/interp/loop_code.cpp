#include "interp/loop_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "interp/affine_form.h"
#include "interp/scalar_ops.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

using Instrs = std::vector<LoopInstr>;

using Range = SlotRange;
using Affine = AffineForm;

// A value that depends on loads cannot move out of its statement: it has the level kHere.
constexpr int kHere = 1 << 30;

class Compiler {
 public:
  Compiler(const LoopProgram& program, const std::vector<int64_t>& symbols, const std::vector<bool>& writable) {
    code_.kernel = program.name;
    levels_.emplace_back();
    for (size_t i = 0; i < symbols.size(); ++i) {
      vars_[program.symbols[i].get()] = constant_i64(symbols[i]);
      symbol_values_[program.symbols[i].get()] = symbols[i];
    }
    for (size_t i = 0; i < program.params.size(); ++i) {
      const int32_t id = add_buffer(program.params[i], true);
      if (!writable[i]) read_only_.insert(id);
    }
    Instrs body;
    statement(program.body, body);
    code_.instrs = std::move(levels_[0].prologue);
    code_.instrs.insert(code_.instrs.end(), body.begin(), body.end());
  }

  LoopCode take() { return std::move(code_); }

 private:
  // What a loop's body computes first, once per iteration: everything without loads that depends on this loop's
  // variable and on no deeper one. Level 0 is the whole program.
  struct Level {
    Instrs prologue;
    std::unordered_map<const ExprNode*, int32_t> memo;
    std::map<Affine, int32_t> addresses;
  };

  [[noreturn]] void fail(const std::string& message) {
    throw InternalError(fmt::format("kernel {}: {}", code_.kernel, message));
  }

  // ---- slots ----
  int32_t new_slot(int level, Range range = {}) {
    code_.slots.push_back(Slot{0});
    slot_level_.push_back(level);
    slot_range_.push_back(range);
    return static_cast<int32_t>(code_.slots.size() - 1);
  }

  int32_t constant_i64(int64_t value) {
    const auto [it, is_new] = int_constants_.try_emplace(value, 0);
    if (is_new) {
      it->second = new_slot(0, {value, value});
      code_.slots.back().i = value;
      constant_value_[it->second] = value;
    }
    return it->second;
  }

  int32_t constant(const Expr& e) {
    if (!is_float(e.dtype())) return constant_i64(e->int_value);
    const int32_t slot = new_slot(0);
    if (e.dtype() == DType::kF32) code_.slots.back().s = static_cast<float>(e->float_value);
    else code_.slots.back().d = round_to(e.dtype(), e->float_value);
    return slot;
  }

  int level_of(int32_t slot) const { return slot_level_[static_cast<size_t>(slot)]; }
  const Range& range_of(int32_t slot) const { return slot_range_[static_cast<size_t>(slot)]; }
  int depth() const { return static_cast<int>(levels_.size()) - 1; }

  // ---- buffers ----
  int32_t add_buffer(const BufferPtr& buffer, bool is_param) {
    LoopCodeBuffer entry;
    entry.buffer = buffer;
    entry.is_param = is_param;
    for (const Expr& dim : buffer->shape) {
      const auto value = constant_value(dim);
      if (!value) fail(fmt::format("the shape of {} is not constant: {}", buffer->name, to_string(dim)));
      if (*value < 0 || __builtin_mul_overflow(entry.elements, *value, &entry.elements))
        fail(fmt::format("dimension {} of {} is out of range", *value, buffer->name));
      entry.dims.push_back(*value);
    }
    const auto id = static_cast<int32_t>(code_.buffers.size());
    code_.buffers.push_back(std::move(entry));
    buffers_[buffer.get()] = id;
    return id;
  }

  // Value of an i64 expression over symbols.
  std::optional<int64_t> constant_value(const Expr& e) {
    if (const auto c = as_int(e)) return c;
    VarMap map;
    for (const auto& [var, value] : symbol_values_) map[var] = Expr(value);
    return as_int(substitute(e, map));
  }

  int32_t find_buffer(const Buffer* buffer) {
    const auto it = buffers_.find(buffer);
    if (it == buffers_.end())
      fail(fmt::format("buffer {} is neither a parameter nor allocated around its use", buffer->name));
    return it->second;
  }

  // ---- expressions ----
  // Emits into the statement's code or, for values without loads, into the prologue of the level they depend on.
  Instrs& target(int level, Instrs& here) {
    return level == kHere ? here : levels_[static_cast<size_t>(level)].prologue;
  }

  bool is_pure(const Expr& e) {
    const auto it = pure_.find(e.get());
    if (it != pure_.end()) return it->second;
    bool pure = e->kind != ExprKind::kLoad;
    for (const Expr& operand : e->operands) pure = is_pure(operand) && pure;
    return pure_[e.get()] = pure;
  }

  int32_t value(const Expr& e, Instrs& here) {
    if (e->kind == ExprKind::kConst) return constant(e);
    if (e->kind == ExprKind::kVar) {
      const auto it = vars_.find(e.get());
      if (it == vars_.end()) fail(fmt::format("variable {} is used outside its loop", e->name));
      return it->second;
    }
    if (is_pure(e)) return pure_value(e);
    if (const auto it = memo_.find(e.get()); it != memo_.end()) return it->second;
    const int32_t slot = impure_value(e, here);
    memo_[e.get()] = slot;
    memo_order_.push_back(e.get());
    return slot;
  }

  int32_t pure_value(const Expr& e) {
    if (is_sum(e)) return address_slot(affine(e, unused_), unused_);
    std::vector<int32_t> operands;
    int level = 0;
    for (const Expr& operand : e->operands) {
      operands.push_back(value(operand, unused_));
      level = std::max(level, level_of(operands.back()));
    }
    auto& memo = levels_[static_cast<size_t>(level)].memo;
    if (const auto it = memo.find(e.get()); it != memo.end()) return it->second;
    const int32_t slot = new_slot(level, range(e, operands));
    emit_operation(e, operands, slot, levels_[static_cast<size_t>(level)].prologue);
    memo[e.get()] = slot;
    return slot;
  }

  static bool is_sum(const Expr& e) {
    return e.dtype() == DType::kI64 &&
           ((e->kind == ExprKind::kBinary &&
             (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub || e->binary == BinaryOp::kMul)) ||
            (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNeg));
  }

  Range range(const Expr& e, const std::vector<int32_t>& operands) const {
    if (e.dtype() == DType::kBool) return {0, 1};
    if (e.dtype() != DType::kI64 || e->kind != ExprKind::kBinary) return {};
    const Range a = range_of(operands[0]);
    const Range b = range_of(operands[1]);
    if (!a.lo || !a.hi || !b.lo || !b.hi) {
      if (e->binary == BinaryOp::kFloorMod && b.lo && b.hi && *b.lo == *b.hi && *b.lo > 0) return {0, *b.hi - 1};
      return {};
    }
    const auto floor_div = [](int64_t x, int64_t y) { return int_binary(BinaryOp::kFloorDiv, DType::kI64, x, y); };
    switch (e->binary) {
      case BinaryOp::kMin: return {std::min(*a.lo, *b.lo), std::min(*a.hi, *b.hi)};
      case BinaryOp::kMax: return {std::max(*a.lo, *b.lo), std::max(*a.hi, *b.hi)};
      case BinaryOp::kFloorDiv:
        if (*b.lo == *b.hi && *b.lo > 0) return {floor_div(*a.lo, *b.lo), floor_div(*a.hi, *b.lo)};
        return {};
      case BinaryOp::kFloorMod:
        if (*b.lo != *b.hi || *b.lo <= 0) return {};
        if (*a.lo >= 0 && *a.hi < *b.lo) return a;
        return {0, *b.lo - 1};
      default: return {};
    }
  }

  int32_t impure_value(const Expr& e, Instrs& here) {
    switch (e->kind) {
      case ExprKind::kLoad: return load_value(e, here);
      case ExprKind::kSelect: return lazily(e->operands[0], e->operands[1], e->operands[2], here);
      case ExprKind::kBinary:
        if (e.dtype() == DType::kBool && e->binary == BinaryOp::kAnd)
          return lazily(e->operands[0], e->operands[1], const_int(DType::kBool, 0), here);
        if (e.dtype() == DType::kBool && e->binary == BinaryOp::kOr)
          return lazily(e->operands[0], const_int(DType::kBool, 1), e->operands[1], here);
        break;
      default: break;
    }
    std::vector<int32_t> operands;
    for (const Expr& operand : e->operands) operands.push_back(value(operand, here));
    const int32_t slot = new_slot(kHere);
    emit_operation(e, operands, slot, here);
    return slot;
  }

  using NodeSet = std::unordered_set<const ExprNode*>;

  // Nodes with loads whose value certainly is needed when that of `e` is.
  void require(const Expr& e, NodeSet& set) {
    if (is_pure(e) || !set.insert(e.get()).second) return;
    const bool lazy = e->kind == ExprKind::kSelect || (e->kind == ExprKind::kBinary && e.dtype() == DType::kBool &&
                                                       (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr));
    for (size_t i = 0; i < (lazy ? 1 : e->operands.size()); ++i) require(e->operands[i], set);
  }

  // Evaluates what `e` shares with the code around a choice, or with its other operand, before the branch: otherwise
  // nested choices would repeat shared expressions exponentially often.
  void evaluate_shared(const Expr& e, const NodeSet& both, NodeSet& seen, Instrs& here) {
    if (is_pure(e) || memo_.count(e.get()) != 0 || !seen.insert(e.get()).second) return;
    bool needed = both.count(e.get()) != 0;
    for (const NodeSet& set : required_) needed = needed || set.count(e.get()) != 0;
    if (needed) value(e, here);
    else
      for (const Expr& operand : e->operands) evaluate_shared(operand, both, seen, here);
  }

  // Only the chosen operand is evaluated; what it computes is not known outside it.
  int32_t lazily(const Expr& condition, const Expr& if_true, const Expr& if_false, Instrs& here) {
    const int32_t chosen = value(condition, here);
    NodeSet needed[2];
    require(if_true, needed[0]);
    require(if_false, needed[1]);
    NodeSet both;
    for (const ExprNode* node : needed[0])
      if (needed[1].count(node) != 0) both.insert(node);
    NodeSet seen;
    evaluate_shared(if_true, both, seen, here);
    evaluate_shared(if_false, both, seen, here);
    const int32_t slot = new_slot(kHere);
    Instrs arms[2];
    for (int arm = 0; arm < 2; ++arm) {
      const size_t mark = memo_order_.size();
      required_.push_back(std::move(needed[arm]));
      const int32_t result = value(arm == 0 ? if_true : if_false, arms[arm]);
      required_.pop_back();
      arms[arm].push_back(instr(LoopOp::kMove, slot, result));
      for (; memo_order_.size() > mark; memo_order_.pop_back()) memo_.erase(memo_order_.back());
    }
    arms[0].push_back(jump(LoopOp::kJump, 0, arms[1].size()));
    here.push_back(jump(LoopOp::kJumpIfNot, chosen, arms[0].size()));
    for (const Instrs& arm : arms) here.insert(here.end(), arm.begin(), arm.end());
    return slot;
  }

  static LoopInstr instr(LoopOp op, int32_t dst, int32_t a = 0, int32_t b = 0, int32_t c = 0) {
    LoopInstr i;
    i.op = op;
    i.dst = dst;
    i.a = a;
    i.b = b;
    i.c = c;
    return i;
  }

  static LoopInstr jump(LoopOp op, int32_t a, size_t distance) {
    LoopInstr i = instr(op, 0, a);
    i.imm = static_cast<int64_t>(distance);
    return i;
  }

  static LoopOp fast_op(const Expr& e) {
    const DType from = e->operands[0].dtype();
    if (e->kind == ExprKind::kBinary && from == DType::kF32) {
      switch (e->binary) {
        case BinaryOp::kAdd: return LoopOp::kAddF32;
        case BinaryOp::kSub: return LoopOp::kSubF32;
        case BinaryOp::kMul: return LoopOp::kMulF32;
        case BinaryOp::kDiv: return LoopOp::kDivF32;
        case BinaryOp::kMin: return LoopOp::kMinF32;
        case BinaryOp::kMax: return LoopOp::kMaxF32;
        default: break;
      }
    }
    if (e->kind == ExprKind::kBinary && from == DType::kI64) {
      switch (e->binary) {
        case BinaryOp::kAdd: return LoopOp::kAddI64;
        case BinaryOp::kSub: return LoopOp::kSubI64;
        case BinaryOp::kMul: return LoopOp::kMulI64;
        case BinaryOp::kLt: return LoopOp::kLtI64;
        case BinaryOp::kLe: return LoopOp::kLeI64;
        default: break;
      }
    }
    if (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kAnd) return LoopOp::kAnd;
    if (e->kind == ExprKind::kFma) return e.dtype() == DType::kF32 ? LoopOp::kFmaF32 : LoopOp::kFma;
    if (e->kind == ExprKind::kSelect) return LoopOp::kSelect;
    if (e->kind == ExprKind::kCast) return LoopOp::kCast;
    if (e->kind == ExprKind::kUnary) return e->unary == UnaryOp::kBitcast ? LoopOp::kBitcast : LoopOp::kUnary;
    if (is_comparison(e->binary) && is_float(from)) return LoopOp::kCompareFloat;
    return LoopOp::kBinary;
  }

  static void emit_operation(const Expr& e, const std::vector<int32_t>& operands, int32_t slot, Instrs& out) {
    LoopInstr i = instr(fast_op(e), slot, operands[0], operands.size() > 1 ? operands[1] : 0,
                        operands.size() > 2 ? operands[2] : 0);
    i.dtype = e.dtype();
    i.from = e->operands[0].dtype();
    i.sub = e->kind == ExprKind::kUnary ? static_cast<uint8_t>(e->unary) : static_cast<uint8_t>(e->binary);
    out.push_back(i);
  }

  // ---- addresses ----
  // `e` as an affine form over slots.
  Affine affine(const Expr& e, Instrs& here) {
    std::unordered_map<const ExprNode*, Affine> done;  // shared sums once
    return affine(e, here, done);
  }

  Affine affine(const Expr& e, Instrs& here, std::unordered_map<const ExprNode*, Affine>& done) {
    if (!is_sum(e)) {
      Affine result;
      const auto c = as_int(e);
      const int32_t slot = c ? 0 : value(e, here);
      const auto known = constant_value_.find(slot);
      if (c) result.constant = *c;
      else if (known != constant_value_.end()) result.constant = known->second;  // a symbol
      else result.terms[slot] = 1;
      return result;
    }
    if (const auto it = done.find(e.get()); it != done.end()) return it->second;
    Affine result;
    const Affine a = affine(e->operands[0], here, done);
    if (e->kind == ExprKind::kUnary) {
      result.add(a, -1);
    } else {
      const Affine b = affine(e->operands[1], here, done);
      if (e->binary != BinaryOp::kMul) {
        result = a;
        result.add(b, e->binary == BinaryOp::kAdd ? 1 : -1);
      } else if (b.terms.empty()) {
        result.add(a, b.constant);
      } else if (a.terms.empty()) {
        result.add(b, a.constant);
      } else {
        result.terms[product(address_slot(a, here), address_slot(b, here), here)] = 1;
      }
    }
    done.emplace(e.get(), result);
    return result;
  }

  int32_t product(int32_t a, int32_t b, Instrs& here) {
    const int level = std::max(level_of(a), level_of(b));
    const int32_t slot = new_slot(level);
    target(level, here).push_back(instr(LoopOp::kMulI64, slot, a, b));
    return slot;
  }

  Range range(const Affine& form) const {
    Range sum{form.constant, form.constant};
    for (const auto& [slot, k] : form.terms) sum = add(sum, scale(range_of(slot), k));
    return sum;
  }

  // A slot with the value of the affine form. What depends on outer loops only is added up there.
  int32_t address_slot(const Affine& form, Instrs& here) {
    if (form.terms.empty()) return constant_i64(form.constant);
    if (form.constant == 0 && form.terms.size() == 1 && form.terms.begin()->second == 1)
      return form.terms.begin()->first;
    int level = 0;
    for (const auto& [slot, k] : form.terms) level = std::max(level, level_of(slot));
    if (level != kHere) {
      auto& known = levels_[static_cast<size_t>(level)].addresses;
      if (const auto it = known.find(form); it != known.end()) return it->second;
    }
    Affine outer;
    outer.constant = form.constant;
    std::vector<std::pair<int32_t, int64_t>> inner;
    for (const auto& [slot, k] : form.terms) {
      if (level_of(slot) == level) inner.push_back({slot, k});
      else outer.terms[slot] = k;
    }
    int32_t sum = address_slot(outer, here);
    for (const auto& [slot, k] : inner) {
      const int32_t next = new_slot(level);
      LoopInstr i = instr(LoopOp::kMulAdd, next, sum, slot);
      i.imm = k;
      target(level, here).push_back(i);
      sum = next;
    }
    slot_range_[static_cast<size_t>(sum)] = range(form);
    if (level != kHere) levels_[static_cast<size_t>(level)].addresses[form] = sum;
    return sum;
  }

  struct Address {
    int32_t slot;    // in elements
    int32_t buffer;  // its number
    int64_t access;  // its number: loads in the indices have numbers behind it
  };

  // Of an access, with checks of the indices that are not provably inside.
  Address address(const BufferPtr& buffer, const std::vector<Expr>& indices, bool is_store, Instrs& here) {
    const int32_t id = find_buffer(buffer.get());
    const auto access = static_cast<int64_t>(code_.accesses.size());
    const std::vector<int64_t> dims = code_.buffers[static_cast<size_t>(id)].dims;
    if (indices.size() != dims.size())
      fail(fmt::format("{} is accessed with {} indices", buffer->name, indices.size()));
    code_.accesses.push_back({id, is_store, indices});
    Affine flat;
    for (size_t d = 0; d < dims.size(); ++d) {
      const Affine index = affine(indices[d], here);
      const Range r = range(index);
      if (!r.lo || !r.hi || *r.lo < 0 || *r.hi >= dims[d]) {
        LoopInstr i =
            instr(LoopOp::kCheck, 0, address_slot(index, here), static_cast<int32_t>(access), static_cast<int32_t>(d));
        i.imm = dims[d];
        here.push_back(i);
      }
      Affine scaled;
      scaled.add(flat, dims[d]);
      scaled.add(index, 1);
      flat = std::move(scaled);
    }
    return {address_slot(flat, here), id, access};
  }

  int32_t load_value(const Expr& e, Instrs& here) {
    const auto [at, id, access] = address(e->buffer, e->operands, false, here);
    if (!code_.buffers[static_cast<size_t>(id)].is_param) {
      here.push_back(instr(LoopOp::kCheckWritten, 0, at, id));
      here.back().imm = access;
    }
    const int32_t slot = new_slot(kHere);
    const DType dtype = e.dtype();
    const LoopOp op = dtype == DType::kF32   ? LoopOp::kLoadF32
                      : dtype == DType::kI64 ? LoopOp::kLoadI64
                      : is_float(dtype)      ? LoopOp::kLoadFloat
                                             : LoopOp::kLoadInt;
    here.push_back(instr(op, slot, at, id));
    here.back().dtype = dtype;
    here.back().imm = access;
    return slot;
  }

  // ---- statements ----
  void forget() {
    memo_.clear();
    memo_order_.clear();
  }

  void statement(const Stmt& s, Instrs& out) {
    forget();  // loads may give something else after each statement
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) statement(child, out);
        break;
      case StmtKind::kTensorized: statement(s->stmts[0], out); break;
      case StmtKind::kStore: store(s, out); break;
      case StmtKind::kAlloc: {
        const auto previous = buffers_.find(s->buffer.get());
        if (previous != buffers_.end()) fail(fmt::format("buffer {} is allocated inside itself", s->buffer->name));
        out.push_back(instr(LoopOp::kAlloc, 0, 0, add_buffer(s->buffer, false)));
        statement(s->stmts[0], out);
        buffers_.erase(s->buffer.get());
        break;
      }
      case StmtKind::kIf: {
        const int32_t condition = value(s->condition, out);
        Instrs arms[2];
        statement(s->stmts[0], arms[0]);
        if (s->stmts.size() > 1) {
          statement(s->stmts[1], arms[1]);
          arms[0].push_back(jump(LoopOp::kJump, 0, arms[1].size()));
        }
        out.push_back(jump(LoopOp::kJumpIfNot, condition, arms[0].size()));
        for (const Instrs& arm : arms) out.insert(out.end(), arm.begin(), arm.end());
        break;
      }
      case StmtKind::kFor: loop(s, out); break;
    }
    forget();
  }

  void loop(const Stmt& s, Instrs& out) {
    if (s->begin.dtype() != DType::kI64 || s->extent.dtype() != DType::kI64 || s->var.dtype() != DType::kI64)
      fail(fmt::format("the loop over {} is not over i64", s->var->name));
    if (vars_.count(s->var.get()) != 0) fail(fmt::format("variable {} is defined inside itself", s->var->name));
    const int32_t begin = value(s->begin, out);
    const int32_t extent = value(s->extent, out);
    Range range;
    const Range end = add(add(range_of(begin), range_of(extent)), {-1, -1});
    if (range_of(begin).lo && end.hi) range = {range_of(begin).lo, std::max(*range_of(begin).lo, *end.hi)};
    levels_.emplace_back();
    const int32_t var = new_slot(depth(), range);
    const int32_t last = new_slot(depth());
    vars_[s->var.get()] = var;
    Instrs body;
    statement(s->stmts[0], body);
    vars_.erase(s->var.get());
    Instrs& prologue = levels_.back().prologue;
    const size_t length = prologue.size() + body.size();
    LoopInstr enter = instr(LoopOp::kLoopEnter, var, begin, extent, last);
    enter.imm = static_cast<int64_t>(length + 1);
    LoopInstr next = instr(LoopOp::kLoopNext, var, 0, 0, last);
    next.imm = -static_cast<int64_t>(length + 1);
    out.push_back(enter);
    out.insert(out.end(), prologue.begin(), prologue.end());
    out.insert(out.end(), body.begin(), body.end());
    out.push_back(next);
    levels_.pop_back();
  }

  void store(const Stmt& s, Instrs& out) {
    const DType dtype = s->buffer->dtype;
    if (s->value.dtype() != dtype)
      fail(fmt::format("a value of type {} is stored to {} of type {}", dtype_name(s->value.dtype()), s->buffer->name,
                       dtype_name(dtype)));
    required_.emplace_back();
    require(s->value, required_.back());
    for (const Expr& index : s->indices) require(index, required_.back());
    const int32_t stored = value(s->value, out);
    const auto [at, id, access] = address(s->buffer, s->indices, true, out);
    required_.pop_back();
    if (read_only_.count(id) != 0) fail(fmt::format("parameter {} is stored to but is not writable", s->buffer->name));
    const LoopOp op = dtype == DType::kF32   ? LoopOp::kStoreF32
                      : dtype == DType::kI64 ? LoopOp::kStoreI64
                      : is_float(dtype)      ? LoopOp::kStoreFloat
                                             : LoopOp::kStoreInt;
    out.push_back(instr(op, stored, at, id));
    out.back().dtype = dtype;
    out.back().imm = access;
  }

  LoopCode code_;
  std::vector<Level> levels_;
  std::vector<int> slot_level_;
  std::vector<Range> slot_range_;
  std::unordered_map<int64_t, int32_t> int_constants_;
  std::unordered_map<int32_t, int64_t> constant_value_;
  std::unordered_map<const ExprNode*, int32_t> vars_;
  std::unordered_map<const ExprNode*, int64_t> symbol_values_;
  std::unordered_map<const Buffer*, int32_t> buffers_;
  std::unordered_set<int32_t> read_only_;
  std::unordered_map<const ExprNode*, bool> pure_;
  std::unordered_map<const ExprNode*, int32_t> memo_;  // of the current statement: values with loads
  std::vector<const ExprNode*> memo_order_;
  std::vector<NodeSet> required_;  // of the statement and of the operands of choices around the current place
  Instrs unused_;                  // where code of pure values would go that never goes there
};

}  // namespace

LoopCode compile_loop_code(const LoopProgram& program, const std::vector<int64_t>& symbols,
                           const std::vector<bool>& writable) {
  return Compiler(program, symbols, writable).take();
}

}  // namespace tessera::inline interp
