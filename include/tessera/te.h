// Tensor expressions: what each element of a tensor is, written in C++. The plain loops of a program are made of them.
//
//   namespace te = tessera::te;
//   const te::Tensor a = te::placeholder({512, 512}, "A"), b = te::placeholder({512, 512}, "B");
//   const te::Axis k = te::reduce_axis(512, "k");
//   const te::Tensor c = te::compute({512, 512}, "C", [&](te::Expr i, te::Expr j) {
//     return te::sum(a(i, k) * b(k, j), k);
//   });
//   te::Schedule s({a, b, c});
//   const auto j = s.split("j", {0, 16});
//   s.decompose_reduction("C", j[0]);
//   s.reorder({"k", j[0], j[1]});
//   s.vectorize(j[1]);
//
// The same as tessera.te in Python (docs/python.md), under the same names, and the same text byte for byte. What
// differs:
//   * the parameters of a C++ function have no names that could become those of loops. They are i, j, k, l, ... in
//   order,
//     leaving out names of reduction axes, or what the last argument of `compute` says.
//   * whole numbers divide by `floordiv` and `floormod`, Python's // and %. `/` is the division of the loop language.
//
// Types: element types are those of the C API, TESSERA_F32; an axis is TESSERA_I64. Operands of an operation have one
// type, `cast` converts; C++'s numbers take the type of the operand beside them. What an operation means (overflow,
// NaN, rounding) and for which types it exists is the loop language's affair, and said when a schedule is made. Order:
// a tensor reads tensors that were made before it, so there are no cycles. Ownership: expressions, axes and tensors are
// small handles on immutable values; copies mean the same thing, and everything lives as long as somebody needs it.
// Thread safety: any number of threads may read them. Errors: CompileError TSR-4035, unless something else is said.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/schedule.h"
#include "tessera/tessera.h"

namespace tessera::te {

struct AxisNode;
struct ExprNode;
struct TensorNode;
struct Access;  // the implementation

using Shape = std::vector<int64_t>;  // empty: one element
using Names = std::vector<std::string>;

// A number computed from elements of tensors and from axes.
class Expr {
 public:
  Expr(const Expr&) = default;  // and no moves, which would leave an empty one behind
  Expr& operator=(const Expr&) = default;

  tessera_dtype dtype() const;
  std::string text() const;  // in the loop language, with the axes' own names

 private:
  friend struct Access;
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}
  std::shared_ptr<const ExprNode> node_;
};

// An index that a reduction runs over, from 0 to `extent`.
class Axis : public Expr {
 public:
  const std::string& name() const;
  int64_t extent() const;

 private:
  friend struct Access;
  Axis(const Expr& expr, std::shared_ptr<const AxisNode> axis) : Expr(expr), axis_(std::move(axis)) {}
  std::shared_ptr<const AxisNode> axis_;
};

// An expression, or a number that takes the type of the operand beside it; as an index, that of an axis.
// A number with a fraction is refused where the type is one of whole numbers.
class Operand {
 public:
  Operand(const Expr& expr) : value_(expr) {}
  template <std::signed_integral Number>
  Operand(Number number) : value_(static_cast<int64_t>(number)) {}
  template <std::unsigned_integral Number>
  Operand(Number number) : value_(static_cast<uint64_t>(number)) {}
  Operand(bool) = delete;
  Operand(double number) : value_(number) {}
  Operand(float number) : value_(static_cast<double>(number)) {}

 private:
  friend struct Access;
  std::variant<Expr, int64_t, uint64_t, double> value_;
};

using Index = std::vector<Operand>;

// A tensor of a program: an input, or what a compute gives.
class Tensor {
 public:
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;

  const std::string& name() const;
  const Shape& shape() const;
  tessera_dtype dtype() const;

  // The element at an index: an operand for each dimension, of TESSERA_I64. Whether it lies inside is not looked at.
  template <std::convertible_to<Operand>... Indices>
  Expr operator()(const Indices&... indices) const {
    return at(Index{Operand(indices)...});
  }
  Expr at(const Index& index) const;

 private:
  friend struct Access;
  explicit Tensor(std::shared_ptr<const TensorNode> node) : node_(std::move(node)) {}
  std::shared_ptr<const TensorNode> node_;
};

// An input. Names are letters, digits and '_', and no words of the loop language; sizes are 1 and more.
Tensor placeholder(const Shape& shape, const std::string& name = "x", tessera_dtype dtype = TESSERA_F32);

// An axis for `sum`, `max_reduce` or `min_reduce`.
Axis reduce_axis(int64_t extent, const std::string& name = "k");

// ---- reductions: the outermost operation of a compute, over one axis or several. They start from 0, and from the
// least or the largest number of the type (floats: an infinity); axes run in order, the last one fastest.
Expr sum(const Expr& value, const Axis& axis);
Expr sum(const Expr& value, const std::vector<Axis>& axes);
Expr max_reduce(const Expr& value, const Axis& axis);
Expr max_reduce(const Expr& value, const std::vector<Axis>& axes);
Expr min_reduce(const Expr& value, const Axis& axis);
Expr min_reduce(const Expr& value, const std::vector<Axis>& axes);

