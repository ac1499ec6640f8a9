#include "accel/simulate.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "accel/queue_race.h"
#include "arith/simplify.h"
#include "interp/loop_interp.h"
#include "support/error.h"

namespace tessera::inline accel {

namespace {

// ---- how long it takes ----

int64_t multiply_adds_of_a_step(const UnitInstruction& kind) {
  int64_t count = 0;
  const std::function<void(const Stmt&, int64_t)> visit = [&](const Stmt& s, int64_t times) {
    if (s->kind == StmtKind::kFor) times *= as_int(s->extent).value_or(1);
    if (s->kind == StmtKind::kStore) {
      bool multiplies = false, adds = false;
      walk(s->value, [&](const Expr& e) {
        adds = adds || (e->kind == ExprKind::kLoad && e->buffer == s->buffer);
        multiplies = multiplies || (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul &&
                                    !as_int(e->operands[0]) && !as_int(e->operands[1]));
      });
      if (multiplies && adds) count += times;
    }
    for (const Stmt& child : s->stmts) visit(child, times);
  };
  visit(kind.intrinsic->pattern()->body, 1);
  return count;
}

// Bytes that DRAM moves for it, in whole bursts of places that lie behind one another.
int64_t dram_bytes_of(const Accelerator& unit, const StreamInstruction& instruction, size_t operand) {
  const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
  const int64_t bytes = core_bytes(kind, operand), burst = unit.dram_burst;
  int64_t total = 0, begin = 0, end = -1;
  const auto flush = [&] {
    if (end > begin) total += ((end + burst - 1) / burst - begin / burst) * burst;
  };
  for_each_access(unit, instruction, [&](size_t p, int64_t address) {
    if (p != operand) return;
    if (address != end) {
      flush();
      begin = address;
    }
    end = address + bytes;
  });
  flush();
  return total;
}

}  // namespace

int64_t instruction_cycles(const UnitInstruction& kind, const std::vector<int64_t>& extents) {
  VarMap numbers;
  for (size_t l = 0; l < extents.size(); ++l) numbers[kind.extents[l].get()] = Expr(extents[l]);
  const auto cycles = as_int(simplify(substitute(kind.cycles, numbers)));
  check(cycles.has_value(), "cycles are an expression of extents");
  return std::max<int64_t>(*cycles, 1);
}

LoopProgram instruction_loops(const UnitInstruction& kind) {
  const LoopProgram& kernel = *kind.intrinsic->pattern();
  LoopProgram result;
  result.name = kernel.name;
  result.num_outputs = kernel.num_outputs;
  std::vector<Var> steps, extents;
  const auto symbol = [&](const std::string& name) {
    result.symbols.push_back(make_var(name));
    return result.symbols.back();
  };
  for (int l = 0; l < kind.loops; ++l) {
    steps.push_back(make_var(fmt::format("at{}", l)));
    extents.push_back(symbol(fmt::format("n{}", l)));
  }
  struct Place {
    BufferPtr memory;
    Expr base, inside;
  };
  std::map<const Buffer*, Place> places;
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    const BufferPtr& param = kernel.params[p];
    Place place;
    place.memory = make_buffer(param->name, param->dtype, {symbol(param->name + "_size")});
    place.base = symbol(param->name + "_base");
    std::vector<Var> strides;
    for (int l = 0; l < kind.loops; ++l) strides.push_back(symbol(fmt::format("{}_stride{}", param->name, l)));
    for (size_t l = 0; l < steps.size(); ++l) {
      Expr step = steps[l];
      if (kind.padded[p]) {
        const Var begin = symbol(fmt::format("{}_begin{}", param->name, l)),
                  end = symbol(fmt::format("{}_end{}", param->name, l));
        const Expr within = logical_and(begin <= steps[l], steps[l] < end);
        place.inside = place.inside ? logical_and(place.inside, within) : within;
        step = step - begin;
      }
      place.base = place.base + step * strides[l];
    }
    result.params.push_back(place.memory);
    places[param.get()] = std::move(place);
  }
  result.symbols.insert(result.symbols.end(), kernel.symbols.begin(), kernel.symbols.end());
  const auto flat = [&](const Buffer& param, const Place& place, const std::vector<Expr>& indices) {
    Expr at = 0;
    for (size_t d = 0; d < indices.size(); ++d) at = at * param.shape[d] + indices[d];
    return place.base + at;
  };
  result.body = transform(
      kernel.body,
      [&](const Expr& e) -> Expr {
        if (e->kind != ExprKind::kLoad) return {};
        const auto it = places.find(e->buffer.get());
        if (it == places.end()) return {};
        const Expr element = load(it->second.memory, {flat(*e->buffer, it->second, e->operands)});
        if (!it->second.inside) return element;
        return select(it->second.inside, element, const_of(e.dtype(), 0));
      },
      [&](const Stmt& s) -> Stmt {
        if (s->kind != StmtKind::kStore) return {};
        const auto it = places.find(s->buffer.get());
        return it == places.end() ? Stmt()
                                  : store(it->second.memory, {flat(*s->buffer, it->second, s->indices)}, s->value);
      });
  for (size_t l = steps.size(); l-- > 0;)
    result.body = for_loop(steps[l], 0, extents[l], ForKind::kSerial, result.body);
  return result;
}

