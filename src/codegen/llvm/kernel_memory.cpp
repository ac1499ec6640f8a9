#include <algorithm>

#include "codegen/llvm/kernel_emitter.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

int64_t storage_bytes(DType dtype) { return dtype_bits(dtype) / 8; }

// e = rest + constant, for simplified e (constants stand last).
std::pair<Expr, int64_t> split_constant(const Expr& e) {
  if (const auto c = as_int(e)) return {Expr(0), *c};
  if (e->kind == ExprKind::kBinary && (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub))
    if (const auto c = as_int(e->operands[1])) return {e->operands[0], e->binary == BinaryOp::kAdd ? *c : -*c};
  return {e, 0};
}

Expr flatten(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr flat = 0;
  for (size_t i = 0; i < indices.size(); ++i) flat = flat * buffer.shape[i] + indices[i];
  return flat;
}

// The first lane that runs, where the lanes that run lie side by side and read elements that do, beginning with
// distance 0.
std::optional<int64_t> first_of_neighbours(const std::vector<int64_t>& offsets, const std::vector<bool>& runs) {
  const auto first = std::find(runs.begin(), runs.end(), true);
  if (first == runs.end() || offsets.size() != runs.size()) return std::nullopt;
  const auto last = std::find(first, runs.end(), false);
  if (last - first < 2 || std::find(last, runs.end(), true) != runs.end()) return std::nullopt;
  for (auto lane = first; lane != last; ++lane)
    if (offsets[static_cast<size_t>(lane - runs.begin())] != lane - first) return std::nullopt;
  return first - runs.begin();
}

}  // namespace

// ---- indices -------------------------------------------------------------------------------------------------------

// `key` identifies the access; `keep` (an expression that owns it, or null) keeps the key from being reused. Distances
// are of the lanes in `runs` (empty: all of them), the other lanes stay at the first of those.
KernelEmitter::Resolved KernelEmitter::resolve_index(const void* key, const Expr& keep, const Buffer& buffer,
                                                     const std::vector<Expr>& indices, const std::vector<bool>& runs) {
  auto [it, fresh] = flat_.try_emplace(key);
  FlatIndex& cached = it->second;
  if (fresh) {
    cached.keep = keep;
    cached.flat = simplify(flatten(buffer, indices), bounds_);
    cached.rest = {};
  }
  // The variables being replaced that this index uses, and whether it is linear in all of them.
  std::vector<const ExprNode*> removed;
  bool linear = true;
  Resolved out;
  std::vector<std::pair<const ExprNode*, Expr>> variables(replaced_.begin(), replaced_.end());
  if (vec_) variables.emplace_back(vec_->lane.get(), Expr());  // in indices that have been substituted already
  for (const auto& [var, replacement] : variables) {
    const auto known = std::find_if(cached.coefficients.begin(), cached.coefficients.end(),
                                    [v = var](const auto& entry) { return entry.first == v; });
    std::optional<int64_t> coefficient;
    if (known != cached.coefficients.end()) {
      coefficient = known->second;
    } else {
      // The map's key is the node of a live variable; wrap it without owning it.
      const Var shared(std::shared_ptr<const ExprNode>(std::shared_ptr<void>(), var));
      coefficient = uses_var(cached.flat, shared) ? linear_coefficient(cached.flat, shared, bounds_) : 0;
      cached.coefficients.emplace_back(var, coefficient);
    }
    if (!coefficient) {
      linear = false;
      break;
    }
    if (*coefficient == 0) continue;
    removed.push_back(var);
    if (!replacement) {
      out.lane_stride = *coefficient;
      continue;
    }
    const bool is_vector = vec_ && var == vec_->var.get();
    const auto [rest, constant] = split_constant(is_vector ? vec_->base : replacement);
    out.offset += *coefficient * constant;
    if (!is_const_int(rest, 0)) out.added.emplace_back(rest, *coefficient);
    if (is_vector) out.lane_stride = *coefficient;
  }
  if (linear) {
    std::sort(removed.begin(), removed.end());
    if (!cached.rest || removed != cached.removed) {
      VarMap zeros;
      for (const ExprNode* var : removed) zeros[var] = Expr(0);
      cached.removed = removed;
      cached.rest = removed.empty() ? cached.flat : simplify(substitute(cached.flat, zeros), bounds_);
      keep_.push_back(cached.rest);
    }
    const auto [rest, constant] = split_constant(cached.rest);
    out.rest = rest;
    out.offset += constant;
    return out;
  }
  // Quotients and remainders of the replaced variables: most disappear once the variables are known.
  out = {};
  const Expr flat = simplify(substitute(cached.flat, replaced_), bounds_);
  keep_.push_back(flat);
  if (vec_ && vec_->lanes > 1 && uses_var(flat, vec_->lane)) {
    out.lane_stride = linear_coefficient(flat, vec_->lane, bounds_);
    out.varying = flat;
    const auto at_lane = [&](int i) { return simplify(substitute(flat, {{vec_->lane.get(), Expr(i)}}), bounds_); };
    const auto first_run = std::find(runs.begin(), runs.end(), true);
    const Expr origin = at_lane(out.lane_stride || runs.empty() ? 0 : static_cast<int>(first_run - runs.begin()));
    for (int i = 0; i < vec_->lanes && !out.lane_stride; ++i) {
      const bool counts = runs.empty() || runs[static_cast<size_t>(i)];
      const auto distance = counts ? as_int(simplify(at_lane(i) - origin, bounds_)) : int64_t{0};
      if (!distance) {
        out.lane_offsets.clear();
        break;
      }
      out.lane_offsets.push_back(*distance);
    }
    const auto [rest, constant] = split_constant(origin);
    out.rest = rest;
    out.offset = constant;
    keep_.push_back(origin);
    return out;
  }
  const auto [rest, constant] = split_constant(flat);
  out.rest = rest;
  out.offset = constant;
  return out;
}

