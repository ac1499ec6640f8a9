#include "loop/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "arith/expr_parser.h"
#include "arith/simplify.h"
#include "loop/intrinsic.h"
#include "support/text_reader.h"

namespace tessera::inline loop {
namespace {

constexpr size_t kMaxLine = 110;    // a loop nest with one store stands on one line up to this width
constexpr int64_t kShareSize = 12;  // sub-expressions of fewer nodes are repeated rather than named
constexpr int kMaxHeight = 60;      // an expression of this height is named, so that nesting stays readable

// Chooses the sub-expressions of one statement that `let` names.
class Sharing {
 public:
  void add(const Expr& root) {
    if (!root) return;
    count(root);
    measure(root);
  }
  // In an order in which each one uses only earlier ones.
  const std::vector<Expr>& named() const { return named_; }

 private:
  struct Info {
    int references = 0;
    bool measured = false;
    int64_t size = 0;  // nodes of the expression as a tree, saturating
    int height = 0;    // down to leaves and named sub-expressions
  };

  void count(const Expr& e) {
    if (++info_[e.get()].references > 1) return;
    for (const Expr& operand : e->operands) count(operand);
  }

  void measure(const Expr& e) {
    if (info_[e.get()].measured) return;
    int64_t size = 1;
    int height = 1;
    for (const Expr& operand : e->operands) {
      measure(operand);
      const Info& below = info_[operand.get()];
      size = std::min<int64_t>(size + below.size, int64_t{1} << 60);
      height = std::max(height, below.height + 1);
    }
    Info& info = info_[e.get()];
    info.measured = true;
    info.size = size;
    info.height = height;
    if ((info.references > 1 && size >= kShareSize) || height >= kMaxHeight) {
      named_.push_back(e);
      info.height = 1;
    }
  }

  std::unordered_map<const ExprNode*, Info> info_;
  std::vector<Expr> named_;
};

class Printer {
 public:
  std::string run(const LoopProgram& program) {
    out_ = "kernel @" + name_text(program.name);
    if (!program.symbols.empty()) {
      out_ += '<';
      for (size_t i = 0; i < program.symbols.size(); ++i) out_ += (i ? ", " : "") + define_symbol(program.symbols[i]);
      out_ += '>';
    }
    const auto num_inputs = program.params.size() - static_cast<size_t>(program.num_outputs);
    out_ +=
        '(' + params(program, 0, num_inputs) + ") -> (" + params(program, num_inputs, program.params.size()) + ") {\n";
    block(program.body, 1);
    return out_ + "}\n";
  }

 private:
  // A fresh name of the text for a variable or buffer, from here on.
  std::string define(const void* object, const std::string& wish) {
    const std::string name = unique_name(wish, taken_);
    names_[object] = name;
    return name;
  }

  // By its own name, as the shapes of a program know it.
  std::string define_symbol(const Var& symbol) {
    return names_[symbol.get()] = taken_.insert(symbol_text(symbol->name)).second ? symbol_text(symbol->name)
                                                                                  : unique_name(symbol->name, taken_);
  }

  std::string text(const Expr& e) const { return to_string(e, names_); }

  std::string list(const std::vector<Expr>& items, const char* separator) const {
    std::string result;
    for (size_t i = 0; i < items.size(); ++i) result += (i ? separator : "") + text(items[i]);
    return result;
  }

  std::string declaration(const BufferPtr& buffer) {
    const std::string shape = list(buffer->shape, ",");
    return fmt::format("{}: {}[{}]", define(buffer.get(), buffer->name), dtype_name(buffer->dtype), shape);
  }

  std::string params(const LoopProgram& program, size_t begin, size_t end) {
    std::string result;
    for (size_t i = begin; i < end; ++i) result += (i == begin ? "" : ", ") + declaration(program.params[i]);
    return result;
  }

  void line(int depth, const std::string& text) {
    out_.append(static_cast<size_t>(depth) * 2, ' ');
    out_ += text;
    out_ += '\n';
  }

