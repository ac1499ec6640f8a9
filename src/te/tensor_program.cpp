#include "te/tensor_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <vector>

#include "arith/simplify.h"
#include "support/error.h"
#include "te/work_formulas.h"

namespace tessera::inline tensor_programs {
namespace {

// Replaces loads from `stage` in `e` by the stage's value at the loaded index.
class Inliner {
 public:
  explicit Inliner(const Stage& stage) : stage_(stage) {}

  Expr run(const Expr& e) {
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad || node->buffer != stage_.out) return {};
      for (const auto& [indices, value] : done_)
        if (same(indices, node->operands)) return value;
      VarMap map;
      for (size_t i = 0; i < stage_.body.axes.size(); ++i) map[stage_.body.axes[i].var.get()] = node->operands[i];
      Expr value = simplify(substitute(stage_.body.value, map));
      done_.emplace_back(node->operands, value);
      return value;
    });
  }

 private:
  static bool same(const std::vector<Expr>& a, const std::vector<Expr>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (!structurally_equal(a[i], b[i])) return false;
    return true;
  }

  const Stage& stage_;
  std::vector<std::pair<std::vector<Expr>, Expr>> done_;
};

// Makes equal parts of an expression the same node (hash consing). What two producers read at the same place is inlined
// from each of them, and would be computed as often.
class Sharer {
 public:
  Expr run(const Expr& e) {
    return transform(e, [&](const Expr& node) -> Expr {
      if (node->operands.empty() && node->kind == ExprKind::kVar) return {};
      std::vector<Expr>& others = seen_[hash(node)];
      for (const Expr& other : others)
        if (equal(node, other)) return other;
      others.push_back(node);
      return {};
    });
  }

 private:
  // Their operands are shared already.
  static size_t hash(const Expr& e) {
    size_t h = static_cast<size_t>(e->kind) * 31 + static_cast<size_t>(e->dtype);
    const auto mix = [&](size_t x) { h = (h ^ x) * 0x9E3779B97F4A7C15 + (h >> 29); };
    mix(static_cast<size_t>(e->unary));
    mix(static_cast<size_t>(e->binary));
    mix(static_cast<size_t>(e->int_value));
    mix(std::hash<double>()(e->float_value));
    mix(std::hash<const void*>()(e->buffer.get()));
    for (const Expr& operand : e->operands) mix(std::hash<const void*>()(operand.get()));
    return h;
  }
  static bool equal(const Expr& a, const Expr& b) {
    if (a->operands.empty()) return structurally_equal(a, b);
    return a->kind == b->kind && a->dtype == b->dtype && a->unary == b->unary && a->binary == b->binary &&
           a->buffer == b->buffer &&
           std::equal(a->operands.begin(), a->operands.end(), b->operands.begin(), b->operands.end(),
                      [](const Expr& x, const Expr& y) { return x.same_node(y); });
  }

  std::unordered_map<size_t, std::vector<Expr>> seen_;
};

int64_t bytes_of(const BufferPtr& buffer, const Layout& layout) {
  const auto dims = static_dims(physical_shape(buffer->shape, layout));
  if (!dims) return -1;
  int64_t count = 1;
  for (int64_t dim : *dims) count *= dim;
  return dtype_bytes(buffer->dtype, count);
}

bool divides_by_symbols(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& node) {
    const bool divides = node->kind == ExprKind::kBinary && node->dtype == DType::kI64 &&
                         (node->binary == BinaryOp::kFloorDiv || node->binary == BinaryOp::kFloorMod);
    found = found || (divides && !as_int(node->operands[1]));
  });
  return found;
}

bool has_load(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& node) { found = found || node->kind == ExprKind::kLoad; });
  return found;
}

// Indices of views of views: quotients by symbolic extents that the axes' extents decide fall away.
Expr with_short_indices(const Body& body) {
  std::vector<std::pair<Var, Expr>> axes;
  for (const auto* list : {&body.axes, &body.reduce_axes})
    for (const Axis& axis : *list) axes.emplace_back(axis.var, axis.extent);
  return transform(body.value, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad || std::none_of(node->operands.begin(), node->operands.end(), divides_by_symbols))
      return {};
    std::vector<Expr> index = node->operands;
    for (Expr& i : index)
      if (divides_by_symbols(i) && !has_load(i)) i = normalize_size(i, axes);
    return load(node->buffer, std::move(index));
  });
}

}  // namespace

