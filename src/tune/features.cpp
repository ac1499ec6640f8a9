#include "tune/features.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "arith/int_ops.h"

namespace tessera::inline tune {

namespace {

constexpr size_t kAccesses = 4, kCurve = 6;
constexpr size_t kPerAccess = 9, kArithmetic = 8, kLoops = 11;
// Caches of a core, as they are about everywhere: what is in a feature must not change with the machine.
constexpr double kCaches[] = {32 << 10, 1 << 20};
constexpr size_t kTraffic = 2 * std::size(kCaches) + 1, kTile = 4;
constexpr size_t kPerStore = kArithmetic + kLoops + kAccesses * kPerAccess + kCurve + kTraffic + kTile;
constexpr size_t kSums = kArithmetic + 5, kResult = 9;
constexpr double kLine = 64;  // bytes

float log_of(double x) { return static_cast<float>(std::log2(1 + std::max(0.0, x))); }

struct Loop {
  const ExprNode* var;
  double extent;
  ForKind kind;
};

using Values = std::unordered_map<const ExprNode*, int64_t>;

// The value of an index; loads in it count as 0, variables that have none as well.
int64_t evaluate(const Expr& e, const Values& values) {
  const auto at = [&](size_t i) { return evaluate(e->operands[i], values); };
  switch (e->kind) {
    case ExprKind::kConst: return e->int_value;
    case ExprKind::kVar: {
      const auto found = values.find(e.get());
      return found == values.end() ? 0 : found->second;
    }
    case ExprKind::kCast: return at(0);
    case ExprKind::kSelect: return at(0) ? at(1) : at(2);
    case ExprKind::kFma: return at(0) * at(1) + at(2);
    case ExprKind::kLoad: return 0;
    case ExprKind::kUnary: return e->unary == UnaryOp::kNeg ? -at(0) : at(0);
    case ExprKind::kBinary: break;
  }
  return int_binary(e->binary, DType::kI64, at(0), at(1));
}

struct Access {
  const Buffer* buffer = nullptr;
  bool reads = false, writes = false;
  double bytes = 0, unique = 0, lines = 0;
  double vector_stride = 0, inner_stride = 0;
  // Inside each loop, outermost first: distinct bytes, and bytes of the cache lines that hold them.
  std::vector<double> unique_at, lines_at;
  double tile_loads = 1;  // inside the innermost serial loop: distinct vectors, or elements where lanes share one
};

class Extractor {
 public:
  std::vector<float> run(const LoopProgram& program) {
    visit(program.body);
    std::vector<float> result = best_;
    result.resize(kPerStore, 0);
    result.insert(result.end(), result_.begin(), result_.end());
    result.resize(kPerStore + kResult, 0);
    for (const double sum : sums_) result.push_back(log_of(sum));
    result.push_back(log_of(registers_));
    result.push_back(log_of(locals_));
    result.push_back(log_of(stores_));
    result.push_back(log_of(tensorized_));
    result.push_back(log_of(conditions_));
    return result;
  }

 private:
  void visit(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor: {
        const auto extent = as_int(s->extent);
        loops_.push_back({s->var.get(), extent ? static_cast<double>(std::max<int64_t>(1, *extent)) : 8, s->for_kind});
        visit(s->stmts[0]);
        loops_.pop_back();
        return;
      }
      case StmtKind::kStore: return store(s);
      case StmtKind::kAlloc: {
        double bytes = 4;
        for (const Expr& dim : s->buffer->shape) bytes *= static_cast<double>(as_int(dim).value_or(1));
        (s->buffer->scope == MemoryScope::kRegister ? registers_ : locals_) += bytes;
        break;
      }
      case StmtKind::kTensorized: tensorized_ += 1; break;
      case StmtKind::kIf: conditions_ += 1; break;
      case StmtKind::kSeq: break;
    }
    for (const Stmt& child : s->stmts) visit(child);
  }

