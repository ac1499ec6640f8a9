#include <algorithm>
#include <unordered_set>

#include <llvm/IR/IntrinsicsX86.h>

#include "arith/walk_certain.h"
#include "codegen/llvm/kernel_emitter.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

BinaryOp combiner_op(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum: return BinaryOp::kAdd;
    case Combiner::kProd: return BinaryOp::kMul;
    case Combiner::kMin: return BinaryOp::kMin;
    case Combiner::kMax: return BinaryOp::kMax;
    case Combiner::kNone: break;
  }
  throw InternalError("no combiner");
}

Value* KernelEmitter::identity(Combiner combiner, DType dtype, int lanes) {
  return ops_.splat(ops_.constant(*combiner_identity(combiner, dtype)), lanes);
}

bool KernelEmitter::has_load(const Expr& e) {
  if (const auto it = has_load_.find(e.get()); it != has_load_.end()) return it->second;
  bool found = e->kind == ExprKind::kLoad;
  for (const Expr& operand : e->operands) found = has_load(operand) || found;
  return has_load_[e.get()] = found;
}

namespace {}  // namespace

void KernelEmitter::enter(const Expr& e) {
  f_.values.emplace_back();
  Evaluation evaluation;
  std::unordered_set<const ExprNode*> seen;
  walk_certain(e, seen, [&](const Expr& node) {
    if (node->kind == ExprKind::kLoad) evaluation.certain_loads.push_back(node);
    return true;
  });
  f_.evaluations.push_back(std::move(evaluation));
}

void KernelEmitter::leave() {
  f_.evaluations.pop_back();
  f_.values.pop_back();
}

// Whether `e`, an arm, loads what is not loaded anyway.
bool KernelEmitter::has_guarded_load(const Expr& e) {
  if (!has_load(e) || known_value(e)) return false;
  auto& known = f_.evaluations.back().has_guarded_load;
  if (const auto it = known.find(e.get()); it != known.end()) return it->second;
  bool guarded = false;
  if (e->kind == ExprKind::kLoad) {
    // Registers can be read at any time.
    const auto place = f_.places.find(e->buffer.get());
    guarded = place == f_.places.end() || place->second.kind != Place::kRegister;
    for (const Evaluation& evaluation : f_.evaluations)
      for (const Expr& load : evaluation.certain_loads)
        if (guarded && structurally_equal(load, e)) guarded = false;
  }
  for (const Expr& operand : e->operands) guarded = guarded || has_guarded_load(operand);
  return known[e.get()] = guarded;
}

// Integer arithmetic on loop variables only: worth simplifying once the unrolled and vector variables are known.
bool KernelEmitter::is_index(const Expr& e) {
  if (is_float(e->dtype) || e->kind == ExprKind::kLoad) return false;
  return std::all_of(e->operands.begin(), e->operands.end(), [&](const Expr& operand) { return is_index(operand); });
}

Expr KernelEmitter::resolve(const Expr& condition) {
  if (!is_index(condition)) return condition;
  Expr known = simplify(replaced_.empty() ? condition : substitute(condition, replaced_), bounds_);
  keep_.push_back(known);
  return known;
}

// A condition that is true in some lanes and false in others whatever the other variables are, as the channels of a
// shuffle or those around the seam of two operands: a constant. Null when it is not.
Value* KernelEmitter::lane_constants(const Expr& condition) {
  if (!vec_ || vec_->lanes == 1 || !is_index(condition) || !uses_var(condition, vec_->lane)) return nullptr;
  llvm::SmallVector<llvm::Constant*, 64> lanes;
  for (int i = 0; i < vec_->lanes; ++i) {
    const auto known = as_int(simplify(substitute(condition, {{vec_->lane.get(), Expr(i)}}), bounds_));
    if (!known) return nullptr;
    lanes.push_back(b_.getInt1(*known != 0));
  }
  return llvm::ConstantVector::get(lanes);
}

Value* KernelEmitter::evaluate(const Expr& e) {
  enter(e);
  Value* v = value(e);
  leave();
  return v;
}

Value* KernelEmitter::known_value(const Expr& e) const {
  for (auto layer = f_.values.rbegin(); layer != f_.values.rend(); ++layer)
    if (const auto it = layer->find(e.get()); it != layer->end()) return it->second;
  return nullptr;
}

Value* KernelEmitter::value(const Expr& e) {
  if (e->kind == ExprKind::kConst) return ops_.constant(*e);
  if (e->kind == ExprKind::kVar) return variable(e);
  if (Value* known = known_value(e)) return known;
  Value* v = compute(e);
  f_.values.back()[e.get()] = v;
  return v;
}

