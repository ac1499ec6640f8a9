#include "loop/intrinsic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "arith/simplify.h"
#include "loop/intrinsic_text.h"
#include "loop/unify.h"
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

constexpr std::array<std::string_view, 11> kCodeNames = {"none",       "multiply_add", "dot_of_pairs",   "quads_u8i8",
                                                         "quads_neon", "pairs_i16",    "pairs_of_bytes", "common_bits",
                                                         "tile_dot",   "transpose",    "block"};

bool same_architecture(const TensorIntrinsic& intrinsic, const Target& target) {
  const std::string& name = intrinsic.like.empty() ? intrinsic.name : intrinsic.like;
  if (name.starts_with(target.architecture().intrinsics)) return true;
  return name.starts_with("portable.") || name == "block" || intrinsic.body || !intrinsic.call.empty();
}

// The flattened address of a load or store, for the coefficients of its loop variables.
Expr flat_address(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr address = 0;
  for (size_t i = 0; i < indices.size(); ++i) address = address * buffer.shape[i] + indices[i];
  return address;
}

// Why `operand` is no operand of the multiply-add; empty when it is one.
std::string operand_problem(const char* which, Expr operand, DType dtype, const std::array<Var, 3>& vars) {
  if (operand->kind == ExprKind::kCast && operand->dtype == dtype && is_float(operand->operands[0].dtype()) &&
      dtype_bits(operand->operands[0].dtype()) == 16) {
    operand = operand->operands[0];
    dtype = operand.dtype();
  }
  if (operand->kind != ExprKind::kLoad) return fmt::format("operand {} is not a load", which);
  if (operand.dtype() != dtype) return fmt::format("operand {} is {}", which, dtype_name(operand.dtype()));
  const Expr address = flat_address(*operand->buffer, operand->operands);
  for (size_t i = 0; i < vars.size(); ++i) {
    const auto coefficient = linear_coefficient(address, vars[i]);
    if (!coefficient) return fmt::format("the address of {} is not affine in {}", operand->buffer->name, vars[i]->name);
    if (i == 2 && *coefficient != 0 && *coefficient != 1)
      return fmt::format("{} steps by {} in the vector variable {}; 0 or 1 is legal", operand->buffer->name,
                         *coefficient, vars[i]->name);
  }
  return "";
}

std::string match_transpose(const TensorIntrinsic& intrinsic, const Stmt& body) {
  static constexpr ForKind kKinds[] = {ForKind::kUnrolled, ForKind::kVectorized};
  std::array<Var, 2> vars;
  Stmt s = body;
  for (size_t level = 0; level < 2; ++level) {
    if (s->kind != StmtKind::kFor || s->for_kind != kKinds[level])
      return fmt::format("level {} is not one {} loop", level, for_kind_name(kKinds[level]));
    if (as_int(s->begin) != 0 || as_int(s->extent) != intrinsic.lanes)
      return fmt::format("loop {} does not run over 0..{}", s->var->name, intrinsic.lanes);
    vars[level] = s->var;
    s = s->stmts[0];
  }
  if (s->kind != StmtKind::kStore || s->value->kind != ExprKind::kLoad) return "the innermost statement is not a move";
  const Buffer &to = *s->buffer, &from = *s->value->buffer;
  if (dtype_bits(to.dtype) != dtype_bits(intrinsic.dtype))
    return fmt::format("{} is {}", to.name, dtype_name(to.dtype));
  if (&to == &from || to.scope == MemoryScope::kRegister || from.scope == MemoryScope::kRegister)
    return "it does not move from one buffer in memory to another";
  const auto problem = [&](const Buffer& buffer, const std::vector<Expr>& indices, const Var& row,
                           const Var& contiguous) {
    const Expr address = flat_address(buffer, indices);
    if (linear_coefficient(address, contiguous) != 1)
      return fmt::format("{} is not contiguous in {}", buffer.name, contiguous->name);
    if (!linear_coefficient(address, row))
      return fmt::format("the address of {} is not affine in {}", buffer.name, row->name);
    return std::string();
  };
  std::string reason = problem(to, s->indices, vars[0], vars[1]);
  if (reason.empty()) reason = problem(from, s->value->operands, vars[1], vars[0]);
  return reason;
}