// The address of lane 0. Constant distances come last, so that copies share everything else.
Value* KernelEmitter::element_pointer(const Place& place, DType dtype, const Resolved& index) {
  llvm::Type* element = ops_.storage_type(dtype);
  Value* pointer = place.pointer;
  if (!is_const_int(index.rest, 0)) pointer = b_.CreateInBoundsGEP(element, pointer, index_value(index.rest));
  for (const auto& [e, factor] : index.added)
    pointer = b_.CreateInBoundsGEP(element, pointer,
                                   b_.CreateMul(index_value(e), b_.getInt64(static_cast<uint64_t>(factor))));
  if (index.offset != 0) pointer = b_.CreateConstInBoundsGEP1_64(element, pointer, static_cast<uint64_t>(index.offset));
  return pointer;
}

Value* KernelEmitter::lane_pointers(const Place& place, DType dtype, const Resolved& index) {
  llvm::Type* element = ops_.storage_type(dtype);
  if (index.lane_stride) {
    llvm::SmallVector<uint64_t, 64> ramp;
    for (int i = 0; i < vec_->lanes; ++i) ramp.push_back(static_cast<uint64_t>(i * *index.lane_stride));
    return b_.CreateInBoundsGEP(element, element_pointer(place, dtype, index),
                                llvm::ConstantDataVector::get(context_, ramp));
  }
  return b_.CreateInBoundsGEP(element, place.pointer, ops_.splat(value(index.varying), vec_->lanes));
}

// ---- memory --------------------------------------------------------------------------------------------------------

template <typename Instruction>
Instruction* KernelEmitter::mark(Instruction* access, const Place& place) {
  if (place.scope) access->setMetadata(llvm::LLVMContext::MD_alias_scope, place.scope);
  if (place.noalias) access->setMetadata(llvm::LLVMContext::MD_noalias, place.noalias);
  return access;
}

template llvm::LoadInst* KernelEmitter::mark(llvm::LoadInst*, const Place&);
template llvm::StoreInst* KernelEmitter::mark(llvm::StoreInst*, const Place&);