Value* KernelEmitter::index_value(const Expr& e) {
  if (e->kind == ExprKind::kConst || e->kind == ExprKind::kVar) return value(e);
  if (has_load(e)) return value(e);
  for (auto layer = f_.indices.rbegin(); layer != f_.indices.rend(); ++layer)
    if (const auto it = layer->find(e.get()); it != layer->end()) return it->second;
  Value* v = evaluate(e);
  f_.indices.back()[e.get()] = v;
  return v;
}

Value* KernelEmitter::variable(const Expr& e) {
  if (const auto it = replaced_.find(e.get()); it != replaced_.end()) return value(it->second);
  if (vec_ && e.same_node(vec_->lane)) {
    if (vec_->lanes == 1) return b_.getInt64(0);
    llvm::SmallVector<uint64_t, 64> ramp;
    for (int i = 0; i < vec_->lanes; ++i) ramp.push_back(static_cast<uint64_t>(i));
    return llvm::ConstantDataVector::get(context_, ramp);
  }
  const auto it = f_.vars.find(e.get());
  check(it != f_.vars.end(), where("variable " + e->name + " is used outside its loop"));
  return it->second;
}

namespace {

bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

// The n of `bitcast(n + 127 << 23)`, which is 2^n; null when `e` is something else.
Expr power_of_two_exponent(const Expr& e) {
  if (e->kind != ExprKind::kUnary || e->unary != UnaryOp::kBitcast || e->dtype != DType::kF32) return {};
  const Expr& shifted = e->operands[0];
  if (!is_binary(shifted, BinaryOp::kShl) || !is_const_int(shifted->operands[1], 23)) return {};
  const Expr& biased = shifted->operands[0];
  return is_binary(biased, BinaryOp::kAdd) && is_const_int(biased->operands[1], 127) ? biased->operands[0] : Expr();
}

// m * 2^n, as exp is expanded: times 2^(n >> 1), times 2^(n - (n >> 1)), where n is bitcast(r) - bits(c) for a float r,
// to which 1.5 * 2^23 = c was added. Then n is the float r - c.
struct Scaled {
  Expr mantissa, rounded, magic;
};
std::optional<Scaled> match_scaled(const Expr& e) {
  if (!is_binary(e, BinaryOp::kMul) || !is_binary(e->operands[0], BinaryOp::kMul)) return std::nullopt;
  const Expr half = power_of_two_exponent(e->operands[0]->operands[1]);
  const Expr rest = power_of_two_exponent(e->operands[1]);
  if (!half || !rest || !is_binary(rest, BinaryOp::kSub) || !is_binary(half, BinaryOp::kShr)) return std::nullopt;
  const Expr& n = rest->operands[0];
  if (!structurally_equal(half->operands[0], n) || !is_const_int(half->operands[1], 1) ||
      !structurally_equal(rest->operands[1], half) || !is_binary(n, BinaryOp::kSub) ||
      !is_const_int(n->operands[1], 0x4b400000))
    return std::nullopt;
  const Expr& bits = n->operands[0];
  if (bits->kind != ExprKind::kUnary || bits->unary != UnaryOp::kBitcast || bits->operands[0].dtype() != DType::kF32)
    return std::nullopt;
  return Scaled{e->operands[0]->operands[0], bits->operands[0], const_float(DType::kF32, 0x1.8p23)};
}

}  // namespace

// One instruction for the nine of exp's last steps, with the same result: m * 2^n rounded once. Null where it has no
// place.
Value* KernelEmitter::emit_scaled(const Expr& e) {
  if (e->dtype != DType::kF32 || !target_.has("avx512f") || emit_for_.is_fixed()) return nullptr;
  const auto scaled = match_scaled(e);
  if (!scaled) return nullptr;
  Value* mantissa = value(scaled->mantissa);
  if (Ops::lanes_of(mantissa) != 16) return nullptr;
  Value* n = ops_.binary(BinaryOp::kSub, DType::kF32, value(scaled->rounded), value(scaled->magic));
  return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                            {mantissa, ops_.splat(n, 16), mantissa, b_.getInt16(0xffff), b_.getInt32(4)});
}

Value* KernelEmitter::compute(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kLoad: return emit_load(e);
    case ExprKind::kUnary: return ops_.unary(e->unary, e->operands[0].dtype(), e->dtype, value(e->operands[0]));
    case ExprKind::kBinary: {
      const Expr& a = e->operands[0];
      const Expr& b = e->operands[1];
      // The right side of a logical operator is evaluated only when needed.
      if (e->dtype == DType::kBool && (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr) &&
          has_guarded_load(b)) {
        const Expr otherwise = const_int(DType::kBool, e->binary == BinaryOp::kOr);
        keep_.push_back(otherwise);
        return e->binary == BinaryOp::kAnd ? emit_select(a, b, otherwise) : emit_select(a, otherwise, b);
      }
      if (Value* scaled = emit_scaled(e)) return scaled;
      Value* left = value(a);
      return ops_.binary(e->binary, a.dtype(), left, value(b));
    }
    case ExprKind::kSelect: return emit_select(e->operands[0], e->operands[1], e->operands[2]);
    case ExprKind::kFma: {
      Value* a = value(e->operands[0]);
      Value* b = value(e->operands[1]);
      return ops_.fma(e->dtype, a, b, value(e->operands[2]));
    }
    case ExprKind::kCast: return ops_.cast(e->dtype, e->operands[0].dtype(), value(e->operands[0]));
    default: break;
  }
  throw InternalError("unknown expression kind");
}

