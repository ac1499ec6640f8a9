#include "schedule/fusion/masked_columns.h"

#include <cmath>

#include "te/index_map.h"

namespace tessera::inline schedule {
namespace {

// What an expression is in masked columns.
enum class Kind : uint8_t { kVaries, kMinusInfinity, kZero };

struct Tracked {
  size_t axis = 0;  // the columns
  Kind kind = Kind::kVaries;
};

struct Finder {
  const std::vector<ColumnKernel>& kernels;
  std::vector<std::optional<Tracked>> results;  // by kernel
  MaskedColumns found;

  // The parameter that a load is of; -1: an earlier stage of the kernel.
  static int param_of(const TensorProgram& kernel, const Expr& node) {
    for (size_t p = 0; p < kernel.params.size(); ++p)
      if (kernel.params[p].buffer == node->buffer) return static_cast<int>(p);
    return -1;
  }

  const Tracked* tracked(const ColumnKernel& kernel, const Expr& node) const {
    const int param = param_of(*kernel.definition, node);
    if (param < 0) return nullptr;
    const int writer = kernel.writers[static_cast<size_t>(param)];
    return writer >= 0 && results[static_cast<size_t>(writer)] ? &*results[static_cast<size_t>(writer)] : nullptr;
  }

  // The axis of the columns in this stage; none when it reads none. False when it reads them in another way.
  bool columns_of(const ColumnKernel& kernel, const Stage& stage, std::optional<AxisRef>& columns) const {
    for (const IndexMap& map : index_maps(stage.body)) {
      const Tracked* source = tracked(kernel, map.load);
      if (!source) continue;
      const std::optional<AxisRef>& axis = map.dims[source->axis].sole;
      if (!axis || (columns && columns != axis)) return false;
      columns = axis;
    }
    return true;
  }

  Kind kind_of(const ColumnKernel& kernel, const Expr& e, const Var& columns) const {
    const auto operand = [&](size_t i) { return kind_of(kernel, e->operands[i], columns); };
    if (!uses_var(e, columns)) return Kind::kVaries;
    switch (e->kind) {
      case ExprKind::kLoad: {
        const Tracked* source = tracked(kernel, e);
        return source ? source->kind : Kind::kVaries;
      }
      case ExprKind::kCast: return is_float(e->dtype) ? operand(0) : Kind::kVaries;
      case ExprKind::kUnary:
        return e->unary == UnaryOp::kExp && operand(0) == Kind::kMinusInfinity ? Kind::kZero : Kind::kVaries;
      case ExprKind::kSelect: return operand(1) == operand(2) ? operand(1) : Kind::kVaries;
      case ExprKind::kBinary: {
        const Kind a = operand(0), b = operand(1);
        switch (e->binary) {
          case BinaryOp::kAdd:
            return a == Kind::kMinusInfinity || b == Kind::kMinusInfinity ? Kind::kMinusInfinity : Kind::kVaries;
          case BinaryOp::kSub:
            return a == Kind::kMinusInfinity && b == Kind::kVaries ? Kind::kMinusInfinity : Kind::kVaries;
          case BinaryOp::kMul: return a == Kind::kZero || b == Kind::kZero ? Kind::kZero : Kind::kVaries;
          case BinaryOp::kDiv: return a == Kind::kZero ? Kind::kZero : Kind::kVaries;
          default: return Kind::kVaries;
        }
      }
      default: return Kind::kVaries;
    }
  }

  // A mask that the kernel's output stage adds.
  bool find_mask(const ColumnKernel& kernel, Tracked& result) {
    const Body& body = kernel.definition->output().body;
    if (body.value->kind != ExprKind::kBinary || body.value->binary != BinaryOp::kAdd || body.is_reduction() ||
        kernel.row_axis >= body.axes.size())
      return false;
    for (const Expr& term : body.value->operands) {
      if (term->kind != ExprKind::kLoad || term.dtype() != DType::kF32) continue;
      const int param = param_of(*kernel.definition, term);
      const Tensor* mask = param < 0 ? nullptr : kernel.values[static_cast<size_t>(param)];
      if (!mask || mask->dtype() != DType::kF32 || mask->dims().size() != term->operands.size()) continue;
      // Rows and columns are axes of the output; all other indices are fixed.
      int64_t row_stride = 0, column_stride = 0, offset = 0, stride = 1;
      bool fits = true;
      const IndexMap map = index_map(body, term);
      for (size_t d = map.dims.size(); d-- > 0; stride *= mask->dims()[d]) {
        const IndexDim& dim = map.dims[d];
        if (const auto fixed = as_int(dim.index)) {
          offset += *fixed * stride;
        } else if (dim.sole == AxisRef{false, kernel.row_axis}) {
          row_stride = stride;
        } else {
          fits = fits && dim.sole && column_stride == 0;
          if (!fits) break;
          result.axis = dim.sole->number;
          column_stride = stride;
        }
      }
      if (!fits || row_stride == 0 || column_stride == 0) continue;
      const int64_t rows = *as_int(body.axes[kernel.row_axis].extent);
      found.extent = *as_int(body.axes[result.axis].extent);
      found.used.assign(static_cast<size_t>(rows), 1);
      const auto values = mask->as<float>();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = found.extent; c-- > 1;)
          if (values[static_cast<size_t>(offset + r * row_stride + c * column_stride)] != -INFINITY) {
            found.used[static_cast<size_t>(r)] = c + 1;
            break;
          }
      result.kind = Kind::kMinusInfinity;
      return true;
    }
    return false;
  }

  bool visit(size_t number) {
    const ColumnKernel& kernel = kernels[number];
    const TensorProgram& definition = *kernel.definition;
    const Stage* reduction = definition.reduction();
    const Stage& output = definition.output();
    if (reduction) {
      std::optional<AxisRef> columns;
      if (!columns_of(kernel, *reduction, columns)) return false;
      if (columns) {
        if (!columns->reduced) return false;
        const Kind kind = kind_of(kernel, reduction->body.value, axis_of(reduction->body, *columns).var);
        const bool adds_nothing = (reduction->body.combiner == Combiner::kSum && kind == Kind::kZero) ||
                                  (reduction->body.combiner == Combiner::kMax && kind == Kind::kMinusInfinity);
        if (!adds_nothing) return false;
        found.reduced_axis[number] = columns->number;
      }
    }
    if (reduction == &output) return true;
    std::optional<AxisRef> columns;
    if (!columns_of(kernel, output, columns)) return false;
    Tracked result;
    if (columns) {
      if (found.reduced_axis[number]) return false;
      if (columns->reduced) return false;
      result = {columns->number, kind_of(kernel, output.body.value, axis_of(output.body, *columns).var)};
      if (result.kind == Kind::kVaries) return false;
    } else if (found.extent != 0 || !find_mask(kernel, result)) {
      return true;
    }
    results[number] = result;
    found.output_axis[number] = result.axis;
    return true;
  }
};

}  // namespace

std::optional<MaskedColumns> find_masked_columns(const std::vector<ColumnKernel>& kernels) {
  Finder finder{kernels, std::vector<std::optional<Tracked>>(kernels.size()), {}};
  finder.found.output_axis.resize(kernels.size());
  finder.found.reduced_axis.resize(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i)
    if (!finder.visit(i)) return std::nullopt;
  // What leaves the chain has no columns that were left out.
  if (finder.found.extent == 0 || finder.results.back()) return std::nullopt;
  return std::move(finder.found);
}

}  // namespace tessera::inline schedule