// Lanes at constant distances, of which `runs` (empty: all) are wanted: loads of whole vectors, as few as cover them,
// and shuffles. No load leaves what lies between two elements that are read anyway. Null when single elements are
// cheaper; the other lanes are any of the loaded elements.
Value* KernelEmitter::load_parts(const Place& place, DType dtype, Value* first, const std::vector<int64_t>& offsets,
                                 const std::vector<bool>& runs) {
  const auto lanes = static_cast<int64_t>(offsets.size());
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < offsets.size(); ++i)
    if (runs.empty() || runs[i]) wanted.push_back(offsets[i]);
  std::sort(wanted.begin(), wanted.end());
  const int64_t low = wanted.front(), high = wanted.back(), span = high - low + 1;
  int64_t width = 1;
  while (width * 2 <= std::min(span, lanes)) width *= 2;
  // Where the loads begin: each at the first element that none before it has, unless it would reach too far.
  std::vector<int64_t> begins;
  for (const int64_t at : wanted)
    if (begins.empty() || at >= begins.back() + width) begins.push_back(std::min(at, high - width + 1));
  if (std::ssize(begins) > std::max<int64_t>(2, lanes / 4)) return nullptr;

  llvm::Type* element = ops_.storage_type(dtype);
  llvm::Type* type = ops_.storage_type(dtype, static_cast<int>(width));
  const llvm::Align align(static_cast<uint64_t>(storage_bytes(dtype)));
  Value* result = nullptr;
  for (size_t part = 0; part < begins.size(); ++part) {
    Value* pointer = b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(begins[part]));
    Value* loaded = mark(b_.CreateAlignedLoad(type, pointer, align), place);
    if (width == 1)
      loaded = b_.CreateInsertElement(llvm::PoisonValue::get(ops_.storage_type(dtype, 2)), loaded, uint64_t{0});
    // Lane by lane what is there already or what has been loaded now.
    llvm::SmallVector<int, 64> widen, choose;
    for (int64_t i = 0; i < std::max<int64_t>(width, 2); ++i) widen.push_back(static_cast<int>(i));
    const int64_t stored_width = std::ssize(widen);
    widen.resize(static_cast<size_t>(std::max(lanes, stored_width)), -1);
    const bool same_width = std::ssize(widen) == stored_width;
    const bool is_first = result == nullptr;
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t at = offsets[i] - begins[part];
      const bool has = at >= 0 && at < width;
      const int behind = is_first ? 0 : static_cast<int>(lanes);
      choose.push_back(has ? static_cast<int>(at) + behind : is_first ? 0 : static_cast<int>(i));
    }
    if (is_first) {
      result = b_.CreateShuffleVector(loaded, choose);
    } else {
      Value* wide = same_width ? loaded : b_.CreateShuffleVector(loaded, widen);
      result = b_.CreateShuffleVector(result, wide, choose);
    }
  }
  return result;
}

// The lanes that run where that is known while compiling; empty: all of them, or it is not known.
std::vector<bool> KernelEmitter::known_lanes() const {
  const auto* mask = vec_ && vec_->mask ? llvm::dyn_cast<llvm::Constant>(vec_->mask) : nullptr;
  std::vector<bool> runs;
  bool any = false;
  for (int i = 0; mask && i < vec_->lanes; ++i) {
    const auto* lane = llvm::dyn_cast_or_null<llvm::ConstantInt>(mask->getAggregateElement(static_cast<unsigned>(i)));
    if (!lane) return {};
    runs.push_back(lane->isOne());
    any |= runs.back();
  }
  return any ? runs : std::vector<bool>();
}

