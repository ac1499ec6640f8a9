#include "codegen/source/kernel_printer.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "arith/walk_certain.h"
#include "support/error.h"

namespace tessera::inline source_codegen {

namespace {

constexpr size_t kLongText = 160;  // of an expression: behind that it gets a constant of its own
constexpr int64_t kZeroedBelow =
    64;  // elements of local arrays that begin as zeros, which keeps compilers from warning

// What a comparison with the least or the largest number of an integer type gives whatever the other number is.
std::optional<bool> known_comparison(BinaryOp op, const Expr& a, const Expr& b) {
  const DType dtype = a.dtype();
  if (!is_int(dtype)) return std::nullopt;
  const int bits = dtype_bits(dtype);
  const auto end = [&](bool largest) {  // as a constant's bits
    if (is_unsigned_int(dtype)) return largest ? (bits == 64 ? int64_t{-1} : (int64_t{1} << bits) - 1) : 0;
    const int64_t most = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    return largest ? most : -most - 1;
  };
  // The constant may stand on either side: whether the comparison is (of the other number) below, or above, or equal.
  const auto right = as_int(b), left = as_int(a);
  if (right == end(false) || left == end(true)) {
    if (op == BinaryOp::kLt) return false;
    if (op == BinaryOp::kGe) return true;
  }
  if (right == end(true) || left == end(false)) {
    if (op == BinaryOp::kGt) return false;
    if (op == BinaryOp::kLe) return true;
  }
  return std::nullopt;
}

// The compilers of devices come with headers of their own, whose macros and types are many: M_PI, FLT_MAX, image3d_t.
bool looks_like_a_header_name(const std::string& name) {
  const auto is_lower = [](unsigned char c) { return std::islower(c) != 0; };
  return name.ends_with("_t") || (name.size() > 2 && std::none_of(name.begin(), name.end(), is_lower));
}

bool mentions(const std::string& text, const std::string& name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

}  // namespace

KernelPrinter::KernelPrinter(const LoopProgram& program, std::string function, std::vector<int> alias_classes,
                             COps& ops, const Launch* launch, std::vector<bool> aligned)
    : program_(program),
      function_(std::move(function)),
      alias_classes_(std::move(alias_classes)),
      ops_(ops),
      dialect_(ops.dialect()),
      launch_(launch),
      aligned_(std::move(aligned)),
      locals_(launch ? LocalPlan() : plan_locals(program)) {}

std::string KernelPrinter::print() {
  const std::string head = launch_ ? device_signature() : signature();
  if (launch_) declare_shared();
  emit(launch_ ? launch_->body : program_.body);
  // What simplification left without a use.
  std::string unused;
  std::vector<std::string> names;
  for (const BufferPtr& param : program_.params) names.push_back(buffers_.at(param.get()));
  for (const Var& symbol : program_.symbols) names.push_back(variables_.at(symbol.get()));
  if (uses_scratch()) names.emplace_back("scratch");
  for (const std::string& name : names)
    if (!mentions(out_, name)) unused += fmt::format("  (void){};\n", name);
  return head + " {\n" + unused + out_ + "}\n";
}

// A name that nothing else in the function has.
std::string KernelPrinter::fresh(const std::string& text) {
  std::string name = identifier(text);
  if (launch_ && looks_like_a_header_name(name)) name += '_';
  while (names_[name]++ > 0) name += fmt::format("_{}", names_[name]);
  return name;
}

std::string KernelPrinter::signature() {
  for (const char* taken : {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "scratch"})
    names_[taken] = 1;
  std::string text = fmt::format("{} {}(", dialect_.kernel, function_);
  const auto num_inputs = program_.params.size() - static_cast<size_t>(program_.num_outputs);
  for (size_t i = 0; i < program_.params.size(); ++i) {
    const Buffer& buffer = *program_.params[i];
    const std::string name = fresh(buffer.name);
    buffers_[&buffer] = name;
    const bool alone = std::count(alias_classes_.begin(), alias_classes_.end(), alias_classes_[i]) == 1;
    text += fmt::format("{}{}{} *{}{}", i ? ", " : "", i < num_inputs ? "const " : "", storage_type(buffer.dtype),
                        alone ? dialect_.restrict_word : "", name);
  }
  if (uses_scratch()) text += ", unsigned char *scratch";
  for (const Var& symbol : program_.symbols) {
    const std::string name = fresh(symbol->name);
    variables_[symbol.get()] = name;
    text += fmt::format(", ptrdiff_t {}", name);
  }
  return text + ")";
}

void KernelPrinter::line(const std::string& text) {
  out_ += std::string(static_cast<size_t>(2 * depth_), ' ') + text + '\n';
}

// ---- statements ----

void KernelPrinter::emit(const Stmt& s) {
  if (launch_) {
    if (const auto wait = launch_->waits.find(s.get()); wait != launch_->waits.end() && !dialect_.async_copy.empty())
      line(fmt::format(fmt::runtime(dialect_.wait_for_copies), wait->second));
    if (launch_->barriers.contains(s.get())) line(std::string(dialect_.barrier));
  }
  emit_statement(s);
  if (launch_ && launch_->copies.contains(s.get()) && !dialect_.async_copy.empty())
    line(std::string(dialect_.end_of_copies));
}

void KernelPrinter::emit_statement(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) emit(child);
      return;
    case StmtKind::kFor: return emit_for(s);
    case StmtKind::kIf: return emit_if(s);
    case StmtKind::kStore: return emit_store(s);
    case StmtKind::kAlloc: return emit_alloc(s);
    case StmtKind::kTensorized: {
      std::string call = warp_product(s);
      if (call.empty()) call = async_copy(s);
      if (call.empty()) call = short_exp(s);
      return call.empty() ? emit(s->stmts[0]) : line(call);
    }
  }
}

