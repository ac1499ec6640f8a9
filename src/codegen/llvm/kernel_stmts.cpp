#include <fmt/format.h>

#include <algorithm>

#include "codegen/llvm/kernel_emitter.h"
#include "loop/intrinsic.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

constexpr int64_t kMaxUnrolledChunks = 4;     // more chunks of a vectorized loop become a loop
constexpr int kReductionPartials = 4;         // independent partial vectors hide the latency of the combiner
constexpr int64_t kMaxFallbackCopies = 4096;  // as many as `unroll` makes

}  // namespace

std::string KernelEmitter::where(const std::string& what) const {
  return fmt::format("kernel {}: {}", program_.name, what);
}

void KernelEmitter::bind(const Var& var, const Interval& interval) {
  const Interval known = bounds_.of(var.get());
  // Cached indices were simplified with the old range.
  if ((known.lo || known.hi) && (known.lo != interval.lo || known.hi != interval.hi)) flat_.clear();
  bounds_.set(var, interval);
}

void KernelEmitter::emit(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kSeq: return emit_seq(s);
    case StmtKind::kFor: return emit_for(s);
    case StmtKind::kIf: return emit_if(s);
    case StmtKind::kStore: return emit_store(s);
    case StmtKind::kAlloc: return emit_alloc(s);
    case StmtKind::kTensorized:
      if (!emit_tensorized(s)) emit(s->stmts[0]);
      return;
  }
}

void KernelEmitter::emit_for(const Stmt& s) {
  const auto extent = as_int(s->extent);
  if (extent && *extent <= 0) return;
  const Interval begin_range = bounds_of(s->begin, bounds_);
  if (has_load(s->begin)) {
    // Copies and tasks count from it: what iterations store must not move the others.
    const Var begin = make_var(s->var->name + "_begin");
    bind(begin, begin_range);
    f_.vars[begin.get()] = evaluate(s->begin);
    const Stmt loop = for_loop(s->var, begin, s->extent, s->for_kind, s->stmts[0]);
    kept_stmts_.push_back(keep_prefetch(loop, s, [](const Expr& index) { return index; }));
    return emit_for(Stmt(kept_stmts_.back()));
  }
  const Interval extent_range = bounds_of(s->extent, bounds_);
  bind(s->var, {begin_range.lo, begin_range.hi && extent_range.hi
                                    ? std::optional(*begin_range.hi + std::max<int64_t>(*extent_range.hi, 1) - 1)
                                    : std::nullopt});
  switch (s->for_kind) {
    case ForKind::kParallel:
      if (f_.host && !vec_) return emit_parallel(s);
      break;
    case ForKind::kUnrolled: return emit_unrolled(s);
    case ForKind::kVectorized: return emit_vectorized(s);
    case ForKind::kSerial:
    case ForKind::kBlockX:
    case ForKind::kBlockY:
    case ForKind::kBlockZ:
    case ForKind::kThreadX:
    case ForKind::kThreadY:
    case ForKind::kThreadZ: break;
  }
  if (extent == 1) {
    if (s->buffer) emit_prefetch(s, false, {{s->var.get(), s->begin}});
    return emit_unrolled(s);
  }
  emit_loop(s->var, evaluate(s->begin), evaluate(s->extent), extent.has_value(), [&] {
    if (s->buffer) emit_prefetch(s, false);
    emit(s->stmts[0]);
  });
}

// `whole_step`: all lines up to the element of the next iteration, within reason.
void KernelEmitter::emit_prefetch(const Stmt& loop, bool whole_step, const VarMap& at) {
  const auto place = f_.places.find(loop->buffer.get());
  if (place == f_.places.end() || place->second.kind != Place::kMemory || vec_) return;
  const Buffer& buffer = *loop->buffer;
  Expr number = 0;
  for (size_t i = 0; i < loop->indices.size(); ++i) number = number * buffer.shape[i] + loop->indices[i];
  if (!at.empty()) number = substitute(number, at);
  number = simplify(replaced_.empty() ? number : substitute(number, replaced_), bounds_);
  keep_.push_back(number);
  constexpr int64_t kLineBytes = 64, kMostLines = 32;
  const auto step = linear_coefficient(number, loop->var);
  const int64_t distance = whole_step && step && *step > 0 ? dtype_bytes(buffer.dtype, *step) : 1;
  const int64_t lines = std::min((distance + kLineBytes - 1) / kLineBytes, kMostLines);
  Value* bytes = b_.CreateMul(evaluate(number), b_.getInt64(static_cast<uint64_t>(dtype_bytes(buffer.dtype, 1))));
  // Not in bounds: the last iterations ask for what lies behind the buffer.
  Value* pointer = b_.CreateGEP(b_.getInt8Ty(), place->second.pointer, bytes);
  constexpr int kRead = 0, kIntoSecondLevel = 2, kData = 1;
  for (int64_t line = 0; line < lines; ++line)
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {b_.CreateConstGEP1_64(b_.getInt8Ty(), pointer, static_cast<uint64_t>(line * kLineBytes)),
                        b_.getInt32(kRead), b_.getInt32(kIntoSecondLevel), b_.getInt32(kData)});
}