// The multiply-add tile's three loops, and the update inside them.
struct TileNest {
  std::array<Var, 3> vars;  // v, p, l
  Stmt update;
};

// Why `body` is no nest of loops v, p, l around an update of acc[v, p, l]; empty when it is.
std::string match_nest(const TensorIntrinsic& intrinsic, const Stmt& body, TileNest& nest) {
  static constexpr ForKind kKinds[] = {ForKind::kUnrolled, ForKind::kUnrolled, ForKind::kVectorized};
  std::array<int64_t, 3> extents{};
  Stmt s = body;
  for (size_t level = 0; level < 3; ++level) {
    if (s->kind != StmtKind::kFor || s->for_kind != kKinds[level])
      return fmt::format("level {} is not one {} loop", level, for_kind_name(kKinds[level]));
    const auto extent = as_int(s->extent);
    const auto begin = as_int(s->begin);
    if (!extent || *extent < 1 || !begin || *begin < 0 || (level != 1 && *begin != 0))
      return fmt::format("loop {} does not run from {} over a constant extent", s->var->name,
                         level == 1 ? "a constant" : "0");
    nest.vars[level] = s->var;
    extents[level] = *extent;
    s = s->stmts[0];
  }
  if (extents[2] != intrinsic.lanes)
    return fmt::format("loop {} has {} lanes instead of {}", nest.vars[2]->name, extents[2], intrinsic.lanes);
  if (s->kind != StmtKind::kStore) return "the innermost statement is not a store";
  if (s->buffer->dtype != intrinsic.dtype) return fmt::format("the accumulator is {}", dtype_name(s->buffer->dtype));
  if (s->buffer->scope != MemoryScope::kRegister)
    return fmt::format("the accumulator {} is not in register scope", s->buffer->name);
  if (s->indices.size() != 3) return fmt::format("the accumulator {} is not indexed [v, p, l]", s->buffer->name);
  for (size_t i = 0; i < 3; ++i)
    if (!s->indices[i].same_node(nest.vars[i]))
      return fmt::format("the accumulator {} is not indexed [v, p, l]", s->buffer->name);
  if (s->value->kind != ExprKind::kFma) return "the stored value is not an fma";
  nest.update = s;
  return "";
}

// Whether `e` is the element that the update stores.
bool is_accumulator(const Expr& e, const TileNest& nest) {
  return e->kind == ExprKind::kLoad && e->buffer == nest.update->buffer && e->operands.size() == 3 &&
         e->operands[0].same_node(nest.vars[0]) && e->operands[1].same_node(nest.vars[1]) &&
         e->operands[2].same_node(nest.vars[2]);
}

std::string match_multiply_add(const TensorIntrinsic& intrinsic, const Stmt& body) {
  TileNest nest;
  if (std::string reason = match_nest(intrinsic, body, nest); !reason.empty()) return reason;
  const Expr& value = nest.update->value;
  if (!is_accumulator(value->operands[2], nest)) return "the fma does not add to the element that it stores";
  for (const size_t factor : {0, 1}) {
    bool is_read = false;
    walk(value->operands[factor],
         [&](const Expr& e) { is_read |= e->kind == ExprKind::kLoad && e->buffer == nest.update->buffer; });
    if (is_read) return "a factor is read from " + nest.update->buffer->name + ", where the sums are";
  }
  std::string problem = operand_problem("a", value->operands[0], intrinsic.dtype, nest.vars);
  if (problem.empty()) problem = operand_problem("b", value->operands[1], intrinsic.dtype, nest.vars);
  return problem;
}

