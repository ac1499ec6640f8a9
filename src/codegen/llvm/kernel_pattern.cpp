// Intrinsics whose pattern is loop IR (loop/unify.h): sums of products in one instruction, calls of functions, and
// nests that stand for others. Unrolled loops around the pattern are copies of it.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/kernel_emitter.h"
#include "loop/intrinsic.h"
#include "loop/intrinsic_text.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

// That which the nest is; null when it is none.
const IntrinsicPattern* matching_pattern(const TensorIntrinsic& intrinsic, const Stmt& nest) {
  for (const IntrinsicPattern& pattern : intrinsic.patterns)
    if (unify(*pattern.program, nest, pattern.rules).problem.empty()) return &pattern;
  return nullptr;
}

}  // namespace

bool KernelEmitter::emit_pattern(const Stmt& s) {
  const TensorIntrinsic& intrinsic = *s->intrinsic;
  if (vec_ || !has_intrinsic(target_, intrinsic)) return false;
  // What stands for the nest would read its ranges more than once.
  bool loads_range = false;
  walk(
      s->stmts[0],
      [&](const Stmt& loop) {
        loads_range |= loop->kind == StmtKind::kFor && (has_load(loop->begin) || has_load(loop->extent));
      },
      nullptr);
  if (loads_range) return false;
  if (intrinsic.body) {
    kept_stmts_.push_back(intrinsic_body(intrinsic, s->stmts[0]));
    emit(Stmt(kept_stmts_.back()));
    return true;
  }
  std::vector<Stmt> around;
  const Stmt nest = intrinsic_nest(intrinsic, s->stmts[0], around);
  if (!matching_pattern(intrinsic, nest)) return false;
  for (const Stmt& loop : around) {
    const auto begin = as_int(loop->begin);
    const auto extent = as_int(loop->extent);
    if (!begin || !extent) return false;
    bind(loop->var, Interval{*begin, *begin + *extent - 1});
  }
  bool emitted = true;
  const std::function<void(size_t)> copies = [&](size_t level) {
    if (level == around.size()) {
      emitted = emitted && (!intrinsic.call.empty()                       ? emit_call(intrinsic, nest)
                            : intrinsic.code == IntrinsicCode::kPackBytes ? emit_pack(intrinsic, nest)
                                                                          : emit_products(intrinsic, nest));
      return;
    }
    const Stmt& loop = around[level];
    for (int64_t i = 0; i < *as_int(loop->extent); ++i) {
      keep_.push_back(Expr(*as_int(loop->begin) + i));
      replaced_[loop->var.get()] = keep_.back();
      copies(level + 1);
    }
    replaced_.erase(loop->var.get());
  };
  copies(0);
  check(emitted, where("an intrinsic was emitted for some copies of a nest only: " + intrinsic.name));
  return true;
}

// Of the region's first element.
Value* KernelEmitter::region_pointer(const PatternRegion& region) {
  const auto place = f_.places.find(region.buffer.get());
  check(place != f_.places.end() && place->second.kind == Place::kMemory,
        where("an intrinsic's operand " + region.buffer->name + ", which is not in memory here"));
  const Expr e = load(region.buffer, region.first);
  keep_.push_back(e);
  return element_pointer(place->second, e->dtype, resolve_index(e.get(), e, *e->buffer, e->operands));
}

bool KernelEmitter::emit_call(const TensorIntrinsic& intrinsic, const Stmt& nest) {
  const PatternMatch match = unify(*intrinsic.pattern(), nest, intrinsic.patterns[0].rules);
  std::vector<Value*> arguments;
  for (const PatternRegion& region : match.regions)
    arguments.push_back(region.buffer ? region_pointer(region) : llvm::ConstantPointerNull::get(b_.getPtrTy()));
  for (const int64_t symbol : match.symbols) arguments.push_back(b_.getInt64(static_cast<uint64_t>(symbol)));
  std::vector<llvm::Type*> types;
  for (Value* argument : arguments) types.push_back(argument->getType());
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
  f_.calls.push_back(b_.CreateCall(module_.getOrInsertFunction(intrinsic.call, type), arguments));
  return true;
}

