#include "loop/verify.h"
#include "loop/concurrency.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <unordered_set>

#include "loop/intrinsic.h"
#include "loop/printer.h"
#include "support/error.h"

namespace tessera::inline loop {
namespace {

constexpr size_t kMaxViolations = 20;

class Verifier {
 public:
  explicit Verifier(const LoopProgram& program) : program_(program) {}

  std::vector<std::string> run() {
    for (const Var& symbol : program_.symbols) define_var(symbol, "symbol");
    for (const BufferPtr& param : program_.params) {
      define_buffer(param, "parameter");
      if (param->scope != MemoryScope::kGlobal)
        report("parameter " + param->name, "a parameter is not in global memory");
      shape(*param, "parameter " + param->name);
    }
    if (program_.num_outputs < 0 || static_cast<size_t>(program_.num_outputs) > program_.params.size())
      report("parameters", fmt::format("{} outputs of {} parameters", program_.num_outputs, program_.params.size()));
    if (!program_.body) report("body", "the kernel has no body");
    else statement(program_.body);
    if (violations_.empty())
      if (std::string problem = concurrency_problem(program_.body).text; !problem.empty())
        report("concurrent loops", problem);
    return std::move(violations_);
  }

 private:
  // What an index can be when all loops around it run over constants: constant + sum of coefficient * iteration number.
  struct Iterations {
    int64_t constant = 0;
    std::map<const ExprNode*, int64_t> coefficients;
  };
  struct LoopInfo {
    std::optional<Iterations> begin;  // in terms of the loops around it
    int64_t extent = 0;
  };

  // `where` is put into words only when there is something to report.
  struct Where {
    Where(const char* text) : text(text) {}                  // NOLINT: both convert where they are given
    Where(std::string text) : text(std::move(text)) {}       // NOLINT
    Where(const Stmt& statement) : statement(&statement) {}  // NOLINT
    std::string text;
    const Stmt* statement = nullptr;
  };

  void report(const Where& where, const std::string& rule) {
    if (violations_.size() >= kMaxViolations) return;
    violations_.push_back(fmt::format("kernel {}: {}: {}", program_.name,
                                      where.statement ? summary(*where.statement) : where.text, rule));
  }

  void define_var(const Var& var, const Where& where) {
    if (!var || var->kind != ExprKind::kVar) return report(where, "no variable");
    if (var.dtype() != DType::kI64)
      report(where, fmt::format("variable {} is {} instead of i64", var->name, dtype_name(var.dtype())));
    if (!defined_.insert(var.get()).second)
      report(where, fmt::format("variable {} is defined more than once", var->name));
    in_scope_.insert(var.get());
  }

  void define_buffer(const BufferPtr& buffer, const Where& where) {
    if (!defined_.insert(buffer.get()).second)
      report(where, fmt::format("buffer {} is defined more than once", buffer->name));
    in_scope_.insert(buffer.get());
  }

  void shape(const Buffer& buffer, const Where& where) {
    for (const Expr& dim : buffer.shape) {
      expression(dim, where);
      if (dim.dtype() != DType::kI64) report(where, "a dimension is not i64");
      if (const auto value = as_int(dim); value && *value < 0) report(where, fmt::format("a dimension of {}", *value));
    }
  }

  void expression(const Expr& e, const Where& where) {
    if (!e) return report(where, "a missing expression");
    walk(e, [&](const Expr& node) {
      if (node->kind == ExprKind::kVar && in_scope_.count(node.get()) == 0)
        report(where, fmt::format("variable {} is used outside its loop", node->name));
      if (node->kind == ExprKind::kLoad) access(*node->buffer, node->operands, where);
      typed(node, where);
    });
  }