void KernelPrinter::emit_block(const Stmt& s) {
  ++depth_;
  emit(s);
  --depth_;
}

void KernelPrinter::emit_for(const Stmt& s) {
  if (launch_ && (is_block_axis(s->for_kind) || is_thread_axis(s->for_kind))) return emit_axis(s);
  const auto extent = as_int(s->extent);
  if (extent && *extent <= 0) return;
  if (const VectorMove move = vector_move(s); !move.type.empty())
    return line(fmt::format("*({}{} *){} = *({}const {} *){};", move.to_space, move.type, move.to, move.from_space,
                            move.type, move.from));
  if (const std::string pair = narrow_pair(s); !pair.empty()) return line(pair);
  const Interval begins = bounds_of(s->begin, bounds_), extents = bounds_of(s->extent, bounds_);
  begin_expression({s->begin, s->extent});
  const auto first = as_int(s->begin);
  const std::string begin = first ? fmt::format("{}", *first) : value(s->begin);
  const std::string end = first && extent ? fmt::format("{}", *first + *extent)
                          : first == 0    ? value(s->extent)
                                          : fmt::format("{} + {}", begin, value(s->extent));
  values_.clear();
  const std::string name = fresh(s->var->name);
  // What iterations store must not move the ends.
  const bool varies = has_load(s->begin) || has_load(s->extent);
  std::string from = begin, to = end;
  if (varies) {
    from = fresh(s->var->name + "_begin");
    to = fresh(s->var->name + "_end");
    line(fmt::format("const {} {} = {}, {} = {};", index_type({}), from, begin, to, end));
  }
  const Interval range = {begins.lo, begins.hi && extents.hi
                                         ? std::optional(*begins.hi + std::max<int64_t>(*extents.hi, 1) - 1)
                                         : std::nullopt};
  const std::string type = index_type(range);
  bounds_.set(s->var, range);
  variables_[s->var.get()] = name;
  if (extent == 1 && !varies) {
    line("{");
    ++depth_;
    line(fmt::format("const {} {} = {};", type, name, without_parentheses(from)));
    line(fmt::format("(void){};", name));
    emit(s->stmts[0]);
    --depth_;
    line("}");
    return;
  }
  if (!dialect_.unroll.empty() && s->for_kind == ForKind::kUnrolled) out_ += fmt::format("{}\n", dialect_.unroll);
  if (const int64_t copies = copies_of(s); copies > 0) out_ += fmt::format("{} {}\n", dialect_.unroll, copies);
  line(fmt::format("for ({3} {0} = {1}; {0} < {2}; ++{0}) {{", name, without_parentheses(from), to, type));
  emit_block(s->stmts[0]);
  line("}");
}

void KernelPrinter::emit_if(const Stmt& s) {
  const Expr condition = is_index(s->condition) ? simplify(s->condition, bounds_) : s->condition;
  keep_.push_back(condition);
  if (const auto known = as_int(condition)) {
    if (*known) emit(s->stmts[0]);
    else if (s->stmts.size() > 1) emit(s->stmts[1]);
    return;
  }
  begin_expression({condition});
  const std::string text = value(condition);
  values_.clear();
  line(fmt::format("if ({}) {{", without_parentheses(text)));
  emit_block(s->stmts[0]);
  if (s->stmts.size() > 1) {
    line("} else {");
    emit_block(s->stmts[1]);
  }
  line("}");
}

