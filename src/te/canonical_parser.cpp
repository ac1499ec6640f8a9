#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "support/error.h"
#include "te/canonical.h"

namespace tessera::inline tensor_programs {
namespace {

constexpr size_t kMostDims = 16;
constexpr size_t kMostDepth = 1000;  // of expressions: what walks them calls itself
constexpr int64_t kMostElements = int64_t{1} << 40;

std::shared_ptr<ExprNode> node_of(ExprKind kind, DType dtype, std::vector<Expr> operands) {
  auto node = std::make_shared<ExprNode>();
  node->kind = kind;
  node->dtype = dtype;
  node->operands = std::move(operands);
  return node;
}

template <typename Op>
std::map<std::string_view, Op> by_name(const char* (*name)(Op), Op last) {
  std::map<std::string_view, Op> result;
  for (int i = 0; i <= static_cast<int>(last); ++i) result[name(static_cast<Op>(i))] = static_cast<Op>(i);
  return result;
}

// Nodes are made as they are written, without folding anything: what was printed is what comes back.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  TensorProgram run() {
    program_.name = "kernel";
    while (!text_.empty()) {
      const size_t end = text_.find('\n');
      split(text_.substr(0, end));
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      ++line_;
      read_line();
    }
    expect(!program_.stages.empty() && axes_.empty() && reduce_axes_.empty(), "a program ends with a stage");
    return std::move(program_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError({.id = "TSR-6406",
                     .message = fmt::format("line {} of a kernel's text: {}", line_, what),
                     .node = {},
                     .legal = "the text of a kernel with constant sizes that this version of tessera has written",
                     .hint = "use the version that wrote it"});
  }
  void expect(bool condition, const char* what) const {
    if (!condition) fail(what);
  }

  void split(std::string_view line) {
    words_.clear();
    next_ = 0;
    while (!line.empty()) {
      const size_t begin = line.find_first_not_of(' ');
      if (begin == std::string_view::npos) break;
      line.remove_prefix(begin);
      const size_t end = std::min(line.find(' '), line.size());
      words_.push_back(line.substr(0, end));
      line.remove_prefix(end);
    }
  }

  bool more() const { return next_ < words_.size(); }
  std::string_view word() {
    expect(more(), "it ends too early");
    return words_[next_++];
  }
  void end() const { expect(!more(), "there is more than belongs there"); }

  int64_t whole(std::string_view text) const {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    expect(error == std::errc() && stop == text.data() + text.size(), "a number was expected");
    return value;
  }
  // "v7" with prefix 'v' is 7, which must be below `limit`.
  size_t reference(std::string_view text, char prefix, size_t limit) const {
    expect(text.size() > 1 && text[0] == prefix, "a name was expected");
    const int64_t number = whole(text.substr(1));
    expect(number >= 0 && static_cast<size_t>(number) < limit, "a name that is not defined, or a size of a run");
    return static_cast<size_t>(number);
  }
  DType dtype() {
    const auto found = parse_dtype(word());
    expect(found && *found != DType::kString, "a type of numbers was expected");
    return *found;
  }

  // A constant, a variable or the result of an earlier line.
  Expr value(std::string_view text) const {
    if (text.starts_with('v') && text.find(':') == std::string_view::npos)
      return variables_[reference(text, 'v', variables_.size())];
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return lines_[reference(text, 'e', lines_.size())];
    const auto type = parse_dtype(text.substr(0, colon));
    expect(type && *type != DType::kString, "a constant has no type");
    const auto node = node_of(ExprKind::kConst, *type, {});
    const std::string number(text.substr(colon + 1));
    if (is_float(*type)) {
      char* stop = nullptr;
      node->float_value = const_float(*type, std::strtod(number.c_str(), &stop))->float_value;
      expect(!number.empty() && *stop == 0, "a constant that is no number");
    } else {
      node->int_value = whole(number);
    }
    return Expr(node);
  }

  int64_t extent(std::string_view text) const {
    const auto size = as_int(value(text));
    expect(size.has_value(), "a size that is not constant");
    expect(*size >= 0 && *size <= kMostElements, "a size out of range");
    return *size;
  }