Value* KernelEmitter::and_mask(Value* condition) {
  return vec_->mask ? b_.CreateAnd(vec_->mask, condition) : condition;
}

Value* KernelEmitter::branch_select(Value* condition, const std::function<Value*()>& a,
                                    const std::function<Value*()>& b) {
  auto* then = llvm::BasicBlock::Create(context_, "then", f_.function);
  auto* otherwise = llvm::BasicBlock::Create(context_, "else", f_.function);
  auto* after = llvm::BasicBlock::Create(context_, "join", f_.function);
  b_.CreateCondBr(condition, then, otherwise);
  const auto arm = [&](llvm::BasicBlock* block, const std::function<Value*()>& emit_arm) {
    b_.SetInsertPoint(block);
    f_.values.emplace_back();
    f_.indices.emplace_back();
    Value* v = emit_arm();
    f_.indices.pop_back();
    f_.values.pop_back();
    return std::pair{v, b_.GetInsertBlock()};
  };
  auto [first, first_block] = arm(then, a);
  auto [second, second_block] = arm(otherwise, b);
  const int lanes = std::max(Ops::lanes_of(first), Ops::lanes_of(second));
  b_.SetInsertPoint(first_block);
  first = ops_.splat(first, lanes);
  b_.CreateBr(after);
  b_.SetInsertPoint(second_block);
  second = ops_.splat(second, lanes);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  auto* phi = b_.CreatePHI(first->getType(), 2);
  phi->addIncoming(first, first_block);
  phi->addIncoming(second, second_block);
  return phi;
}

// An arm of a select whose condition differs between the lanes: its loads happen only where the condition holds. An
// arm of several loads is jumped over when no lane needs it, as when operands of a concatenation meet in one vector.
Value* KernelEmitter::masked_arm(const Expr& arm, Value* condition) {
  if (!has_guarded_load(arm)) return value(arm);
  int loads = 0;
  walk(arm, [&](const Expr& e) { loads += e->kind == ExprKind::kLoad; });
  Value* outer_mask = vec_->mask;
  const bool outer_empty = vec_->mask_may_be_empty;
  vec_->mask = and_mask(condition);
  vec_->mask_may_be_empty = loads < 2;
  Value* v = nullptr;
  if (loads < 2) {
    v = evaluate(arm);
  } else {
    v = branch_select(
        b_.CreateOrReduce(vec_->mask), [&] { return evaluate(arm); },
        [&]() -> Value* { return llvm::Constant::getNullValue(ops_.value_type(arm->dtype)); });
  }
  vec_->mask = outer_mask;
  vec_->mask_may_be_empty = outer_empty;
  return v;
}

// Computes ahead of a branch what both of its arms need. Without it a chain of selects, each of which has the one
// before in both arms (integer powers, by squaring), would be emitted twice at each of its levels.
void KernelEmitter::evaluate_shared(const Expr& a, const Expr& b) {
  std::unordered_set<const ExprNode*> of_a, of_b;
  walk_certain(a, of_a, [](const Expr&) { return true; });
  bool any = false;
  walk_certain(b, of_b, [&](const Expr& e) {
    if (of_a.count(e.get()) == 0) return true;
    if (has_guarded_load(e)) {
      value(e);
      any = true;
    }
    return false;
  });
  if (any) f_.evaluations.back().has_guarded_load.clear();
}

Value* KernelEmitter::emit_select(const Expr& condition, const Expr& a, const Expr& b) {
  const Expr known = resolve(condition);
  if (const auto c = as_int(known)) return value(*c ? a : b);
  Value* c = lane_constants(known);
  if (c && llvm::cast<llvm::Constant>(c)->isAllOnesValue()) return value(a);
  if (c && llvm::cast<llvm::Constant>(c)->isNullValue()) return value(b);
  if (!c) c = value(known);
  if (has_guarded_load(a) && has_guarded_load(b)) evaluate_shared(a, b);
  if (!has_guarded_load(a) && !has_guarded_load(b)) {
    Value* first = value(a);
    return ops_.select(c, first, value(b));
  }
  if (Ops::lanes_of(c) == 1) return branch_select(c, [&] { return evaluate(a); }, [&] { return evaluate(b); });
  Value* first = masked_arm(a, c);
  Value* second = has_guarded_load(b) ? masked_arm(b, b_.CreateNot(c)) : value(b);
  return ops_.select(c, first, second);
}

}  // namespace tessera::inline llvm_codegen