  // Nodes of the value, each once. Values are small and there are thousands of them: a list is looked through faster
  // than a set is made.
  void count(const Expr& e, double* arithmetic, std::vector<const ExprNode*>& accesses) {
    if (e->operands.empty() && e->kind != ExprKind::kLoad) return;
    constexpr size_t kFew = 64;
    if (met_.size() < kFew) {
      if (std::find(met_.begin(), met_.end(), e.get()) != met_.end()) return;
      met_.push_back(e.get());
    } else {
      if (more_met_.empty()) more_met_.insert(met_.begin(), met_.end());
      if (!more_met_.insert(e.get()).second) return;
    }
    switch (e->kind) {
      case ExprKind::kFma: arithmetic[0] += 1; break;
      case ExprKind::kLoad: accesses.push_back(e.get()); break;
      case ExprKind::kSelect: arithmetic[5] += 1; break;
      case ExprKind::kCast: arithmetic[6] += 1; break;
      case ExprKind::kUnary: arithmetic[is_float(e->dtype) ? 4 : 7] += 1; break;
      case ExprKind::kBinary:
        if (!is_float(e->dtype)) arithmetic[is_comparison(e->binary) ? 5 : 7] += 1;
        else if (e->binary == BinaryOp::kMul) arithmetic[1] += 1;
        else if (e->binary == BinaryOp::kDiv || e->binary == BinaryOp::kPow) arithmetic[3] += 1;
        else arithmetic[2] += 1;
        break;
      default: break;
    }
    for (const Expr& operand : e->operands) count(operand, arithmetic, accesses);
  }

  void look_at(const Buffer& buffer, const std::vector<Expr>& indices, bool writes, std::vector<Access>& accesses) {
    Access access;
    access.buffer = &buffer;
    access.reads = !writes;
    access.writes = writes;
    const double size = static_cast<double>(dtype_bits(buffer.dtype)) / 8;
    const auto flat = [&](const Values& values) {
      int64_t index = 0;
      for (size_t i = 0; i < indices.size(); ++i)
        index = index * as_int(buffer.shape[i]).value_or(1) + evaluate(indices[i], values);
      return index;
    };
    Values values;
    for (const Loop& loop : loops_) values[loop.var] = 0;
    const int64_t origin = flat(values);
    double elements = 1, all = 1, span = 1, run = 1;
    access.unique_at.assign(loops_.size(), 0);
    access.lines_at.assign(loops_.size(), 0);
    bool inner_seen = false, in_tile = true;
    for (size_t i = loops_.size(); i-- > 0;) {
      const Loop& loop = loops_[i];
      all *= loop.extent;
      double stride = 0;
      if (loop.extent > 1) {
        values[loop.var] = 1;
        stride = std::fabs(static_cast<double>(flat(values) - origin));
        values[loop.var] = static_cast<int64_t>(loop.extent) - 1;
        const double reach = std::fabs(static_cast<double>(flat(values) - origin));
        values[loop.var] = 0;
        if (stride > 0 || reach > 0) elements *= loop.extent;
        if (stride == run) run *= loop.extent;
        span += reach;
      }
      in_tile = in_tile && (loop.kind == ForKind::kVectorized || loop.kind == ForKind::kUnrolled);
      if (in_tile && stride > 0 && !(loop.kind == ForKind::kVectorized && stride == 1))
        access.tile_loads *= loop.extent;
      if (loop.kind == ForKind::kVectorized) access.vector_stride = stride;
      else if (!inner_seen && loop.kind == ForKind::kSerial) access.inner_stride = stride, inner_seen = true;
      access.unique_at[i] = std::min(elements, span) * size;
      const double runs = std::min(elements, span) / std::min(run, std::min(elements, span));
      access.lines_at[i] = std::min(runs * std::max(kLine, run * size), std::max(kLine, span * size));
    }
    access.bytes = all * size;
    access.unique = std::min(elements, span) * size;
    access.lines = access.vector_stride > 1 ? std::min(elements, access.unique / size) : access.unique / kLine;
    for (Access& known : accesses) {
      if (known.buffer != access.buffer) continue;
      known.reads |= access.reads;
      known.writes |= access.writes;
      known.bytes += access.bytes;
      known.unique = std::max(known.unique, access.unique);
      known.lines = std::max(known.lines, access.lines);
      return;
    }
    accesses.push_back(std::move(access));
  }

