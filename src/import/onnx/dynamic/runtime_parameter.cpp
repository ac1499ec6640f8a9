#include "import/onnx/dynamic/runtime_parameter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// All sets of `count` axes below `rank` that lead to the shape that is wanted.
std::vector<Ints> candidates(const AxisChoice& choice, int64_t count) {
  std::vector<Ints> found;
  Ints axes;
  const std::function<void(int64_t)> extend = [&](int64_t next) {
    if (std::ssize(axes) == count) {
      if (const auto shape = choice.shape_of(axes); shape && *shape == choice.shape) found.push_back(axes);
      return;
    }
    for (int64_t axis = next; axis + (count - std::ssize(axes)) <= choice.rank; ++axis) {
      axes.push_back(axis);
      extend(axis + 1);
      axes.pop_back();
    }
  };
  extend(0);
  return found;
}

int64_t bits_of(const Ints& axes) {
  int64_t bits = 0;
  for (const int64_t axis : axes) bits |= int64_t{1} << axis;
  return bits;
}

// One bit for each axis. A set of n axes has n bits; n axes that are out of range or repeated add up to fewer bits
// below the rank, or to some above it, so that no other list has the sum of a set.
ValueId runtime_bits(NodeContext& c, ValueId axes, int rank) {
  const ValueId negative = c.op("lt", {axes, c.integer(0)});
  const ValueId place = c.op("select", {negative, c.add(axes, c.integer(rank)), axes});
  return c.reduce("sum", c.op("shift_left", {c.integer(1), place}), {0}, false);
}

ValueId any_of(NodeContext& c, ValueId value, const Ints& legal) {
  ValueId result = c.op("eq", {value, c.integer(legal[0])});
  for (size_t i = 1; i < legal.size(); ++i)
    result = c.op("logical_or", {result, c.op("eq", {value, c.integer(legal[i])})});
  return result;
}

}  // namespace

std::string dims_text(const Ints& dims) { return fmt::format("[{}]", fmt::join(dims, ",")); }

ValueId runtime_ints(NodeContext& c, int i, const std::string& name) {
  const ValueId value = c.in(i);
  if (!is_int(c.dtype(value)) || c.rank(value) > 1)
    c.malformed(fmt::format("{} is {}", c.input_name(i, name), c.type(value).to_string()), "a list of integers");
  return c.reshape(c.cast(value, DType::kI64), {c.num_elements(value)});
}

ValueId all_among(NodeContext& c, ValueId values, const std::vector<Ints>& legal) {
  const auto count = static_cast<int64_t>(legal.size());
  size_t widest = 1;
  for (const Ints& list : legal) widest = std::max(widest, list.size());
  Ints table;
  for (const Ints& list : legal)
    for (size_t k = 0; k < widest; ++k) table.push_back(k < list.size() ? list[k] : list[0]);
  const auto columns = static_cast<int64_t>(widest);
  const ValueId same = c.op("eq", {c.reshape(values, {count, 1}), c.reshape(c.ints(table), {count, columns})});
  const ValueId any = c.reduce("max", c.cast(same, DType::kI32), {1}, false);
  return c.cast(c.reduce("min", any, {0}, false), DType::kBool);
}

ValueId all_equal(NodeContext& c, ValueId a, ValueId b) {
  return c.cast(c.reduce("min", c.cast(c.op("eq", {a, b}), DType::kI32), {0}, false), DType::kBool);
}

void require_among(NodeContext& c, int i, const std::string& name, const std::vector<Ints>& legal,
                   const std::string& text) {
  const ValueId values = runtime_ints(c, i, name);
  if (c.num_elements(values) != std::ssize(legal))
    c.malformed(fmt::format("{} has {} elements", c.input_name(i, name), c.num_elements(values)),
                fmt::format("{} elements", legal.size()));
  c.check_when_run(i, name, all_among(c, values, legal), values, text);
}

void require_ints(NodeContext& c, int i, const std::string& name, const Ints& legal) {
  const ValueId value = c.in(i);
  const auto count = static_cast<int64_t>(legal.size());
  if (c.num_elements(value) != count || c.rank(value) > 1)
    c.malformed(fmt::format("{} is {}", c.input_name(i, name), c.type(value).to_string()),
                fmt::format("{} element{}", count, count == 1 ? "" : "s"));
  const ValueId values = c.reshape(c.cast(value, DType::kI64), {count});
  c.check_when_run(i, name, all_equal(c, values, c.ints(legal)), values,
                   count == 1 ? fmt::format("{}", legal[0]) : fmt::format("[{}]", fmt::join(legal, ", ")));
}

Ints ints_or_expected(NodeContext& c, int i, const std::string& name, const std::function<Ints()>& expected) {
  if (!c.is_runtime(i)) return c.const_ints(i, name);
  const Ints values = expected();
  require_ints(c, i, name, values);
  return values;
}

