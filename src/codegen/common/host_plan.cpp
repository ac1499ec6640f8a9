#include "codegen/common/host_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "program/donation.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline codegen {
namespace {

// Where a buffer's bytes are: views are followed to what they are views of.
struct Extent {
  const ProgramBuffer& root;
  int64_t begin, end;  // in the arena or the weights; of inputs and outputs, in the buffer itself; over all iterations
};

Extent extent_of(const Program& program, BufferId id) {
  check(id >= 0 && static_cast<size_t>(id) < program.buffers.size(), "kernel call with an unknown buffer");
  const int64_t bytes = program.buffers[static_cast<size_t>(id)].bytes + travel_in_root(program, id);
  int64_t begin = 0;
  for (size_t steps = 0; steps <= program.buffers.size(); ++steps) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    if (buffer.alias_of < 0) {
      if (buffer.kind == BufferKind::kArena || buffer.kind == BufferKind::kWeight) {
        check(buffer.offset >= 0, "buffer without an offset: " + buffer.name);
        begin += buffer.offset;
      }
      return {buffer, begin, begin + bytes};
    }
    begin += buffer.view_offset;
    id = buffer.alias_of;
  }
  throw InternalError("buffers are views of each other in a circle");
}

// Weights are never written: it does not matter whether they share bytes. An output may be bound to an input's memory
// where `aliases` says so.
bool overlap(const Extent& a, const Extent& b, const std::set<std::pair<int, int>>& aliases) {
  if (a.root.kind == BufferKind::kOutput && b.root.kind == BufferKind::kInput)
    return aliases.count({a.root.index, b.root.index}) > 0;
  if (a.root.kind == BufferKind::kInput && b.root.kind == BufferKind::kOutput) return overlap(b, a, aliases);
  if (a.root.kind != b.root.kind || a.root.kind == BufferKind::kWeight || a.root.device != b.root.device) return false;
  if (a.root.kind != BufferKind::kArena && a.root.index != b.root.index) return false;
  return a.begin < b.end && b.begin < a.end;
}

std::vector<std::vector<int>> find_alias_classes(const Program& program) {
  std::vector<std::vector<int>> result;
  for (const Kernel& kernel : program.kernels) {
    result.emplace_back(kernel.program.params.size());
    std::iota(result.back().begin(), result.back().end(), 0);
  }
  const auto pairs = program.flow ? std::vector<std::pair<int, int>>() : output_aliases(program);
  const std::set<std::pair<int, int>> aliases(pairs.begin(), pairs.end());
  for (const KernelCall& call : program.calls) {
    std::vector<int>& classes = result.at(static_cast<size_t>(call.kernel));
    check(call.args.size() == classes.size(), "kernel call with a wrong number of buffers: " +
                                                  program.kernels[static_cast<size_t>(call.kernel)].program.name);
    std::vector<Extent> extents;
    for (const BufferId arg : call.args) extents.push_back(extent_of(program, arg));
    for (size_t i = 0; i < classes.size(); ++i)
      for (size_t j = i + 1; j < classes.size(); ++j)
        if (classes[i] != classes[j] && overlap(extents[i], extents[j], aliases))
          std::replace(classes.begin(), classes.end(), int{classes[j]}, int{classes[i]});
  }
  return result;
}

// From where a buffer's root begins.
std::vector<Expr> way_to(const Program& program, BufferId id) {
  std::vector<Expr> way;
  for (BufferId at = id; program.buffers[static_cast<size_t>(at)].alias_of >= 0;) {
    const ProgramBuffer& view = program.buffers[static_cast<size_t>(at)];
    way.push_back(view.view_offset_formula ? view.view_offset_formula : Expr(view.view_offset));
    at = view.alias_of;
  }
  return way;
}

