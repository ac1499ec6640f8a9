#include "program/value_locations.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

struct Write {
  int32_t call = 0;
  int64_t begin = 0, end = 0;  // bytes of the root
  bool in_block = false;
};

// For each step along a logical axis how far the physical index moves: the stride of a whole axis, or those of its
// quotient and remainder.
struct AxisSteps {
  struct Part {
    int64_t divide = 1, modulo = 0, stride = 0;  // (index / divide) % modulo * stride; modulo 0: none
  };
  std::vector<Part> parts;

  int64_t offset(int64_t index) const {
    int64_t sum = 0;
    for (const Part& part : parts) {
      int64_t i = index / part.divide;
      if (part.modulo > 0) i %= part.modulo;
      sum += i * part.stride;
    }
    return sum;
  }
};

std::vector<AxisSteps> steps_of(const TensorType& type) {
  const auto physical = static_dims(physical_shape(type.shape, type.layout));
  check(physical.has_value(), "a value without a fixed shape");
  std::vector<AxisSteps> steps(type.shape.size());
  int64_t stride = 1;
  for (size_t d = type.layout.dims.size(); d-- > 0;) {
    const LayoutDim& dim = type.layout.dims[d];
    AxisSteps::Part part;
    if (dim.part == LayoutDim::Part::kQuotient) part.divide = dim.block;
    if (dim.part == LayoutDim::Part::kRemainder) part.modulo = dim.block;
    part.stride = stride;
    steps[static_cast<size_t>(dim.axis)].parts.push_back(part);
    stride *= (*physical)[d];
  }
  return steps;
}

}  // namespace

std::vector<ValuePlace> value_locations(const Program& program) {
  if (!program.symbols.empty()) return {};                         // where things are is a matter of the run's sizes
  std::vector<std::vector<Write>> writes(program.buffers.size());  // by root
  std::vector<bool> in_block(program.calls.size(), false);
  for (const ProgramStep& step : program.steps)
    for (const StepBlock& block : step.blocks)
      for_each_step(block, [&](const ProgramStep& inner) {
        for (size_t i = 0; i < inner.num_calls; ++i) in_block[inner.first_call + i] = true;
      });
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const KernelCall& call = program.calls[i];
    const auto results = static_cast<size_t>(program.kernels[static_cast<size_t>(call.kernel)].program.num_outputs);
    for (size_t k = call.args.size() - std::min(results, call.args.size()); k < call.args.size(); ++k) {
      const auto [root, begin] = place_in_root(program, call.args[k]);
      if (root < 0) continue;
      const int64_t bytes = program.buffers[static_cast<size_t>(call.args[k])].bytes;
      writes[static_cast<size_t>(root)].push_back({static_cast<int32_t>(i), begin, begin + bytes, in_block[i]});
    }
  }
  std::set<BufferId> carried;  // roots that a loop hands on, or whose bytes change places with others'
  for_each_step(program.steps, [&](const ProgramStep& step) {
    for (const CarriedValue& value : step.carried)
      for (const BufferId id : {value.current, value.next}) carried.insert(place_in_root(program, id).root);
  });
  std::vector<ValuePlace> places;
  for (size_t id = 0; id < program.buffers.size(); ++id) {
    const ProgramBuffer& buffer = program.buffers[id];
    const auto [root_id, begin] = place_in_root(program, static_cast<BufferId>(id));
    if (root_id < 0 || !buffer.type.is_static()) continue;
    const ProgramBuffer& root = program.buffers[static_cast<size_t>(root_id)];
    const bool is_result =
        root.kind == BufferKind::kOutput && root.index < static_cast<int32_t>(program.num_own_outputs());
    if (root.device != 0 || (root.kind != BufferKind::kArena && !is_result)) continue;
    int32_t last = -1;
    int64_t written = 0;
    bool in_loop = carried.count(root_id) != 0;
    for (const Write& write : writes[static_cast<size_t>(root_id)]) {
      const int64_t common = std::min(write.end, begin + buffer.bytes) - std::max(write.begin, begin);
      if (common <= 0) continue;
      // A block may write it again after that call, or not at all.
      in_loop |= write.in_block;
      written += common;
      last = std::max(last, write.call);
    }
    if (last < 0 || in_loop || written < buffer.bytes) continue;
    const bool in_arena = root.kind == BufferKind::kArena;
    places.push_back(
        {buffer.name, buffer.type, root.kind, in_arena ? -1 : root.index, begin + (in_arena ? root.offset : 0), last});
  }
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.call < b.call; });
  return places;
}

Tensor read_value(const TensorType& type, const std::byte* bytes) {
  Tensor result(type.dtype, type.dims());
  if (type.layout.row_major()) {
    std::memcpy(result.mutable_bytes(), bytes, static_cast<size_t>(result.num_bytes()));
    return result;
  }
  const int64_t element = dtype_bits(type.dtype) / 8;
  check(element > 0, "elements of less than a byte have no layouts");
  const std::vector<AxisSteps> steps = steps_of(type);
  const std::vector<int64_t>& dims = result.dims();
  std::vector<int64_t> index(dims.size(), 0);
  const int64_t count = result.num_elements();
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d) at += steps[d].offset(index[d]);
    std::memcpy(result.mutable_bytes() + flat * element, bytes + at * element, static_cast<size_t>(element));
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return result;
}

}  // namespace tessera::inline program