Value* KernelEmitter::load_memory(const Place& place, DType dtype, const Resolved& index) {
  if (dtype_bits(dtype) < 8) return load_packed(place, dtype, index);
  const llvm::Align align(static_cast<uint64_t>(storage_bytes(dtype)));
  llvm::Type* element = ops_.storage_type(dtype);
  const int lanes = vec_ ? vec_->lanes : 1;
  const auto scalar = [&](Value* pointer) -> Value* {
    return mark(b_.CreateAlignedLoad(element, pointer, align), place);
  };
  if (lanes == 1) return scalar(element_pointer(place, dtype, index));
  if (index.lane_stride == 0) {
    if (!vec_->mask || !vec_->mask_may_be_empty) return scalar(element_pointer(place, dtype, index));
    return branch_select(
        b_.CreateOrReduce(vec_->mask), [&] { return scalar(element_pointer(place, dtype, index)); },
        [&]() -> Value* { return llvm::Constant::getNullValue(element); });
  }
  llvm::Type* type = ops_.storage_type(dtype, lanes);
  const std::vector<bool> runs = known_lanes();
  std::vector<int64_t> offsets = index.lane_offsets;
  if (index.lane_stride)
    for (int i = 0; i < lanes; ++i) offsets.push_back(i * *index.lane_stride);
  if (vec_->mask) {
    Value* zero = llvm::Constant::getNullValue(type);
    if (index.lane_stride == 1)
      return mark(b_.CreateMaskedLoad(type, element_pointer(place, dtype, index), align, vec_->mask, zero), place);
    // One run of neighbours: a masked load fills the other lanes with zeros. Behind shuffles LLVM would leave whatever
    // a register holds there, and arithmetic on what happens to be a subnormal number takes 150 cycles on some
    // processors.
    if (const auto lane = first_of_neighbours(offsets, runs)) {
      Value* origin = element_pointer(place, dtype, index);
      if (*lane > 0) origin = b_.CreateConstGEP1_64(element, origin, static_cast<uint64_t>(-*lane));
      return mark(b_.CreateMaskedLoad(type, origin, align, vec_->mask, zero), place);
    }
    if (!runs.empty() && !offsets.empty())
      if (Value* parts = load_parts(place, dtype, element_pointer(place, dtype, index), offsets, runs)) return parts;
    return mark(b_.CreateMaskedGather(type, lane_pointers(place, dtype, index), align, vec_->mask, zero), place);
  }
  if (index.lane_stride == 1)
    return mark(b_.CreateAlignedLoad(type, element_pointer(place, dtype, index), align), place);
  Value* first = offsets.empty() ? nullptr : element_pointer(place, dtype, index);
  if (first)
    if (Value* parts = load_parts(place, dtype, first, offsets, {})) return parts;
  Value* where_to = first ? nullptr : ops_.splat(value(index.varying), lanes);
  Value* result = llvm::PoisonValue::get(type);
  for (int i = 0; i < lanes; ++i) {
    Value* pointer =
        first
            ? b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(offsets[static_cast<size_t>(i)]))
            : b_.CreateInBoundsGEP(element, place.pointer, b_.CreateExtractElement(where_to, static_cast<uint64_t>(i)));
    result = b_.CreateInsertElement(result, scalar(pointer), static_cast<uint64_t>(i));
  }
  return result;
}

// Of iterations that store to one address the last one that runs counts. A mask has such a lane: `if` branches around
// stores that none would execute.
Value* KernelEmitter::last_lane(Value* stored) {
  const int lanes = Ops::lanes_of(stored);
  if (lanes == 1) return stored;
  if (!vec_->mask) return b_.CreateExtractElement(stored, static_cast<uint64_t>(lanes - 1));
  llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(lanes));
  Value* after = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, b_.CreateBitCast(vec_->mask, bits), b_.getTrue());
  Value* lane = b_.CreateSub(llvm::ConstantInt::get(bits, static_cast<uint64_t>(lanes - 1)), after);
  return b_.CreateExtractElement(stored, b_.CreateZExtOrTrunc(lane, b_.getInt64Ty()));
}