void KernelPrinter::emit_store(const Stmt& s) {
  std::vector<Expr> roots = s->indices;
  roots.push_back(s->value);
  begin_expression(roots);
  // What is only moved keeps its bits.
  const bool moved = s->value->kind == ExprKind::kLoad && s->value->dtype == s->buffer->dtype;
  const std::string stored =
      moved ? element(*s->value->buffer, s->value->operands) : ops_.to_storage(s->buffer->dtype, value(s->value));
  const std::string place = element(*s->buffer, s->indices);
  values_.clear();
  line(fmt::format("{} = {};", place, without_parentheses(stored)));
}

void KernelPrinter::emit_alloc(const Stmt& s) {
  const Buffer& buffer = *s->buffer;
  const auto elements = constant_elements(buffer);
  check(elements.has_value(), where("allocation of a size that is not constant: " + buffer.name));
  if (launch_ && is_shared(buffer)) return emit(s->stmts[0]);
  const std::string name = fresh(buffer.name);
  buffers_[&buffer] = name;
  line("{");
  ++depth_;
  const auto place = locals_.places.find(&buffer);
  const int64_t count = std::max<int64_t>(*elements, 1);
  if (place != locals_.places.end() && !place->second.on_stack) {
    line(fmt::format("{0} *{1} = ({0} *)(void *)(scratch + {2});", storage_type(buffer.dtype), name,
                     place->second.offset));
  } else if (count == 1) {
    scalars_.insert(&buffer);
    line(fmt::format("{} {} = 0;", storage_type(buffer.dtype), name));
  } else {
    line(fmt::format("{}{} {}[{}]{};", launch_ ? dialect_.aligned : "", storage_type(buffer.dtype), name, count,
                     count <= kZeroedBelow ? " = {0}" : ""));
  }
  emit(s->stmts[0]);
  --depth_;
  line("}");
}

// ---- expressions ----

void KernelPrinter::begin_expression(const std::vector<Expr>& roots) {
  values_.assign(1, {});
  guarded_.clear();
  uses_.clear();
  for (const Expr& root : roots) count_uses(root);
}

void KernelPrinter::count_uses(const Expr& e) {
  if (uses_[e.get()]++ > 0) return;
  for (const Expr& operand : e->operands) count_uses(operand);
}

bool KernelPrinter::has_load(const Expr& e) {
  if (const auto it = has_load_.find(e.get()); it != has_load_.end()) return it->second;
  keep_.push_back(e);
  bool found = e->kind == ExprKind::kLoad;
  for (const Expr& operand : e->operands) found = has_load(operand) || found;
  return has_load_[e.get()] = found;
}

bool KernelPrinter::has_guarded_load(const Expr& e) {
  if (!has_load(e) || known_value(e)) return false;
  if (const auto it = guarded_.find(e.get()); it != guarded_.end()) return it->second;
  const bool guarded =
      e->kind == ExprKind::kLoad || std::any_of(e->operands.begin(), e->operands.end(),
                                                [&](const Expr& operand) { return has_guarded_load(operand); });
  return guarded_[e.get()] = guarded;
}

// Integer arithmetic on loop variables only, as indices and bounds are.
bool KernelPrinter::is_index(const Expr& e) {
  if (const auto it = is_index_.find(e.get()); it != is_index_.end()) return it->second;
  keep_.push_back(e);
  bool found = e->dtype == DType::kI64 || e->dtype == DType::kBool;
  if (e->kind == ExprKind::kLoad || e->kind == ExprKind::kCast || e->kind == ExprKind::kFma) found = false;
  if (e->kind == ExprKind::kUnary && e->unary != UnaryOp::kNeg && e->unary != UnaryOp::kNot) found = false;
  for (const Expr& operand : e->operands) found = found && is_index(operand);
  return is_index_[e.get()] = found;
}

const std::string* KernelPrinter::known_value(const Expr& e) const {
  for (auto layer = values_.rbegin(); layer != values_.rend(); ++layer)
    if (const auto it = layer->find(e.get()); it != layer->end()) return &it->second;
  return nullptr;
}

