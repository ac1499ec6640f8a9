#include "schedule/gpu/gpu_rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "schedule/fusion/chain.h"
#include "schedule/fusion/join_planner.h"
#include "schedule/gpu/block_reduction.h"
#include "schedule/gpu/gpu_loops.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostMembers = 12;
constexpr int64_t kLeastThreads = 32;

int64_t extent_of(const Buffer& buffer, size_t dim) { return as_int(buffer.shape[dim]).value_or(-1); }

// A parameter that holds a row of an inner value alone: its rows' axes are gone from what reads it.
TensorProgram with_rows_of_inner(TensorProgram member, const std::set<size_t>& inner, size_t num_rows) {
  for (const size_t p : inner) {
    const BufferPtr old = member.params[p].buffer;
    Shape shape = old->shape;
    for (size_t d = 0; d < num_rows; ++d) shape[d] = Expr(1);
    const BufferPtr row = make_buffer(old->name, old->dtype, shape, old->scope);
    member.params[p].buffer = row;
    const auto rewritten = [&](const Expr& e) {
      return transform(e, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad || node->buffer != old) return {};
        std::vector<Expr> at = node->operands;
        for (size_t d = 0; d < num_rows; ++d) at[d] = Expr(0);
        return load(row, at);
      });
    };
    for (Stage& stage : member.stages) stage.body.value = rewritten(stage.body.value);
  }
  return member;
}

class RowKernel {
 public:
  RowKernel(const JoinedProgram& joined, const GpuLimits& limits) : joined_(joined), limits_(limits) {}

  GpuRuleResult run() {
    const Shape& shape = joined_.result().buffer->shape;
    if (shape.size() < 2) return Declined{"there are no rows"};
    num_rows_ = shape.size() - 1;
    if (std::string why = shape_of_rows(); !why.empty()) return Declined{std::move(why)};
    std::vector<Stmt> parts;
    for (const JoinedMember& member : joined_.members) {
      auto part = part_of(member);
      if (auto* declined = std::get_if<Declined>(&part)) return std::move(*declined);
      parts.push_back(std::move(std::get<Stmt>(part)));
    }
    if (bytes_ > limits_.shared_bytes) return Declined{"a row does not fit in shared memory"};
    Stmt body = seq(std::move(parts));
    for (size_t i = shared_.size(); i-- > 0;) body = alloc(shared_[i], std::move(body));
    body = for_loop(row_, 0, sizes_.back(), ForKind::kBlockX, std::move(body));
    body = for_loop(plane_, 0, planes_.size, ForKind::kBlockY, std::move(body));
    LoopProgram program;
    program.name = joined_.name;
    program.params = params_;
    program.body = std::move(body);
    return program;
  }

 private:
  // Blocks: the last axis of rows along x, the others together along y.
  std::string shape_of_rows() {
    const Buffer& result = *joined_.result().buffer;
    int64_t columns = 1;
    for (const JoinedMember& member : joined_.members)
      for (const size_t value : member.args)
        if (value >= joined_.num_args) columns = std::max(columns, extent_of(*joined_.values[value].buffer, num_rows_));
    columns = std::max(columns, extent_of(result, num_rows_));
    if (columns == 1) return "rows are of one element";
    sizes_.assign(result.shape.begin(), result.shape.end() - 1);
    for (size_t d = 0; d + 1 < num_rows_; ++d) planes_.add(make_var("p"), sizes_[d]);
    if (!planes_.is_at_most(kMostBlocksBeside)) return "too many rows for a grid of blocks";
    row_ = var_below("row", sizes_.back(), bounds_);
    plane_ = var_below("plane", planes_.size, bounds_);
    VarMap at;
    planes_.values_at(plane_, bounds_, at);
    for (const Axis& axis : planes_.axes) rows_at_.push_back(at.at(axis.var.get()));
    rows_at_.push_back(row_);
    threads_ = kLeastThreads;
    while (threads_ * 2 <= std::min(columns, limits_.threads)) threads_ *= 2;
    for (size_t v = 0; v < joined_.values.size(); ++v) {
      const Buffer& buffer = *joined_.values[v].buffer;
      if (v < joined_.num_args) {
        params_.push_back(flat_memory(buffer));
        memory_.push_back(params_.back());
        continue;
      }
      if (buffer.shape.size() != num_rows_ + 1) return "what lies between two kernels has other axes";
      if (!as_int(buffer.shape.back())) return "a run decides how long rows are";
      memory_.push_back(make_buffer("row_of_" + buffer.name, buffer.dtype, {Expr(extent_of(buffer, num_rows_))},
                                    MemoryScope::kLocal));
      shared_.push_back(memory_.back());
      add_shared(*memory_.back());
    }
    return {};
  }