// y[l] = the nearest integer to x[l] that is a byte, 0 of NaN: by conversions to i32, whose least number stands for
// what is too small and for NaN, and two steps of packing with saturation, which work in each 128 bits alone.
bool KernelEmitter::emit_pack(const TensorIntrinsic& intrinsic, const Stmt& nest) {
  namespace ids = llvm::Intrinsic;
  const PatternMatch match = unify(*intrinsic.pattern(), nest, intrinsic.patterns[0].rules);
  const PatternRegion &x = match.regions[0], &y = match.regions[1];
  const auto lanes = static_cast<unsigned>(intrinsic.lanes), own = lanes / 4;  // of a vector of floats
  const bool is_zmm = own == 16;
  Value* const from = region_pointer(x);
  Value* const most = llvm::ConstantFP::get(llvm::FixedVectorType::get(b_.getFloatTy(), own), 255);
  std::vector<Value*> vectors;
  for (unsigned i = 0; i < 4; ++i) {
    Value* const at = b_.CreateConstGEP1_64(b_.getFloatTy(), from, i * own);
    Value* number = mark(b_.CreateAlignedLoad(most->getType(), at, llvm::Align(4)), f_.places.at(x.buffer.get()));
    number = b_.CreateSelect(b_.CreateFCmpOGT(number, most), most, number);
    if (is_zmm) {
      auto* const type = llvm::FixedVectorType::get(b_.getInt32Ty(), own);
      constexpr uint32_t kByRegister = 4;  // rounding as MXCSR says: to the nearest
      vectors.push_back(b_.CreateIntrinsic(
          ids::x86_avx512_mask_cvtps2dq_512, {},
          {number, llvm::Constant::getNullValue(type), b_.getInt16(0xffff), b_.getInt32(kByRegister)}));
    } else {
      vectors.push_back(b_.CreateIntrinsic(ids::x86_avx_cvt_ps2dq_256, {}, {number}));
    }
  }
  const auto words = is_zmm ? ids::x86_avx512_packssdw_512 : ids::x86_avx2_packssdw;
  const auto bytes = is_zmm ? ids::x86_avx512_packuswb_512 : ids::x86_avx2_packuswb;
  Value* const front = b_.CreateIntrinsic(words, {}, {vectors[0], vectors[1]});
  Value* const back = b_.CreateIntrinsic(words, {}, {vectors[2], vectors[3]});
  Value* packed = b_.CreateIntrinsic(bytes, {}, {front, back});
  std::vector<int> order;  // of groups of four bytes
  for (unsigned vector = 0; vector < 4; ++vector)
    for (unsigned part = 0; part < own / 4; ++part) order.push_back(static_cast<int>(part * 4 + vector));
  packed = b_.CreateBitCast(packed, llvm::FixedVectorType::get(b_.getInt32Ty(), own));
  mark(b_.CreateAlignedStore(b_.CreateShuffleVector(packed, order), region_pointer(y), llvm::Align(1)),
       f_.places.at(y.buffer.get()));
  return true;
}