  // The constructors in arith/expr.h check most of this; nodes may also be made by hand.
  void typed(const Expr& e, const Where& where) {
    const auto& o = e->operands;
    bool ok = true;
    switch (e->kind) {
      case ExprKind::kConst:
      case ExprKind::kVar: ok = o.empty(); break;
      case ExprKind::kLoad: ok = e->dtype == e->buffer->dtype; break;
      case ExprKind::kUnary:
      case ExprKind::kCast: ok = o.size() == 1; break;
      case ExprKind::kBinary:
        ok = o.size() == 2 && o[0].dtype() == o[1].dtype() &&
             e->dtype == (is_comparison(e->binary) ? DType::kBool : o[0].dtype());
        break;
      case ExprKind::kSelect:
        ok = o.size() == 3 && o[0].dtype() == DType::kBool && o[1].dtype() == e->dtype && o[2].dtype() == e->dtype;
        break;
      case ExprKind::kFma:
        ok = o.size() == 3 && is_float(e->dtype) && o[0].dtype() == e->dtype && o[1].dtype() == e->dtype &&
             o[2].dtype() == e->dtype;
        break;
    }
    if (!ok) report(where, "an expression whose operands have wrong types: " + to_string(e));
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices, const Where& where) {
    if (in_scope_.count(&buffer) == 0)
      report(where, fmt::format("buffer {} is used outside its allocation", buffer.name));
    if (indices.size() != buffer.shape.size())
      return report(
          where, fmt::format("{} has {} dimensions but {} indices", buffer.name, buffer.shape.size(), indices.size()));
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].dtype() != DType::kI64) {
        report(where, fmt::format("index {} of {} is not i64", i, buffer.name));
        continue;
      }
      if (conditional_ == 0) in_bounds(buffer, i, indices[i], where);
    }
  }

  void in_bounds(const Buffer& buffer, size_t i, const Expr& index, const Where& where) {
    const auto extent = as_int(buffer.shape[i]);
    const auto form = iterations(index);
    if (!extent || !form) return;
    int64_t lo = form->constant;
    int64_t hi = form->constant;
    for (const auto& [var, k] : form->coefficients)
      if (!add_to(k > 0 ? hi : lo, k, loops_.at(var).extent - 1)) return;
    if (lo < 0 || hi >= *extent)
      report(where, fmt::format("index {} of {} is {}..{}, outside its extent {}", i, buffer.name, lo, hi, *extent));
  }

  // Empty when `e` is not affine in loops over constants, so that its range would not be exact.
  std::optional<Iterations> iterations(const Expr& e) const {
    Iterations sum;
    if (!add(e, 1, sum)) return std::nullopt;
    return sum;
  }

  static bool add_to(int64_t& sum, int64_t a, int64_t b) {
    int64_t product = 0;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(sum, product, &sum);
  }

  bool add(const Expr& e, int64_t factor, Iterations& sum) const {
    if (const auto c = as_int(e)) return add_to(sum.constant, *c, factor);
    if (e->kind == ExprKind::kVar) {
      const auto it = loops_.find(e.get());
      if (it == loops_.end() || !it->second.begin) return false;
      if (!add_to(sum.coefficients[e.get()], 1, factor) || !add_to(sum.constant, it->second.begin->constant, factor))
        return false;
      for (const auto& [var, k] : it->second.begin->coefficients)
        if (!add_to(sum.coefficients[var], k, factor)) return false;
      return true;
    }
    if (e->kind != ExprKind::kBinary || e.dtype() != DType::kI64) return false;
    const Expr& a = e->operands[0];
    const Expr& b = e->operands[1];
    int64_t negated = 0;
    if (e->binary == BinaryOp::kAdd) return add(a, factor, sum) && add(b, factor, sum);
    if (e->binary == BinaryOp::kSub)
      return !__builtin_sub_overflow(int64_t{0}, factor, &negated) && add(a, factor, sum) && add(b, negated, sum);
    if (e->binary != BinaryOp::kMul) return false;
    const auto ca = as_int(a);
    const auto cb = as_int(b);
    int64_t scaled = 0;
    if (cb && !__builtin_mul_overflow(factor, *cb, &scaled)) return add(a, scaled, sum);
    if (ca && !__builtin_mul_overflow(factor, *ca, &scaled)) return add(b, scaled, sum);
    return false;
  }

  // A select's operands happen only sometimes, so accesses below it are not judged. The caller walks shared nodes
  // once, which is enough for every other rule.
  void value(const Expr& e, const Where& where) {
    bool has_choice = false;
    if (e)
      walk(e, [&](const Expr& node) {
        has_choice = has_choice || node->kind == ExprKind::kSelect ||
                     (node->kind == ExprKind::kBinary && node.dtype() == DType::kBool);
      });
    conditional_ += has_choice;
    expression(e, where);
    conditional_ -= has_choice;
  }

  void statement(const Stmt& s) {
    if (!s) return report("body", "a missing statement");
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) statement(child);
        break;
      case StmtKind::kStore: {
        const Where where(s);
        for (const Expr& index : s->indices) value(index, where);
        value(s->value, where);
        access(*s->buffer, s->indices, where);
        if (s->value && s->value.dtype() != s->buffer->dtype)
          report(where, fmt::format("a value of type {} is stored to {} of type {}", dtype_name(s->value.dtype()),
                                    s->buffer->name, dtype_name(s->buffer->dtype)));
        break;
      }
      case StmtKind::kIf: {
        const Where where(s);
        value(s->condition, where);
        if (s->condition && s->condition.dtype() != DType::kBool) report(where, "the condition is not bool");
        ++conditional_;
        for (const Stmt& child : s->stmts) statement(child);
        --conditional_;
        break;
      }
      case StmtKind::kAlloc: allocation(s); break;
      case StmtKind::kTensorized:
        statement(s->stmts[0]);
        if (!s->intrinsic) report(s, "no intrinsic");
        else if (const std::string reason = match_intrinsic(*s->intrinsic, s->stmts[0]); !reason.empty())
          report(s, "the body does not match the intrinsic: " + reason);
        break;
      case StmtKind::kFor: loop(s); break;
    }
  }

  void allocation(const Stmt& s) {
    const Where where(s);
    shape(*s->buffer, where);
    if (s->buffer->scope == MemoryScope::kGlobal)
      report(where, "an allocation in global memory; local or register is legal");
    if (s->buffer->scope == MemoryScope::kRegister)
      for (const Expr& dim : s->buffer->shape)
        if (!as_int(dim)) report(where, fmt::format("a register buffer of runtime extent {}", to_string(dim)));
    define_buffer(s->buffer, where);
    statement(s->stmts[0]);
    in_scope_.erase(s->buffer.get());
  }

  void loop(const Stmt& s) {
    const Where where(s);
    value(s->begin, where);
    value(s->extent, where);
    if (!s->begin || !s->extent || s->begin.dtype() != DType::kI64 || s->extent.dtype() != DType::kI64)
      return report(where, "the range is not i64");
    const auto extent = as_int(s->extent);
    const bool fixed = s->for_kind == ForKind::kUnrolled || s->for_kind == ForKind::kVectorized;
    if (fixed && !extent) report(where, fmt::format("{} loops need a constant extent", for_kind_name(s->for_kind)));
    define_var(s->var, where);
    // The body of a loop that may not run is judged like a branch.
    const bool may_not_run = !extent || *extent <= 0;
    if (extent && *extent > 0) loops_[s->var.get()] = {iterations(s->begin), *extent};
    conditional_ += may_not_run;
    if (s->buffer) {
      for (const Expr& index : s->indices) {
        value(index, where);
        bool loads = false;
        walk(index, [&](const Expr& node) { loads = loads || node->kind == ExprKind::kLoad; });
        if (loads) report(where, "a prefetch whose index loads");
      }
      if (s->for_kind != ForKind::kSerial) report(where, "a prefetch in a loop that is not serial");
      if (in_scope_.count(s->buffer.get()) == 0 || s->buffer->scope == MemoryScope::kRegister ||
          s->indices.size() != s->buffer->shape.size())
        report(where, fmt::format("a prefetch of {}, which is not in memory here", s->buffer->name));
    }
    statement(s->stmts[0]);
    conditional_ -= may_not_run;
    loops_.erase(s->var.get());
    in_scope_.erase(s->var.get());
  }

  const LoopProgram& program_;
  std::vector<std::string> violations_;
  std::unordered_set<const void*> defined_, in_scope_;
  std::unordered_map<const ExprNode*, LoopInfo> loops_;  // around the current statement
  int conditional_ = 0;                                  // conditions around the current place
};

}  // namespace

std::vector<std::string> verify(const LoopProgram& program) { return Verifier(program).run(); }

void verify_or_throw(const LoopProgram& program, std::string_view after_pass) {
  const std::vector<std::string> violations = verify(program);
  if (violations.empty()) return;
  throw InternalError(fmt::format("after {}:\n  {}", after_pass, fmt::join(violations, "\n  ")));
}

}  // namespace tessera::inline loop