// `runs`: the extent is known to be positive.
void KernelEmitter::emit_loop(const Var& var, Value* begin, Value* extent, bool runs,
                              const std::function<void()>& body) {
  auto* before = b_.GetInsertBlock();
  auto* block = llvm::BasicBlock::Create(context_, var->name, f_.function);
  auto* after = llvm::BasicBlock::Create(context_, var->name + ".end", f_.function);
  Value* end = b_.CreateAdd(begin, extent);
  if (runs) b_.CreateBr(block);
  else b_.CreateCondBr(b_.CreateICmpSGT(extent, b_.getInt64(0)), block, after);
  b_.SetInsertPoint(block);
  auto* counter = b_.CreatePHI(b_.getInt64Ty(), 2, var->name);
  counter->addIncoming(begin, before);
  const auto shadowed = f_.vars.find(var.get());
  Value* outer = shadowed == f_.vars.end() ? nullptr : shadowed->second;
  f_.vars[var.get()] = counter;
  f_.indices.emplace_back();
  body();
  f_.indices.pop_back();
  if (outer) f_.vars[var.get()] = outer;
  else f_.vars.erase(var.get());
  Value* next = b_.CreateAdd(counter, b_.getInt64(1), "", /*HasNUW=*/false, /*HasNSW=*/true);
  counter->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), block, after);
  b_.SetInsertPoint(after);
}

void KernelEmitter::emit_unrolled(const Stmt& s) {
  const auto extent = as_int(s->extent);
  check(extent.has_value(), where("unrolled loop " + s->var->name + " of an extent that is not constant"));
  for (int64_t i = 0; i < *extent; ++i) {
    const Expr at = simplify(substitute(s->begin, replaced_) + Expr(i), bounds_);
    keep_.push_back(at);
    replaced_[s->var.get()] = at;
    emit(s->stmts[0]);
  }
  replaced_.erase(s->var.get());
}

void KernelEmitter::emit_if(const Stmt& s) {
  const Expr condition = resolve(s->condition);
  if (const auto known = as_int(condition)) {
    if (*known) emit(s->stmts[0]);
    else if (s->stmts.size() > 1) emit(s->stmts[1]);
    return;
  }
  Value* c = lane_constants(condition);
  if (!c) c = evaluate(condition);
  auto* after = llvm::BasicBlock::Create(context_, "endif", f_.function);
  const bool varies = Ops::lanes_of(c) > 1;
  const auto arm = [&](Value* taken, const Stmt& body, llvm::BasicBlock* otherwise) {
    auto* block = llvm::BasicBlock::Create(context_, "then", f_.function);
    const auto outer = vec_;
    Value* branch = taken;
    if (varies) {
      vec_->mask = and_mask(taken);
      vec_->mask_may_be_empty = false;
      branch = b_.CreateOrReduce(vec_->mask);
    }
    b_.CreateCondBr(branch, block, otherwise);
    b_.SetInsertPoint(block);
    f_.indices.emplace_back();
    emit(body);
    f_.indices.pop_back();
    b_.CreateBr(after);
    vec_ = outer;
  };
  if (s->stmts.size() == 1) {
    arm(c, s->stmts[0], after);
  } else if (!varies) {
    auto* otherwise = llvm::BasicBlock::Create(context_, "else", f_.function);
    arm(c, s->stmts[0], otherwise);
    b_.SetInsertPoint(otherwise);
    f_.indices.emplace_back();
    emit(s->stmts[1]);
    f_.indices.pop_back();
    b_.CreateBr(after);
  } else {
    // Some lanes may take either arm: one masked part after the other.
    auto* last = after;
    auto* middle = llvm::BasicBlock::Create(context_, "elsewhere", f_.function);
    after = middle;
    arm(c, s->stmts[0], middle);
    b_.SetInsertPoint(middle);
    after = last;
    arm(b_.CreateNot(c), s->stmts[1], last);
  }
  b_.SetInsertPoint(after);
}