  // The statements between a pair of braces.
  void block(const Stmt& s, int depth) {
    if (s->kind == StmtKind::kSeq) {
      for (size_t i = 0; i < s->stmts.size(); ++i) {
        const Stmt& child = s->stmts[i];
        const bool closes_early = child->kind == StmtKind::kAlloc && i + 1 < s->stmts.size();
        const bool empty = child->kind == StmtKind::kSeq;
        if (closes_early || empty) braced(child, depth);
        else statement(child, depth);
      }
      return;
    }
    statement(s, depth);
  }

  void braced(const Stmt& s, int depth) {
    line(depth, "{");
    block(s, depth + 1);
    line(depth, "}");
  }

  void lets(const Stmt& s, int depth) {
    Sharing sharing;
    for (const Expr* e : {&s->begin, &s->extent, &s->condition}) sharing.add(*e);
    // What a loop prefetches depends on its variable, which there is not yet.
    if (s->kind != StmtKind::kFor)
      for (const Expr& index : s->indices) sharing.add(index);
    sharing.add(s->value);
    int number = 0;
    for (const Expr& e : sharing.named()) {
      const std::string name = fmt::format("${}", number++);
      line(depth, fmt::format("let {} = {}", name, text(e)));
      names_[e.get()] = name;
      lets_.push_back(e.get());
    }
  }

  void forget_lets() {
    for (const ExprNode* e : lets_) names_.erase(e);
    lets_.clear();
  }

  bool needs_lets(const Stmt& s) const {
    Sharing sharing;
    for (const Expr* e : {&s->begin, &s->extent, &s->condition}) sharing.add(*e);
    // What a loop prefetches depends on its variable, which there is not yet.
    if (s->kind != StmtKind::kFor)
      for (const Expr& index : s->indices) sharing.add(index);
    sharing.add(s->value);
    return !sharing.named().empty();
  }

  std::string range(const Stmt& s) const {
    const auto begin = as_int(s->begin);
    const auto extent = as_int(s->extent);
    int64_t end = 0;
    if (begin == 0) return "0.." + text(s->extent);
    if (begin && extent && !__builtin_add_overflow(*begin, *extent, &end)) return fmt::format("{}..{}", *begin, end);
    return text(s->begin) + "..+" + text(s->extent);
  }

  std::string for_header(const Stmt& s) {
    const std::string kind = s->for_kind == ForKind::kSerial ? "" : std::string(for_kind_name(s->for_kind)) + " ";
    const std::string over = range(s);
    const std::string head = fmt::format("{}for {} in {}", kind, define(s->var.get(), s->var->name), over);
    return s->buffer ? fmt::format("{} prefetch {}", head, element(s)) : head;
  }

  std::string element(const Stmt& s) const {
    const auto it = names_.find(s->buffer.get());
    return fmt::format("{}[{}]", it == names_.end() ? s->buffer->name : it->second, list(s->indices, ", "));
  }

  std::string store_text(const Stmt& s) const { return fmt::format("{} = {}", element(s), text(s->value)); }

  static bool leads_to_store(const Stmt& s) {
    if (s->kind == StmtKind::kFor || s->kind == StmtKind::kTensorized) return leads_to_store(s->stmts[0]);
    return s->kind == StmtKind::kStore;
  }

  // REQUIRES: leads_to_store(s). The whole of it as one line; empty when that would be long or needs lets.
  std::optional<std::string> one_line(const Stmt& s, size_t width) {
    if (needs_lets(s)) return std::nullopt;
    std::string result;
    if (s->kind == StmtKind::kStore) {
      result = store_text(s);
    } else {
      const std::string head = s->kind == StmtKind::kFor ? for_header(s) : tensorized_header(s);
      if (head.size() + 4 > width) return std::nullopt;
      const auto body = one_line(s->stmts[0], width - head.size() - 4);
      if (!body) return std::nullopt;
      result = fmt::format("{} {{ {} }}", head, *body);
    }
    if (result.size() > width) return std::nullopt;
    return result;
  }