// acc[l] += a[0] * b[l, 0] + ... for the parameters a, b, acc of the pattern, or a[0, l] * b[l, 0] + ...
bool KernelEmitter::emit_products(const TensorIntrinsic& intrinsic, const Stmt& nest) {
  // One that is declared like another has that one's parameters in an order of its own.
  const TensorIntrinsic& known = intrinsic.like.empty() ? intrinsic : *find_intrinsic(intrinsic.like);
  const IntrinsicPattern* pattern = matching_pattern(known, nest);
  check(pattern != nullptr, where("a nest that is not what its intrinsic stands for: " + intrinsic.name));
  const PatternMatch match = unify(*pattern->program, nest, pattern->rules);
  check(match.regions.size() == 3, where(intrinsic.name + " has other operands than two factors and sums"));
  const PatternRegion &a = match.regions[0], &b = match.regions[1], &c = match.regions[2];
  const auto lanes = static_cast<unsigned>(known.lanes), depth = static_cast<unsigned>(known.depth);
  const auto group_of = [&](const PatternRegion& factor) {
    return b_.getIntNTy(static_cast<unsigned>(dtype_bits(factor.buffer->dtype)) * depth);
  };
  const llvm::Align a_align(static_cast<uint64_t>(dtype_bits(a.buffer->dtype) / 8)),
      b_align(static_cast<uint64_t>(dtype_bits(b.buffer->dtype) / 8));
  const Place &a_place = f_.places.at(a.buffer.get()), &b_place = f_.places.at(b.buffer.get());
  Value* row = nullptr;
  if (!match.symbols.empty()) {  // each lane has first factors of its own, so many bytes apart
    row = b_.CreateBitCast(interleaved_rows(a, match.symbols.back(), lanes, depth),
                           llvm::FixedVectorType::get(group_of(a), lanes));
  } else {
    row = ops_.splat(mark(b_.CreateAlignedLoad(group_of(a), region_pointer(a), a_align), a_place), known.lanes);
  }
  Value* column =
      mark(b_.CreateAlignedLoad(llvm::FixedVectorType::get(group_of(b), lanes), region_pointer(b), b_align), b_place);

  // The accumulators, by a store to them: in registers or in memory.
  const Place place = f_.places.at(c.buffer.get());
  const DType dtype = c.buffer->dtype;
  const Var lane_var = match.loops[0]->var;
  for (size_t i = 1; i < match.loops.size(); ++i) {
    keep_.push_back(match.loops[i]->begin);
    replaced_[match.loops[i]->var.get()] = keep_.back();
  }
  Vector vector;
  vector.var = lane_var;
  vector.base = simplify(substitute(match.loops[0]->begin, replaced_), bounds_);
  const Interval first_lane = bounds_of(vector.base, bounds_);
  bind(lane_var, {first_lane.lo, first_lane.hi ? std::optional(*first_lane.hi + lanes - 1) : std::nullopt});
  vector.lanes = known.lanes;
  vector.lane = make_var("lane");
  keep_.push_back(vector.base);
  keep_.push_back(vector.lane);
  bounds_.set(vector.lane, 0, known.lanes - 1);
  keep_.push_back(vector.base + vector.lane);
  replaced_[lane_var.get()] = keep_.back();
  vec_ = std::move(vector);
  Stmt update = nest;
  while (update->kind == StmtKind::kFor) update = update->stmts[0];
  const StmtNode& store = *update.get();
  const Resolved index = resolve_index(&store, {}, *store.buffer, store.indices);
  const auto access = [&](Value* stored) -> Value* {
    if (place.kind == Place::kRegister) return access_cell(place, dtype, index, stored, store.buffer->name);
    if (!stored) return load_memory(place, dtype, index);
    store_memory(place, dtype, index, stored);
    return nullptr;
  };
  access(sum_of_products(known, ops_.splat(access(nullptr), known.lanes), row, column));
  vec_.reset();
  replaced_.erase(lane_var.get());
  for (size_t i = 1; i < match.loops.size(); ++i) replaced_.erase(match.loops[i]->var.get());
  return true;
}

// Vectors of `lanes` bytes that lie `step` bytes apart: the first lane's bytes of all of them, the second's and so on.
Value* KernelEmitter::interleaved_rows(const PatternRegion& rows, int64_t step, unsigned lanes, unsigned depth) {
  const Place& place = f_.places.at(rows.buffer.get());
  Value* const first = region_pointer(rows);
  const auto bytes_at = [&](int64_t offset, unsigned count) {
    Value* const at = b_.CreateConstGEP1_64(b_.getInt8Ty(), first, static_cast<uint64_t>(offset));
    return mark(b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt8Ty(), count), at, llvm::Align(1)), place);
  };
  Value* bytes = bytes_at(0, step == lanes ? lanes * depth : lanes);
  if (step != lanes) {
    std::vector<Value*> parts = {bytes};
    for (unsigned q = 1; q < depth; ++q) parts.push_back(bytes_at(static_cast<int64_t>(q) * step, lanes));
    bytes = llvm::concatenateVectors(b_, parts);
  }
  std::vector<int> order;
  for (unsigned lane = 0; lane < lanes; ++lane)
    for (unsigned q = 0; q < depth; ++q) order.push_back(static_cast<int>(q * lanes + lane));
  return b_.CreateShuffleVector(bytes, order);
}