// Why `first` and `second` are no neighbouring factors with coefficient `lane` in the vector variable.
std::string pair_problem(const char* which, const Expr& first, const Expr& second, const TensorIntrinsic& intrinsic,
                         const TileNest& nest, int64_t lane) {
  std::array<Expr, 2> addresses;
  for (size_t i = 0; i < 2; ++i) {
    const Expr& e = i == 0 ? first : second;
    if (e->kind != ExprKind::kCast || e->operands[0]->kind != ExprKind::kLoad ||
        e->operands[0].dtype() != intrinsic.factors)
      return fmt::format("operand {} is not a conversion of a load of {}", which, dtype_name(intrinsic.factors));
    addresses[i] = flat_address(*e->operands[0]->buffer, e->operands[0]->operands);
    for (const Var& var : nest.vars)
      if (!linear_coefficient(addresses[i], var)) return fmt::format("the address of {} is not affine", which);
  }
  if (first->operands[0]->buffer != second->operands[0]->buffer || as_int(simplify(addresses[1] - addresses[0])) != 1)
    return fmt::format("the two factors {} are not neighbours", which);
  if (linear_coefficient(addresses[0], nest.vars[2]) != lane)
    return fmt::format("{} does not step by {} in the vector variable", which, lane);
  return "";
}

std::string match_dot(const TensorIntrinsic& intrinsic, const Stmt& body) {
  TileNest nest;
  if (std::string reason = match_nest(intrinsic, body, nest); !reason.empty()) return reason;
  const Expr& second = nest.update->value;
  const Expr& first = second->operands[2];
  if (first->kind != ExprKind::kFma || !is_accumulator(first->operands[2], nest))
    return "the stored value is not an fma of an fma that adds to the element that it stores";
  std::string problem = pair_problem("a", first->operands[0], second->operands[0], intrinsic, nest, 0);
  if (problem.empty()) problem = pair_problem("b", first->operands[1], second->operands[1], intrinsic, nest, 2);
  return problem;
}

// The products of one element of a tile that belong together, as they are written.
struct TileUpdate {
  Expr old;                       // of the sum
  std::array<Expr, 2> factors{};  // the loads of the first product
  std::string problem = {};
};

// The load of which `e` is a conversion; null when it is none.
Expr converted_load(const TensorIntrinsic& intrinsic, const Expr& e, DType factor) {
  const bool fits = e->kind == ExprKind::kCast && e->dtype == intrinsic.dtype &&
                    e->operands[0]->kind == ExprKind::kLoad && e->operands[0].dtype() == factor;
  return fits ? e->operands[0] : Expr();
}

Expr flat_address(const Expr& load) { return flat_address(*load->buffer, load->operands); }

TileUpdate match_tile_update(const TensorIntrinsic& intrinsic, const Expr& value, bool one_of_a_loop) {
  TileUpdate update;
  const auto factor_type = [&](size_t side) { return side == 0 ? intrinsic.factors : intrinsic.second_factors; };
  const auto factors = [&](const Expr& a, const Expr& b) {
    std::array<Expr, 2> loads = {converted_load(intrinsic, a, factor_type(0)),
                                 converted_load(intrinsic, b, factor_type(1))};
    for (size_t side = 0; side < 2; ++side)
      if (!loads[side])
        update.problem = fmt::format("operand {} is not a conversion of a load of {}", side == 0 ? "a" : "b",
                                     dtype_name(factor_type(side)));
    return loads;
  };
  if (one_of_a_loop && value->kind == ExprKind::kBinary && value->binary == BinaryOp::kAdd) {
    const auto is_product = [](const Expr& e) { return e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul; };
    const size_t product = is_product(value->operands[1]) ? 1 : 0;
    if (!is_product(value->operands[product])) return {.old = {}, .problem = "the stored value adds no product"};
    update.old = value->operands[1 - product];
    update.factors = factors(value->operands[product]->operands[0], value->operands[product]->operands[1]);
    return update;
  }
  Expr rest = value;
  std::array<Expr, 2> behind{};
  for (int i = one_of_a_loop ? 1 : intrinsic.depth; i-- > 0;) {
    if (rest->kind != ExprKind::kFma)
      return {.old = {},
              .problem = one_of_a_loop ? "the stored value is not an fma" : "the stored value is not an fma of an fma"};
    update.factors = factors(rest->operands[0], rest->operands[1]);
    if (!update.problem.empty()) return update;
    for (size_t side = 0; side < 2; ++side) {
      const Expr& load = update.factors[side];
      if (behind[side] && (behind[side]->buffer != load->buffer ||
                           as_int(simplify(flat_address(behind[side]) - flat_address(load))) != 1))
        return {.old = {}, .problem = fmt::format("the factors {} are not neighbours", side == 0 ? "a" : "b")};
    }
    behind = update.factors;
    rest = rest->operands[2];
  }
  update.old = rest;
  return update;
}