BufferAddress begin_of(const ProgramBuffer& root) {
  using Base = BufferAddress::Base;
  switch (root.kind) {
    case BufferKind::kArena: return {.base = Base::kArena, .device = root.device, .offset = root.offset};
    case BufferKind::kWeight: return {.base = Base::kWeights, .device = root.device, .offset = root.offset};
    case BufferKind::kInput: return {.base = Base::kInput, .index = root.index};
    case BufferKind::kOutput: return {.base = Base::kOutput, .index = root.index};
  }
  throw InternalError("unknown kind of buffer");
}

}  // namespace

HostPlan::HostPlan(const Program& planned)
    : program(planned), alias_classes(find_alias_classes(planned)), operations(operation_numbers(planned)) {
  for (const Kernel& kernel : program.kernels)
    argument_slots.push_back(static_cast<int64_t>(kernel.program.params.size() + 1 + kernel.program.symbols.size()));
  for_each_step(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepKind::kStart) device_of_token[step.token] = step.device;
    if (step.kind != StepKind::kLoop) return;
    index_slots_[step.index.var.get()] = num_frame_slots++;
    for (const CarriedValue& carried : step.carried) {
      if (!carried.swap) continue;
      place_slots[carried.current] = num_frame_slots++;
      place_slots[carried.next] = num_frame_slots++;
    }
  });
  if (program.symbols.empty()) return;
  parts = arena_parts(program);
  derived = derived_dims(program);
  decided = decided_dims(program);
}

std::optional<int> HostPlan::index_slot(const Expr& variable) const {
  const auto slot = index_slots_.find(variable.get());
  return slot == index_slots_.end() ? std::nullopt : std::optional(slot->second);
}

size_t HostPlan::size_slot(const Var& symbol) const {
  const auto found = std::find_if(program.symbols.begin(), program.symbols.end(),
                                  [&](const SymbolRange& known) { return known.var.same_node(symbol); });
  check(found != program.symbols.end(), "a size of an unknown symbol " + symbol->name);
  return static_cast<size_t>(found - program.symbols.begin());
}

BufferAddress HostPlan::address(BufferId id, bool open) const {
  const auto slot = place_slots.find(root_buffer(program, id));
  if (slot == place_slots.end()) return home(id, open);
  return {.base = BufferAddress::Base::kPlace, .index = slot->second, .moves = true, .way = way_to(program, id)};
}

BufferAddress HostPlan::home(BufferId id, bool open) const {
  if (!open && travel_in_root(program, id) == 0) {
    const Extent extent = extent_of(program, id);
    BufferAddress address = begin_of(extent.root);
    address.offset = extent.begin;
    return address;
  }
  const ProgramBuffer& root = program.buffers[static_cast<size_t>(root_buffer(program, id))];
  BufferAddress address = begin_of(root);
  if (root.kind == BufferKind::kArena && root.device == 0 && open) {
    const BufferId storage = storage_buffer(program, id);
    const auto part =
        std::find_if(parts.begin(), parts.end(), [&](const ArenaPart& p) { return p.storage == storage; });
    check(part != parts.end(), "a buffer without a part of the arena: " + root.name);
    address = {.base = BufferAddress::Base::kPart, .index = first_part_slot() + (part - parts.begin())};
  }
  address.moves = true;
  address.way = way_to(program, id);
  return address;
}

bool HostPlan::is_of_device(const ProgramStep& step) const {
  return step.num_calls > 0 && program.kernels[static_cast<size_t>(program.calls[step.first_call].kernel)].device > 0;
}

std::vector<CallRange> HostPlan::functions_of(size_t first, size_t end) {
  constexpr size_t kCalls = 16;
  std::vector<CallRange> functions;
  for (size_t begin = first; begin < end; begin += kCalls) functions.push_back({begin, std::min(end, begin + kCalls)});
  return functions;
}

int64_t HostPlan::argument_slots_of(const CallRange& calls) const {
  int64_t slots = 1;
  for (size_t i = calls.begin; i < calls.end; ++i)
    slots = std::max(slots, argument_slots[static_cast<size_t>(program.calls[i].kernel)]);
  return slots;
}

}  // namespace tessera::inline codegen
