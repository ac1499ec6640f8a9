// Expressions for several sizes as one of all sizes: what program/size_formula.h finds for integers, over whole bodies.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "support/error.h"
#include "te/body.h"

namespace tessera::inline program {

// Integers at some sizes as an expression of the sizes.
class SizeFinder {
 public:
  using Known = std::vector<std::optional<int64_t>>;
  virtual ~SizeFinder() = default;
  // The expression with values[i] at the i-th sizes, where it is known; null when there is none.
  virtual Expr find(const Known& values) = 0;
};

// Thrown, and caught by whoever generalizes: things of different sizes are not alike.
struct SizesDiffer {
  std::string what;
  bool no_formula = false;
  bool in_constants = false;
};

[[noreturn]] inline void differ(const std::string& what) { throw SizesDiffer{what}; }

[[noreturn]] inline void no_formula(const std::string& what) {
  throw SizesDiffer{what + ", which no formula of the dimensions gives", true};
}

[[noreturn]] inline void differ_in_constants() { throw SizesDiffer{"a constant has other elements", false, true}; }

// The same member of every object.
template <typename Object, typename Member>
auto of_all(const std::vector<const Object*>& objects, Member Object::* member) {
  std::vector<const Member*> members;
  for (const Object* object : objects) members.push_back(&(object->*member));
  return members;
}

template <typename T>
std::vector<const T*> elements(const std::vector<const std::vector<T>*>& lists, size_t i) {
  std::vector<const T*> result;
  for (const std::vector<T>* list : lists) result.push_back(&(*list)[i]);
  return result;
}

template <typename T>
size_t common_size(const std::vector<const std::vector<T>*>& lists, const char* what) {
  for (const std::vector<T>* list : lists)
    if (list->size() != lists[0]->size())
      differ(fmt::format("{} {} for one size and {} for another", lists[0]->size(), what, list->size()));
  return lists[0]->size();
}

template <typename T>
const T& same(const std::vector<const T*>& values, const char* what) {
  for (const T* value : values)
    if (!(*value == *values[0])) differ(fmt::format("another {}", what));
  return *values[0];
}

// Expressions of one kernel for several sizes. A null pointer stands for a size at which the simplifier has seen that
// the expression is not needed: a condition that always holds there.
class ExprGeneralizer {
 public:
  explicit ExprGeneralizer(SizeFinder& formulas) : formulas_(formulas) {}

  using Known = SizeFinder::Known;

  Expr size(const Known& values, const char* what) {
    Expr e = formulas_.find(values);
    if (!e) {
      std::string text;
      for (const auto& value : values)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", value ? std::to_string(*value) : "-");
      no_formula(fmt::format("{} of {}", what, text));
    }
    return e;
  }

  Shape shape(const std::vector<const Shape*>& shapes) {
    Shape result;
    for (size_t i = 0; i < common_size(shapes, "dimensions"); ++i) {
      Known values;
      for (const Expr* dim : elements(shapes, i)) values.emplace_back(*as_int(*dim));
      result.push_back(size(values, "a dimension"));
    }
    return result;
  }