  BufferPtr buffer(const std::string& name) {
    const DType type = dtype();
    std::vector<Expr> shape;
    int64_t elements = 1;
    while (more()) {
      const int64_t size = extent(word());
      expect(!__builtin_mul_overflow(elements, size, &elements) && elements <= kMostElements, "a tensor too large");
      shape.emplace_back(size);
    }
    expect(shape.size() <= kMostDims, "too many dimensions");
    return make_buffer(name, type, std::move(shape));
  }

  // Each axis is there once as a whole, or as quotient and remainder of one block.
  Layout layout() {
    Layout result;
    if (!more() || !words_[next_].starts_with('{')) return result;
    std::string_view text = word();
    expect(text.ends_with('}') && text.size() <= 256, "a layout that does not end");
    text = text.substr(1, text.size() - 2);
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      const std::string_view part = text.substr(0, comma);
      text.remove_prefix(std::min(comma + 1, text.size()));
      LayoutDim dim;
      const size_t sign = part.find_first_of("/%");
      dim.axis = static_cast<int>(std::clamp<int64_t>(whole(part.substr(0, sign)), -1, kMostDims));
      if (sign != std::string_view::npos) {
        dim.part = part[sign] == '/' ? LayoutDim::Part::kQuotient : LayoutDim::Part::kRemainder;
        dim.block = whole(part.substr(sign + 1));
      }
      result.dims.push_back(dim);
    }
    return result;
  }
  void check_layout(const Layout& layout, const Buffer& buffer) const {
    if (layout.row_major()) return;
    constexpr int64_t kMostBlock = 1 << 16;
    std::vector<int64_t> whole(buffer.shape.size(), 0), quotient(whole), remainder(whole);
    for (const LayoutDim& dim : layout.dims) {
      expect(dim.axis >= 0 && static_cast<size_t>(dim.axis) < whole.size(), "a layout of an axis that there is not");
      auto& parts = dim.part == LayoutDim::Part::kWhole      ? whole
                    : dim.part == LayoutDim::Part::kQuotient ? quotient
                                                             : remainder;
      int64_t& block = parts[static_cast<size_t>(dim.axis)];
      expect(block == 0 && dim.block >= 1 && dim.block <= kMostBlock, "a layout that names a part of an axis twice");
      block = dim.block;
    }
    for (size_t axis = 0; axis < whole.size(); ++axis)
      expect(whole[axis] ? quotient[axis] == 0 && remainder[axis] == 0
                         : quotient[axis] > 0 && quotient[axis] == remainder[axis],
             "a layout without some part of an axis");
  }

  Expr expression() {
    const std::string_view name = word();
    BufferPtr from;
    if (name == "load") from = buffers_[reference(word(), 'b', buffers_.size())];
    const DType type = dtype();
    std::vector<Expr> operands;
    size_t depth = 0;
    while (more()) {
      const std::string_view operand = word();
      operands.push_back(value(operand));
      if (operand.find(':') == std::string_view::npos && operand[0] == 'e')
        depth = std::max(depth, depths_[reference(operand, 'e', lines_.size())]);
    }
    depths_.push_back(depth + 1);
    expect(depth < kMostDepth, "an expression that is too deep");
    const auto count_is = [&](size_t count) { expect(operands.size() == count, "another number of operands"); };
    const auto types_are = [&](size_t begin, DType wanted) {
      for (size_t i = begin; i < operands.size(); ++i)
        expect(operands[i].dtype() == wanted, "operands of another type");
    };
    static const auto kUnary = by_name(unary_name, UnaryOp::kBitcast);
    static const auto kBinary = by_name(binary_name, BinaryOp::kGe);
    std::shared_ptr<ExprNode> node;
    if (from) {
      count_is(from->shape.size());
      types_are(0, DType::kI64);
      expect(type == from->dtype, "a load of another type than its tensor's");
      node = node_of(ExprKind::kLoad, type, std::move(operands));
      node->buffer = std::move(from);
    } else if (name == "select") {
      count_is(3);
      expect(operands[0].dtype() == DType::kBool, "a condition that is no truth value");
      types_are(1, type);
      node = node_of(ExprKind::kSelect, type, std::move(operands));
    } else if (name == "fma") {
      count_is(3);
      types_are(0, type);
      node = node_of(ExprKind::kFma, type, std::move(operands));
    } else if (name == "cast") {
      count_is(1);
      node = node_of(ExprKind::kCast, type, std::move(operands));
    } else if (const auto unary = kUnary.find(name); unary != kUnary.end()) {
      count_is(1);
      const DType of = operands[0].dtype();
      if (unary->second == UnaryOp::kBitcast) expect(dtype_bits(of) == dtype_bits(type), "a bitcast between widths");
      else if (unary->second == UnaryOp::kIsNan || unary->second == UnaryOp::kIsInf)
        expect(is_float(of) && type == DType::kBool, "a test of another type");
      else types_are(0, type);
      node = node_of(ExprKind::kUnary, type, std::move(operands));
      node->unary = unary->second;
    } else if (const auto binary = kBinary.find(name); binary != kBinary.end()) {
      count_is(2);
      types_are(0, operands[0].dtype());
      expect(type == (is_comparison(binary->second) ? DType::kBool : operands[0].dtype()), "a result of another type");
      node = node_of(ExprKind::kBinary, type, std::move(operands));
      node->binary = binary->second;
    } else {
      fail("an operation that this version does not know");
    }
    return Expr(node);
  }