std::string KernelPrinter::temporary(DType dtype, const std::string& text) {
  const std::string name = fresh(fmt::format("t{}", temporaries_++));
  line(fmt::format("const {} {} = {};", dtype == DType::kBool ? "int" : value_type(dtype), name,
                   without_parentheses(text)));
  return name;
}

std::string KernelPrinter::value(const Expr& e) {
  if (e->kind == ExprKind::kConst) return ops_.constant(*e);
  if (e->kind == ExprKind::kVar) {
    const auto it = variables_.find(e.get());
    check(it != variables_.end(), where("variable " + e->name + " is used outside its loop"));
    return it->second;
  }
  if (const std::string* known = known_value(e)) return *known;
  std::string text;
  if (is_index(e)) {
    const Expr simple = simplify(e, bounds_);
    keep_.push_back(simple);
    text = index(simple);
    // Elsewhere it is a value of 64 bits.
    if (e->dtype == DType::kI64 && uses_[e.get()] > 1) text = "(i64)" + text;
  } else {
    text = compute(e);
  }
  if (uses_[e.get()] > 1 || text.size() > kLongText) text = temporary(e->dtype, text);
  keep_.push_back(e);
  return values_.back()[e.get()] = text;
}

// Whether the expression and all parts of it fit 32 bits.
bool KernelPrinter::is_narrow_index(const Expr& e) const {
  bool narrow = true;
  walk(e, [&](const Expr& node) {
    if (node->dtype != DType::kI64) return;
    const Interval range = bounds_of(node, bounds_);
    narrow = narrow && range.lo && range.hi && *range.lo >= INT32_MIN && *range.hi <= INT32_MAX;
  });
  return narrow;
}

// Of a variable with this range.
std::string KernelPrinter::index_type(const Interval& range) const {
  if (!launch_) return "ptrdiff_t";
  return range.lo && range.hi && *range.lo >= INT32_MIN && *range.hi < INT32_MAX ? "i32" : "i64";
}

std::string KernelPrinter::index(const Expr& e) {
  if (!launch_) return index_text(e, "ptrdiff_t", false);
  const bool narrow = is_narrow_index(e);
  return index_text(e, narrow ? "i32" : "i64", !narrow);
}

std::string KernelPrinter::index_text(const Expr& e, std::string_view type, bool widen) {
  if (const auto number = as_int(e)) return *number < 0 ? fmt::format("({})", *number) : fmt::format("{}", *number);
  if (e->kind == ExprKind::kVar) return widen ? "(i64)" + value(e) : value(e);
  const auto part = [&](size_t i) { return index_text(e->operands[i], type, widen); };
  if (e->kind == ExprKind::kSelect) {
    const std::string condition = part(0), first = part(1);
    return fmt::format("({} ? {} : {})", condition, first, part(2));
  }
  if (e->kind == ExprKind::kUnary) return fmt::format("({}{})", e->unary == UnaryOp::kNeg ? "-" : "!", part(0));
  check(e->kind == ExprKind::kBinary, where("an index of an unknown kind"));
  const std::string a = part(0), b = part(1);
  const auto infix = [&](const char* sign) { return fmt::format("({} {} {})", a, sign, b); };
  if (e->dtype == DType::kBool) return ops_.binary(e->binary, e->operands[0].dtype(), a, b);
  const Interval left = bounds_of(e->operands[0], bounds_), right = bounds_of(e->operands[1], bounds_);
  const bool positive = left.lo && *left.lo >= 0 && right.lo && *right.lo > 0;
  switch (e->binary) {
    case BinaryOp::kAdd: return infix("+");
    case BinaryOp::kSub: return infix("-");
    case BinaryOp::kMul: return infix("*");
    case BinaryOp::kFloorDiv:
    case BinaryOp::kDiv:
      if (positive) return infix("/");
      break;
    case BinaryOp::kFloorMod:
    case BinaryOp::kRem:
      if (positive) return infix("%");
      break;
    default: break;
  }
  return fmt::format("({}){}", type, ops_.binary(e->binary, DType::kI64, a, b));
}

Expr KernelPrinter::flat_index(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr number = 0;
  for (size_t i = 0; i < indices.size(); ++i) number = number * buffer.shape[i] + indices[i];
  return number;
}