void KernelEmitter::emit_alloc(const Stmt& s) {
  const Buffer& buffer = *s->buffer;
  const auto elements = constant_elements(buffer);
  check(elements.has_value(), where("allocation of a size that is not constant: " + buffer.name));
  const auto n = static_cast<uint64_t>(std::max<int64_t>(*elements, 1));
  // Cells begin as zeros: lanes that do not run read them, and one undefined lane, as a divisor, would make a whole
  // vector undefined. What every lane stores to first costs nothing.
  Place place;
  if (vec_) {
    place.kind = Place::kPrivate;
    auto* type = llvm::ArrayType::get(cell_type(buffer.dtype, vec_->lanes), n);
    place.pointer = buffer_slot(buffer, type);
    b_.CreateMemSetInline(place.pointer, llvm::Align(64), b_.getInt8(0),
                          b_.getInt64(module_.getDataLayout().getTypeAllocSize(type)));
  } else if (buffer.scope == MemoryScope::kRegister) {
    place.kind = Place::kRegister;
    place.inner = buffer.shape.empty() ? 1 : std::max<int64_t>(*as_int(buffer.shape.back()), 1);
    place.chunks = chunks_of(place.inner, native_lanes(emit_for_.lanes_of(), compute_bits(buffer.dtype)));
    for (int64_t row = 0; row < static_cast<int64_t>(n) / place.inner; ++row)
      for (const Chunk& chunk : place.chunks) {
        llvm::Type* type = cell_type(buffer.dtype, chunk.lanes);
        place.cells.push_back(buffer_slot(buffer, type, place.cells.size()));
        b_.CreateStore(llvm::Constant::getNullValue(type), place.cells.back());
      }
  } else {
    const LocalPlace& local = locals_.places.at(&buffer);
    Value* pointer = nullptr;
    if (local.on_stack) {
      pointer = buffer_slot(buffer, llvm::ArrayType::get(b_.getInt8Ty(), static_cast<uint64_t>(local.bytes)));
    } else {
      pointer =
          b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), f_.scratch, static_cast<uint64_t>(local.offset), buffer.name);
    }
    place = memory_place(&buffer, pointer);
  }
  f_.places[&buffer] = std::move(place);
  emit(s->stmts[0]);
  f_.places.erase(&buffer);
}

// ---- vectorized loops ----------------------------------------------------------------------------------------------

void KernelEmitter::emit_vectorized(const Stmt& s) {
  const auto extent = as_int(s->extent);
  check(extent.has_value(), where("vectorized loop " + s->var->name + " of an extent that is not constant"));
  VectorPlan plan = plan_vector_loop(*s.get());
  if (vec_) plan.refused = "it is inside another vectorized loop";
  if (!plan.refused.empty()) {
    const std::string remark = where(fmt::format("loop {} runs without vectors: {}", s->var->name, plan.refused));
    if (std::find(remarks_.begin(), remarks_.end(), remark) == remarks_.end()) remarks_.push_back(remark);
    if (plan.indexes_registers) {
      if (*extent <= kMaxFallbackCopies) return emit_unrolled(s);
      throw UserError({.id = "TSR-3412",
                       .message = fmt::format(
                           "{}, and it chooses places in registers: that takes {} copies of its body", remark, *extent),
                       .node = {},
                       .legal = fmt::format("up to {} copies", kMaxFallbackCopies),
                       .hint = "keep the buffer in local memory"});
    }
    emit_loop(s->var, evaluate(s->begin), evaluate(s->extent), true, [&] { emit(s->stmts[0]); });
    return;
  }
  const std::vector<Chunk> chunks = chunks_of(*extent, native_lanes(emit_for_.lanes_of(), plan.element_bits));
  for (size_t i = 0; i < chunks.size();) {
    size_t end = i;
    while (end < chunks.size() && chunks[end].lanes == chunks[i].lanes) ++end;
    emit_chunks(s, chunks[i].begin, static_cast<int64_t>(end - i), chunks[i].lanes, plan);
    i = end;
  }
}