  void read_line() {
    const std::string_view kind = word();
    if (kind == "param") {
      expect(program_.stages.empty() && axes_.empty(), "a parameter after the stages");
      TensorParam param;
      param.layout = layout();
      if (more() && words_[next_] == "const") param.kind = OperandKind::kConstant, ++next_;
      else if (more() && words_[next_] == "weight") param.kind = OperandKind::kWeight, ++next_;
      param.buffer = buffer(fmt::format("p{}", buffers_.size()));
      check_layout(param.layout, *param.buffer);
      buffers_.push_back(param.buffer);
      program_.params.push_back(std::move(param));
    } else if (kind == "axis" || kind == "reduce") {
      const int64_t size = extent(word());
      end();
      const Var var = make_var(fmt::format("i{}", variables_.size()));
      variables_.push_back(var);
      (kind == "axis" ? axes_ : reduce_axes_).push_back({var, Expr(size)});
    } else if (kind == "stage") {
      read_stage();
    } else if (kind.starts_with('e')) {
      expect(whole(kind.substr(1)) == static_cast<int64_t>(lines_.size()) && word() == "=", "lines out of order");
      lines_.push_back(expression());
    } else {
      fail("neither a parameter nor an axis, an expression or a stage");
    }
  }

  void read_stage() {
    Stage stage;
    stage.layout = layout();
    const std::string_view name = word();
    int combiner = 0;
    while (combiner <= static_cast<int>(Combiner::kMax) && name != combiner_name(static_cast<Combiner>(combiner)))
      ++combiner;
    expect(combiner <= static_cast<int>(Combiner::kMax), "a reduction that this version does not know");
    stage.body.combiner = static_cast<Combiner>(combiner);
    stage.body.value = value(word());
    stage.out = buffer(fmt::format("t{}", buffers_.size()));
    check_layout(stage.layout, *stage.out);
    expect(stage.body.value.dtype() == stage.out->dtype, "a stage of another type than its value's");
    expect(stage.body.is_reduction() == !reduce_axes_.empty(), "axes of a reduction without one, or the reverse");
    expect(axes_.size() == stage.out->shape.size(), "as many axes as dimensions");
    for (size_t i = 0; i < axes_.size(); ++i)
      expect(*as_int(axes_[i].extent) == *as_int(stage.out->shape[i]), "axes of other sizes than the tensor's");
    stage.body.axes = std::move(axes_);
    stage.body.reduce_axes = std::move(reduce_axes_);
    axes_.clear();
    reduce_axes_.clear();
    buffers_.push_back(stage.out);
    program_.stages.push_back(std::move(stage));
  }

  std::string_view text_;
  int line_ = 0;
  std::vector<std::string_view> words_;
  size_t next_ = 0;
  TensorProgram program_;
  std::vector<BufferPtr> buffers_;
  std::vector<Var> variables_;
  std::vector<Expr> lines_;
  std::vector<size_t> depths_;  // of lines_
  std::vector<Axis> axes_, reduce_axes_;
};

}  // namespace

TensorProgram parse_canonical_text(std::string_view text) {
  TensorProgram program = Reader(text).run();
  if (canonical_text(program) != text)
    throw UserError({.id = "TSR-6406",
                     .message = "a kernel's text is not in its canonical form",
                     .node = {},
                     .legal = "the text of a kernel with constant sizes that this version of tessera has written",
                     .hint = "use the version that wrote it"});
  return program;
}

}  // namespace tessera::inline tensor_programs
