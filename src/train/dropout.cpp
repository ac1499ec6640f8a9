#include "train/dropout.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "support/error.h"

namespace tessera::inline train {
namespace {

// A bijection of 32 bits all of whose output bits depend on all input bits (Wellons, hash-prospector, 2018).
constexpr uint32_t kFirst = 0x21f0aaad, kSecond = 0xd35a2d97;
constexpr uint32_t kOfElements = 0x9e3779b9;  // between the two keys of a dropout

uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= kFirst;
  x ^= x >> 15;
  x *= kSecond;
  return x ^ (x >> 15);
}

struct Bits {
  const GraphOps& o;

  ValueId number(uint32_t value) const {
    Tensor tensor(DType::kU32, {});
    tensor.set_int(0, static_cast<int64_t>(value));
    return o.op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId exclusive_or(ValueId a, ValueId b) const { return o.op("bitwise_xor", {a, b}); }
  ValueId folded(ValueId x, uint32_t by) const { return exclusive_or(x, o.op("shift_right", {x, number(by)})); }
  ValueId mixed(ValueId x) const {
    x = o.mul(folded(x, 16), number(kFirst));
    x = o.mul(folded(x, 15), number(kSecond));
    return folded(x, 15);
  }
};

uint32_t key_of(uint64_t seed, int64_t which) {
  const uint32_t low = mixed(static_cast<uint32_t>(seed) ^ mixed(static_cast<uint32_t>(which)));
  return mixed(low ^ static_cast<uint32_t>(seed >> 32));
}

bool is_dropout(const Node& node) {
  return node.op->kind == OpKind::kComposite && node.attrs.get_or<std::string>("name", "") == "dropout";
}

constexpr int64_t kOfIterations = 0x9e3779b1;  // so that iterations of one step are not those of the next

// With inputs more at the end: the number of the step and, where the batch has parts, of the part. `counts`: input 0 is
// the number of an iteration.
Graph with_dropouts(const Graph& region, const OpTable& ops, bool counts, bool has_parts, DropoutNumbers& numbers) {
  Graph result;
  result.copy_header(region);
  std::vector<ValueId> map(region.values().size(), -1);
  for (const ValueId input : region.inputs)
    map[static_cast<size_t>(input)] = result.add_input(region.value(input).name, region.type(input));
  DropoutPlace at;
  at.step = result.add_input(result.unique_name("training.step"), {DType::kI64, {}, {}});
  if (has_parts) at.part = result.add_input(result.unique_name("training.part"), {DType::kI64, {}, {}});
  GraphBuilder builder(result);
  const GraphOps o{builder, ops};
  if (counts)
    at.step = o.add(o.mul(o.plus(at.step, 1), o.integer(kOfIterations)), map[static_cast<size_t>(region.inputs[0])]);
  for (const Node& node : region.nodes()) {
    std::vector<ValueId> operands;
    for (const ValueId input : node.inputs) operands.push_back(map[static_cast<size_t>(input)]);
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(region.value(output).name);
    builder.set_loc(node.loc);
    const std::vector<ValueId> results =
        is_dropout(node) ? std::vector<ValueId>{dropped(o, operands[0], node.attrs.get<double>("ratio"),
                                                        seed_of(node, numbers), at, numbers.next++)}
                         : dropped_in_regions(builder, ops, node, operands, names, at, numbers);
    for (size_t i = 0; i < results.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  for (const ValueId output : region.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  return result;
}

}  // namespace

uint64_t seed_of(const Node& dropout, const DropoutNumbers& numbers) {
  return static_cast<uint64_t>(dropout.attrs.get_or<int64_t>("seed", static_cast<int64_t>(numbers.seed)));
}

bool has_dropouts(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return is_dropout(node) || std::any_of(node.regions.begin(), node.regions.end(),
                                           [](const GraphPtr& region) { return has_dropouts(*region); });
  });
}

std::vector<ValueId> dropped_in_regions(GraphBuilder& builder, const OpTable& ops, const Node& node,
                                        std::vector<ValueId> operands, std::vector<std::string> names,
                                        const DropoutPlace& at, DropoutNumbers& numbers) {
  const bool is_flow = node.op->kind == OpKind::kIf || node.op->kind == OpKind::kLoop;
  std::vector<GraphPtr> regions = node.regions;
  if (is_flow && std::any_of(regions.begin(), regions.end(), [](const GraphPtr& r) { return has_dropouts(*r); })) {
    for (GraphPtr& region : regions)
      region = std::make_shared<const Graph>(
          with_dropouts(*region, ops, node.op->kind == OpKind::kLoop, at.part >= 0, numbers));
    operands.push_back(at.step);
    if (at.part >= 0) operands.push_back(at.part);
  }
  return builder.add_multi(*node.op, std::move(operands), node.attrs, std::move(regions), std::move(names));
}

uint32_t random_bits(uint64_t seed, int64_t step, int64_t which, uint32_t element) {
  const uint32_t first = mixed(key_of(seed, which) ^ static_cast<uint32_t>(step));
  const uint32_t second = mixed(first ^ kOfElements);
  return mixed(mixed(element ^ first) ^ second);
}

ValueId dropped(const GraphOps& o, ValueId x, double ratio, uint64_t seed, const DropoutPlace& at, int64_t which) {
  check(ratio >= 0 && ratio <= 1, "a part of the elements");
  if (ratio == 0) return x;
  const Bits bits{o};
  const TensorType type = o.type(x);
  const ValueId first = bits.mixed(bits.exclusive_or(o.cast(at.step, DType::kU32), bits.number(key_of(seed, which))));
  const ValueId second = bits.mixed(bits.exclusive_or(first, bits.number(kOfElements)));
  // The element's place in row-major order, dimension by dimension.
  const std::vector<int64_t> dims = type.dims();
  ValueId place = -1;
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
    if (dims[d] == 1) continue;
    const ValueId along =
        o.op("iota", {}, {{"shape", type.shape}, {"axis", static_cast<int64_t>(d)}, {"dtype", DType::kU32}});
    const ValueId step_along = stride == 1 ? along : o.mul(along, bits.number(static_cast<uint32_t>(stride)));
    place = place < 0 ? step_along : o.add(place, step_along);
  }
  if (place < 0) place = bits.number(0);
  if (at.part >= 0)  // behind the elements of all parts before
    place = o.add(place, o.mul(o.cast(at.part, DType::kU32), bits.number(static_cast<uint32_t>(type.num_elements()))));
  const ValueId random = bits.mixed(bits.exclusive_or(bits.mixed(bits.exclusive_or(place, first)), second));
  const double bound = std::ldexp(ratio, 32);
  const auto last = static_cast<uint32_t>(std::min(bound, std::ldexp(1, 32) - 1));
  const ValueId stays = o.op("ge", {random, bits.number(last)});
  const ValueId zero = o.scalar(0, type.dtype);
  if (ratio == 1) return o.mul(x, zero);
  return o.op("select", {stays, o.times(x, 1 / (1 - ratio)), zero});
}

}  // namespace tessera::inline train
