#include "program/switch_by_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "arith/simplify.h"
#include "loop/naive_loops.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline program {
namespace {

class Switch {
 public:
  Switch(const std::vector<SymbolRange>& symbols, const Var& symbol, int64_t border,
         const std::function<uint64_t(const TensorPtr&)>& hash)
      : symbols_(symbols), symbol_(symbol), border_(border), hash_(hash), largest_(largest_sizes(symbols)) {
    corners_.push_back({});
    for (const SymbolRange& s : symbols) {
      std::vector<SizePoint> more;
      for (const SizePoint& corner : corners_) {
        std::vector<int64_t> values{s.lo, s.hi};
        if (s.var.same_node(symbol)) values = {s.lo, border - s.step, border, s.hi};
        for (const int64_t value : values) {
          more.push_back(corner);
          more.back().push_back(value);
        }
      }
      corners_ = std::move(more);
    }
  }

  std::variant<Program, std::string> run(Program below, Program above) {
    if (below.inputs.size() != above.inputs.size() || below.outputs.size() != above.outputs.size() ||
        below.output_names != above.output_names)
      return "the programs take or give other values";
    if (!below.checks.empty() || !above.checks.empty()) return "the programs check values in a run";
    if (!below.states.empty() || !above.states.empty()) return "the programs have states";
    result_.name = above.name;
    result_.symbols = symbols_;
    result_.output_names = above.output_names;
    for (const bool is_input : {true, false}) {
      const auto ids = is_input ? &Program::inputs : &Program::outputs;
      for (size_t i = 0; i < (above.*ids).size(); ++i)
        if (std::string reason = join(below, (below.*ids)[i], above, (above.*ids)[i]); !reason.empty()) return reason;
    }
    for (const BufferId id : below.inputs) result_.inputs.push_back(below_ids_.at(id));
    for (const BufferId id : below.outputs) result_.outputs.push_back(below_ids_.at(id));
    ProgramStep branch;
    branch.kind = StepKind::kBranch;
    branch.condition = add_flag();
    branch.loc = result_.calls[0].loc;
    branch.blocks.push_back(added(std::move(below), true, below_ids_));
    branch.blocks.push_back(added(std::move(above), false, above_ids_));
    result_.steps.push_back(std::move(branch));
    return std::move(result_);
  }

 private:
  bool is_below(const SizePoint& point) const {
    for (size_t i = 0; i < symbols_.size(); ++i)
      if (symbols_[i].var.same_node(symbol_)) return point[i] < border_;
    return false;
  }

  bool agree(const Expr& a, const Expr& b, bool below) const {
    return std::all_of(corners_.begin(), corners_.end(), [&](const SizePoint& corner) {
      return is_below(corner) != below || value_at(a, symbols_, corner) == value_at(b, symbols_, corner);
    });
  }

  // One input or output of both.
  std::string join(const Program& below, BufferId a, const Program& above, BufferId b) {
    const ProgramBuffer& low = below.buffers[static_cast<size_t>(a)];
    ProgramBuffer whole = above.buffers[static_cast<size_t>(b)];
    if (low.type.dtype != whole.type.dtype || low.type.shape.size() != whole.type.shape.size())
      return fmt::format("'{}' has another rank", whole.name);
    if (!low.type.layout.row_major() || !whole.type.layout.row_major() || low.alias_of >= 0 || whole.alias_of >= 0)
      return fmt::format("'{}' is stored in another way", whole.name);
    for (size_t d = 0; d < low.type.shape.size(); ++d) {
      Expr& dim = whole.type.shape[d];
      const Expr& other = low.type.shape[d];
      if (agree(dim, other, true)) continue;
      if (agree(dim, other, false)) dim = other;
      else dim = select(symbol_ < Expr(border_), other, dim);
    }
    whole.bytes = bytes_at(whole.type, symbols_, largest_);
    below_ids_[a] = above_ids_[b] = static_cast<BufferId>(result_.buffers.size());
    result_.buffers.push_back(std::move(whole));
    return "";
  }

  BufferId add_flag() {
    auto definition = std::make_shared<TensorProgram>();
    definition->name = fmt::format("below_{}_{}", symbol_->name, border_);
    Stage stage;
    stage.out = make_buffer("y", DType::kBool, {1});
    stage.body.axes = make_axes("i", {1});
    stage.body.value = symbol_ < Expr(border_);
    definition->stages.push_back(std::move(stage));
    ProgramBuffer buffer;
    buffer.name = fmt::format("{}<{}", symbol_->name, border_);
    for (const ProgramBuffer& other : result_.buffers)
      if (other.name == buffer.name) buffer.name += "'";
    buffer.type = {DType::kBool, {1}, {}};
    buffer.bytes = 1;
    const auto id = static_cast<BufferId>(result_.buffers.size());
    Kernel kernel;
    kernel.loc = buffer.name;
    kernel.program = naive_loops(*definition);
    kernel.program.symbols = {symbol_};
    kernel.definition = std::move(definition);
    add_call(result_, result_.steps, {static_cast<int32_t>(result_.kernels.size()), {id}, kernel.loc});
    result_.kernels.push_back(std::move(kernel));
    result_.buffers.push_back(std::move(buffer));
    return id;
  }