void KernelEmitter::store_memory(const Place& place, DType dtype, const Resolved& index, Value* stored) {
  const llvm::Align align(static_cast<uint64_t>(storage_bytes(dtype)));
  llvm::Type* element = ops_.storage_type(dtype);
  const int lanes = vec_ ? vec_->lanes : 1;
  if (lanes == 1 || index.lane_stride == 0) {
    stored = last_lane(stored);
    mark(b_.CreateAlignedStore(stored, element_pointer(place, dtype, index), align), place);
    return;
  }
  stored = ops_.splat(stored, lanes);
  if (index.lane_stride == 1) {
    Value* pointer = element_pointer(place, dtype, index);
    if (vec_->mask) mark(b_.CreateMaskedStore(stored, pointer, align, vec_->mask), place);
    else mark(b_.CreateAlignedStore(stored, pointer, align), place);
    return;
  }
  if (vec_->mask) {
    mark(b_.CreateMaskedScatter(stored, lane_pointers(place, dtype, index), align, vec_->mask), place);
    return;
  }
  std::vector<int64_t> offsets = index.lane_offsets;
  if (index.lane_stride)
    for (int i = 0; i < lanes; ++i) offsets.push_back(i * *index.lane_stride);
  Value* first = offsets.empty() ? nullptr : element_pointer(place, dtype, index);
  Value* where_to = first ? nullptr : ops_.splat(value(index.varying), lanes);
  for (int i = 0; i < lanes; ++i) {
    Value* pointer =
        first
            ? b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(offsets[static_cast<size_t>(i)]))
            : b_.CreateInBoundsGEP(element, place.pointer, b_.CreateExtractElement(where_to, static_cast<uint64_t>(i)));
    mark(b_.CreateAlignedStore(b_.CreateExtractElement(stored, static_cast<uint64_t>(i)), pointer, align), place);
  }
}

// ---- cells: register buffers, buffers private to a lane, partial results -------------------------------------------

// Like values, but elements smaller than a byte take one.
bool KernelEmitter::cell_is_byte(DType dtype) {
  return !is_float(dtype) && (dtype == DType::kBool || dtype_bits(dtype) < 8);
}

llvm::Type* KernelEmitter::cell_type(DType dtype, int lanes) const {
  return cell_is_byte(dtype) ? ops_.storage_type(dtype, lanes) : ops_.value_type(dtype, lanes);
}

Value* KernelEmitter::cell_to_value(DType dtype, Value* cell) {
  return cell_is_byte(dtype) ? ops_.from_storage(dtype, cell) : cell;
}

Value* KernelEmitter::value_to_cell(DType dtype, Value* v) {
  return cell_is_byte(dtype) ? ops_.to_storage(dtype, v) : v;
}

// Loads from (stored == null) or stores to a register buffer. Lanes that do not run write nothing. What lies outside of
// the buffer is in a lane, in an arm of a select, or under a condition that does not run: it is left out.
Value* KernelEmitter::access_cell(const Place& place, DType dtype, const Resolved& index, Value* stored,
                                  const std::string& name) {
  check(is_const_int(index.rest, 0) && index.added.empty() && (index.lane_stride || !index.lane_offsets.empty()),
        where("register buffer " + name + " is indexed by what is not constant after unrolling"));
  const int lanes = vec_ && index.lane_stride != 0 ? vec_->lanes : 1;
  Value* mask = lanes > 1 ? vec_->mask : nullptr;
  const auto cell_of = [&](int64_t at) -> std::pair<llvm::AllocaInst*, uint64_t> {
    const int64_t row = at / place.inner;
    const int64_t column = at % place.inner;
    size_t chunk = 0;
    while (chunk + 1 < place.chunks.size() && place.chunks[chunk + 1].begin <= column) ++chunk;
    const size_t cell = static_cast<size_t>(row) * place.chunks.size() + chunk;
    if (at < 0 || cell >= place.cells.size()) return {nullptr, 0};
    return {place.cells[cell], static_cast<uint64_t>(column - place.chunks[chunk].begin)};
  };
  const auto [first, position] = cell_of(index.offset);
  if (index.lane_stride == 1 && position == 0 && first && first->getAllocatedType() == cell_type(dtype, lanes)) {
    llvm::Type* type = first->getAllocatedType();
    if (!stored) return b_.CreateLoad(type, first);
    stored = ops_.splat(stored, lanes);
    return b_.CreateStore(mask ? b_.CreateSelect(mask, stored, b_.CreateLoad(type, first)) : stored, first);
  }
  if (stored && lanes == 1 && Ops::lanes_of(stored) > 1) {
    stored = last_lane(stored);
  }
  Value* result = llvm::Constant::getNullValue(cell_type(dtype, lanes));
  for (int i = 0; i < lanes; ++i) {
    const auto lane = static_cast<uint64_t>(i);
    const auto [cell, at] =
        cell_of(index.offset + (index.lane_stride ? i * *index.lane_stride : index.lane_offsets[lane]));
    if (!cell) continue;
    const bool is_vector = cell->getAllocatedType()->isVectorTy();
    Value* whole = b_.CreateLoad(cell->getAllocatedType(), cell);
    Value* element = is_vector ? b_.CreateExtractElement(whole, at) : whole;
    if (stored) {
      Value* next = Ops::lanes_of(stored) > 1 ? b_.CreateExtractElement(stored, lane) : stored;
      if (mask) next = b_.CreateSelect(b_.CreateExtractElement(mask, lane), next, element);
      b_.CreateStore(is_vector ? b_.CreateInsertElement(whole, next, at) : next, cell);
    } else {
      result = lanes > 1 ? b_.CreateInsertElement(result, element, lane) : element;
    }
  }
  return result;
}