  // As the thread form counts.
  void add_shared(const Buffer& buffer) { bytes_ += (dtype_bytes(buffer.dtype, elements_of(buffer)) + 15) / 16 * 16; }

  std::variant<Stmt, Declined> part_of(const JoinedMember& member) {
    std::set<size_t> inner;
    for (size_t p = 0; p < member.program.params.size(); ++p)
      if (member.args[p] >= joined_.num_args) inner.insert(p);
    std::string why;
    const TensorProgram own = with_rows_of_inner(member.program, inner, num_rows_);
    auto kernel = make_linear_kernel(own, why, Results::kPairs, Sizes::kOpen);
    if (!kernel) return Declined{why};
    if (kernel->num_results() != 1 || kernel->padded || kernel->loops.size() != num_rows_ + 1)
      return Declined{"a kernel of another kind"};
    // Memory of its parameters and its result, as the joined kernel has it.
    std::map<const Buffer*, BufferPtr> moved;
    for (size_t a = 0; a < kernel->params.size(); ++a) moved[kernel->params[a].get()] = memory_[member.args[a]];
    const auto rename = [&](Expr& e) {
      if (!e) return;
      e = transform(e, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        const auto it = moved.find(node->buffer.get());
        return it == moved.end() ? Expr() : load(it->second, node->operands);
      });
    };
    rename(kernel->value);
    for_each_reduced_value(*kernel, rename);
    const Var column = kernel->loops.back().var;
    const int64_t columns = kernel->loops.back().extent;
    if (columns == 0) return Declined{"a run decides how long rows are"};
    VarMap at;
    for (size_t d = 0; d < num_rows_; ++d) at[kernel->loops[d].var.get()] = rows_at_[d];
    for (const auto& axis : kernel->reduce) bounds_.set(axis.var, kernel->bounds.of(axis.var.get()));
    const bool is_inner = member.args.back() >= joined_.num_args;
    const BufferPtr& out = memory_[member.args.back()];
    const auto store_at = [&](const Expr& place, const VarMap& finished) {
      VarMap here = finished;
      here[column.get()] = place;
      const Expr index = is_inner ? place : substitute(kernel->out_index, here);
      return store(out, {index}, substitute(kernel->value, here));
    };
    const Reductions reductions = all_reductions(*kernel);
    if (reductions.empty()) return each_column(columns, [&](const Expr& place) { return store_at(place, at); });
    if (columns != 1) return Declined{"a kernel that sums and has columns"};
    FlatAxes steps;
    for (const Axis& axis : kernel->reduce) steps.add(axis.var, axis.extent);
    const BlockReduction reduction{reductions, steps, threads_, at, const_int(DType::kBool, 1)};
    bytes_ += reduction.shared_bytes();
    return reduction.build(bounds_, [&](const VarMap& finished) { return store_at(Expr(0), finished); });
  }

  Stmt each_column(int64_t columns, const std::function<Stmt(const Expr&)>& body) {
    const int64_t rounds = (columns + threads_ - 1) / threads_;
    return thread_nest(
        "column", 1, threads_,
        [&](const Expr&, const Expr& thread) {
          return in_turns(
              rounds,
              [&](const Expr& round) {
                const Expr place = round * Expr(threads_) + thread;
                const Stmt one = body(place);
                return columns % threads_ == 0 ? one : if_then(place < Expr(columns), one);
              },
              bounds_);
        },
        bounds_);
  }

  const JoinedProgram& joined_;
  const GpuLimits& limits_;
  size_t num_rows_ = 0;
  std::vector<Expr> sizes_;  // of the rows' axes
  FlatAxes planes_;          // all of them but the last
  Var row_, plane_;
  std::vector<Expr> rows_at_;  // a block's, by axis
  Bounds bounds_;
  int64_t threads_ = kLeastThreads, bytes_ = 0;
  std::vector<BufferPtr> params_, memory_, shared_;  // memory_: of each value
};

// Chains of calls that may be joined, each with the last call's rows.
class RowJoiner {
 public:
  RowJoiner(const Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of)
      : program_(program), limits_of_(limits_of), planner_(program, target_, options_) {}

  JoinPlan run() {
    for (size_t c = program_.calls.size(); c-- > 0;)
      if (planner_.flow().is_free(c) && limits(c) && planner_.flow().definition(c)) grow(c);
    return std::move(planner_).finish();
  }

