#include "loop/intrinsic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "arith/simplify.h"
#include "loop/intrinsic_text.h"
#include "loop/unify.h"
#include "support/error.h"
#include "target/intrinsic_texts.h"

namespace tessera::inline loop {
namespace {

const std::vector<TensorIntrinsic>& table() {
  static const std::vector<TensorIntrinsic> kTable = [] {
    std::vector<TensorIntrinsic> all;
    for (const IntrinsicText& of_architecture : intrinsic_texts())
      for (TensorIntrinsic& intrinsic : parse_table_intrinsics(of_architecture.text, std::string(of_architecture.file)))
        all.push_back(std::move(intrinsic));
    return all;
  }();
  return kTable;
}

constexpr std::array<std::string_view, 15> kCodeNames = {"none",       "multiply_add", "dot_of_pairs",   "quads_u8i8",
                                                         "quads_neon", "pairs_i16",    "pairs_of_bytes", "common_bits",
                                                         "tile_dot",   "pack_bytes",   "transpose",      "warp_product",
                                                         "async_copy", "short_exp",    "block"};

bool same_architecture(const TensorIntrinsic& intrinsic, const Target& target) {
  const std::string& name = intrinsic.like.empty() ? intrinsic.name : intrinsic.like;
  if (name.starts_with(target.architecture().intrinsics)) return true;
  return name.starts_with("portable.") || name == "block" || intrinsic.body || !intrinsic.call.empty();
}

Expr flat_address(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr address = 0;
  for (size_t i = 0; i < indices.size(); ++i) address = address * buffer.shape[i] + indices[i];
  return address;
}

const TensorIntrinsic* best_intrinsic(IntrinsicCode code, const Target& target, DType dtype) {
  for (const TensorIntrinsic& intrinsic : table()) {
    if (intrinsic.code == code && intrinsic.dtype == dtype && has_intrinsic(target, intrinsic)) return &intrinsic;
  }
  return nullptr;
}

// Beside the pattern: what the ways of running it need.
std::string region_problem(const TensorIntrinsic& intrinsic, const LoopProgram& pattern, const PatternMatch& match) {
  for (size_t i = 0; i < match.regions.size(); ++i) {
    const PatternRegion& region = match.regions[i];
    if (!region.buffer) continue;
    const bool in_registers = region.buffer->scope == MemoryScope::kRegister;
    if (in_registers && !intrinsic.call.empty())
      return fmt::format("{} is in registers, which a function cannot be given", region.buffer->name);
    const bool is_output = i + static_cast<size_t>(pattern.num_outputs) >= pattern.params.size();
    if (region.inside && !intrinsic.body)
      return fmt::format("{} is padded, and only a body reads around that", region.buffer->name);
    if (in_registers && intrinsic.code != IntrinsicCode::kNone && !is_output)
      return fmt::format("{} is in registers", region.buffer->name);
    if (intrinsic.body) {
      std::string problem;
      walk(
          pattern.body,
          [&](const Stmt& s) {
            if (s->kind != StmtKind::kFor) return;
            const auto uses = [&](const Expr& e) { return uses_var(e, s->var); };
            if (std::any_of(region.at.begin(), region.at.end(), uses) &&
                std::none_of(region.pattern_at.begin(), region.pattern_at.end(), uses))
              problem = fmt::format("dimensions of {} move against each other", region.buffer->name);
          },
          nullptr);
      if (!problem.empty()) return problem;
    }
    if (in_registers && intrinsic.body) {
      std::string problem;
      walk(
          intrinsic.body->body,
          [&](const Stmt& s) {
            if (s->kind == StmtKind::kFor && s->for_kind == ForKind::kSerial)
              problem = fmt::format("{} is in registers, and '{}' of the intrinsic's body is a serial loop",
                                    region.buffer->name, s->var->name);
          },
          nullptr);
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

std::string match_pattern(const TensorIntrinsic& intrinsic, const IntrinsicPattern& pattern, const Stmt& body) {
  if (pattern.rules.exact) return unify(*pattern.program, body, pattern.rules).problem;
  std::vector<Stmt> around;
  const PatternMatch match = unify(*pattern.program, intrinsic_nest(intrinsic, body, around), pattern.rules);
  return match.problem.empty() ? region_problem(intrinsic, *pattern.program, match) : match.problem;
}

// The number that a symbol of the pattern stands for.
int64_t number_of(const LoopProgram& pattern, const PatternMatch& match, std::string_view symbol) {
  for (size_t i = 0; i < pattern.symbols.size(); ++i)
    if (pattern.symbols[i]->name == symbol) return match.symbols[i];
  throw InternalError(fmt::format("the pattern {} has no symbol {}", pattern.name, symbol));
}

// The sums that a nest of one of kTileDot's patterns, which end with them, stores to.
struct TileSums {
  BufferPtr buffer;
  Expr first;                             // flat address of the first
  std::map<std::string, int64_t> places;  // what the pattern's symbols are that say how many and where
};

TileSums sums_of(const IntrinsicPattern& pattern, const PatternMatch& match) {
  const PatternRegion& region = match.regions.back();
  TileSums sums{region.buffer, flat_address(*region.buffer, region.first), {}};
  for (const char* symbol : {"P", "V", "cp", "cv", "cr"})
    sums.places[symbol] = number_of(*pattern.program, match, symbol);
  return sums;
}

bool same_sums(const TileSums& a, const TileSums& b) {
  return a.buffer == b.buffer && a.places == b.places && as_int(simplify(a.first - b.first)) == 0;
}

std::string match_tile_product(const TensorIntrinsic& intrinsic, const Stmt& body, TileProduct& product,
                               TileSums& sums) {
  std::string problem;
  for (const IntrinsicPattern& pattern : intrinsic.patterns) {
    const PatternMatch match = unify(*pattern.program, body, pattern.rules);
    if (!match.problem.empty()) {
      if (problem.empty()) problem = match.problem;
      continue;
    }
    sums = sums_of(pattern, match);
    product.down = sums.places["P"], product.across = sums.places["V"];
    product.p = match.loops[0]->var, product.v = match.loops[1]->var, product.r = match.loops[2]->var;
    product.c = match.loops[3]->var, product.k = match.loops[4]->var;
    product.update = match.loops.back()->stmts[0];
    // Where the products that belong together are written out, the first one is the innermost, which is read last.
    VarMap first;
    if (match.loops.size() > 5) first[match.loops[5]->var.get()] = Expr(0);
    for (const PatternLoad& read : match.loads) {
      if (read.param == pattern.program->params[0].get()) product.a = substitute(read.load, first);
      if (read.param == pattern.program->params[1].get()) product.b = substitute(read.load, first);
    }
    return product.down * product.across > 4 ? "a product has more than four tiles of sums" : "";
  }
  return problem;
}

}  // namespace

const char* intrinsic_code_name(IntrinsicCode code) { return kCodeNames[static_cast<size_t>(code)].data(); }

std::optional<IntrinsicCode> parse_intrinsic_code(const std::string& name) {
  const auto it = std::find(kCodeNames.begin() + 1, kCodeNames.end(), name);
  return it == kCodeNames.end() ? std::nullopt : std::optional(static_cast<IntrinsicCode>(it - kCodeNames.begin()));
}

Stmt intrinsic_nest(const TensorIntrinsic& intrinsic, const Stmt& body, std::vector<Stmt>& around) {
  const size_t wanted = intrinsic.pattern() ? nest_depth(intrinsic.pattern()->body) : 0;
  Stmt nest = body;
  while (nest_depth(nest) > wanted && nest->for_kind == ForKind::kUnrolled && as_int(nest->extent)) {
    around.push_back(nest);
    nest = nest->stmts[0];
  }
  return nest;
}

std::string match_intrinsic(const TensorIntrinsic& intrinsic, const Stmt& body) {
  if (intrinsic.code == IntrinsicCode::kBlock) return "";
  if (intrinsic.code == IntrinsicCode::kTileDot) {
    TileDot dot;
    return match_tile_dot(intrinsic, body, dot);
  }
  std::string problem;
  for (const IntrinsicPattern& pattern : intrinsic.patterns) {
    std::string other = match_pattern(intrinsic, pattern, body);
    if (other.empty()) return "";
    if (problem.empty()) problem = std::move(other);
  }
  return problem;
}

bool is_byte_dot(const TensorIntrinsic& intrinsic) {
  return intrinsic.code == IntrinsicCode::kQuadsU8I8 || intrinsic.code == IntrinsicCode::kQuadsNeon ||
         intrinsic.code == IntrinsicCode::kPairsOfBytes;
}

bool has_intrinsic(const Target& target, const TensorIntrinsic& intrinsic) {
  return same_architecture(intrinsic, target) &&
         std::all_of(intrinsic.features.begin(), intrinsic.features.end(),
                     [&](const std::string& feature) { return target.has(feature); });
}

std::string match_tile_dot(const TensorIntrinsic& intrinsic, const Stmt& body, TileDot& dot) {
  dot.clears = body->kind == StmtKind::kSeq && body->stmts.size() == 2;
  dot.steps = dot.clears ? body->stmts[1] : body;
  if (dot.steps->kind != StmtKind::kFor || dot.steps->for_kind != ForKind::kSerial)
    return "there is no serial loop of steps";
  const Stmt& inner = dot.steps->stmts[0];
  if (inner->kind == StmtKind::kSeq && inner->stmts.empty()) return "a step has no products";
  TileSums sums;
  for (const Stmt& s : inner->kind == StmtKind::kSeq ? inner->stmts : std::vector{inner}) {
    const bool is_first = dot.products.empty();
    TileSums own;
    std::string problem = match_tile_product(intrinsic, s, dot.products.emplace_back(), own);
    if (!problem.empty()) return problem;
    if (is_first) sums = std::move(own);
    else if (!same_sums(own, sums)) return "the products of a step add to different sums";
  }
  if (uses_var(sums.first, dot.steps->var)) return "the sums are others in each step";
  if (!dot.clears) return "";
  const PatternMatch clear = unify(*intrinsic.clear->program, body->stmts[0], intrinsic.clear->rules);
  if (!clear.problem.empty()) return "what stands before the loop of steps does not clear the sums: " + clear.problem;
  return same_sums(sums_of(*intrinsic.clear, clear), sums) ? ""
                                                           : "what stands before the loop of steps clears other sums";
}

std::span<const TensorIntrinsic> all_intrinsics() { return table(); }

const TensorIntrinsic* find_intrinsic(const std::string& name, const Intrinsics& declared) {
  for (const TensorIntrinsic& intrinsic : table())
    if (intrinsic.name == name) return &intrinsic;
  for (const TensorIntrinsic* intrinsic : declared)
    if (intrinsic->name == name) return intrinsic;
  return nullptr;
}

const TensorIntrinsic* best_fma_intrinsic(const Target& target, DType dtype) {
  return best_intrinsic(IntrinsicCode::kMultiplyAdd, target, dtype);
}

const TensorIntrinsic* best_dot_intrinsic(const Target& target, DType factors) {
  const TensorIntrinsic* best = best_intrinsic(IntrinsicCode::kDotOfPairs, target, DType::kF32);
  return best && best->factors == factors ? best : nullptr;
}

const TensorIntrinsic* best_tile_intrinsic(const Target& target, DType first, DType second) {
  for (const TensorIntrinsic& intrinsic : table())
    if (intrinsic.code == IntrinsicCode::kTileDot && intrinsic.factors == first && intrinsic.second_factors == second &&
        has_intrinsic(target, intrinsic))
      return &intrinsic;
  return nullptr;
}

const TensorIntrinsic* byte_dot_intrinsic(const Target& target, DType first, DType second) {
  for (const TensorIntrinsic& intrinsic : table())
    if (is_byte_dot(intrinsic) && intrinsic.factors == first && intrinsic.second_factors == second &&
        intrinsic.lanes == target.f32_lanes() && has_intrinsic(target, intrinsic))
      return &intrinsic;
  return nullptr;
}

bool multiplies_bytes(const Target& target) {
  const auto either = [&](DType first) {
    return best_tile_intrinsic(target, first, DType::kI8) || byte_dot_intrinsic(target, first, DType::kI8);
  };
  return either(DType::kU8) || either(DType::kI8);
}

const TensorIntrinsic* best_pack_intrinsic(const Target& target) {
  return best_intrinsic(IntrinsicCode::kPackBytes, target, DType::kU8);
}

const TensorIntrinsic* best_transpose_intrinsic(const Target& target, DType dtype) {
  return best_intrinsic(IntrinsicCode::kTranspose, target, dtype);
}

}  // namespace tessera::inline loop
