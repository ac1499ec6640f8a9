// The multiply-add tile of loop/intrinsic.h: acc[v, p, l] += a(v, p, l) * b(v, p, l). What the factors share is loaded
// once; the order keeps accumulators + vectors of one factor + one broadcast in registers. The same for pairs of
// products and groups of products of bytes. And the tile that is moved and turned ("transpose"): vectors along one side
// are loaded, exchanged, and stored along the other. loop/unify.h says where in a nest all these are.
#include <llvm/IR/IntrinsicsX86.h>

#include <array>
#include <map>

#include "codegen/llvm/kernel_emitter.h"
#include "loop/intrinsic.h"
#include "support/error.h"

namespace tessera::inline llvm_codegen {

using llvm::Value;

namespace {

struct Tile {
  Stmt v, p, l, store;  // loops from the outside, and the multiply-add
  PatternLoad a, b;     // factors; of a dot product those of the first of its products
  Var place_in_group;   // of a dot product in a loop over what it sums up
};

// What the intrinsic's patterns find in a nest that is a tile of its sums. A pattern that is exact has the tile's
// loops; any other stands in them, and its last loop goes over a group of products.
std::optional<Tile> tile_of(const TensorIntrinsic& intrinsic, const Stmt& body) {
  for (const IntrinsicPattern& pattern : intrinsic.patterns) {
    std::vector<Stmt> loops;
    const Stmt nest = pattern.rules.exact ? body : intrinsic_nest(intrinsic, body, loops);
    const PatternMatch match = unify(*pattern.program, nest, pattern.rules);
    if (!match.problem.empty()) continue;
    loops.insert(loops.end(), match.loops.begin(), match.loops.end());
    if (!pattern.rules.exact) {
      const auto from_zero = [](const Stmt& loop) { return as_int(loop->begin) == 0; };
      const bool is_tile = loops.size() == 4 && match.loops.size() == 2 && as_int(loops[1]->begin) &&
                           loops[2]->for_kind == ForKind::kVectorized && from_zero(loops[0]) && from_zero(loops[2]) &&
                           from_zero(loops[3]) && match.regions[2].buffer->scope == MemoryScope::kRegister;
      if (!is_tile) continue;
    }
    Tile tile{loops[0], loops[1], loops[2], match.loops.back()->stmts[0], {}, {}, {}};
    if (loops.size() > 3) tile.place_in_group = loops[3]->var;
    // Of products that are written out the first is the innermost, which is read last.
    for (const PatternLoad& read : match.loads) {
      if (read.param == pattern.program->params[0].get()) tile.a = read;
      if (read.param == pattern.program->params[1].get()) tile.b = read;
    }
    // The pattern of a declared intrinsic may name the vectors of lanes first.
    if (!pattern.rules.exact && uses_var(tile.a.load, tile.l->var)) std::swap(tile.a, tile.b);
    return tile;
  }
  return std::nullopt;
}

// A factor of the multiply-adds: made once for each combination of the tile's loops that it depends on.
struct Factor {
  Factor(Expr factor, const Tile& tile)
      : e(std::move(factor)),
        on_v(uses_var(e, tile.v->var)),
        on_p(uses_var(e, tile.p->var)),
        on_l(uses_var(e, tile.l->var)) {}

  Value* once(int64_t v, int64_t p, int64_t chunk, const std::function<Value*()>& make) {
    auto [it, fresh] = values.try_emplace({on_v ? v : -1, on_p ? p : -1, on_l ? chunk : -1}, nullptr);
    if (fresh) it->second = make();
    return it->second;
  }