  static std::string tensorized_header(const Stmt& s) {
    return "tensorized " + quoted_text(s->intrinsic ? s->intrinsic->name : "");
  }

  // An `if` condition already has parentheses around it when it is an infix expression.
  std::string condition_text(const Stmt& s) const {
    std::string condition = text(s->condition);
    return condition[0] == '(' ? condition : "(" + condition + ")";
  }

  void statement(const Stmt& s, int depth) {
    const size_t indent = static_cast<size_t>(depth) * 2;
    if ((s->kind == StmtKind::kFor || s->kind == StmtKind::kTensorized) && leads_to_store(s)) {
      // A try that fails must not use up names.
      const auto names = names_;
      const auto taken = taken_;
      if (const auto short_form = indent < kMaxLine ? one_line(s, kMaxLine - indent) : std::nullopt)
        return line(depth, *short_form);
      names_ = names;
      taken_ = taken;
    }
    lets(s, depth);
    switch (s->kind) {
      case StmtKind::kSeq: block(s, depth); break;
      case StmtKind::kStore:
        line(depth, store_text(s));
        forget_lets();
        break;
      case StmtKind::kFor:
      case StmtKind::kTensorized:
        line(depth, (s->kind == StmtKind::kFor ? for_header(s) : tensorized_header(s)) + " {");
        forget_lets();
        block(s->stmts[0], depth + 1);
        line(depth, "}");
        break;
      case StmtKind::kIf: {
        line(depth, fmt::format("if {} {{", condition_text(s)));
        forget_lets();
        block(s->stmts[0], depth + 1);
        Stmt chain = s;
        while (chain->stmts.size() > 1 && chain->stmts[1]->kind == StmtKind::kIf && !needs_lets(chain->stmts[1])) {
          chain = chain->stmts[1];
          line(depth, fmt::format("}} else if {} {{", condition_text(chain)));
          block(chain->stmts[0], depth + 1);
        }
        if (chain->stmts.size() > 1) {
          line(depth, "} else {");
          block(chain->stmts[1], depth + 1);
        }
        line(depth, "}");
        break;
      }
      case StmtKind::kAlloc:
        line(depth, fmt::format("alloc {} {}", declaration(s->buffer), scope_name(s->buffer->scope)));
        block(s->stmts[0], depth);
        break;
    }
  }

  std::string out_;
  NameMap names_;
  std::unordered_set<std::string> taken_;
  std::vector<const ExprNode*> lets_;
};

}  // namespace

std::string unique_name(const std::string& wish, std::unordered_set<std::string>& taken) {
  std::string base;
  for (const char c : wish) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    base += ok ? c : '_';
  }
  if (base.empty() || (base[0] >= '0' && base[0] <= '9')) base = "_" + base;
  std::string name = base;
  for (int suffix = 1; is_reserved_word(name) || !taken.insert(name).second; ++suffix)
    name = fmt::format("{}_{}", base, suffix);
  return name;
}

std::string print(const LoopProgram& program) { return Printer().run(program); }

std::string summary(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kSeq: return fmt::format("{} statements", s->stmts.size());
    case StmtKind::kFor:
      return fmt::format("{} for {} in {}..+{}", for_kind_name(s->for_kind), s->var->name, to_string(s->begin),
                         to_string(s->extent));
    case StmtKind::kIf: return fmt::format("if {}", to_string(s->condition));
    case StmtKind::kStore: {
      std::string indices;
      for (size_t i = 0; i < s->indices.size(); ++i) indices += (i ? ", " : "") + to_string(s->indices[i]);
      return fmt::format("{}[{}] = ...", s->buffer->name, indices);
    }
    case StmtKind::kAlloc: return fmt::format("alloc {}", s->buffer->name);
    case StmtKind::kTensorized: return fmt::format("tensorized {}", s->intrinsic ? s->intrinsic->name : "(none)");
  }
  return "?";
}

}  // namespace tessera::inline loop