  // Of the stores to memory the one that writes most: how, and what it reads beside it.
  void write(const Stmt& s, const std::vector<const ExprNode*>& loads, double iterations) {
    const double bytes = iterations * static_cast<double>(dtype_bits(s->buffer->dtype)) / 8;
    if (bytes <= most_written_) return;
    most_written_ = bytes;
    std::vector<Access> accesses;
    look_at(*s->buffer, s->indices, true, accesses);
    const Access out = accesses[0];
    accesses.clear();
    for (const ExprNode* node : loads)
      if (node->buffer->scope != MemoryScope::kRegister) look_at(*node->buffer, node->operands, false, accesses);
    double read = 0, lanes = 1, inner = 1, together = 1;
    for (const Access& a : accesses) read += a.lines_at.empty() ? 0 : a.lines_at[0];
    bool innermost = true;
    for (size_t i = loops_.size(); i-- > 0;) {
      const Loop& loop = loops_[i];
      if (loop.kind == ForKind::kVectorized) lanes *= loop.extent;
      else if (loop.kind == ForKind::kUnrolled) inner *= loop.extent;
      else innermost = false;
      if (innermost) together = out.lines_at[i] / std::max(1.0, out.unique_at[i]);
    }
    result_ = {log_of(bytes),
               log_of(out.lines_at.empty() ? 0 : out.lines_at[0]),
               log_of(read),
               log_of(lanes),
               log_of(inner),
               log_of(out.vector_stride),
               log_of(out.inner_stride),
               log_of(together),
               static_cast<float>(loops_.size())};
  }