// `count` chunks of equal width, and the reductions among them.
void KernelEmitter::emit_chunks(const Stmt& s, int64_t first, int64_t count, int lanes, const VectorPlan& plan) {
  const int copies = plan.reductions.empty() || plan.has_inner_loop
                         ? 1
                         : static_cast<int>(std::min<int64_t>(count, kReductionPartials));
  std::vector<std::vector<Partial>> partials(plan.reductions.size());  // the copies of each
  for (size_t r = 0; r < plan.reductions.size(); ++r) {
    const VectorReduction& reduction = plan.reductions[r];
    const DType dtype = reduction.store->buffer->dtype;
    llvm::AllocaInst* has_run = nullptr;
    if (reduction.may_not_run) {
      has_run = stack_slot(b_.getInt1Ty(), "has_run", llvm::Align(1));
      b_.CreateStore(b_.getFalse(), has_run);
    }
    for (int copy = 0; copy < copies; ++copy) {
      partials[r].push_back({stack_slot(cell_type(dtype, lanes), "partial", llvm::Align(64)), has_run});
      b_.CreateStore(value_to_cell(dtype, identity(reduction.combiner, dtype, lanes)), partials[r].back().cell);
    }
  }
  const auto emit_copy = [&](const Expr& base, int64_t copy) {
    keep_.push_back(base);
    std::unordered_map<const Buffer*, Partial> own;
    for (size_t r = 0; r < plan.reductions.size(); ++r)
      own[plan.reductions[r].store->buffer.get()] = partials[r][static_cast<size_t>(copy)];
    // A tail of one element is a vector of one lane, which is a scalar.
    in_vector(s->var, base, lanes, [&] { emit(s->stmts[0]); }, std::move(own));
  };
  const auto begin = [&](int64_t offset) { return simplify(substitute(s->begin, replaced_) + Expr(offset), bounds_); };
  if (count <= kMaxUnrolledChunks || plan.indexes_registers) {
    for (int64_t c = 0; c < count; ++c) emit_copy(begin(first + c * lanes), c % copies);
  } else {
    const int64_t trips = count / copies;
    const Var chunk = make_var(s->var->name + "_chunk");
    keep_.push_back(chunk);
    bind(chunk, Interval{0, trips - 1});
    emit_loop(chunk, b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(trips)), true, [&] {
      for (int64_t c = 0; c < copies; ++c)
        emit_copy(simplify(begin(first + c * lanes) + chunk * Expr(static_cast<int64_t>(lanes) * copies), bounds_), c);
    });
    for (int64_t c = trips * copies; c < count; ++c) emit_copy(begin(first + c * lanes), c % copies);
  }
  for (size_t r = 0; r < plan.reductions.size(); ++r) join_partials(plan.reductions[r], partials[r], lanes);
}

// The partial results join the element that the loop reduces into, if any iteration stored to it.
void KernelEmitter::join_partials(const VectorReduction& reduction, const std::vector<Partial>& copies, int lanes) {
  llvm::BasicBlock* after = nullptr;
  if (llvm::AllocaInst* has_run = copies[0].has_run) {
    if (has_run->hasOneUse()) return;  // it was set to false, and there is no code that would store
    auto* block = llvm::BasicBlock::Create(context_, "join", f_.function);
    after = llvm::BasicBlock::Create(context_, "joined", f_.function);
    b_.CreateCondBr(b_.CreateLoad(b_.getInt1Ty(), has_run), block, after);
    b_.SetInsertPoint(block);
    f_.indices.emplace_back();
  }
  const StmtNode& store = *reduction.store;
  const DType dtype = store.buffer->dtype;
  const BinaryOp op = combiner_op(reduction.combiner);
  std::vector<Value*> vectors;
  for (const Partial& copy : copies)
    vectors.push_back(cell_to_value(dtype, b_.CreateLoad(cell_type(dtype, lanes), copy.cell)));
  while (vectors.size() > 1) {
    std::vector<Value*> joined;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2)
      joined.push_back(ops_.binary(op, dtype, vectors[i], vectors[i + 1]));
    if (vectors.size() % 2) joined.push_back(vectors.back());
    vectors = std::move(joined);
  }
  Value* sum = ops_.horizontal(op, dtype, vectors[0]);
  const Var joined = make_var("partial", dtype);
  f_.vars[joined.get()] = sum;
  keep_.push_back(joined);
  kept_stmts_.push_back(
      tessera::store(store.buffer, store.indices, binary(op, load(store.buffer, store.indices), joined)));
  emit_store(kept_stmts_.back());
  f_.vars.erase(joined.get());
  if (!after) return;
  f_.indices.pop_back();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void KernelEmitter::in_vector(const Var& var, const Expr& base, int lanes, const std::function<void()>& body,
                              std::unordered_map<const Buffer*, Partial> partials) {
  Vector vector;
  vector.var = var;
  vector.base = base;
  vector.lane = make_var(var->name + "_lane");
  vector.lanes = lanes;
  vector.partials = std::move(partials);
  keep_.push_back(base);
  keep_.push_back(vector.lane);
  bounds_.set(vector.lane, 0, lanes - 1);
  keep_.push_back(base + vector.lane);
  replaced_[var.get()] = keep_.back();
  vec_ = std::move(vector);
  body();
  vec_.reset();
  replaced_.erase(var.get());
}

void KernelEmitter::replace(const Var& var, int64_t place) {
  keep_.push_back(Expr(place));
  replaced_[var.get()] = keep_.back();
}

}  // namespace tessera::inline llvm_codegen