// ---- operations. Of two operands at least one is an expression.
Expr operator+(const Operand& a, const Operand& b);
Expr operator-(const Operand& a, const Operand& b);
Expr operator*(const Operand& a, const Operand& b);
Expr operator/(const Operand& a, const Operand& b);
Expr floordiv(const Operand& a, const Operand& b);
Expr floormod(const Operand& a, const Operand& b);
Expr operator&(const Operand& a, const Operand& b);
Expr operator|(const Operand& a, const Operand& b);
Expr operator^(const Operand& a, const Operand& b);
Expr max(const Operand& a, const Operand& b);
Expr min(const Operand& a, const Operand& b);
Expr operator-(const Expr& value);
// Of TESSERA_BOOL. Conditions are combined by & and |.
Expr operator<(const Operand& a, const Operand& b);
Expr operator<=(const Operand& a, const Operand& b);
Expr operator>(const Operand& a, const Operand& b);
Expr operator>=(const Operand& a, const Operand& b);
// `a` where the condition holds, else `b`; only the chosen one is read.
Expr select(const Expr& condition, const Operand& a, const Operand& b);
Expr cast(const Expr& value, tessera_dtype dtype);
Expr exp(const Expr& value);
Expr log(const Expr& value);
Expr sqrt(const Expr& value);
Expr tanh(const Expr& value);
Expr erf(const Expr& value);
// a * b + c, rounded once where the target has it.
Expr fma(const Expr& a, const Expr& b, const Expr& c);

namespace detail {

// What a function of axes gives, called with a number of them that only the run knows; nothing where it takes another.
template <typename Result>
using AnyRank = std::function<std::optional<Result>(const std::vector<Expr>& axes)>;

template <typename Result, typename Function, size_t... kAxis>
std::optional<Result> call_with(Function& function, const std::vector<Expr>& axes, std::index_sequence<kAxis...>) {
  if constexpr (std::is_invocable_v<Function&, decltype((static_cast<void>(kAxis), axes[kAxis]))...>) {
    using Given = std::invoke_result_t<Function&, decltype((static_cast<void>(kAxis), axes[kAxis]))...>;
    static_assert(std::is_convertible_v<Given, Result>,
                  "a compute gives a te::Expr of tensors' elements, and a mapping of an index a te::Index");
    return Result(function(axes[kAxis]...));
  } else {
    return std::nullopt;
  }
}

template <typename Result, size_t kRank = 0, typename Function>
std::optional<Result> call(Function& function, const std::vector<Expr>& axes) {
  if constexpr (kRank <= TESSERA_MAX_RANK) {
    if (axes.size() == kRank) return call_with<Result>(function, axes, std::make_index_sequence<kRank>());
    return call<Result, kRank + 1>(function, axes);
  } else {
    return std::nullopt;
  }
}

template <typename Function, size_t... kAxis>
constexpr bool takes(std::index_sequence<kAxis...>) {
  return std::is_invocable_v<Function&, decltype((static_cast<void>(kAxis), std::declval<const Expr&>()))...>;
}

// How many axes a function takes.
template <typename Function, size_t kRank = 0>
constexpr size_t axes_taken() {
  static_assert(kRank <= TESSERA_MAX_RANK, "a function of axes is needed: [&](te::Expr i, te::Expr j) { .. }");
  if constexpr (kRank > TESSERA_MAX_RANK || takes<Function>(std::make_index_sequence<kRank>())) return kRank;
  else return axes_taken<Function, kRank + 1>();
}

Tensor compute(const Shape& shape, const std::string& name, const AnyRank<Expr>& value, size_t taken,
               const Names& axes);
std::string index_mapping(const AnyRank<Index>& mapping, size_t taken, const Names& axes);

}  // namespace detail

// A tensor whose elements are what `value` says: a function of one Expr for each dimension, which is called once. The
// tensor's type is that of the expression. `axes` are the names of the loops.
// Errors: a function or names of another number of axes than the shape has; two axes of one name; an expression with an
// axis that is neither the compute's own nor the reduction's.
template <typename Value>
Tensor compute(const Shape& shape, const std::string& name, Value&& value, const Names& axes = {}) {
  const auto any_rank = [&value](const std::vector<Expr>& own) { return detail::call<Expr>(value, own); };
  return detail::compute(shape, name, any_rank, detail::axes_taken<std::remove_reference_t<Value>>(), axes);
}

// The plain loops of a program as text: one nest for each compute that the outputs need. `tensors` are the program's
// parameters, inputs first. Loops whose names are taken get a number: i_1.
// Errors: no output, or an input behind one; a placeholder that is read and not among them; two tensors of one name; a
// tensor that stands twice among them.
std::string lower(const std::vector<Tensor>& tensors, const std::string& name = "main");

// A schedule of a program of tensors: inputs first, then outputs. Errors: those of `lower`, and the loop language's
// (TSR-31xx) for operations on types that they do not exist for.
class Schedule : public LoopSchedule {
 public:
  explicit Schedule(const std::vector<Tensor>& tensors, const Options& options = Options());
  using LoopSchedule::LoopSchedule;  // of a program's text

  using LoopSchedule::transform_layout;
  // `mapping` is a function from the buffer's index to the new one, `axes` the names of its axes in the step's text:
  //   [](te::Expr k, te::Expr j) -> te::Index { return {te::floordiv(j, 16), k, te::floormod(j, 16)}; }
  template <typename Mapping>
    requires(!std::convertible_to<Mapping, std::string>)
  void transform_layout(const std::string& buffer, Mapping&& mapping, const Names& axes = {}) {
    const auto any_rank = [&mapping](const std::vector<Expr>& own) { return detail::call<Index>(mapping, own); };
    constexpr size_t kTaken = detail::axes_taken<std::remove_reference_t<Mapping>>();
    transform_layout(buffer, detail::index_mapping(any_rank, kTaken, axes));
  }
};

}  // namespace tessera::te