Value* KernelEmitter::private_pointer(const Place& place, const Buffer& buffer, const Resolved& index) {
  check(index.lane_stride == 0,
        where("the buffer " + buffer.name + " of each iteration is indexed by the vector variable"));
  llvm::Type* cell = cell_type(buffer.dtype, vec_->lanes);
  Value* pointer = place.pointer;
  if (!is_const_int(index.rest, 0)) pointer = b_.CreateInBoundsGEP(cell, pointer, index_value(index.rest));
  for (const auto& [e, factor] : index.added)
    pointer =
        b_.CreateInBoundsGEP(cell, pointer, b_.CreateMul(index_value(e), b_.getInt64(static_cast<uint64_t>(factor))));
  return b_.CreateConstInBoundsGEP1_64(cell, pointer, static_cast<uint64_t>(index.offset));
}

Value* KernelEmitter::load_private(const Place& place, const Buffer& buffer, const Resolved& index) {
  llvm::Type* cell = cell_type(buffer.dtype, vec_->lanes);
  const auto load = [&] {
    return cell_to_value(buffer.dtype, b_.CreateLoad(cell, private_pointer(place, buffer, index)));
  };
  if (!vec_->mask || !vec_->mask_may_be_empty) return load();
  return branch_select(b_.CreateOrReduce(vec_->mask), load, [&]() -> Value* {
    return llvm::Constant::getNullValue(ops_.value_type(buffer.dtype, vec_->lanes));
  });
}

// ---- loads and stores ----------------------------------------------------------------------------------------------

Value* KernelEmitter::emit_load(const Expr& e) {
  const Buffer& buffer = *e->buffer;
  if (vec_)
    if (const auto it = vec_->partials.find(&buffer); it != vec_->partials.end())
      return cell_to_value(buffer.dtype, b_.CreateLoad(it->second.cell->getAllocatedType(), it->second.cell));
  const auto it = f_.places.find(&buffer);
  check(it != f_.places.end(), where("load from " + buffer.name + ", which is neither a parameter nor allocated here"));
  const Place place = it->second;
  const bool in_memory = place.kind == Place::kMemory;
  const Resolved index =
      resolve_index(e.get(), e, buffer, e->operands, in_memory ? known_lanes() : std::vector<bool>());
  switch (place.kind) {
    case Place::kRegister:
      return cell_to_value(buffer.dtype, access_cell(place, buffer.dtype, index, nullptr, buffer.name));
    case Place::kPrivate: return load_private(place, buffer, index);
    case Place::kMemory: break;
  }
  return ops_.from_storage(buffer.dtype, load_memory(place, buffer.dtype, index));
}