 private:
  const GpuLimits* limits(size_t call) const { return limits_of_(planner_.kernel_of(call)); }

  // Whether a member's own axes but the last are those of the others' rows, and it reads what lies between them there.
  bool has_rows(size_t call, const std::vector<Expr>& rows, const std::set<BufferId>& inner) const {
    const TensorProgram& kernel = *planner_.flow().definition(call);
    const Shape& shape = kernel.output().out->shape;
    if (shape.size() != rows.size() + 1 || kernel.num_results != 1) return false;
    for (size_t d = 0; d < rows.size(); ++d)
      if (!structurally_equal(shape[d], rows[d])) return false;
    if (!as_int(shape.back())) return false;
    const std::vector<BufferId>& args = planner_.args_of(call);
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      if (!inner.contains(args[p])) continue;
      const Buffer* param = kernel.params[p].buffer.get();
      if (param->shape.size() != rows.size() + 1 || !kernel.params[p].layout.row_major()) return false;
      for (size_t d = 0; d < rows.size(); ++d)
        if (read_along(kernel, param, d) != d) return false;
    }
    return true;
  }

  void grow(size_t last) {
    const TensorProgram& kernel = *planner_.flow().definition(last);
    const Shape& shape = kernel.output().out->shape;
    if (shape.size() < 2 || !kernel.output().layout.row_major()) return;
    const std::vector<Expr> rows(shape.begin(), shape.end() - 1);
    std::vector<size_t> calls = {last};
    std::set<BufferId> inner;
    std::optional<FoundChain> best;
    std::optional<LoopProgram> code;
    for (bool grown = true; grown && calls.size() < kMostMembers;) {
      grown = false;
      for (size_t i = calls.size(); i-- > 0 && !grown;) {
        const std::vector<BufferId> args = planner_.args_of(calls[i]);
        for (size_t p = 0; p + 1 < args.size() && !grown; ++p) {
          const size_t writer = planner_.flow().writer_of(args[p]);
          if (writer == SIZE_MAX || !planner_.flow().is_free(writer) || !planner_.flow().definition(writer) ||
              limits(writer) != limits(last) || std::find(calls.begin(), calls.end(), writer) != calls.end())
            continue;
          if (!planner_.flow().why_not_inside({args[p], writer, calls[i]}, calls).empty()) continue;
          std::vector<size_t> larger = calls;
          larger.push_back(writer);
          std::sort(larger.begin(), larger.end());
          std::set<BufferId> inside = inner;
          inside.insert(args[p]);
          if (!std::all_of(larger.begin(), larger.end(), [&](size_t call) { return has_rows(call, rows, inside); }))
            continue;
          FoundChain chain = chain_of(larger);
          GpuRuleResult answer = gpu_rows(*chain.program, *limits(last));
          auto* program = std::get_if<LoopProgram>(&answer);
          if (!program) continue;
          for (const SymbolRange& symbol : chain.context.symbols) program->symbols.push_back(symbol.var);
          calls = std::move(larger);
          inner = std::move(inside);
          best = std::move(chain);
          code = std::move(*program);
          grown = true;
        }
      }
    }
    // Without a reduction the kernels would have been one, or are better off as they are.
    const bool reduces = std::any_of(calls.begin(), calls.end(), [&](size_t call) {
      return planner_.flow().definition(call)->reduction() != nullptr;
    });
    if (best && reduces) planner_.join(*best, std::move(*code));
  }

  FoundChain chain_of(const std::vector<size_t>& calls) const {
    std::vector<NumberedMember> members;
    for (const size_t call : calls) members.push_back({planner_.flow().definition(call), planner_.args_of(call)});
    return planner_.define(kGpuRows, calls, std::move(members), false, planner_.kernel_of(calls.back()).program.name);
  }

  const Program& program_;
  const std::function<const GpuLimits*(const Kernel&)>& limits_of_;
  const Target target_;
  const JoinOptions options_;
  JoinPlanner planner_;
};

}  // namespace

GpuRuleResult gpu_rows(const JoinedProgram& joined, const GpuLimits& limits) { return RowKernel(joined, limits).run(); }

void join_rows_on_gpus(Program& program, const std::function<const GpuLimits*(const Kernel&)>& limits_of) {
  JoinPlan plan = RowJoiner(program, limits_of).run();
  apply_joins(program, std::move(plan));
}

}  // namespace tessera::inline schedule
