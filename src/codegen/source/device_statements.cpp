// What a kernel printer writes of what the threads of a device run alone.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "codegen/source/kernel_printer.h"
#include "loop/intrinsic.h"

namespace tessera::inline source_codegen {

bool is_shared_dynamic(const Launch& launch, const Dialect& dialect) {
  return !dialect.dynamic_shared.empty() && launch.shared_bytes > dialect.most_static_shared;
}

// Pointers, or, where the language has none to give to a kernel, memory and an offset that pointers are made of.
std::string KernelPrinter::device_signature() {
  for (const char* taken : {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}) names_[taken] = 1;
  for (const std::string_view taken : dialect_.reserved) names_[std::string(taken)] = 1;
  std::vector<std::string> parameters;
  const auto num_inputs = program_.params.size() - static_cast<size_t>(program_.num_outputs);
  for (size_t i = 0; i < program_.params.size(); ++i) {
    const Buffer& buffer = *program_.params[i];
    const std::string name = fresh(buffer.name);
    buffers_[&buffer] = name;
    const bool alone = std::count(alias_classes_.begin(), alias_classes_.end(), alias_classes_[i]) == 1;
    const std::string type =
        fmt::format("{}{}{} *", dialect_.global, i < num_inputs ? "const " : "", storage_type(buffer.dtype));
    const std::string pointer = fmt::format("{}{}{}", type, alone ? dialect_.restrict_word : "", name);
    if (dialect_.has_pointers) {
      parameters.push_back(pointer);
      continue;
    }
    const std::string memory = fresh(name + "_memory"), at = fresh(name + "_at");
    parameters.push_back(fmt::format("{}u8 *{}, i64 {}", dialect_.global, memory, at));
    line(fmt::format("{} = ({})({} + {});", pointer, without_parentheses(type), memory, at));
  }
  for (const Var& symbol : program_.symbols) {
    const std::string name = fresh(symbol->name);
    variables_[symbol.get()] = name;
    parameters.push_back(fmt::format("i64 {}", name));
  }
  const auto& threads = launch_->threads;
  return fmt::format(
      "{} {} {}({})", dialect_.kernel,
      fmt::format(fmt::runtime(dialect_.bounds), threads[0], threads[1], threads[2], launch_->num_threads()), function_,
      fmt::join(parameters, ", "));
}

// At the begin of the function, where the languages want it.
void KernelPrinter::declare_shared() {
  if (is_shared_dynamic(*launch_, dialect_)) {
    int64_t at = 0;
    for (const BufferPtr& buffer : launch_->shared) {
      const std::string name = fresh(buffer->name);
      buffers_[buffer.get()] = name;
      const std::string_view type = storage_type(buffer->dtype);
      line(fmt::format("{0} *const {1} = ({0} *)({2} + {3});", type, name, dialect_.dynamic_shared, at));
      at += (dtype_bytes(buffer->dtype, std::max<int64_t>(*constant_elements(*buffer), 1)) + 15) / 16 * 16;
    }
    return;
  }
  for (const BufferPtr& buffer : launch_->shared) {
    const std::string name = fresh(buffer->name);
    buffers_[buffer.get()] = name;
    line(fmt::format("{}{}{} {}[{}];", dialect_.shared, dialect_.aligned, storage_type(buffer->dtype), name,
                     std::max<int64_t>(*constant_elements(*buffer), 1)));
  }
}

bool KernelPrinter::is_shared(const Buffer& buffer) const {
  return std::any_of(launch_->shared.begin(), launch_->shared.end(),
                     [&](const BufferPtr& other) { return other.get() == &buffer; });
}

// The index along an axis of blocks or threads; threads behind the loop's last iteration do nothing.
void KernelPrinter::emit_axis(const Stmt& s) {
  const bool thread = is_thread_axis(s->for_kind);
  const size_t axis =
      static_cast<size_t>(s->for_kind) - static_cast<size_t>(thread ? ForKind::kThreadX : ForKind::kBlockX);
  const auto extent = as_int(s->extent);
  const std::string name = fresh(s->var->name);
  variables_[s->var.get()] = name;
  bounds_.set(s->var, {0, extent ? std::optional(*extent - 1) : std::nullopt});
  const char* type = extent && *extent <= INT32_MAX ? "i32" : "i64";
  if (thread && axis == 0) lane_ = s->var;
  line(fmt::format("{{ const {} {} = {};", type, name, (thread ? dialect_.thread : dialect_.block)[axis]));
  ++depth_;
  line(fmt::format("(void){};", name));
  const bool some = thread && *extent < launch_->threads[axis];
  if (some) {
    line(fmt::format("if ({} < {}) {{", name, *extent));
    emit_block(s->stmts[0]);
    line("}");
  } else {
    emit(s->stmts[0]);
  }
  --depth_;
  line("}");
}

// The address of a vector that a loop's iterations walk through; empty where it is none.
std::string KernelPrinter::vector_at(const Buffer& buffer, const std::vector<Expr>& indices, const Stmt& loop) {
  Expr number = flat_index(buffer, indices);
  if (!is_index(number)) return {};
  Bounds bounds = bounds_;
  bounds.set(loop->var, 0, *as_int(loop->extent) - 1);
  VarMap first, next;
  first[loop->var.get()] = Expr(0);
  next[loop->var.get()] = loop->var + Expr(1);
  const Expr begin = simplify(substitute(number, first), bounds_);
  if (as_int(simplify(substitute(number, next) - number, bounds)) != 1 ||
      !is_const_int(simplify(floormod(begin, loop->extent), bounds_), 0))
    return {};
  keep_.push_back(begin);
  return fmt::format("&{}[{}]", buffers_.at(&buffer), without_parentheses(index(begin)));
}

// Every thread of a warp reaches the call, or none: lanes are the threads along x, of which there are 32, and what
// stands around it depends on none of them.
std::string KernelPrinter::warp_product(const Stmt& s) {
  if (!dialect_.has_warp_products || !launch_ || launch_->threads[0] != 32 || !lane_ || !s->intrinsic ||
      s->intrinsic->code != IntrinsicCode::kWarpProduct)
    return {};
  const IntrinsicPattern& pattern = s->intrinsic->patterns[0];
  const PatternMatch match = unify(*pattern.program, s->stmts[0], pattern.rules);
  if (!match.problem.empty()) return {};
  const auto number = [&](std::string_view symbol) {
    for (size_t i = 0; i < match.symbols.size(); ++i)
      if (pattern.program->symbols[i]->name == symbol) return match.symbols[i];
    return int64_t{0};
  };
  const int64_t down = number("I"), across = number("J");
  // How operands lie in memory: what neighbouring steps are apart, and neighbouring rows (eight apart) or columns.
  const int64_t a_step = number("ak"), a_row = number("ar") / 8, b_step = number("bk"), b_column = number("bc");
  const bool a_by_steps = a_step == 1, b_by_steps = b_step == 1;
  const int64_t a_pitch = a_by_steps ? a_row : a_step, b_pitch = b_by_steps ? b_column : b_step;
  // Tiles of sums in a row of them, which may be longer than the product's.
  const int64_t in_row = down > 1 ? number("ci") / 4 : across;
  if (across % 2 != 0 || (down > 1 && number("ci") % 4 != 0) || number("cj") != 4 || number("ar") % 8 != 0 ||
      (down > 1 && number("ai") != 16 * a_row) || number("bj") != 8 * b_column || (!a_by_steps && a_row != 1) ||
      (!b_by_steps && b_column != 1) || a_pitch % 8 != 0 || b_pitch % 8 != 0)
    return {};
  const auto flat = [&](const PatternRegion& region) {
    return simplify(flat_index(*region.buffer, region.first), bounds_);
  };
  // Where the warp's operand begins; null where the lanes' are not where the instruction has them.
  const auto begin = [&](const PatternRegion& region, const Expr& of_lane) -> Expr {
    VarMap first;
    first[lane_.get()] = Expr(0);
    const Expr own = flat(region), common = simplify(substitute(own, first), bounds_);
    const bool is_lanes = is_const_int(simplify(own - common - of_lane, bounds_), 0);
    return is_lanes && is_shared(*region.buffer) && is_const_int(simplify(floormod(common, Expr(8)), bounds_), 0)
               ? common
               : Expr();
  };
  const Expr a = begin(match.regions[0], floordiv(lane_, Expr(4)) * Expr(a_row));
  const Expr b = begin(match.regions[1], floormod(lane_, Expr(4)) * Expr(2 * b_column));
  const auto first_sum = as_int(flat(match.regions[2]));
  if (!a || !b || !first_sum) return {};
  keep_.push_back(a);
  keep_.push_back(b);
  return fmt::format("tsr_mma_{}<{}, {}, {}, {}, {}>({}, &{}[{}], {}, &{}[{}], {});",
                     dtype_name(match.regions[0].buffer->dtype), down, across, in_row, a_by_steps, b_by_steps,
                     buffers_.at(match.regions[2].buffer.get()) + (*first_sum ? fmt::format(" + {}", *first_sum) : ""),
                     buffers_.at(match.regions[0].buffer.get()), index(a), a_pitch,
                     buffers_.at(match.regions[1].buffer.get()), index(b), b_pitch);
}

KernelPrinter::VectorMove KernelPrinter::vector_move(const Stmt& s) {
  const auto lanes = as_int(s->extent);
  const Stmt& body = s->stmts[0];
  if (!launch_ || s->for_kind != ForKind::kVectorized || !lanes || !is_const_int(s->begin, 0) ||
      body->kind != StmtKind::kStore || body->value->kind != ExprKind::kLoad)
    return {};
  const Buffer &to = *body->buffer, &from = *body->value->buffer;
  const int64_t bytes = dtype_bytes(to.dtype, *lanes);
  const size_t size = bytes == 4 ? 0 : bytes == 8 ? 1 : 2;
  if (to.dtype != from.dtype || (bytes != 4 && bytes != 8 && bytes != 16)) return {};
  const auto param = [&](const Buffer& buffer) {
    const auto it = std::find_if(program_.params.begin(), program_.params.end(),
                                 [&](const BufferPtr& p) { return p.get() == &buffer; });
    return it == program_.params.end() ? -1 : static_cast<int>(it - program_.params.begin());
  };
  // Registers are aligned, parameters only where that is known.
  const auto is_whole = [&](const Buffer& buffer) {
    const int number = param(buffer);
    if (number < 0) return !scalars_.contains(&buffer);
    return static_cast<size_t>(number) < aligned_.size() && aligned_[static_cast<size_t>(number)];
  };
  if (!is_whole(to) || !is_whole(from)) return {};
  const std::string target = vector_at(to, body->indices, s), source = vector_at(from, body->value->operands, s);
  if (target.empty() || source.empty()) return {};
  const auto space = [&](const Buffer& buffer) {
    return param(buffer) >= 0 ? dialect_.global : is_shared(buffer) ? dialect_.shared_pointer : std::string_view();
  };
  return {dialect_.vectors[size], target, source, space(to), space(from), param(from) >= 0, is_shared(to)};
}

std::string KernelPrinter::short_exp(const Stmt& s) {
  if (dialect_.short_exp.empty() || !s->intrinsic || s->intrinsic->code != IntrinsicCode::kShortExp) return {};
  const IntrinsicPattern& pattern = s->intrinsic->patterns[0];
  const PatternMatch match = unify(*pattern.program, s->stmts[0], pattern.rules);
  if (!match.problem.empty()) return {};
  const PatternRegion &from = match.regions[0], &to = match.regions[1];
  begin_expression(from.first);
  const std::string number = element(*from.buffer, from.first);
  begin_expression(to.first);
  const std::string place = element(*to.buffer, to.first);
  values_.clear();
  return fmt::format("{} = {};", place, fmt::format(fmt::runtime(dialect_.short_exp), number));
}

std::string KernelPrinter::narrow_pair(const Stmt& s) {
  const Stmt& body = s->stmts[0];
  if (dialect_.narrow_pair.empty() || !launch_ || s->for_kind != ForKind::kVectorized || as_int(s->extent) != 2 ||
      !is_const_int(s->begin, 0) || body->kind != StmtKind::kStore || body->value->kind != ExprKind::kCast)
    return {};
  const Buffer& to = *body->buffer;
  const Expr& from = body->value->operands[0];
  if (!is_shared(to) || (to.dtype != DType::kBF16 && to.dtype != DType::kF16) || from.dtype() != DType::kF32 ||
      from->kind != ExprKind::kLoad)
    return {};
  const std::string target = vector_at(to, body->indices, s);
  if (target.empty()) return {};
  const auto lane = [&](int64_t number) {
    std::vector<Expr> indices;
    for (const Expr& index : from->operands) indices.push_back(substitute(index, {{s->var.get(), Expr(number)}}));
    begin_expression(indices);
    std::string text = element(*from->buffer, indices);
    values_.clear();
    return text;
  };
  return fmt::format("*({}u32 *){} = {};", dialect_.shared_pointer, target,
                     fmt::format(fmt::runtime(dialect_.narrow_pair), dtype_name(to.dtype), lane(0), lane(1)));
}

std::string KernelPrinter::async_copy(const Stmt& s) {
  if (dialect_.async_copy.empty() || !launch_ || !s->intrinsic || s->intrinsic->code != IntrinsicCode::kAsyncCopy ||
      !match_intrinsic(*s->intrinsic, s->stmts[0]).empty())
    return {};
  const VectorMove move = vector_move(s->stmts[0]);
  if (move.type.empty() || !move.to_shared || !move.from_params) return {};
  return fmt::format(fmt::runtime(dialect_.async_copy), move.to, move.from);
}

// How many iterations of a device's serial loop are to be written out; 0: as the compiler likes. Copies of a loop in
// which threads wait bring nothing, and of a long one some are enough: with all of it compilers run out of registers.
int64_t KernelPrinter::copies_of(const Stmt& s) const {
  constexpr int64_t kLongLoop = 16, kCopies = 2;
  if (!launch_ || dialect_.unroll.empty() || s->for_kind != ForKind::kSerial) return 0;
  bool waits = false;
  walk(s->stmts[0], [&](const Stmt& node) { waits = waits || launch_->barriers.contains(node.get()); }, nullptr);
  if (waits) return 1;
  return as_int(s->extent).value_or(0) >= kLongLoop ? kCopies : 0;
}

}  // namespace tessera::inline source_codegen