  BufferPtr buffer(const std::vector<const BufferPtr*>& buffers) {
    std::vector<const void*> key;
    for (const BufferPtr* b : buffers) key.push_back(b->get());
    if (const auto it = buffers_.find(key); it != buffers_.end()) return it->second;
    std::vector<const Shape*> shapes;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!size_of_buffer_.emplace(key[i], buffers_.size()).second) differ("another operand is read");
      shapes.push_back(&(*buffers[i])->shape);
      if ((*buffers[i])->dtype != (*buffers[0])->dtype) differ("another dtype");
    }
    return buffers_[key] = make_buffer((*buffers[0])->name, (*buffers[0])->dtype, shape(shapes), (*buffers[0])->scope);
  }

  Expr expr(const std::vector<const Expr*>& all) {
    std::vector<const void*> key;
    for (const Expr* e : all) key.push_back(e ? e->get() : nullptr);
    if (const auto it = exprs_.find(key); it != exprs_.end()) return it->second;
    Expr result = make(all);
    exprs_.emplace(std::move(key), result);
    return result;
  }

  // Variables and buffers that correspond to each other; the first size's stand for all.
  void declare(const std::vector<const BufferPtr*>& buffers, const BufferPtr& result) {
    std::vector<const void*> key;
    for (const BufferPtr* b : buffers) key.push_back(b->get());
    buffers_[key] = result;
  }
  void declare(const std::vector<const Expr*>& vars) {
    for (const Expr* var : vars) vars_[var->get()] = *vars[0];
  }

  std::vector<Axis> axes(const std::vector<const std::vector<Axis>*>& lists) {
    std::vector<Axis> result;
    for (size_t i = 0; i < common_size(lists, "axes"); ++i) {
      const auto all = elements(lists, i);
      Known extents;
      for (const Axis* axis : all) extents.emplace_back(*as_int(axis->extent));
      declare(of_all(all, &Axis::var));
      result.push_back({all[0]->var, size(extents, "an extent")});
    }
    return result;
  }

 private:
  using Sizes = std::vector<const Expr*>;

  static bool is_kind(const Expr& e, ExprKind kind) { return e->kind == kind; }
  static bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

  template <typename Test>
  static bool any(const Sizes& all, const Test& test) {
    return std::any_of(all.begin(), all.end(), [&](const Expr* e) { return e && test(*e); });
  }

  // An expression made here, for one size.
  const Expr* kept(const Expr& e) { return &made_.emplace_back(e); }

  // The operand of every size that has the expression.
  static Sizes operand(const Sizes& all, size_t i) {
    Sizes result;
    for (const Expr* e : all) result.push_back(e ? &(*e)->operands[i] : nullptr);
    return result;
  }

  Expr make(const Sizes& all) {
    const auto some = std::find_if(all.begin(), all.end(), [](const Expr* e) { return e != nullptr; });
    if (some == all.end()) return {};
    const Expr& first = **some;
    if (first->dtype == DType::kBool && any(all, [](const Expr& e) { return is_binary(e, BinaryOp::kAnd); }))
      return conjunction(all);
    const auto alike = [&](const Expr& e) {
      return e->kind == first->kind && e->dtype == first->dtype && e->unary == first->unary &&
             e->binary == first->binary && e->operands.size() == first->operands.size();
    };
    if (any(all, [&](const Expr& e) { return !alike(e); })) return reconciled(all);
    if (first->kind == ExprKind::kConst) return constant(all);
    if (first->kind == ExprKind::kVar) return variable(all);
    std::vector<Expr> x;
    for (size_t i = 0; i < first->operands.size(); ++i) x.push_back(expr(operand(all, i)));
    switch (first->kind) {
      case ExprKind::kLoad: {
        // A load is in no condition that some sizes leave out, or all of it is left out.
        std::vector<const BufferPtr*> buffers;
        for (const Expr* e : all) {
          if (!e) differ("an operand is not read for some sizes");
          buffers.push_back(&(*e)->buffer);
        }
        return load(buffer(buffers), std::move(x));
      }
      case ExprKind::kUnary:
        return first->unary == UnaryOp::kBitcast ? bitcast(first->dtype, x[0]) : unary(first->unary, x[0]);
      case ExprKind::kBinary: return binary(first->binary, x[0], x[1]);
      case ExprKind::kSelect: return select(x[0], x[1], x[2]);
      case ExprKind::kFma: return fma(x[0], x[1], x[2]);
      case ExprKind::kCast: return cast(first->dtype, x[0]);
      default: throw InternalError("an expression of another kind");
    }
  }

  Expr variable(const Sizes& all) {
    Expr result;
    for (const Expr* e : all) {
      if (!e) continue;
      const auto it = vars_.find(e->get());
      if (it == vars_.end() || (result && !result.same_node(it->second))) differ("another variable");
      result = it->second;
    }
    return result;
  }

  // Forms that the simplifier gives an expression for some sizes.
  Expr reconciled(const Sizes& all) {
    if (any(all, [](const Expr& e) { return is_kind(e, ExprKind::kSelect); })) {
      // A condition that always holds: the chosen operand alone is left.
      Sizes condition, chosen, other;
      for (const Expr* e : all) {
        const bool whole = e && is_kind(*e, ExprKind::kSelect);
        condition.push_back(whole ? &(*e)->operands[0] : nullptr);
        chosen.push_back(whole ? &(*e)->operands[1] : e);
        other.push_back(whole ? &(*e)->operands[2] : nullptr);
      }
      return select(expr(condition), expr(chosen), expr(other));
    }
    // A division by a power of two is a multiplication.
    if (any(all, [](const Expr& e) { return is_binary(e, BinaryOp::kDiv) && is_float(e->dtype); })) {
      Sizes divisions;
      for (const Expr* e : all) {
        if (e && is_binary(*e, BinaryOp::kMul) && is_kind((*e)->operands[1], ExprKind::kConst))
          divisions.push_back(kept(divided(*e)));
        else divisions.push_back(e);
      }
      if (!any(divisions, [](const Expr& e) { return !is_binary(e, BinaryOp::kDiv); })) return make(divisions);
    }
    const Expr *a = nullptr, *b = nullptr;
    for (const Expr* e : all) {
      if (!e) continue;
      if (!a) a = e;
      if ((*e)->kind != (*a)->kind || (*e)->binary != (*a)->binary) b = e;
    }
    differ(fmt::format("{} for one size is {} for another", to_string(*a), to_string(b ? *b : *a)));
  }

  // x / (1 / c) for x * c; binary() would make a product of it again.
  static Expr divided(const Expr& e) {
    ExprNode node = *e;
    node.binary = BinaryOp::kDiv;
    node.operands[1] = const_of(e->dtype, 1 / e->operands[1]->float_value);
    return Expr(std::make_shared<const ExprNode>(std::move(node)));
  }

  static void split(const Expr& e, std::vector<const Expr*>& terms) {
    if (is_binary(e, BinaryOp::kAnd)) {
      split(e->operands[0], terms);
      split(e->operands[1], terms);
    } else {
      terms.push_back(&e);
    }
  }

  // The expression without its numbers.
  static std::string outline(const Expr& e) {
    if (e->kind == ExprKind::kConst) return "#";
    std::string text = fmt::format("{}.{}.{}.{}(", static_cast<int>(e->kind), static_cast<int>(e->unary),
                                   static_cast<int>(e->binary), e->name);
    for (const Expr& operand : e->operands) text += outline(operand) + ",";
    return text + ")";
  }

  // Sizes may lack some of the conditions: those hold there.
  Expr conjunction(const Sizes& all) {
    std::vector<std::string> order;
    std::map<std::string, Sizes> terms;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i]) continue;
      std::vector<const Expr*> own;
      split(*all[i], own);
      std::map<std::string, int> seen;
      for (const Expr* term : own) {
        std::string key = outline(*term);
        key += fmt::format("{}", seen[key]++);
        const auto [it, is_new] = terms.try_emplace(key, Sizes(all.size(), nullptr));
        if (is_new) order.push_back(key);
        it->second[i] = term;
      }
    }
    Expr result;
    for (const std::string& key : order) {
      const Expr term = expr(terms.at(key));
      result = result ? logical_and(result, term) : term;
    }
    return result;
  }

  Expr constant(const Sizes& all) {
    const Expr& first = **std::find_if(all.begin(), all.end(), [](const Expr* e) { return e != nullptr; });
    if (!is_float(first->dtype)) {
      Known values;
      for (const Expr* e : all) values.push_back(e ? std::optional((*e)->int_value) : std::nullopt);
      return cast(first->dtype, size(values, "a number"));
    }
    std::vector<std::optional<double>> values;
    for (const Expr* e : all) values.push_back(e ? std::optional((*e)->float_value) : std::nullopt);
    if (const Expr e = float_formula(first->dtype, values)) return e;
    std::string text;
    for (const auto& value : values)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", value ? fmt::to_string(*value) : "-");
    no_formula("a number of " + text);
  }

 public:
  // A number that is the same for all sizes, or a number of elements, or one divided by it; null for others.
  Expr float_formula(DType dtype, const std::vector<std::optional<double>>& all) {
    std::optional<double> first;
    bool equal = true;
    for (const auto& value : all) {
      if (!value) continue;
      if (!first) first = value;
      equal &= std::bit_cast<uint64_t>(*value) == std::bit_cast<uint64_t>(*first);
    }
    if (equal) return const_of(dtype, *first);
    // One number up to some size and another from there on is a decision, not a size: kernels that compute it would not
    // be what the kernels of either are.
    std::set<double> different;
    for (const auto& value : all)
      if (value) different.insert(*value);
    if (different.size() == 2 && all.size() > 2) return {};
    for (const bool inverse : {false, true}) {
      Known values;
      for (const auto& given : all) {
        if (!given) {
          values.emplace_back();
          continue;
        }
        const double value = inverse ? 1 / *given : *given;
        const double whole = std::round(value);
        if (!(std::abs(whole) < 1e15) || std::abs(value - whole) > 1e-6 * std::abs(whole)) break;
        if (const_of(dtype, inverse ? 1 / whole : whole)->float_value != *given) break;
        values.emplace_back(static_cast<int64_t>(whole));
      }
      if (values.size() != all.size()) continue;
      if (const Expr count = formulas_.find(values)) {
        const Expr number = cast(dtype, count);
        return inverse ? binary(BinaryOp::kDiv, const_of(dtype, 1), number) : number;
      }
    }
    return {};
  }

 private:
  SizeFinder& formulas_;
  std::map<std::vector<const void*>, Expr> exprs_;
  std::map<std::vector<const void*>, BufferPtr> buffers_;
  std::unordered_map<const void*, size_t> size_of_buffer_;
  std::unordered_map<const ExprNode*, Var> vars_;
  std::deque<Expr> made_;
};

}  // namespace tessera::inline program