  Expr e;
  bool on_v, on_p, on_l;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Value*> values{};
};

}  // namespace

bool KernelEmitter::emit_tile(const TensorIntrinsic& intrinsic, const Stmt& body) {
  if (vec_) return false;
  const auto tile = tile_of(intrinsic, body);
  if (!tile) return false;
  const DType dtype = tile->store->buffer->dtype;
  const int64_t begin_v = *as_int(tile->v->begin);
  const int64_t begin_p = *as_int(tile->p->begin);
  const int64_t begin_l = *as_int(tile->l->begin);
  const int64_t end_v = begin_v + *as_int(tile->v->extent);
  const int64_t end_p = begin_p + *as_int(tile->p->extent);
  const std::vector<Chunk> chunks = chunks_of(*as_int(tile->l->extent), native_lanes(target_, compute_bits(dtype)));
  for (const Stmt& loop : {tile->v, tile->p, tile->l})
    bind(loop->var, Interval{*as_int(loop->begin), *as_int(loop->begin) + *as_int(loop->extent) - 1});

  Factor factors[] = {Factor(tile->a.value, *tile), Factor(tile->b.value, *tile)};
  const auto at = [&](int64_t v, int64_t p, const Chunk& chunk, const std::function<void()>& emit_here) {
    replace(tile->v->var, v);
    replace(tile->p->var, p);
    in_vector(tile->l->var, Expr(begin_l + chunk.begin), chunk.lanes, emit_here);
  };
  const auto factor_value = [&](Factor& factor, int64_t v, int64_t p, size_t chunk) {
    return factor.once(v, p, static_cast<int64_t>(chunk), [&] {
      Value* result = nullptr;
      at(v, p, chunks[chunk], [&] { result = evaluate(factor.e); });
      return result;
    });
  };

  // Factors without p first: they stay in registers over all p.
  for (Factor& factor : factors) {
    if (factor.on_p) continue;
    for (int64_t v = begin_v; v < end_v; ++v)
      for (size_t chunk = 0; chunk < chunks.size(); ++chunk) factor_value(factor, v, begin_p, chunk);
  }
  for (int64_t p = begin_p; p < end_p; ++p) {
    for (int64_t v = begin_v; v < end_v; ++v) {
      for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        Value* a = factor_value(factors[0], v, p, chunk);
        Value* b = factor_value(factors[1], v, p, chunk);
        at(v, p, chunks[chunk], [&] {
          const StmtNode& store = *tile->store.get();
          const Resolved index = resolve_index(&store, {}, *store.buffer, store.indices);
          const auto place = f_.places.find(store.buffer.get());
          check(place != f_.places.end(), where("tile of " + store.buffer->name + ", which is not allocated here"));
          const int lanes = chunks[chunk].lanes;
          Value* acc = access_cell(place->second, dtype, index, nullptr, store.buffer->name);
          Value* sum = ops_.fma(dtype, ops_.splat(a, lanes), ops_.splat(b, lanes), ops_.splat(acc, lanes));
          access_cell(place->second, dtype, index, sum, store.buffer->name);
        });
      }
    }
  }
  for (const Stmt& loop : {tile->v, tile->p, tile->l}) replaced_.erase(loop->var.get());
  return true;
}

// acc[v, p] += a(p) * b(v) with a pair of 16-bit floats, or two or four bytes, in each lane: those of a are broadcast
// from memory.
bool KernelEmitter::emit_dot(const TensorIntrinsic& intrinsic, const Stmt& body) {
  if (vec_ || !has_intrinsic(target_, intrinsic)) return false;
  const auto tile = tile_of(intrinsic, body);
  if (!tile) return false;
  const Expr &a = tile->a.load, &b = tile->b.load;
  const auto lanes = static_cast<int>(*as_int(tile->l->extent));
  const auto a_place = f_.places.find(a->buffer.get()), b_place = f_.places.find(b->buffer.get());
  const auto place = f_.places.find(tile->store->buffer.get());
  check(place != f_.places.end() && a_place != f_.places.end() && b_place != f_.places.end(),
        where("tile of " + tile->store->buffer->name + ", which is not allocated here"));
  if (a_place->second.kind != Place::kMemory || b_place->second.kind != Place::kMemory) return false;
  const int64_t begin_p = *as_int(tile->p->begin), end_p = begin_p + *as_int(tile->p->extent);
  const int64_t end_v = *as_int(tile->v->extent);
  bind(tile->v->var, Interval{0, end_v - 1});
  bind(tile->p->var, Interval{begin_p, end_p - 1});
  bind(tile->l->var, Interval{0, lanes - 1});
  const auto load_at = [&](const Place& from, const Expr& e, llvm::Type* type) -> Value* {
    keep_.push_back(e);
    const Resolved index = resolve_index(e.get(), e, *e->buffer, e->operands);
    const llvm::Align align(static_cast<uint64_t>(dtype_bits(e->dtype) / 8));
    return mark(b_.CreateAlignedLoad(type, element_pointer(from, e->dtype, index), align), from);
  };
  llvm::Type* group = b_.getIntNTy(static_cast<unsigned>(dtype_bits(a->dtype) * intrinsic.depth));
  llvm::Type* groups = llvm::FixedVectorType::get(group, static_cast<unsigned>(lanes));
  Factor rows(a, *tile), columns(b, *tile);
  // Both at lane 0.
  const auto factors_at = [&](int64_t v, int64_t p) {
    replace(tile->v->var, v);
    replace(tile->p->var, p);
    replace(tile->l->var, 0);
    if (tile->place_in_group) replace(tile->place_in_group, 0);
    Value* column = columns.once(v, p, 0, [&] { return load_at(b_place->second, b, groups); });
    Value* row = rows.once(v, p, 0, [&] { return ops_.splat(load_at(a_place->second, a, group), lanes); });
    return std::pair(column, row);
  };
  // The columns first: they stay in registers over all rows.
  for (int64_t v = 0; v < end_v; ++v) factors_at(v, begin_p);
  const DType dtype = tile->store->buffer->dtype;
  for (int64_t p = begin_p; p < end_p; ++p) {
    for (int64_t v = 0; v < end_v; ++v) {
      const auto [column, row] = factors_at(v, p);
      in_vector(tile->l->var, Expr(0), lanes, [&] {
        const StmtNode& store = *tile->store.get();
        const Resolved index = resolve_index(&store, {}, *store.buffer, store.indices);
        Value* acc = ops_.splat(access_cell(place->second, dtype, index, nullptr, store.buffer->name), lanes);
        access_cell(place->second, dtype, index, sum_of_products(intrinsic, acc, row, column), store.buffer->name);
      });
    }
  }
  if (tile->place_in_group) replaced_.erase(tile->place_in_group.get());
  for (const Stmt& loop : {tile->v, tile->p, tile->l}) replaced_.erase(loop->var.get());
  return true;
}

