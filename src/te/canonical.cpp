#include "te/canonical.h"

#include <fmt/format.h>

#include <unordered_map>

#include "support/error.h"
#include "support/hash.h"

namespace tessera::inline tensor_programs {
namespace {

class Writer {
 public:
  std::string run(const TensorProgram& program) {
    for (const TensorParam& param : program.params)
      declare(param.buffer, fmt::format("param {}{}", param.layout.to_string(), operand_kind_suffix(param.kind)));
    for (const Window& window : program.windows) {
      variables_[window.base.get()] = next_variable_++;
      text_ += fmt::format("window {} {} {}..{}", window.axis, window.extent, window.lo, window.hi);
      text_ += window.step == 1 ? "\n" : fmt::format(" by {}\n", window.step);
    }
    if (program.num_results != 1) text_ += fmt::format("results {}\n", program.num_results);
    for (const Stage& stage : program.stages) {
      for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
        for (const Axis& axis : *axes) {
          if (program.num_results > 1 && variables_.contains(axis.var.get())) continue;  // shared with a stage before
          const std::string extent = value(axis.extent);
          variables_[axis.var.get()] = next_variable_++;
          text_ += fmt::format("{} {}\n", axes == &stage.body.axes ? "axis" : "reduce", extent);
        }
      const std::string result = value(stage.body.value);
      declare(stage.out,
              fmt::format("stage {} {} {}", stage.layout.to_string(), combiner_name(stage.body.combiner), result));
    }
    return std::move(text_);
  }

 private:
  void declare(const BufferPtr& buffer, const std::string& what) {
    std::string dims;
    for (const Expr& dim : buffer->shape) dims += " " + value(dim);
    buffers_[buffer.get()] = buffers_.size();
    text_ += fmt::format("{} {}{}\n", what, dtype_name(buffer->dtype), dims);
  }

  // The number of the line that computes `e`, or the constant or variable itself.
  std::string value(const Expr& e) {
    if (const auto found = values_.find(e.get()); found != values_.end()) return found->second;
    std::string line;
    switch (e->kind) {
      case ExprKind::kConst:
        line = is_float(e->dtype) ? fmt::format("{}:{:a}", dtype_name(e->dtype), e->float_value)
                                  : fmt::format("{}:{}", dtype_name(e->dtype), e->int_value);
        return values_[e.get()] = line;
      case ExprKind::kVar: {
        // A named dimension is met where it is used first.
        const auto [entry, is_new] = variables_.try_emplace(e.get(), next_variable_);
        if (is_new) ++next_variable_;
        return values_[e.get()] = fmt::format("v{}", entry->second);
      }
      case ExprKind::kLoad: line = fmt::format("load b{}", buffers_.at(e->buffer.get())); break;
      case ExprKind::kUnary: line = unary_name(e->unary); break;
      case ExprKind::kBinary: line = binary_name(e->binary); break;
      case ExprKind::kSelect: line = "select"; break;
      case ExprKind::kFma: line = "fma"; break;
      case ExprKind::kCast: line = "cast"; break;
    }
    line += fmt::format(" {}", dtype_name(e->dtype));
    for (const Expr& operand : e->operands) line += " " + value(operand);
    const auto [entry, is_new] = lines_.try_emplace(line, lines_.size());
    if (is_new) text_ += fmt::format("e{} = {}\n", entry->second, line);
    return values_[e.get()] = fmt::format("e{}", entry->second);
  }

  std::string text_;
  std::unordered_map<const Buffer*, size_t> buffers_;
  std::unordered_map<const ExprNode*, size_t> variables_;
  size_t next_variable_ = 0;
  std::unordered_map<const ExprNode*, std::string> values_;
  std::unordered_map<std::string, size_t> lines_;
};

}  // namespace

std::string canonical_text(const TensorProgram& program) { return Writer().run(program); }

std::string structural_hash(const std::string& canonical_text) {
  Hasher hasher;
  hasher.add(canonical_text);
  return fmt::format("{:016x}", hasher.value());
}

}  // namespace tessera::inline tensor_programs