std::string KernelPrinter::element(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr number = flat_index(buffer, indices);
  const auto known = buffers_.find(&buffer);
  check(known != buffers_.end(), where("buffer " + buffer.name + " is used outside its allocation"));
  if (scalars_.contains(&buffer)) return known->second;
  // Loads in it have been counted as parts of the statement: the flat index is made of the same nodes.
  std::string text;
  if (is_index(number)) {
    number = simplify(number, bounds_);
    keep_.push_back(number);
    text = index(number);
  } else {
    keep_.push_back(number);
    for (size_t i = 0; i < indices.size(); ++i) {
      const std::string part = fmt::format("(ptrdiff_t){}", value(indices[i]));
      text = i == 0 ? part : fmt::format("({} * {} + {})", text, value(buffer.shape[i]), part);
    }
  }
  return fmt::format("{}[{}]", known->second, without_parentheses(text));
}

std::string KernelPrinter::compute(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kLoad: return ops_.from_storage(e->dtype, element(*e->buffer, e->operands));
    case ExprKind::kUnary: return ops_.unary(e->unary, e->operands[0].dtype(), e->dtype, value(e->operands[0]));
    case ExprKind::kBinary: {
      const Expr &a = e->operands[0], &b = e->operands[1];
      if (e->dtype == DType::kBool && a.dtype() == DType::kBool &&
          (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr) && has_guarded_load(b)) {
        const Expr otherwise = const_int(DType::kBool, e->binary == BinaryOp::kOr);
        keep_.push_back(otherwise);
        return e->binary == BinaryOp::kAnd ? emit_select(a, b, otherwise) : emit_select(a, otherwise, b);
      }
      // No number is beyond the ends of its type, and compilers warn where one is compared with them.
      if (const auto known = known_comparison(e->binary, a, b)) return *known ? "1" : "0";
      const std::string left = value(a);
      return ops_.binary(e->binary, a.dtype(), left, value(b));
    }
    case ExprKind::kSelect: return emit_select(e->operands[0], e->operands[1], e->operands[2]);
    case ExprKind::kFma: {
      const std::string a = value(e->operands[0]), b = value(e->operands[1]);
      return ops_.fma(e->dtype, a, b, value(e->operands[2]));
    }
    case ExprKind::kCast: return ops_.cast(e->dtype, e->operands[0].dtype(), value(e->operands[0]));
    default: break;
  }
  throw InternalError("unknown expression kind");
}

// Computes ahead of a branch what both of its arms need. Without it a chain of selects, each of which has the one
// before in both arms, would be written twice at each of its levels.
void KernelPrinter::evaluate_shared(const Expr& a, const Expr& b) {
  std::unordered_set<const ExprNode*> of_a, of_b;
  walk_certain(a, of_a, [](const Expr&) { return true; });
  walk_certain(b, of_b, [&](const Expr& e) {
    if (of_a.count(e.get()) == 0) return true;
    if (e->kind != ExprKind::kConst && e->kind != ExprKind::kVar && has_guarded_load(e)) value(e);
    return false;
  });
  guarded_.clear();
}

std::pair<std::string, std::string> KernelPrinter::arm(const Expr& e) {
  std::string outside;
  std::swap(out_, outside);
  values_.emplace_back();
  ++depth_;
  std::string text = value(e);
  --depth_;
  values_.pop_back();
  guarded_.clear();
  std::swap(out_, outside);
  return {std::move(outside), std::move(text)};
}

std::string KernelPrinter::emit_select(const Expr& condition, const Expr& a, const Expr& b) {
  const Expr known = is_index(condition) ? simplify(condition, bounds_) : condition;
  keep_.push_back(known);
  if (const auto c = as_int(known)) return value(*c ? a : b);
  const std::string test = value(known);
  if (has_guarded_load(a) && has_guarded_load(b)) evaluate_shared(a, b);
  if (!has_guarded_load(a) && !has_guarded_load(b)) {
    const std::string first = value(a);
    return fmt::format("({} ? {} : {})", test, first, value(b));
  }
  const auto [before_a, text_a] = arm(a);
  const auto [before_b, text_b] = arm(b);
  if (before_a.empty() && before_b.empty()) return fmt::format("({} ? {} : {})", test, text_a, text_b);
  const std::string name = fresh(fmt::format("t{}", temporaries_++));
  line(fmt::format("{} {};", a.dtype() == DType::kBool ? "int" : value_type(a.dtype()), name));
  line(fmt::format("if ({}) {{", without_parentheses(test)));
  out_ += before_a;
  line(fmt::format("  {} = {};", name, without_parentheses(text_a)));
  line("} else {");
  out_ += before_b;
  line(fmt::format("  {} = {};", name, without_parentheses(text_b)));
  line("}");
  return name;
}

}  // namespace tessera::inline source_codegen
