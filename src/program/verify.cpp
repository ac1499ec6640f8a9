#include "program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "loop/verify.h"
#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"
#include "program/verify_devices.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), largest_(largest_sizes(program.symbols)) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < program_.buffers.size(); ++i) buffer(static_cast<BufferId>(i));
    signature(program_.inputs, BufferKind::kInput);
    signature(program_.outputs, BufferKind::kOutput);
    checks();
    states();
    for (const Kernel& kernel : program_.kernels)
      for (std::string& violation : verify(kernel.program)) violations_.push_back(std::move(violation));
    data_symbols();
    if (!violations_.empty()) return std::move(violations_);  // the rest relies on sound ids
    const std::vector<bool> branched = calls_in_branches();
    for (size_t i = 0; i < program_.calls.size(); ++i) signature(program_.calls[i], branched[i]);
    if (!program_.steps.empty()) structure();
    if (violations_.empty())
      verify_devices(program_, [&](const std::string& where, const std::string& rule) { report(where, rule); });
    if (violations_.empty()) placement();
    if (!violations_.empty()) return std::move(violations_);
    if (program_.steps.empty())
      for (const KernelCall& c : program_.calls) call(c);
    else flow();
    for (const BufferId output : program_.outputs)
      if (at(output).bytes > 0 && !contents(output).empty()) report(at(output).name, "the output is never written");
    return std::move(violations_);
  }

 private:
  using Pieces = std::map<int64_t, std::pair<int64_t, BufferId>>;                // begin -> end, owner
  static constexpr BufferId kUnwritten = -1, kDiffers = -2;                      // owners
  using Written = std::map<BufferId, std::vector<std::pair<int64_t, int64_t>>>;  // by root: begin, end

  // Once each: blocks of loops are followed twice.
  void report(const std::string& where, const std::string& rule) {
    std::string text = fmt::format("program {}: {}: {}", program_.name, where, rule);
    if (std::find(violations_.begin(), violations_.end(), text) == violations_.end())
      violations_.push_back(std::move(text));
  }

  bool valid(BufferId id) const { return id >= 0 && static_cast<size_t>(id) < program_.buffers.size(); }
  const ProgramBuffer& at(BufferId id) const { return program_.buffers[static_cast<size_t>(id)]; }

  void buffer(BufferId id) {
    const ProgramBuffer& b = at(id);
    const std::string where = "buffer " + b.name;
    for (const Expr& dim : b.type.shape)
      if (!is_size(dim)) return report(where, "the shape is no expression of the symbols");
    if (b.bytes != bytes_at(b.type, program_.symbols, largest_))
      report(where, fmt::format("{} bytes for the type {}", b.bytes, b.type.to_string()));
    const auto [root, begin] = place_in_root(program_, id);
    if (root < 0) return report(where, "the alias leads to no buffer");
    const int64_t travel = travel_in_root(program_, id);
    if (b.view_offset < 0 || b.view_travel < 0 || b.bytes + travel > at(root).bytes - begin)
      report(where, fmt::format("{} bytes from {}{} on, its root {} has {}", b.bytes, begin,
                                travel == 0 ? "" : fmt::format("..{}", begin + travel), at(root).name, at(root).bytes));
    if (b.bytes > 0 && begin * 8 % std::max(8, dtype_bits(b.type.dtype)) != 0)
      report(where, fmt::format("begins at byte {} of {}, inside an element", begin, at(root).name));
    if (b.over >= 0) takes_over(id);
    if (at(root).kind != b.kind)
      report(where, fmt::format("{} but its root {} is {}", buffer_kind_name(b.kind), at(root).name,
                                buffer_kind_name(at(root).kind)));
    if (root != id) return;
    if (b.kind == BufferKind::kWeight) {
      if (!b.data) report(where, "a weight without contents");
      else if (b.data->num_bytes() != b.bytes)
        report(where, fmt::format("{} bytes of contents for {}", b.data->num_bytes(), b.bytes));
    }
    const auto signature_size = b.kind == BufferKind::kInput ? program_.inputs.size() : program_.outputs.size();
    const bool in_signature = b.kind == BufferKind::kInput || b.kind == BufferKind::kOutput;
    if (in_signature && (b.index < 0 || static_cast<size_t>(b.index) >= signature_size))
      report(where, fmt::format("number {} in a signature of {}", b.index, signature_size));
  }

  bool is_size(const Expr& dim) const {
    bool ok = true;
    walk(dim, [&](const Expr& e) {
      const auto same = [&](const SymbolRange& symbol) { return symbol.var.same_node(e); };
      ok &= e->kind != ExprKind::kLoad &&
            (e->kind != ExprKind::kVar || std::any_of(program_.symbols.begin(), program_.symbols.end(), same));
    });
    return ok;
  }

  void takes_over(BufferId id) {
    const ProgramBuffer& b = at(id);
    const std::string where = "buffer " + b.name;
    if (!valid(b.over) || storage_buffer(program_, id) < 0) return report(where, "it takes over no buffer");
    const ProgramBuffer& old = at(b.over);
    if (b.kind != BufferKind::kArena || old.kind != BufferKind::kArena || b.alias_of >= 0 || old.alias_of >= 0)
      report(where, fmt::format("it takes over {}, but only whole arena buffers do that", old.name));
    else if (b.bytes != old.bytes) report(where, fmt::format("{} bytes over {} of {}", b.bytes, old.name, old.bytes));
    if (!taken_over_.insert(b.over).second) report(where, fmt::format("{} is taken over twice", old.name));
  }

  void signature(const std::vector<BufferId>& ids, BufferKind kind) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string where = fmt::format("{} {}", buffer_kind_name(kind), i);
      if (!valid(ids[i])) report(where, fmt::format("no buffer {}", ids[i]));
      else if (at(ids[i]).kind != kind || at(ids[i]).index != static_cast<int32_t>(i))
        report(where,
               fmt::format("buffer {} is {} {}", at(ids[i]).name, buffer_kind_name(at(ids[i]).kind), at(ids[i]).index));
    }
  }

  void checks() {
    if (program_.checks.size() > program_.outputs.size()) return report("checks", "there are more than outputs");
    for (size_t i = program_.outputs.size() - program_.checks.size(); i < program_.outputs.size(); ++i) {
      if (!valid(program_.outputs[i])) continue;
      const ProgramBuffer& b = at(program_.outputs[i]);
      const auto dims = static_dims(b.type.shape);
      if (b.type.dtype != DType::kI64 || !dims || dims->size() != 1 || dims->at(0) < 1)
        report("check " + b.name, fmt::format("{} instead of a list of i64", b.type.to_string()));
    }
  }

  void data_symbols() {
    std::set<const ExprNode*> bound;
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      if (step.kind == StepKind::kBind && step.symbol) bound.insert(step.symbol.get());
    });
    bool data = false;
    for (const SymbolRange& symbol : program_.symbols) {
      if (data && !symbol.is_data())
        report("symbol " + symbol.var->name, "it stands behind one that data give a value");
      data = symbol.is_data();
      if (data && !bound.contains(symbol.var.get())) report("symbol " + symbol.var->name, "no step binds it");
      if (data && !is_size(symbol.bound))
        report("symbol " + symbol.var->name, "its bound is no expression of the symbols");
    }
    for (const BufferId id : program_.inputs)
      for (const Expr& dim : at(id).type.shape)
        if (uses_data_symbols(dim, program_.symbols)) report("input " + at(id).name, "data decide its size");
  }

  void states() {
    if (program_.states.size() > program_.inputs.size() ||
        program_.states.size() + program_.checks.size() > program_.outputs.size())
      return report("states", "there are more than inputs or outputs");
    if (program_.flow && !program_.states.empty()) report("states", "a flow has none");
    for (size_t i = 0; i < program_.states.size(); ++i) {
      const ProgramState& state = program_.states[i];
      const BufferId before = program_.inputs[program_.num_own_inputs() + i],
                     after = program_.outputs[program_.num_own_outputs() + i];
      const std::string where = "state " + state.name;
      if (!valid(before) || !valid(after)) continue;
      const TensorType& type = at(before).type;
      if (!type.is_static() || !type.layout.row_major())
        report(where, fmt::format("{} instead of a fixed shape in row-major order", type.to_string()));
      if (!(type == at(after).type))
        report(where, fmt::format("it becomes {}, and was {}", at(after).type.to_string(), type.to_string()));
      if (state.initial < 0) continue;
      if (!valid(state.initial) || at(state.initial).kind != BufferKind::kWeight || !(at(state.initial).type == type))
        report(where, fmt::format("its initial value is no weight of type {}", type.to_string()));
    }
  }

  // By call: whether it is made in one of a branch's blocks.
  std::vector<bool> calls_in_branches() const {
    std::vector<bool> result(program_.calls.size(), false);
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      if (step.kind != StepKind::kBranch) return;
      for (const StepBlock& block : step.blocks)
        for_each_step(block, [&](const ProgramStep& inner) {
          for (size_t i = inner.first_call; i < result.size() && i - inner.first_call < inner.num_calls; ++i)
            result[i] = true;
        });
    });
    return result;
  }

  void signature(const KernelCall& c, bool in_branch) {
    if (c.kernel < 0 || static_cast<size_t>(c.kernel) >= program_.kernels.size())
      return report("a call", fmt::format("no kernel {}", c.kernel));
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const std::string where = "call of " + kernel.name;
    if (c.args.size() != kernel.params.size())
      return report(where, fmt::format("{} parameters instead of {}", c.args.size(), kernel.params.size()));
    for (size_t i = 0; i < c.args.size(); ++i) {
      if (!valid(c.args[i])) return report(where, fmt::format("no buffer {}", c.args[i]));
      const ProgramBuffer& b = at(c.args[i]);
      const Buffer& param = *kernel.params[i];
      const Shape physical = physical_shape(b.type.shape, b.type.layout);
      if (param.dtype != b.type.dtype || !(same_shape(param.shape, physical) || flattened(param.shape, physical) ||
                                           (in_branch && agree_at_some_size(param.shape, physical))))
        report(where, fmt::format("parameter {} is {}{}, given {} of {}{}", param.name, dtype_name(param.dtype),
                                  to_string(param.shape), b.name, dtype_name(b.type.dtype), to_string(physical)));
    }
  }

  void call(const KernelCall& c) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const std::string where = "call of " + kernel.name;
    const size_t num_inputs = kernel.params.size() - static_cast<size_t>(kernel.num_outputs);
    for (size_t i = 0; i < c.args.size(); ++i) {
      const ProgramBuffer& b = at(c.args[i]);
      if (i < num_inputs) {
        read(where, c.args[i]);
        continue;
      }
      if (b.kind == BufferKind::kInput || b.kind == BufferKind::kWeight)
        report(where, fmt::format("the {} {} is written", buffer_kind_name(b.kind), b.name));
      for (size_t j = 0; j < c.args.size(); ++j)
        if (j != i) apart(where, c, i, j);
    }
    for (size_t i = num_inputs; i < c.args.size(); ++i) write(c.args[i]);
  }

  // ---- steps ----

  static std::string name_of(const ProgramStep& step) {
    return (step.kind == StepKind::kLoop    ? "loop " + step.index.var->name
            : step.kind == StepKind::kBind  ? "bind " + (step.symbol ? step.symbol->name : "nothing")
            : step.kind == StepKind::kStart ? fmt::format("start {}", step.token)
            : step.kind == StepKind::kWait  ? fmt::format("wait {}", step.token)
            : step.kind == StepKind::kCopy  ? std::string("copy")
                                            : std::string("branch")) +
           (step.loc.empty() ? "" : " of " + step.loc);
  }

  // Blocks and headers of steps, apart from the bytes.
  void structure() {
    std::set<std::string> names;
    for (const SymbolRange& symbol : program_.symbols) names.insert(symbol.var->name);
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      if (step.kind != StepKind::kLoop) return;
      if (!step.index.var) return report("a loop", "it has no index");
      if (!names.insert(step.index.var->name).second && !program_.flow)
        report(name_of(step), "another loop or a dimension has the name of its index");
      if (step.index.lo != 0 || step.index.step != 1 || step.index.hi < -1)
        report(name_of(step), fmt::format("its index is {}..{}", step.index.lo, step.index.hi));
    });
    if (!violations_.empty()) return;
    block_structure(program_.steps);
    if (next_call_ != program_.calls.size())
      report("steps", fmt::format("they make {} of {} calls", next_call_, program_.calls.size()));
    std::vector<Carried> carried;
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      for (const CarriedValue& c : step.carried)
        if (violations_.empty()) carried_value(step, c, carried);
    });
  }

  void block_structure(const StepBlock& block) {
    for (const ProgramStep& step : block) {
      const size_t blocks = step.kind == StepKind::kBranch                                  ? 2
                            : step.kind == StepKind::kLoop || step.kind == StepKind::kStart ? 1
                                                                                            : 0;
      const std::string where = step.kind == StepKind::kCalls ? "calls" : name_of(step);
      if (step.blocks.size() != blocks)
        return report(where, fmt::format("{} blocks instead of {}", step.blocks.size(), blocks));
      for_each_step_buffer(step, [&](BufferId id) {
        if (!valid(id)) report(where, fmt::format("no buffer {}", id));
        else in_scope(where, id);
      });
      if (!violations_.empty()) return;
      if (step.kind == StepKind::kCalls) {
        if (step.first_call != next_call_ || step.num_calls > program_.calls.size() - next_call_)
          return report(where, fmt::format("{} from {} on, behind {} of {}", step.num_calls, step.first_call,
                                           next_call_, program_.calls.size()));
        for (size_t i = 0; i < step.num_calls; ++i) in_scope(program_.calls[next_call_ + i]);
        next_call_ += step.num_calls;
        continue;
      }
      if (step.kind == StepKind::kBind) {
        bind(step, where);
        continue;
      }
      if (step.kind == StepKind::kBranch && step.condition < 0) report(where, "it has no condition");
      if (step.condition >= 0 && (at(step.condition).type.dtype != DType::kBool || at(step.condition).bytes != 1))
        report(where, fmt::format("the condition {} is {} instead of one bool", at(step.condition).name,
                                  at(step.condition).type.to_string()));
      if (step.kind == StepKind::kLoop) {
        if (step.count && step.count_buffer >= 0) report(where, "it has two counts");
        if (!step.count && step.count_buffer < 0 && step.condition < 0) report(where, "it never ends");
        if (step.count && !is_size(step.count)) report(where, "the count is no expression of the symbols");
        if (step.count_buffer >= 0 &&
            (at(step.count_buffer).type.dtype != DType::kI64 || at(step.count_buffer).bytes != 8))
          report(where, fmt::format("the count {} is {} instead of one i64", at(step.count_buffer).name,
                                    at(step.count_buffer).type.to_string()));
        if (!violations_.empty()) return;
        if (step.count && value_at(step.count, program_.symbols, largest_) - 1 > step.index.hi)
          report(where, fmt::format("{} iterations, the index ends at {}",
                                    value_at(step.count, program_.symbols, largest_), step.index.hi));
        scope_.push_back(step.index.var);
      }
      const size_t bound = scope_.size();
      for (const StepBlock& inner : step.blocks) {
        block_structure(inner);
        scope_.resize(bound);  // what a block binds has a value there alone
      }
      if (step.kind == StepKind::kLoop) scope_.pop_back();
    }
  }

  void bind(const ProgramStep& step, const std::string& where) {
    const auto declared =
        std::find_if(program_.symbols.begin(), program_.symbols.end(), [&](const SymbolRange& symbol) {
          return step.symbol && symbol.is_data() && symbol.var.same_node(step.symbol);
        });
    if (declared == program_.symbols.end()) return report(where, "it binds no symbol that data give a value");
    if (!bound_.insert(step.symbol.get()).second) report(where, "the symbol is bound twice");
    if (step.count_buffer < 0) return report(where, "it has no count");
    const ProgramBuffer& count = at(step.count_buffer);
    if (count.type.dtype != DType::kI64 || count.bytes != 8)
      report(where, fmt::format("the count {} is {} instead of one i64", count.name, count.type.to_string()));
    has_value(where, declared->bound);
    scope_.push_back(step.symbol);
  }

  // All symbols in a size have their values.
  void has_value(const std::string& where, const Expr& size) {
    walk(size, [&](const Expr& e) {
      if (is_index_out_of_scope(e)) report(where, fmt::format("it needs {}, which has no value here", e->name));
    });
  }

  bool is_index_out_of_scope(const Expr& e) const {
    const auto same = [&](const Expr& var) { return var.same_node(e); };
    const auto is_symbol = [&](const SymbolRange& symbol) { return !symbol.is_data() && symbol.var.same_node(e); };
    return e->kind == ExprKind::kVar && std::none_of(scope_.begin(), scope_.end(), same) &&
           std::none_of(program_.symbols.begin(), program_.symbols.end(), is_symbol);
  }

  // Views that move with an index have a meaning inside its loop alone.
  void in_scope(const std::string& where, BufferId id) {
    for (; id >= 0; id = at(id).alias_of)
      if (at(id).view_offset_formula)
        walk(at(id).view_offset_formula, [&](const Expr& e) {
          if (is_index_out_of_scope(e))
            report(where, fmt::format("{} begins where {} says, which has no value here", at(id).name, e->name));
        });
  }

  void in_scope(const KernelCall& c) {
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    for (const BufferId id : c.args) in_scope("call of " + kernel.name, id);
    for (const Var& symbol : kernel.symbols)
      if (is_index_out_of_scope(symbol))
        report("call of " + kernel.name, fmt::format("it takes {}, which has no value here", symbol->name));
  }

  struct Carried {
    BufferId id = -1;
    const ProgramStep* loop = nullptr;
    bool swap = false;
  };

  // Loops in several places may carry the same bytes, unless they change places with others.
  void carried_value(const ProgramStep& loop, const CarriedValue& c, std::vector<Carried>& seen) {
    const ProgramBuffer &current = at(c.current), &next = at(c.next);
    const std::string where = name_of(loop);
    if (current.bytes != next.bytes || current.type.dtype != next.type.dtype)
      report(where, fmt::format("{} is {}, its next contents {} are {}", current.name, current.type.to_string(),
                                next.name, next.type.to_string()));
    const BufferId roots[] = {root_buffer(program_, c.current), root_buffer(program_, c.next)};
    for (const BufferId id : {c.current, c.next}) {
      if (at(id).kind == BufferKind::kInput || at(id).kind == BufferKind::kWeight)
        report(where, fmt::format("the {} {} is written", buffer_kind_name(at(id).kind), at(id).name));
      for (const Carried& other : seen)
        if ((other.loop == &loop || other.swap || c.swap) && share_bytes(id, other.id))
          report(where, fmt::format("{} is carried, and so is {} of the same bytes", at(id).name, at(other.id).name));
      seen.push_back({id, &loop, c.swap});
    }
    if (!c.swap) return;
    for (const BufferId id : {c.current, c.next})
      if (at(id).kind != BufferKind::kArena || at(id).alias_of >= 0)
        report(where, fmt::format("{} changes places, but only whole arena buffers do that", at(id).name));
    for (const ProgramBuffer& b : program_.buffers)
      if (b.over == roots[1]) report(where, fmt::format("{} changes places, and {} is over it", next.name, b.name));
    if (next.over >= 0) report(where, fmt::format("{} changes places, and is over {}", next.name, at(next.over).name));
  }

  bool share_bytes(BufferId a, BufferId b) const {
    const Range x = range_of(a), y = range_of(b);
    return x.owner == y.owner && x.begin < y.end && y.begin < x.end;
  }

  // Follows the bytes.
  void flow() {
    time_ = timeline_of(program_);
    alive_ = live_ranges(program_, time_, [&](BufferId id) { return root_buffer(program_, id); });
    run(program_.steps);
  }

  void run(const StepBlock& block) {
    for (const ProgramStep& step : block) {
      if (step.kind == StepKind::kCalls) {
        for (size_t i = 0; i < step.num_calls; ++i) call(program_.calls[step.first_call + i]);
        continue;
      }
      const std::string where = name_of(step);
      if (step.count_buffer >= 0) read(where, step.count_buffer);
      if (step.condition >= 0) read(where, step.condition);
      if (step.kind == StepKind::kBind || step.kind == StepKind::kWait) continue;
      if (step.kind == StepKind::kCopy) {
        read(where, step.from);
        write(step.to);
      } else if (step.kind == StepKind::kStart) {
        run(step.blocks[0]);  // what happens until its wait does not see the difference
      } else if (step.kind == StepKind::kBranch) {
        const auto before = memory_;
        const Written known = written_;
        run(step.blocks[0]);
        const auto taken = std::exchange(memory_, before);
        // A view that moves may be the first to write its bytes in both blocks.
        const Written known_behind = std::exchange(written_, known);
        run(step.blocks[1]);
        for (const auto& [root, stretches] : known_behind)
          written_[root].insert(written_[root].end(), stretches.begin(), stretches.end());
        memory_ = joined(taken, memory_, [&](BufferId a, BufferId b, int64_t) { return behind_branch(a, b); });
      } else {
        loop(step, where);
      }
    }
  }

  // What stands behind a branch where its blocks have left `a` and `b`. A branch may be taken for some sizes alone:
  // then a block that writes an output writes all that it has at these sizes.
  BufferId behind_branch(BufferId a, BufferId b) const {
    if (a == b) return a;
    const BufferId written = a == kUnwritten ? b : a;
    const bool one_writes = (a == kUnwritten || b == kUnwritten) && written >= 0;
    return one_writes && !program_.symbols.empty() && at(written).kind == BufferKind::kOutput ? written : kDiffers;
  }

  void loop(const ProgramStep& step, const std::string& where) {
    for (const CarriedValue& c : step.carried) read(where, c.current);
    const auto before = memory_;
    const Written known = written_;
    const auto moving = moving_writes_.size();
    for (const BufferId id : always_written(step.blocks[0])) moving_writes_.push_back({step.index.var, id});
    // The second time finds what the first has left behind; later ones find the same.
    for (int iteration = 0; iteration < 2; ++iteration) {
      // What the block alone uses begins anew.
      const Timeline::Loop& own = *std::find_if(time_.loops.begin(), time_.loops.end(),
                                                [&](const Timeline::Loop& other) { return other.step == &step; });
      std::erase_if(written_, [&](const auto& entry) {
        const LiveRange& range = alive_[static_cast<size_t>(entry.first)];
        return range.first > own.begin && range.last <= own.end;
      });
      if (iteration == 1) moving_writes_.resize(moving);
      run(step.blocks[0]);
      // One after the other, as compiled code does it.
      for (const CarriedValue& c : step.carried) {
        read(where, c.next);
        if (c.swap) change_places(c);
        write(c.current);
      }
      if (step.condition >= 0) read(where, step.condition);
    }
    if (step.condition < 0 && step.count && as_int(step.count).value_or(0) > 0) return;
    // It may never run: what was there before it, is still there. What it alone writes counts as written.
    memory_ = joined(before, memory_, [&](BufferId a, BufferId b, int64_t place) {
      return a == b || !is_in(known, b, place, place + 1) ? b : kDiffers;
    });
  }

  // Views that move and that the block writes each time it runs.
  std::vector<BufferId> always_written(const StepBlock& block) const {
    std::vector<BufferId> views;
    for (const ProgramStep& step : block) {
      for (size_t i = 0; i < step.num_calls; ++i) {
        const KernelCall& c = program_.calls[step.first_call + i];
        if (travel_in_root(program_, c.args.back()) > 0) views.push_back(c.args.back());
      }
      if (step.kind == StepKind::kStart) {
        const std::vector<BufferId> started = always_written(step.blocks[0]);
        views.insert(views.end(), started.begin(), started.end());
      } else if (step.kind == StepKind::kBranch) {
        const std::vector<BufferId> one = always_written(step.blocks[0]), other = always_written(step.blocks[1]);
        for (const BufferId id : one)
          if (std::any_of(other.begin(), other.end(), [&](BufferId o) { return same_bytes(id, o); }))
            views.push_back(id);
      }
    }
    return views;
  }

  bool same_bytes(BufferId a, BufferId b) const {
    return root_buffer(program_, a) == root_buffer(program_, b) && at(a).bytes == at(b).bytes &&
           as_int(simplify(begin_of(a) - begin_of(b))).value_or(1) == 0;
  }

  void change_places(const CarriedValue& c) {
    const auto place = [&](BufferId id) {
      const auto it = moved_.find(id);
      return it == moved_.end() ? id : it->second;
    };
    const BufferId current = place(c.current), next = place(c.next);
    moved_[c.current] = next;
    moved_[c.next] = current;
  }

  // What stands at each byte where two ways meet: what `choose` makes of the owners.
  template <typename Choose>
  static std::map<BufferId, Pieces> joined(const std::map<BufferId, Pieces>& a, const std::map<BufferId, Pieces>& b,
                                           const Choose& choose) {
    const auto owner_at = [](const std::map<BufferId, Pieces>& memory, BufferId space, int64_t place) {
      const auto pieces = memory.find(space);
      if (pieces == memory.end()) return kUnwritten;
      auto it = pieces->second.upper_bound(place);
      if (it == pieces->second.begin()) return kUnwritten;
      --it;
      return it->second.first > place ? it->second.second : kUnwritten;
    };
    std::map<BufferId, std::set<int64_t>> borders;  // by space
    for (const auto* memory : {&a, &b})
      for (const auto& [space, pieces] : *memory)
        for (const auto& [begin, piece] : pieces) borders[space].insert(begin), borders[space].insert(piece.first);
    std::map<BufferId, Pieces> result;
    for (const auto& [space, places] : borders)
      for (auto it = places.begin(); std::next(it) != places.end(); ++it) {
        const BufferId owner = choose(owner_at(a, space, *it), owner_at(b, space, *it), *it);
        if (owner != kUnwritten) result[space][*it] = {*std::next(it), owner};
      }
    return result;
  }

  // ---- bytes ----

  // A piece of memory: the arena of a device once it is planned (space -1 - device), else the storage of a buffer.
  struct Range {
    BufferId space = -1;
    int64_t begin = 0, end = 0;
    BufferId owner = -1;  // the root whose contents these are
  };

  // Of a view that moves with an index: all that it covers.
  Range range_of(BufferId id) const {
    const auto [root, begin] = place_in_root(program_, id);
    const auto moved = moved_.find(root);
    const BufferId home = moved == moved_.end() ? root : moved->second;
    const ProgramBuffer& r = at(home);
    const bool in_arena = r.kind == BufferKind::kArena && r.offset >= 0;
    const int64_t first = begin + (in_arena ? r.offset : 0);
    return {in_arena ? -1 - r.device : storage_buffer(program_, home), first,
            first + travel_in_root(program_, id) + at(id).bytes, root};
  }

  // Where a view begins in its root.
  Expr begin_of(BufferId id) const {
    Expr sum = 0;
    for (; at(id).alias_of >= 0; id = at(id).alias_of)
      sum = sum + (at(id).view_offset_formula ? at(id).view_offset_formula : Expr(at(id).view_offset));
    return sum;
  }

  // What has to be there when the view is read: of one that moves all that it covers, but in the first iteration of a
  // loop only its place then, if each later one reads what the one before has written.
  Range needed_range(BufferId id) const {
    Range range = range_of(id);
    if (travel_in_root(program_, id) == 0) return range;
    for (const auto& [index, written] : moving_writes_) {
      if (root_buffer(program_, written) != root_buffer(program_, id) || at(written).bytes != at(id).bytes) continue;
      const Expr begin = begin_of(id);
      const Expr ahead = substitute(begin, {{index.get(), index + Expr(1)}});
      if (as_int(simplify(ahead - begin_of(written))).value_or(1) != 0) continue;
      const Expr first = substitute(begin, {{index.get(), Expr(0)}});
      if (!is_size(first)) continue;  // it moves with the index of another loop, too
      range.begin += value_at(first, program_.symbols, largest_) - place_in_root(program_, id).begin;
      range.end = range.begin + at(id).bytes;
      break;
    }
    return range;
  }

  // Whether two views of one root, which move with an index, share no bytes in any iteration.
  bool move_apart(BufferId a, BufferId b) const {
    if (root_buffer(program_, a) != root_buffer(program_, b)) return false;
    const auto distance = as_int(simplify(begin_of(b) - begin_of(a)));
    return distance && (*distance >= at(a).bytes || -*distance >= at(b).bytes);
  }

  void write(BufferId id) {
    const Range range = range_of(id);
    if (range.begin == range.end) return;
    auto& space = memory_[range.space];
    const auto holds_contents = [&](int64_t begin, int64_t end) {
      split(space, begin);
      split(space, end);
      space.erase(space.lower_bound(begin), space.lower_bound(end));
      space[begin] = {end, range.owner};
    };
    Written::mapped_type fresh = {{range.begin, range.end}};
    if (travel_in_root(program_, id) > 0) {
      // Only a part of it is written at a time: what was written over bytes that held contents of the root is still
      // there.
      fresh = never_written(range);
      split(space, range.begin);
      split(space, range.end);
      for (auto it = space.lower_bound(range.begin); it != space.end() && it->first < range.end; ++it)
        if (it->second.second != range.owner) it->second.second = kDiffers;
    }
    for (const auto& [begin, end] : fresh) holds_contents(begin, end);
    if (!never_written(range).empty()) written_[range.owner].emplace_back(range.begin, range.end);
  }

  // The stretches of these bytes that no write has given contents of the root.
  Written::mapped_type never_written(const Range& range) const {
    Written::mapped_type rest = {{range.begin, range.end}};
    const auto it = written_.find(range.owner);
    if (it == written_.end()) return rest;
    for (const auto& [begin, end] : it->second) {
      Written::mapped_type next;
      for (const auto& [first, last] : rest) {
        if (first < std::min(begin, last)) next.emplace_back(first, std::min(begin, last));
        if (std::max(end, first) < last) next.emplace_back(std::max(end, first), last);
      }
      rest = std::move(next);
    }
    return rest;
  }

  // Makes `at` a border between pieces.
  static void split(Pieces& space, int64_t at) {
    auto it = space.lower_bound(at);
    if (it == space.begin()) return;
    --it;
    if (it->second.first <= at) return;
    space[at] = it->second;
    it->second.first = at;
  }

  // Whether any of these bytes were written as contents of the root.
  static bool is_in(const Written& written, BufferId root, int64_t begin, int64_t end) {
    const auto it = written.find(root);
    return it != written.end() && std::any_of(it->second.begin(), it->second.end(), [&](const auto& stretch) {
             return stretch.first < end && begin < stretch.second;
           });
  }

  // Empty when the bytes of `id` hold what was written to its root; else what is wrong.
  std::string contents(BufferId id) const {
    const Range range = needed_range(id);
    const auto space = memory_.find(range.space);
    int64_t place = range.begin;
    if (space != memory_.end()) {
      auto it = space->second.upper_bound(place);
      if (it != space->second.begin()) --it;
      for (; place < range.end && it != space->second.end() && it->first <= place; ++it) {
        if (it->second.first <= place) continue;
        if (it->second.second == kDiffers)
          return fmt::format("{} is read behind a branch or loop that may leave something else there", at(id).name);
        if (it->second.second != range.owner)
          return fmt::format("{} is read after {} was written over it", at(id).name, at(it->second.second).name);
        place = it->second.first;
      }
    }
    return place < range.end ? fmt::format("{} is read before it is written", at(id).name) : "";
  }

  void read(const std::string& where, BufferId id) {
    const BufferKind kind = at(id).kind;
    if (kind == BufferKind::kInput || kind == BufferKind::kWeight || at(id).bytes == 0) return;
    if (std::string problem = contents(id); !problem.empty()) report(where, problem);
  }

  // Output `i` of a call and another parameter: different bytes, or one over the other.
  void apart(const std::string& where, const KernelCall& c, size_t i, size_t j) {
    const Range out = range_of(c.args[i]);
    const Range other = range_of(c.args[j]);
    if (out.space != other.space || out.begin >= other.end || other.begin >= out.end) return;
    if (move_apart(c.args[i], c.args[j])) return;
    const LoopProgram& kernel = program_.kernels[static_cast<size_t>(c.kernel)].program;
    const size_t num_inputs = kernel.params.size() - static_cast<size_t>(kernel.num_outputs);
    const std::string what =
        fmt::format("the output {} shares bytes with parameter {}", at(c.args[i]).name, kernel.params[j]->name);
    const bool is_over = at(out.owner).over == other.owner || out.owner == other.owner;
    if (j >= num_inputs || !is_over || out.begin != other.begin || out.end != other.end) return report(where, what);
    const auto [proof, is_new] = in_place_.try_emplace({c.kernel, i, j}, "");
    if (is_new) {
      int64_t elements = 1;
      for (const Expr& dim : at(c.args[i]).type.shape) elements *= value_at(dim, program_.symbols, largest_);
      proof->second = why_not_in_place(kernel, j, i, elements);
    }
    if (!proof->second.empty()) report(where, fmt::format("{}: {}", what, proof->second));
  }

  // Of calls that a branch makes for some sizes alone: what they are given has a legal size for the others, too.
  bool agree_at_some_size(const Shape& param, const Shape& physical) const {
    constexpr int64_t kParts = 8;
    const auto count = [&](const Shape& shape, const SizePoint& point) {
      int64_t elements = 1;
      for (const Expr& dim : shape) elements *= value_at(dim, program_.symbols, point);
      return elements;
    };
    for (int64_t part = 0; part <= kParts; ++part) {
      SizePoint point;
      for (const SymbolRange& s : program_.symbols)
        point.push_back(s.lo + (s.hi - s.lo) / s.step * part / kParts * s.step);
      if (count(param, point) == count(physical, point)) return true;
    }
    return false;
  }

  // Kernels may see a buffer as one dimension.
  bool flattened(const Shape& param, const Shape& physical) const {
    if (param.size() != 1) return false;
    int64_t count = 1;
    for (const Expr& dim : physical) count *= value_at(dim, program_.symbols, largest_);
    return count == value_at(param[0], program_.symbols, largest_);
  }

  void placement() {
    bool planned = program_.arena_bytes > 0;
    for (const ProgramDevice& device : program_.devices) planned = planned || device.arena_bytes > 0;
    std::set<BufferId> used;
    for (const KernelCall& c : program_.calls)
      for (const BufferId arg : c.args)
        if (at(arg).kind == BufferKind::kArena) used.insert(root_buffer(program_, arg));
    for_each_step(program_.steps, [&](const ProgramStep& step) {
      for_each_step_buffer(step, [&](BufferId id) {
        if (at(id).kind == BufferKind::kArena) used.insert(root_buffer(program_, id));
      });
    });
    for (const BufferId id : used) planned = planned || at(id).offset >= 0;
    if (!planned) return;
    std::set<BufferId> apart;
    for (const ProgramPiece& piece : program_.pieces)
      for (size_t c = 0; piece.num_symbols > 0 && c < piece.num_calls; ++c)
        for (const BufferId arg : program_.calls[piece.first_call + c].args) apart.insert(root_buffer(program_, arg));
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const ProgramBuffer& b = program_.buffers[i];
      const bool weight = b.kind == BufferKind::kWeight;
      if (b.offset < 0 || (!weight && b.kind != BufferKind::kArena)) continue;
      const auto [root, begin] = place_in_root(program_, static_cast<BufferId>(i));
      // The arena of a piece with symbols is no part of the program's.
      const ProgramDevice* device = b.device > 0 ? &program_.devices[static_cast<size_t>(b.device) - 1] : nullptr;
      const int64_t limit = weight                   ? (device ? device->weight_bytes : program_.weight_bytes)
                            : apart.count(root) != 0 ? std::numeric_limits<int64_t>::max()
                            : device                 ? device->arena_bytes
                                                     : program_.arena_bytes;
      if ((b.offset - begin) % kBufferAlign != 0 || b.bytes > limit - b.offset)
        report("buffer " + b.name, fmt::format("{} bytes at {} of {}", b.bytes, b.offset, limit));
      if (b.offset != at(root).offset + begin) report("buffer " + b.name, "not at the place of its root");
      if (b.over >= 0 && b.offset != at(b.over).offset)
        report("buffer " + b.name, "not at the place of the buffer that it takes over");
    }
    for (const BufferId id : used)
      if (at(id).offset < 0) report("buffer " + at(id).name, "used but without a place");
  }

  const Program& program_;
  const SizePoint largest_;
  std::vector<std::string> violations_;
  std::map<BufferId, Pieces> memory_;   // by space
  std::map<BufferId, BufferId> moved_;  // where buffers that change places lie
  Written written_;
  // In the first iteration of loops: views that move with the loop's index, written by calls that it always makes.
  std::vector<std::pair<Var, BufferId>> moving_writes_;
  Timeline time_;                    // of a program with steps
  std::vector<LiveRange> alive_;     // roots
  std::vector<Var> scope_;           // indices of the loops around, and data symbols that have their values
  std::set<const ExprNode*> bound_;  // data symbols
  size_t next_call_ = 0;
  std::set<BufferId> taken_over_;
  std::map<std::tuple<int32_t, size_t, size_t>, std::string> in_place_;  // kernel, output, input: what the proof said
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return Verifier(program).run(); }

void verify_or_throw(const Program& program, std::string_view after_step) {
  const std::vector<std::string> violations = verify(program);
  if (violations.empty()) return;
  throw InternalError(fmt::format("after {}:\n  {}", after_step, fmt::join(violations, "\n  ")));
}

}  // namespace tessera::inline program