// Two unrolled loops over tiles, then serial ones over the 16 places of each; the statement inside them.
template <size_t kLevels>
std::string match_tile_loops(const Stmt& body, std::array<Var, kLevels>& vars, int64_t& down, int64_t& across,
                             Stmt& inside) {
  Stmt s = body;
  for (size_t level = 0; level < kLevels; ++level) {
    if (s->kind != StmtKind::kFor || s->for_kind != (level < 2 ? ForKind::kUnrolled : ForKind::kSerial))
      return fmt::format("level {} of a product is not one {} loop", level, level < 2 ? "unrolled" : "serial");
    const auto extent = as_int(s->extent);
    if (as_int(s->begin) != 0 || !extent || (level < 2 ? *extent < 1 || *extent > 4 : *extent != kTileSide))
      return fmt::format("loop {} of a product does not run over 0..{}", s->var->name, level < 2 ? 4 : kTileSide);
    if (level < 2) (level == 0 ? down : across) = *extent;
    vars[level] = s->var;
    s = s->stmts[0];
  }
  inside = s;
  return down * across > 4 ? "a product has more than four tiles of sums" : "";
}

// Whether two places of a nest of loops from 0 may be one address.
struct Step {
  int64_t stride, extent;
};
bool may_meet(std::vector<Step> steps) {
  std::erase_if(steps, [](const Step& step) { return step.extent == 1; });
  for (Step& step : steps) step.stride = step.stride < 0 ? -step.stride : step.stride;
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // of those before
  for (const Step& step : steps) {
    if (step.stride <= reach) return true;
    reach += step.stride * (step.extent - 1);
  }
  return false;
}