Shape sizes_or_expected(NodeContext& c, int i, const std::string& name, const std::function<Ints()>& expected) {
  if (!c.is_runtime(i)) return c.const_sizes(i, name);
  return make_shape(ints_or_expected(c, i, name, expected));
}

void require_count(NodeContext& c, int output, int axis, ValueId found, int64_t declared) {
  c.check_when_run(fmt::format("the extent of dimension {} of '{}' (output {})", axis, c.output_name(output), output),
                   c.op("eq", {found, c.integer(declared)}), c.reshape(found, {1}),
                   fmt::format("{}, as the model declares", declared));
}

void require_shape(NodeContext& c, int output, ValueId shape, const Ints& declared, std::optional<ValueId> holds) {
  if (declared.empty()) return;
  ValueId same = all_equal(c, shape, c.ints(declared));
  if (holds) same = c.op("logical_and", {same, c.reshape(*holds, {})});
  c.check_when_run(fmt::format("the shape of '{}' (output {})", c.output_name(output), output), same, shape,
                   fmt::format("the declared shape [{}]", fmt::join(declared, ", ")));
}

PerAxis per_axis(NodeContext& c, ValueId axes, const std::vector<ValueId>& lists, int rank) {
  const int64_t count = c.num_elements(axes);
  const ValueId zero = c.integer(0);
  const ValueId place = c.op("select", {c.op("lt", {axes, zero}), c.add(axes, c.integer(rank)), axes});
  const ValueId here = c.op("eq", {c.reshape(place, {count, 1}), c.iota({1, rank}, 1)});  // [n, rank]
  const ValueId times = c.reduce("sum", c.cast(here, DType::kI64), {0}, false);
  PerAxis result{c.op("gt", {times, zero}), {}, -1};
  for (const ValueId list : lists)
    result.values.push_back(c.reduce("sum", c.op("select", {here, c.reshape(list, {count, 1}), zero}), {0}, false));
  // n axes that are in range and differ are found n times in all, and none of them twice.
  const ValueId found = c.reduce("sum", c.cast(result.named, DType::kI64), {0}, false);
  result.legal = c.op("eq", {found, c.integer(count)});
  return result;
}

ValueId element(NodeContext& c, ValueId list, int64_t d) { return c.reshape(c.slice(list, {d}, {1}, {1}), {}); }

ValueId take_clamped(NodeContext& c, ValueId x, int64_t axis, ValueId places) {
  return c.op("gather", {x, c.op("max", {places, c.integer(0)})}, {{"axis", axis}});
}

ValueId choose_axes(NodeContext& c, int i, const std::string& name, const AxisChoice& choice) {
  constexpr size_t kMostResults = 8;
  constexpr int kLargestRank = 16;
  const ValueId axes = runtime_ints(c, i, name);
  const int64_t count = c.num_elements(axes);
  const std::string wanted = fmt::format("the declared shape {} of '{}'", dims_text(choice.shape), c.output_name(0));
  if (choice.rank > kLargestRank) c.unsupported(fmt::format("run-time axes of more than {} dimensions", kLargestRank));
  const std::vector<Ints> sets = candidates(choice, count);
  if (sets.empty())
    c.unsupported(fmt::format("{} has {} element{}, and no such axes of the operand lead to {}", c.input_name(i, name),
                              count, count == 1 ? "" : "s", wanted));
  std::map<Ints, std::vector<Ints>> groups;  // by key
  for (const Ints& set : sets) groups[choice.key(set)].push_back(set);
  if (groups.size() > kMostResults)
    c.unsupported(
        fmt::format("{} must be known while compiling, but it depends on the model's inputs, and {} lists "
                    "of axes lead to {}",
                    c.input_name(i, name), sets.size(), wanted));
  const ValueId bits = runtime_bits(c, axes, choice.rank);
  std::optional<ValueId> result, legal;
  for (const auto& [key, members] : groups) {
    Ints codes;
    for (const Ints& set : members) codes.push_back(bits_of(set));
    const ValueId meant = any_of(c, bits, codes);
    const ValueId value = c.reshape(choice.compute(members[0]), choice.shape);
    result = result ? c.op("select", {meant, value, *result}) : value;
    legal = legal ? c.op("logical_or", {*legal, meant}) : meant;
  }
  std::string text;
  for (size_t k = 0; k < sets.size() && k < 4; ++k)
    text += (k ? " or " : "") +
            (sets[k].size() == 1 ? fmt::format("{}", sets[k][0]) : fmt::format("[{}]", fmt::join(sets[k], ", ")));
  if (sets.size() > 4) text += " or others";
  c.check_when_run(i, name, *legal, axes, fmt::format("{}, for {}", text, wanted));
  return *result;
}

}  // namespace tessera::inline onnx_import