const Stage* TensorProgram::reduction() const {
  for (const Stage& stage : stages)
    if (stage.body.is_reduction()) return &stage;
  return nullptr;
}

std::vector<const Stage*> TensorProgram::reductions() const {
  std::vector<const Stage*> found;
  for (const Stage& stage : stages)
    if (stage.body.is_reduction()) found.push_back(&stage);
  return found;
}

void inline_injective_stages(TensorProgram& program) {
  for (size_t i = 0; i + 1 < program.stages.size();) {
    if (program.stages[i].body.is_reduction()) {
      ++i;
      continue;
    }
    const Stage producer = program.stages[i];
    if (i + program.num_results < program.stages.size()) {
      program.stages.erase(program.stages.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
    for (size_t j = i; j < program.stages.size(); ++j) {
      Inliner inliner(producer);
      program.stages[j].body.value = inliner.run(program.stages[j].body.value);
    }
  }
  Sharer shared;  // by all results
  for (Stage& stage : program.stages) {
    const Expr value = with_short_indices(stage.body);
    stage.body.value = program.num_results > 1 ? shared.run(value) : Sharer().run(value);
  }
}

int64_t function_flops(UnaryOp function) {
  switch (function) {
    case UnaryOp::kExp: return 23;
    case UnaryOp::kLog: return 30;
    case UnaryOp::kTanh: return 39;
    case UnaryOp::kErf: return 57;
    case UnaryOp::kSin: return 45;
    case UnaryOp::kCos: return 45;
    case UnaryOp::kTan: return 46;
    case UnaryOp::kAsin: return 35;
    case UnaryOp::kAcos: return 35;
    case UnaryOp::kAtan: return 32;
    case UnaryOp::kSinh: return 61;
    case UnaryOp::kCosh: return 42;
    case UnaryOp::kAsinh: return 73;
    case UnaryOp::kAcosh: return 70;
    case UnaryOp::kAtanh: return 41;
    case UnaryOp::kBitcast: return 0;
    default: return 1;
  }
}

int64_t count_flops(const Expr& e) {
  // A power that is known is a product or a root.
  const auto power = [](const Expr& node) { return node->operands[1]->kind == ExprKind::kConst ? 1 : 210; };
  int64_t count = 0;
  walk(e, [&](const Expr& node) {
    if (!is_float(node->dtype)) return;
    if (node->kind == ExprKind::kFma) count += 2;
    if (node->kind == ExprKind::kUnary) count += function_flops(node->unary);
    if (node->kind == ExprKind::kBinary) count += node->binary == BinaryOp::kPow ? power(node) : 1;
  });
  return count;
}

int64_t count_flops(const TensorProgram& program) { return as_int(flops_formula(program)).value_or(-1); }

int64_t count_bytes(const TensorProgram& program) { return as_int(bytes_formula(program)).value_or(-1); }

int64_t count_constant_bytes(const TensorProgram& program) {
  int64_t total = 0;
  for (const TensorParam& param : program.params) {
    if (!param.is_constant()) continue;
    const int64_t bytes = bytes_of(param.buffer, param.layout);
    if (bytes < 0) return -1;
    total += bytes;
  }
  return total;
}

const char* operand_kind_suffix(OperandKind kind) {
  switch (kind) {
    case OperandKind::kActivation: return "";
    case OperandKind::kWeight: return " weight";
    case OperandKind::kConstant: return " const";
  }
  return "";
}

std::string to_string(const TensorProgram& program) {
  std::string text = "compute @" + program.name + "(";
  for (size_t i = 0; i < program.params.size(); ++i) {
    const TensorParam& param = program.params[i];
    text += fmt::format("{}{}: {}{}{}{}", i ? ", " : "", param.buffer->name, dtype_name(param.buffer->dtype),
                        to_string(param.buffer->shape), param.layout.to_string(), operand_kind_suffix(param.kind));
  }
  text += ") {\n";
  for (const Stage& stage : program.stages)
    text += fmt::format("  {}: {}{}{} where {}\n", stage.out->name, dtype_name(stage.out->dtype),
                        to_string(stage.out->shape), stage.layout.to_string(), to_string(stage.body));
  return text + "}\n";
}

}  // namespace tessera::inline tensor_programs