std::string match_tile_product(const TensorIntrinsic& intrinsic, const Stmt& body, const Var& step,
                               TileProduct& product) {
  std::array<Var, 5> vars;
  Stmt s;
  if (std::string problem = match_tile_loops(body, vars, product.down, product.across, s); !problem.empty())
    return problem;
  product.p = vars[0], product.v = vars[1], product.r = vars[2], product.c = vars[3], product.k = vars[4];
  Var q;  // of the products that belong together; none where they are written out
  if (s->kind == StmtKind::kFor) {
    if (as_int(s->begin) != 0 || as_int(s->extent) != intrinsic.depth ||
        (s->for_kind != ForKind::kSerial && s->for_kind != ForKind::kUnrolled))
      return fmt::format("loop {} of a product does not run over 0..{}", s->var->name, intrinsic.depth);
    q = s->var;
    s = s->stmts[0];
  }
  product.update = s;
  if (s->kind != StmtKind::kStore || s->buffer->dtype != intrinsic.dtype || s->buffer->scope == MemoryScope::kRegister)
    return fmt::format("the innermost statement does not store {} to memory", dtype_name(intrinsic.dtype));
  const TileUpdate update = match_tile_update(intrinsic, s->value, static_cast<bool>(q));
  if (!update.problem.empty()) return update.problem;
  const Expr& old = update.old;
  const Expr address = flat_address(*s->buffer, s->indices);
  if (old->kind != ExprKind::kLoad || old->buffer != s->buffer || as_int(simplify(flat_address(old) - address)) != 0)
    return "the fma does not add to the element that it stores";
  // Of p, v, r, c, k, and of q.
  const auto coefficients = [&](const char* which, const Expr& at, std::array<std::optional<int64_t>, 6> wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (i == vars.size() && !q) break;
      const Var& var = i == vars.size() ? q : vars[i];
      const auto c = linear_coefficient(at, var);
      if (!c) return fmt::format("the address of {} is not affine in {}", which, var->name);
      if (wanted[i] && *wanted[i] != *c)
        return fmt::format("the address of {} steps by {} in {} instead of {}", which, *c, var->name, *wanted[i]);
    }
    return std::string();
  };
  const int64_t depth = intrinsic.depth;
  std::string problem = coefficients("the sums", address, {{{}, {}, {}, 1, 0, 0}});
  if (problem.empty() && uses_var(address, step)) problem = "the sums are others in each step";
  if (problem.empty() && may_meet({{*linear_coefficient(address, product.p), product.down},
                                   {*linear_coefficient(address, product.v), product.across},
                                   {*linear_coefficient(address, product.r), kTileSide},
                                   {*linear_coefficient(address, product.c), kTileSide}}))
    problem = "different places of the tiles add to one sum";
  if (problem.empty()) problem = coefficients("a", flat_address(update.factors[0]), {{{}, 0, {}, 0, depth, 1}});
  if (problem.empty()) problem = coefficients("b", flat_address(update.factors[1]), {{0, {}, 0, depth, {}, 1}});
  const VarMap first = q ? VarMap{{q.get(), Expr(0)}} : VarMap{};
  product.a = substitute(update.factors[0], first);
  product.b = substitute(update.factors[1], first);
  return problem;
}

// A nest that clears the sums of `first`.
std::string match_tile_clear(const TensorIntrinsic& intrinsic, const Stmt& body, const TileProduct& first) {
  std::array<Var, 4> vars;
  int64_t down = 0, across = 0;
  Stmt s;
  if (std::string problem = match_tile_loops(body, vars, down, across, s); !problem.empty()) return problem;
  const auto is_zero = [](const Expr& e) {
    return e->kind == ExprKind::kConst && e->int_value == 0 && e->float_value == 0;
  };
  if (s->kind != StmtKind::kStore || s->buffer != first.update->buffer || !is_zero(s->value))
    return "what stands before the loop of steps does not clear the sums";
  const VarMap renamed{
      {vars[0].get(), first.p}, {vars[1].get(), first.v}, {vars[2].get(), first.r}, {vars[3].get(), first.c}};
  const Expr own = substitute(flat_address(*s->buffer, s->indices), renamed);
  const Expr sums = flat_address(*first.update->buffer, first.update->indices);
  if (down != first.down || across != first.across || as_int(simplify(own - sums)) != 0)
    return "what stands before the loop of steps clears other sums";
  return "";
}

const TensorIntrinsic* best_intrinsic(IntrinsicCode code, const Target& target, DType dtype) {
  for (const TensorIntrinsic& intrinsic : table()) {
    if (intrinsic.code == code && intrinsic.dtype == dtype && has_intrinsic(target, intrinsic)) return &intrinsic;
  }
  return nullptr;
}

}  // namespace