  void store(const Stmt& s) {
    double iterations = 1;
    for (const Loop& loop : loops_) iterations *= loop.extent;
    double arithmetic[kArithmetic] = {};
    std::vector<const ExprNode*> loads;
    met_.clear();
    more_met_.clear();
    count(s->value, arithmetic, loads);
    stores_ += iterations;
    for (size_t i = 0; i < kArithmetic; ++i) sums_[i] += arithmetic[i] * iterations;
    double work = 0;
    for (size_t i = 0; i < kArithmetic; ++i) work += arithmetic[i];
    if (s->buffer->scope != MemoryScope::kRegister) write(s, loads, iterations);
    // What moves data counts as well.
    const double weight = iterations * (1 + work);
    if (weight <= best_weight_) return;
    best_weight_ = weight;

    std::vector<float> f;
    for (const double amount : arithmetic) f.push_back(log_of(amount * iterations));
    double by_kind[4] = {1, 1, 1, 1}, inner_serial = 0, outer = 0, depth = 0;
    int inner_unrolled = 0;
    for (const Loop& loop : loops_) {
      by_kind[static_cast<int>(loop.kind)] *= loop.extent;
      if (loop.kind == ForKind::kSerial) inner_serial = loop.extent;
      if (loop.kind == ForKind::kUnrolled) ++inner_unrolled;
      if (outer == 0 && loop.extent > 1) outer = loop.extent;
      depth += loop.extent > 1 ? 1 : 0;
    }
    for (const double product : by_kind) f.push_back(log_of(product));
    f.push_back(log_of(inner_serial));
    f.push_back(log_of(outer));
    f.push_back(static_cast<float>(depth));
    f.push_back(static_cast<float>(inner_unrolled));
    f.push_back(log_of(iterations));
    f.push_back(static_cast<float>(loads.size()));
    // Rows and vectors of a register tile: the extents of its unrolled loops.
    double last_unrolled = 1;
    for (const Loop& loop : loops_)
      if (loop.kind == ForKind::kUnrolled) last_unrolled = loop.extent;
    f.push_back(log_of(last_unrolled));

    std::vector<Access> accesses;
    look_at(*s->buffer, s->indices, true, accesses);
    for (const ExprNode* node : loads) look_at(*node->buffer, node->operands, false, accesses);
    std::stable_sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
      const bool ra = a.buffer->scope == MemoryScope::kRegister, rb = b.buffer->scope == MemoryScope::kRegister;
      return ra != rb ? rb : a.unique > b.unique;
    });
    for (size_t i = 0; i < kAccesses; ++i) {
      if (i >= accesses.size()) {
        f.insert(f.end(), kPerAccess, 0.0f);
        continue;
      }
      const Access& a = accesses[i];
      f.push_back(static_cast<float>((a.reads ? 1 : 0) + (a.writes ? 2 : 0)));
      f.push_back(static_cast<float>(a.buffer->scope));
      f.push_back(log_of(a.bytes));
      f.push_back(log_of(a.unique));
      f.push_back(log_of(a.lines));
      f.push_back(log_of(a.bytes / std::max(1.0, a.unique)));
      f.push_back(log_of(a.vector_stride));
      f.push_back(log_of(a.inner_stride));
      f.push_back(
          log_of(a.unique_at.empty() ? 0 : a.unique_at[std::min(a.unique_at.size() - 1, a.unique_at.size() / 2)]));
    }
    // Operations per distinct byte in memory, inside each loop, at places evenly along the nest.
    for (size_t place = 0; place < kCurve; ++place) {
      const size_t level = loops_.empty() ? 0 : place * (loops_.size() - 1) / (kCurve - 1);
      double inside = 1, bytes = 0;
      for (size_t i = level; i < loops_.size(); ++i) inside *= loops_[i].extent;
      for (const Access& a : accesses)
        if (a.buffer->scope != MemoryScope::kRegister && level < a.unique_at.size()) bytes += a.unique_at[level];
      f.push_back(log_of(inside * std::max(1.0, work) / std::max(1.0, bytes)));
    }
    // Bytes that come into a cache: loops inside which all lines fit are served by it, every turn of those around them
    // loads again.
    std::vector<const Access*> in_memory;
    for (const Access& a : accesses)
      if (a.buffer->scope != MemoryScope::kRegister) in_memory.push_back(&a);
    for (const double cache : kCaches) {
      double turns = 1, bytes = 0;
      for (size_t level = 0; level < loops_.size(); turns *= loops_[level++].extent) {
        bytes = 0;
        for (const Access* a : in_memory) bytes += a->lines_at[level];
        if (bytes <= cache) break;
      }
      f.push_back(log_of(turns * bytes));
      f.push_back(log_of(iterations * std::max(1.0, work) / std::max(1.0, turns * bytes)));
    }
    double touched = 0;
    for (const Access* a : in_memory) touched += a->lines_at.empty() ? 0 : a->lines_at[0];
    f.push_back(log_of(touched));
    // Of the tile in registers: multiplications, what is loaded for them, and their quotient.
    double tile = 1, loaded = 0, lanes = 1, used = 0;
    for (size_t i = loops_.size();
         i-- > 0 && (loops_[i].kind == ForKind::kVectorized || loops_[i].kind == ForKind::kUnrolled);)
      (loops_[i].kind == ForKind::kVectorized ? lanes : tile) *= loops_[i].extent;
    for (const Access* a : in_memory) loaded += a->tile_loads;
    for (const Access& a : accesses)
      if (a.buffer->scope == MemoryScope::kRegister) used += a.tile_loads;
    f.push_back(log_of(tile));
    f.push_back(log_of(loaded));
    f.push_back(static_cast<float>(tile / std::max(1.0, loaded)));
    f.push_back(log_of(used + loaded));
    best_ = std::move(f);
  }

  std::vector<Loop> loops_;
  std::vector<const ExprNode*> met_;
  std::unordered_set<const ExprNode*> more_met_;
  std::vector<float> best_;
  std::vector<float> result_;
  double best_weight_ = 0, most_written_ = 0;
  double sums_[kArithmetic] = {};
  double registers_ = 0, locals_ = 0, stores_ = 0, tensorized_ = 0, conditions_ = 0;
};

}  // namespace

size_t num_program_features() { return kPerStore + kResult + kSums; }

std::vector<float> program_features(const LoopProgram& program) { return Extractor().run(program); }

}  // namespace tessera::inline tune