// A store of 16-bit floats that are only moved, as one of their bits: computing would convert them to f32 and back.
// Null when they are computed, or do not lie in memory.
Stmt KernelEmitter::as_bits(const Stmt& s) {
  const DType dtype = s->buffer->dtype;
  if (dtype != DType::kBF16 && dtype != DType::kF16) return {};
  if (const auto known = moves_.find(s.get()); known != moves_.end()) return known->second.second;
  const auto bits_of = [&](const Buffer* buffer) -> BufferPtr {
    const auto place = f_.places.find(buffer);
    if (place == f_.places.end() || place->second.kind != Place::kMemory) return nullptr;
    if (vec_ && vec_->partials.count(buffer)) return nullptr;
    BufferPtr& bits = bits_of_[buffer];
    if (!bits) bits = make_buffer(buffer->name, DType::kU16, buffer->shape, buffer->scope);
    return bits;
  };
  const std::function<Expr(const Expr&)> move = [&](const Expr& e) -> Expr {
    if (e.dtype() != dtype) return {};
    if (e->kind == ExprKind::kConst)
      return const_int(DType::kU16, static_cast<int64_t>(encode_float(dtype, e->float_value)));
    if (e->kind == ExprKind::kLoad) {
      const BufferPtr bits = bits_of(e->buffer.get());
      return bits ? load(bits, e->operands) : Expr();
    }
    if (e->kind != ExprKind::kSelect) return {};
    const Expr a = move(e->operands[1]), b = move(e->operands[2]);
    return a && b ? select(e->operands[0], a, b) : Expr();
  };
  const BufferPtr to = bits_of(s->buffer.get());
  const Expr value = to ? move(s->value) : Expr();
  const Stmt moved = value ? store(to, s->indices, value) : Stmt();
  moves_.emplace(s.get(), std::pair(s, moved));
  return moved;
}

void KernelEmitter::emit_store(const Stmt& s) {
  if (const Stmt moved = as_bits(s)) {
    // The same memory: another function, or another allocation of the buffer, has places of its own.
    const auto share = [&](const Buffer* buffer) {
      if (const auto bits = bits_of_.find(buffer); bits != bits_of_.end())
        f_.places[bits->second.get()] = f_.places.at(buffer);
    };
    share(s->buffer.get());
    walk(s->value, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad) share(e->buffer.get());
    });
    return emit_store(moved);
  }
  const Buffer& buffer = *s->buffer;
  // Storing rounds: what was converted just before is not rounded twice.
  const auto home = f_.places.find(&buffer);
  const bool converts = s->value->kind == ExprKind::kCast && s->value->operands[0].dtype() == DType::kF32 &&
                        (buffer.dtype == DType::kBF16 || buffer.dtype == DType::kF16);
  const bool in_memory =
      home != f_.places.end() && home->second.kind == Place::kMemory && !(vec_ && vec_->partials.count(&buffer));
  const Expr& stored_value = converts && in_memory ? s->value->operands[0] : s->value;
  enter(stored_value);
  Value* v = value(stored_value);
  // Cells have no masked stores: lanes that do not run keep what was there.
  const auto blend = [&](Value* old, Value* stored) {
    stored = ops_.splat(value_to_cell(buffer.dtype, stored), Ops::lanes_of(old));
    return vec_ && vec_->mask && Ops::lanes_of(old) > 1 ? b_.CreateSelect(vec_->mask, stored, old) : stored;
  };
  const auto store_cell = [&](llvm::Type* type, Value* pointer) {
    Value* old = b_.CreateLoad(type, pointer);
    b_.CreateStore(blend(old, v), pointer);
  };
  const auto it = f_.places.find(&buffer);
  check(it != f_.places.end(), where("store to " + buffer.name + ", which is neither a parameter nor allocated here"));
  if (vec_ && vec_->partials.count(&buffer)) {
    const Partial& partial = vec_->partials.at(&buffer);
    store_cell(partial.cell->getAllocatedType(), partial.cell);
    if (partial.has_run) b_.CreateStore(b_.getTrue(), partial.has_run);
  } else {
    const Place place = it->second;
    const Resolved index = resolve_index(s.get(), {}, buffer, s->indices);
    if (place.kind == Place::kRegister) {
      access_cell(place, buffer.dtype, index, value_to_cell(buffer.dtype, v), buffer.name);
    } else if (place.kind == Place::kPrivate) {
      store_cell(cell_type(buffer.dtype, vec_->lanes), private_pointer(place, buffer, index));
    } else {
      Value* stored = ops_.to_storage(buffer.dtype, v);
      if (dtype_bits(buffer.dtype) < 8) store_packed(place, buffer, index, stored);
      else store_memory(place, buffer.dtype, index, stored);
    }
  }
  leave();
}

}  // namespace tessera::inline llvm_codegen