std::vector<std::vector<std::byte>> run_stream(const Accelerator& unit,
                                               const std::vector<StreamInstruction>& instructions,
                                               std::span<Tensor* const> segments) {
  std::vector<std::vector<std::byte>> memories;
  for (const UnitMemory& memory : unit.memories)
    memories.emplace_back(static_cast<size_t>(memory.bytes), std::byte{0xA5});
  std::map<int, LoopProgram> programs;
  for (const StreamInstruction& instruction : instructions) {
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    auto it = programs.find(instruction.kind);
    if (it == programs.end()) it = programs.emplace(instruction.kind, instruction_loops(kind)).first;
    std::vector<BufferView> views;
    std::vector<int64_t> numbers(instruction.extents);
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      const UnitOperand& operand = instruction.operands[p];
      const DType dtype = it->second.params[p]->dtype;
      const int64_t width = dtype_bytes(dtype, 1);
      std::byte* data = nullptr;
      int64_t bytes = 0;
      if (kind.operands[p] == kDram) {
        Tensor& segment = *segments[static_cast<size_t>(operand.segment)];
        data = is_written(kind, p) ? segment.mutable_bytes() : const_cast<std::byte*>(segment.bytes());
        bytes = segment.num_bytes();
      } else {
        std::vector<std::byte>& memory = memories[static_cast<size_t>(kind.operands[p])];
        data = memory.data();
        bytes = static_cast<int64_t>(memory.size());
      }
      views.push_back({dtype, {bytes / width}, data, is_written(kind, p)});
      numbers.push_back(bytes / width);
      numbers.push_back(operand.base / width);
      for (const int64_t stride : operand.strides) numbers.push_back(stride / width);
      if (kind.padded[p])
        for (const auto& [begin, end] : operand.inside) numbers.push_back(begin), numbers.push_back(end);
    }
    numbers.insert(numbers.end(), instruction.immediates.begin(), instruction.immediates.end());
    interpret(it->second, views, numbers);
  }
  return memories;
}

double SimulatedRun::utilisation() const {
  return cycles && peak_per_cycle ? static_cast<double>(multiply_adds) / static_cast<double>(cycles * peak_per_cycle)
                                  : 0;
}

SimulatedRun simulate(const Accelerator& unit, const InstructionStream& stream) {
  const size_t queues = unit.queues.size(), count = stream.instructions.size();
  SimulatedRun run;
  run.queues.resize(queues);
  for (SimulatedQueue& queue : run.queues) queue.waits_for.assign(queues, 0);
  run.steps.resize(count);
  QueueRace race(unit, stream);
  for (const UnitInstruction& kind : unit.instructions)
    run.peak_per_cycle = std::max(run.peak_per_cycle, multiply_adds_of_a_step(kind));
  std::vector<int64_t> fetched(count, -1), free(queues, 0);
  size_t left = count;
  int64_t fetch_time = 0, port = 0;
  while (left) {
    // Instructions are fetched while there is room in their queues.
    std::optional<size_t> room_by;
    while (const std::optional<size_t> i = race.fetch(room_by)) {
      fetch_time = std::max(fetch_time + unit.fetch_cycles, room_by ? run.steps[*room_by].begin : 0);
      fetched[*i] = fetch_time;
    }
    // The instruction that can begin first.
    std::optional<size_t> chosen;
    int64_t earliest = 0, late = 0;
    std::optional<size_t> giver_of_chosen;
    for (size_t own = 0; own < queues; ++own) {
      const std::optional<size_t> head = race.head(own);
      if (!head || !race.is_fetched(*head)) continue;
      const size_t i = *head;
      const std::optional<std::vector<size_t>> givers = race.givers(i);
      if (!givers) continue;
      int64_t tokens = 0;
      std::optional<size_t> giver;
      for (const size_t given : *givers)
        if (run.steps[given].end > tokens) {
          tokens = run.steps[given].end;
          giver = race.queue_of(given);
        }
      const int64_t begin = std::max({free[own], fetched[i], tokens});
      if (chosen && begin >= earliest) continue;
      chosen = i;
      earliest = begin;
      late = begin - free[own];
      giver_of_chosen = tokens == begin && tokens > fetched[i] ? giver : std::nullopt;
    }
    if (!chosen) {
      run.problem = "queues wait for tokens that nobody gives, or for instructions behind a full queue";
      return run;
    }
    const size_t i = *chosen, own = race.queue_of(i);
    const StreamInstruction& instruction = stream.instructions[i];
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    SimulatedQueue& queue = run.queues[own];
    if (late > 0) (giver_of_chosen ? queue.waits_for[*giver_of_chosen] : queue.waits_for_instructions) += late;
    int64_t end = earliest + instruction_cycles(kind, instruction.extents);
    if (const int dram = kind.dram_operand(); dram >= 0) {
      const int64_t bytes = dram_bytes_of(unit, instruction, static_cast<size_t>(dram));
      if (bytes > 0) {
        const int64_t transfer = (bytes + unit.dram_bytes_per_cycle - 1) / unit.dram_bytes_per_cycle;
        port = std::max(earliest + unit.dram_latency, port) + transfer;
        end = std::max(end, port);
        run.dram_bytes += bytes;
        run.dram_busy += transfer;
      }
    }
    run.steps[i] = {earliest, end};
    run.multiply_adds += steps_of(instruction) * multiply_adds_of_a_step(kind);
    queue.busy += end - earliest;
    free[own] = end;
    run.cycles = std::max(run.cycles, end);
    race.run(i);
    --left;
  }
  return run;
}

}  // namespace tessera::inline accel