bool KernelEmitter::emit_tensorized(const Stmt& s) {
  const IntrinsicCode code = s->intrinsic->code;
  const Stmt& body = s->stmts[0];
  if (code == IntrinsicCode::kBlock) return false;
  if (code == IntrinsicCode::kTileDot) return emit_tile_dot(*s->intrinsic, body);
  if (is_byte_dot(*s->intrinsic) && emit_dot(*s->intrinsic, body)) return true;
  if (s->intrinsic->pattern() && emit_pattern(s)) return true;
  if (code == IntrinsicCode::kTranspose) return emit_transpose(*s->intrinsic, body);
  if (code == IntrinsicCode::kDotOfPairs) return emit_dot(*s->intrinsic, body);
  return code == IntrinsicCode::kMultiplyAdd && emit_tile(*s->intrinsic, body);
}

TileOps& KernelEmitter::tiles(const TensorIntrinsic& intrinsic) {
  if (!f_.tiles) {
    const bool is_portable = intrinsic.name.starts_with("portable.");
    f_.tiles = is_portable ? portable_tiles(f_.allocas) : amx_tiles();
    llvm::IRBuilder<> entry(f_.allocas, f_.allocas->getFirstNonPHIOrDbgOrAlloca());
    f_.tiles->configure(entry);
  }
  return *f_.tiles;
}

// Tiles 0 to 3 hold the sums, 4 and 5 and so on the rows of a, the last ones the columns of b: what is there already is
// not loaded again.
bool KernelEmitter::emit_tile_dot(const TensorIntrinsic& intrinsic, const Stmt& body) {
  TileDot dot;
  if (vec_ || !match_tile_dot(intrinsic, body, dot).empty()) return false;
  const TileProduct& first = dot.products.front();
  const int64_t down = first.down, across = first.across;
  if (down > 2 || across > 2) return false;
  TileOps& ops = tiles(intrinsic);
  const auto flat = [](const Buffer& buffer, const std::vector<Expr>& indices) {
    Expr address = 0;
    for (size_t i = 0; i < indices.size(); ++i) address = address * buffer.shape[i] + indices[i];
    return address;
  };
  struct Access {
    const Buffer* buffer = nullptr;
    Expr address;  // of the tile's first element
    int64_t stride = 0;
  };
  const auto access = [&](const TileProduct& product, const Buffer& buffer, const std::vector<Expr>& indices,
                          const Var& row, int64_t p, int64_t v) {
    const Expr address = flat(buffer, indices);
    const VarMap at{{product.p.get(), Expr(p)},
                    {product.v.get(), Expr(v)},
                    {product.r.get(), Expr(0)},
                    {product.c.get(), Expr(0)},
                    {product.k.get(), Expr(0)}};
    Access result{&buffer, simplify(substitute(address, at), bounds_), *linear_coefficient(address, row)};
    keep_.push_back(result.address);
    return result;
  };
  const auto with_pointer = [&](const Access& tile, const auto& use) {
    const auto place = f_.places.find(tile.buffer);
    check(place != f_.places.end() && place->second.kind == Place::kMemory,
          where("tile of " + tile.buffer->name + ", which is not in memory here"));
    Value* pointer =
        b_.CreateInBoundsGEP(ops_.storage_type(tile.buffer->dtype), place->second.pointer, index_value(tile.address));
    const int64_t bytes = tile.stride * (dtype_bits(tile.buffer->dtype) / 8);  // less than 0: backwards
    use(pointer, b_.getInt64(static_cast<uint64_t>(bytes)));
  };
  const auto sums = [&](const auto& use) {
    for (int64_t p = 0; p < down; ++p)
      for (int64_t v = 0; v < across; ++v) {
        const Access tile = access(first, *first.update->buffer, first.update->indices, first.r, p, v);
        with_pointer(tile, [&](Value* at, Value* stride) { use(static_cast<int>(p * across + v), at, stride); });
      }
  };
  const Interval range = bounds_of(dot.steps->extent, bounds_);
  const Interval begin = bounds_of(dot.steps->begin, bounds_);
  bind(dot.steps->var, {begin.lo, begin.hi && range.hi ? std::optional(*begin.hi + std::max<int64_t>(*range.hi, 1) - 1)
                                                       : std::nullopt});
  sums([&](int tile, Value* at, Value* stride) { dot.clears ? ops.clear(b_, tile) : ops.load(b_, tile, at, stride); });
  emit_loop(dot.steps->var, evaluate(dot.steps->begin), evaluate(dot.steps->extent), range.lo && *range.lo > 0, [&] {
    if (dot.steps->buffer) emit_prefetch(dot.steps, true);
    std::array<Access, 8> held{};
    const auto hold = [&](int tile, const Access& wanted) {
      Access& now = held[static_cast<size_t>(tile)];
      if (now.buffer == wanted.buffer && structurally_equal(now.address, wanted.address)) return;
      with_pointer(wanted, [&](Value* at, Value* stride) { ops.load(b_, tile, at, stride); });
      now = wanted;
    };
    for (const TileProduct& product : dot.products)
      for (int64_t p = 0; p < down; ++p)
        for (int64_t v = 0; v < across; ++v) {
          const int a = 4 + static_cast<int>(p), b = 6 + static_cast<int>(v);
          hold(a, access(product, *product.a->buffer, product.a->operands, product.r, p, v));
          hold(b, access(product, *product.b->buffer, product.b->operands, product.k, p, v));
          ops.dot(b_, intrinsic.factors, intrinsic.second_factors, static_cast<int>(p * across + v), a, b);
        }
  });
  sums([&](int tile, Value* at, Value* stride) { ops.store(b_, tile, at, stride); });
  return true;
}