// `a` and `b` as one integer in each lane.
Value* KernelEmitter::sum_of_products(const TensorIntrinsic& intrinsic, Value* acc, Value* a, Value* b) {
  namespace ids = llvm::Intrinsic;
  const unsigned vector_bits = static_cast<unsigned>(intrinsic.lanes) * 32;
  const auto parts = [&](llvm::Type* element, Value* v) {
    return b_.CreateBitCast(v, llvm::FixedVectorType::get(element, vector_bits / element->getScalarSizeInBits()));
  };
  const auto by_width = [&](ids::ID xmm, ids::ID ymm, ids::ID zmm) {
    return vector_bits == 128 ? xmm : vector_bits == 256 ? ymm : zmm;
  };
  if (intrinsic.code == IntrinsicCode::kCommonBits)
    return b_.CreateAdd(acc, b_.CreateUnaryIntrinsic(ids::ctpop, b_.CreateAnd(a, b)));
  // The instruction's own first factor is the one without a sign.
  if (intrinsic.code == IntrinsicCode::kQuadsU8I8 && intrinsic.factors == DType::kI8) std::swap(a, b);
  if (intrinsic.code == IntrinsicCode::kQuadsU8I8)
    return b_.CreateIntrinsic(
        by_width(ids::x86_avx512_vpdpbusd_128, ids::x86_avx512_vpdpbusd_256, ids::x86_avx512_vpdpbusd_512), {},
        {acc, a, b});
  if (intrinsic.code == IntrinsicCode::kPairsI16) {
    const auto id = by_width(ids::x86_sse2_pmadd_wd, ids::x86_avx2_pmadd_wd, ids::x86_avx512_pmaddw_d_512);
    return b_.CreateAdd(acc, b_.CreateIntrinsic(id, {}, {parts(b_.getInt16Ty(), a), parts(b_.getInt16Ty(), b)}));
  }
  if (intrinsic.code == IntrinsicCode::kPairsOfBytes) {
    const auto words = [&](Value* v, DType dtype) {
      const auto of = [&](llvm::Type* element) {
        return llvm::FixedVectorType::get(element, static_cast<unsigned>(2 * intrinsic.lanes));
      };
      if (dtype == DType::kI16) return b_.CreateBitCast(v, of(b_.getInt16Ty()));
      Value* bytes = b_.CreateBitCast(v, of(b_.getInt8Ty()));
      return is_signed_int(dtype) ? b_.CreateSExt(bytes, of(b_.getInt16Ty()))
                                  : b_.CreateZExt(bytes, of(b_.getInt16Ty()));
    };
    const auto id = by_width(ids::x86_sse2_pmadd_wd, ids::x86_avx2_pmadd_wd, ids::x86_avx512_pmaddw_d_512);
    Value *first = words(a, intrinsic.factors), *second = words(b, intrinsic.second_factors);
    return b_.CreateAdd(acc, b_.CreateIntrinsic(id, {}, {first, second}));
  }
  if (intrinsic.code == IntrinsicCode::kDotOfPairs) {
    const auto id =
        by_width(ids::x86_avx512bf16_dpbf16ps_128, ids::x86_avx512bf16_dpbf16ps_256, ids::x86_avx512bf16_dpbf16ps_512);
    return b_.CreateIntrinsic(id, {}, {acc, parts(b_.getBFloatTy(), a), parts(b_.getBFloatTy(), b)});
  }
  check(intrinsic.code == IntrinsicCode::kQuadsNeon, where("no code for the intrinsic " + intrinsic.name));
  const bool is_signed = is_signed_int(intrinsic.factors);
  llvm::Type* bytes = llvm::FixedVectorType::get(b_.getInt8Ty(), vector_bits / 8);
  return b_.CreateIntrinsic(is_signed ? ids::aarch64_neon_sdot : ids::aarch64_neon_udot, {acc->getType(), bytes},
                            {acc, parts(b_.getInt8Ty(), a), parts(b_.getInt8Ty(), b)});
}

}  // namespace tessera::inline llvm_codegen