namespace {

// Beside the pattern: what the ways of running it need.
std::string region_problem(const TensorIntrinsic& intrinsic, const PatternMatch& match) {
  for (size_t i = 0; i < match.regions.size(); ++i) {
    const PatternRegion& region = match.regions[i];
    if (!region.buffer) continue;
    const bool in_registers = region.buffer->scope == MemoryScope::kRegister;
    if (in_registers && !intrinsic.call.empty())
      return fmt::format("{} is in registers, which a function cannot be given", region.buffer->name);
    const bool is_output = i + static_cast<size_t>(intrinsic.pattern->num_outputs) >= intrinsic.pattern->params.size();
    if (in_registers && intrinsic.code != IntrinsicCode::kNone && !is_output)
      return fmt::format("{} is in registers", region.buffer->name);
    if (intrinsic.body) {
      std::string problem;
      walk(
          intrinsic.pattern->body,
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

std::string match_pattern(const TensorIntrinsic& intrinsic, const Stmt& body) {
  std::vector<Stmt> around;
  const PatternMatch match = unify(*intrinsic.pattern, intrinsic_nest(intrinsic, body, around));
  return match.problem.empty() ? region_problem(intrinsic, match) : match.problem;
}

}  // namespace

const char* intrinsic_code_name(IntrinsicCode code) { return kCodeNames[static_cast<size_t>(code)].data(); }

std::optional<IntrinsicCode> parse_intrinsic_code(const std::string& name) {
  const auto it = std::find(kCodeNames.begin() + 1, kCodeNames.end(), name);
  return it == kCodeNames.end() ? std::nullopt : std::optional(static_cast<IntrinsicCode>(it - kCodeNames.begin()));
}

Stmt intrinsic_nest(const TensorIntrinsic& intrinsic, const Stmt& body, std::vector<Stmt>& around) {
  const size_t wanted = intrinsic.pattern ? nest_depth(intrinsic.pattern->body) : 0;
  Stmt nest = body;
  while (nest_depth(nest) > wanted && nest->for_kind == ForKind::kUnrolled && as_int(nest->extent)) {
    around.push_back(nest);
    nest = nest->stmts[0];
  }
  return nest;
}

std::string match_intrinsic(const TensorIntrinsic& intrinsic, const Stmt& body) {
  if (intrinsic.code == IntrinsicCode::kBlock) return "";
  if (intrinsic.code == IntrinsicCode::kTranspose) return match_transpose(intrinsic, body);
  if (intrinsic.code == IntrinsicCode::kMultiplyAdd) return match_multiply_add(intrinsic, body);
  if (intrinsic.code == IntrinsicCode::kTileDot) {
    TileDot dot;
    return match_tile_dot(intrinsic, body, dot);
  }
  if (intrinsic.code == IntrinsicCode::kDotOfPairs) {
    // Written out, or as a loop over the pair.
    const std::string written_out = match_dot(intrinsic, body);
    return written_out.empty() ? "" : match_pattern(intrinsic, body);
  }
  return match_pattern(intrinsic, body);
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
  for (const Stmt& s : inner->kind == StmtKind::kSeq ? inner->stmts : std::vector{inner}) {
    TileProduct& product = dot.products.emplace_back();
    if (std::string problem = match_tile_product(intrinsic, s, dot.steps->var, product); !problem.empty())
      return problem;
    // The same sums as those of the first product.
    const TileProduct& first = dot.products.front();
    const VarMap renamed{
        {product.p.get(), first.p}, {product.v.get(), first.v}, {product.r.get(), first.r}, {product.c.get(), first.c}};
    const Expr own = flat_address(*product.update->buffer, product.update->indices);
    if (product.down != first.down || product.across != first.across ||
        product.update->buffer != first.update->buffer ||
        as_int(simplify(substitute(own, renamed) - flat_address(*first.update->buffer, first.update->indices))) != 0)
      return "the products of a step add to different sums";
  }
  return dot.clears ? match_tile_clear(intrinsic, body->stmts[0], dot.products.front()) : "";
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

const TensorIntrinsic* best_transpose_intrinsic(const Target& target, DType dtype) {
  return best_intrinsic(IntrinsicCode::kTranspose, target, dtype);
}

}  // namespace tessera::inline loop