  // Where the other program runs, this one's sizes are none that it has; but its memory is laid out, too.
  Expr within(const Expr& size, bool below) const {
    const int64_t step = [&] {
      for (const SymbolRange& s : symbols_)
        if (s.var.same_node(symbol_)) return s.step;
      return int64_t{1};
    }();
    const Expr nearest = below ? min(symbol_, Expr(border_ - step)) : max(symbol_, Expr(border_));
    const bool fits = std::all_of(corners_.begin(), corners_.end(),
                                  [&](const SizePoint& corner) { return value_at(size, symbols_, corner) >= 0; });
    return below || !fits ? substitute(size, {{symbol_.get(), nearest}}) : size;
  }

  // The steps of one of the programs, whose buffers, kernels and calls are the result's now.
  StepBlock added(Program program, bool below, std::map<BufferId, BufferId>& ids) {
    auto next = static_cast<BufferId>(result_.buffers.size());
    std::vector<BufferId> new_ids;
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const ProgramBuffer& buffer = program.buffers[i];
      BufferId id = next;
      const bool whole = buffer.kind == BufferKind::kWeight && buffer.alias_of < 0 && buffer.data;
      if (whole) {
        const auto [it, is_new] =
            weights_.try_emplace(fmt::format("{:x} {}", hash_(buffer.data), buffer.type.to_string()), next);
        id = it->second;
      }
      new_ids.push_back(id);
      if (id == next) ++next;
    }
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      if (new_ids[i] != static_cast<BufferId>(result_.buffers.size())) continue;
      ProgramBuffer& buffer = program.buffers[i];
      buffer.name = fmt::format("{}.{}", below ? "below" : "from", buffer.name);
      if (const auto it = ids.find(static_cast<BufferId>(i)); it != ids.end()) {
        buffer.alias_of = it->second;  // as this program sees it
        buffer.index = -1;
      } else if (buffer.alias_of >= 0) {
        buffer.alias_of = new_ids[static_cast<size_t>(buffer.alias_of)];
      }
      if (buffer.over >= 0) buffer.over = new_ids[static_cast<size_t>(buffer.over)];
      for (Expr& dim : buffer.type.shape) dim = within(dim, below);
      if (buffer.view_offset_formula) {
        buffer.view_offset_formula = within(buffer.view_offset_formula, below);
        buffer.view_offset = value_at(buffer.view_offset_formula, symbols_, largest_);
      }
      buffer.bytes = bytes_at(buffer.type, symbols_, largest_);
      result_.buffers.push_back(std::move(buffer));
    }
    const auto first_kernel = static_cast<int32_t>(result_.kernels.size());
    for (Kernel& kernel : program.kernels) result_.kernels.push_back(std::move(kernel));
    StepBlock steps = steps_of(program);
    for_each_step(steps, [&](ProgramStep& step) {
      step.first_call += result_.calls.size();
      for_each_step_buffer(step, [&](BufferId& id) { id = new_ids[static_cast<size_t>(id)]; });
    });
    for (KernelCall& call : program.calls) {
      call.kernel += first_kernel;
      for (BufferId& arg : call.args) arg = new_ids[static_cast<size_t>(arg)];
      result_.calls.push_back(std::move(call));
    }
    return steps;
  }

  const std::vector<SymbolRange>& symbols_;
  const Var& symbol_;
  const int64_t border_;
  const std::function<uint64_t(const TensorPtr&)>& hash_;
  const SizePoint largest_;
  std::vector<SizePoint> corners_;
  Program result_;
  std::map<BufferId, BufferId> below_ids_, above_ids_;  // of inputs and outputs
  std::map<std::string, BufferId> weights_;
};

}  // namespace

std::variant<Program, std::string> switch_by_size(Program below, Program above, const std::vector<SymbolRange>& symbols,
                                                  const Var& symbol, int64_t border,
                                                  const std::function<uint64_t(const TensorPtr&)>& hash) {
  return Switch(symbols, symbol, border, hash).run(std::move(below), std::move(above));
}

}  // namespace tessera::inline program