bool KernelEmitter::emit_transpose(const TensorIntrinsic& intrinsic, const Stmt& body) {
  if (vec_) return false;
  const IntrinsicPattern& pattern = intrinsic.patterns.front();
  const PatternMatch match = unify(*pattern.program, body, pattern.rules);
  if (!match.problem.empty()) return false;
  const Stmt &row = match.loops[0], &lane = match.loops[1];
  const Stmt& move = lane->stmts[0];
  const auto lanes = static_cast<int>(*as_int(lane->extent));
  const DType dtype = move->buffer->dtype;
  const auto place = f_.places.find(move->buffer.get());
  check(place != f_.places.end(), where("tile of " + move->buffer->name + ", which is not allocated here"));
  if (place->second.kind != Place::kMemory || dtype_bits(dtype) < 8) return false;
  for (const Stmt& loop : {row, lane}) bind(loop->var, Interval{0, lanes - 1});

  // Vectors along `along`, at place i of `across`.
  const auto at = [&](const Var& along, const Var& across, int i, const std::function<void()>& emit_here) {
    replace(across, i);
    in_vector(along, Expr(0), lanes, emit_here);
  };
  std::vector<Value*> vectors;
  for (int l = 0; l < lanes; ++l)
    at(row->var, lane->var, l, [&] { vectors.push_back(ops_.splat(evaluate(move->value), lanes)); });
  // Blocks of `size` by `size` beside the diagonal change places, from single elements to half of the tile.
  for (int size = 1; size < lanes; size *= 2) {
    for (int i = 0; i < lanes; ++i) {
      if (i & size) continue;
      Value *a = vectors[static_cast<size_t>(i)], *b = vectors[static_cast<size_t>(i + size)];
      llvm::SmallVector<int, 64> first, second;
      for (int k = 0; k < lanes; ++k) {
        first.push_back(k & size ? lanes + k - size : k);
        second.push_back(k & size ? lanes + k : k + size);
      }
      vectors[static_cast<size_t>(i)] = b_.CreateShuffleVector(a, b, first);
      vectors[static_cast<size_t>(i + size)] = b_.CreateShuffleVector(a, b, second);
    }
  }
  for (int r = 0; r < lanes; ++r)
    at(lane->var, row->var, r, [&] {
      const Resolved index = resolve_index(move.get(), {}, *move->buffer, move->indices);
      store_memory(place->second, dtype, index, ops_.to_storage(dtype, vectors[static_cast<size_t>(r)]));
    });
  for (const Stmt& loop : {row, lane}) replaced_.erase(loop->var.get());
  return true;
}

}  // namespace tessera::inline llvm_codegen
