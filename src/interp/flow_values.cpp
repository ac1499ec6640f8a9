#include "interp/flow_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "support/error.h"

namespace tessera::inline interp {
namespace {

using Ints = std::vector<int64_t>;
using Operands = std::vector<const RunValue*>;

const char* kind_text(const RunValue* value) {
  if (!value) return "nothing";
  switch (value->kind) {
    case ValueKind::kTensor: return "a tensor";
    case ValueKind::kSequence: return "a sequence";
    case ValueKind::kOptional: return "an optional";
    default: return "a map";
  }
}

int64_t product(const Ints& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

Ints unravel(int64_t flat, const Ints& dims) {
  Ints index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = flat % dims[d];
    flat /= dims[d];
  }
  return index;
}

int64_t ravel(const Ints& index, const Ints& dims) {
  int64_t flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + index[d];
  return flat;
}

// The tensor of shape `dims` whose element at each index is that of x at another.
template <typename At>
Tensor rearranged(const Tensor& x, const Ints& dims, const At& at) {
  Ints places;
  for (int64_t flat = 0; flat < product(dims); ++flat) places.push_back(ravel(at(unravel(flat, dims)), x.dims()));
  return take(x, places, dims);
}

const std::vector<RunValue>& sequence_of(const FlowStep& step, const RunValue* value) {
  if (!value || value->kind != ValueKind::kSequence)
    fail_step(step, fmt::format("an operand is {}; legal: a sequence", kind_text(value)));
  return value->items;
}

int64_t place_of(const FlowStep& step, const RunValue& position, int64_t count, bool behind) {
  const int64_t place = number_of(step, position, "position");
  const int64_t last = behind ? count : count - 1;
  if (place >= -count && place <= last) return place < 0 ? place + count : place;
  if (last < 0)
    fail_step(step, fmt::format("position {} of a sequence without elements; legal: a sequence with elements", place));
  fail_step(step, fmt::format("position {} of a sequence of {} elements; legal: {} to {}", place, count, -count, last));
}

// An empty sequence takes what its slot was made for, which its compiler has seen to.
void require_element(const FlowStep& step, const std::vector<RunValue>& items, const RunValue& item) {
  if (!item.is_tensor() || (!items.empty() && items[0].tensor.dtype() != item.tensor.dtype()))
    fail_step(step, fmt::format("an element {} for a sequence of {}; legal: elements of one type",
                                item.is_tensor() ? dtype_name(item.tensor.dtype()) : kind_text(&item),
                                items.empty() ? "?" : dtype_name(items[0].tensor.dtype())));
}

RunValue insert(const FlowStep& step, const Operands& in) {
  std::vector<RunValue> items = sequence_of(step, in[0]);
  const int64_t place = in[2] ? place_of(step, *in[2], std::ssize(items), true) : std::ssize(items);
  require_element(step, items, *in[1]);
  items.insert(items.begin() + place, *in[1]);
  return {ValueKind::kSequence, std::move(items)};
}

RunValue erase(const FlowStep& step, const Operands& in) {
  std::vector<RunValue> items = sequence_of(step, in[0]);
  if (!in[1] && items.empty()) fail_step(step, "a sequence without elements; legal: a sequence with elements");
  items.erase(items.begin() + (in[1] ? place_of(step, *in[1], std::ssize(items), false) : std::ssize(items) - 1));
  return {ValueKind::kSequence, std::move(items)};
}

RunValue length(const FlowStep& step, const Operands& in) {
  const size_t count = sequence_of(step, in[0]).size();
  for (const RunValue* list : in)
    if (const size_t other = sequence_of(step, list).size(); other != count)
      fail_step(step, fmt::format("sequences of {} and {} elements; legal: equal lengths", count, other));
  Tensor result(DType::kI64, {});
  result.set_int(0, static_cast<int64_t>(count));
  return result;
}

RunValue split(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  const auto rank = std::ssize(x.dims());
  const int64_t axis = step.ints[0] < 0 ? step.ints[0] + rank : step.ints[0];
  if (axis < 0 || axis >= rank)
    fail_step(step, fmt::format("axis {} of a tensor of rank {}; legal: an axis of it", step.ints[0], rank));
  const int64_t extent = x.dims()[static_cast<size_t>(axis)];
  Ints sizes;
  if (!in[1]) {
    sizes.assign(static_cast<size_t>(extent), 1);
  } else if (in[1]->tensor.dims().empty()) {
    const int64_t each = number_of(step, *in[1], "split");
    if (each < 1) fail_step(step, fmt::format("split is {}; legal: 1 or more", each));
    for (int64_t begin = 0; begin < extent; begin += each) sizes.push_back(std::min(each, extent - begin));
  } else {
    sizes = ints_of(step, *in[1], "split");
    int64_t sum = 0;
    bool fits = true;
    for (const int64_t size : sizes) fits = fits && size >= 0 && !__builtin_add_overflow(sum, size, &sum);
    if (!fits || sum != extent)
      fail_step(step,
                fmt::format("split has {} parts, which do not add up to dimension {} of {} elements; legal: parts "
                            "of 0 or more elements that do",
                            sizes.size(), axis, extent));
  }
  std::vector<RunValue> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    Ints dims = x.dims();
    dims[static_cast<size_t>(axis)] = size;
    Tensor part = rearranged(x, dims, [&](Ints index) {
      index[static_cast<size_t>(axis)] += begin;
      return index;
    });
    begin += size;
    if (!in[1] && step.ints[1] == 0) {
      dims.erase(dims.begin() + axis);
      part = part.with_dims(dims);
    }
    parts.push_back(std::move(part));
  }
  return {ValueKind::kSequence, std::move(parts)};
}

RunValue joined(const FlowStep& step, const std::vector<Tensor>& parts, int64_t wanted_axis, bool new_axis) {
  Ints dims = parts[0].dims();
  const auto rank = std::ssize(dims) + (new_axis ? 1 : 0);
  if (wanted_axis < -rank || wanted_axis >= rank)
    fail_step(step, fmt::format("axis {} for elements of rank {}; legal: {} to {}", wanted_axis, dims.size(), -rank,
                                rank - 1));
  const auto axis = static_cast<size_t>(wanted_axis < 0 ? wanted_axis + rank : wanted_axis);
  std::vector<std::pair<size_t, int64_t>> from;  // of each place along the axis: the part, and the place in it
  for (size_t p = 0; p < parts.size(); ++p) {
    Ints own = parts[p].dims();
    if (!new_axis && own.size() == dims.size()) own[axis] = dims[axis];
    if (own != dims || parts[p].dtype() != parts[0].dtype())
      fail_step(step, fmt::format("elements {} and {}; legal: one type and shape{}", text_of(parts[0]),
                                  text_of(parts[p]), new_axis ? "" : " but for the axis"));
    for (int64_t k = 0; k < (new_axis ? 1 : parts[p].dims()[axis]); ++k) from.emplace_back(p, k);
  }
  if (new_axis) dims.insert(dims.begin() + static_cast<ptrdiff_t>(axis), 0);
  dims[axis] = std::ssize(from);
  Tensor result(parts[0].dtype(), dims);
  std::vector<std::string> texts;
  for (int64_t flat = 0; flat < result.num_elements(); ++flat) {
    Ints index = unravel(flat, dims);
    const auto [part, place] = from[static_cast<size_t>(index[axis])];
    if (new_axis) index.erase(index.begin() + static_cast<ptrdiff_t>(axis));
    else index[axis] = place;
    const int64_t source = ravel(index, parts[part].dims());
    if (result.dtype() == DType::kString) texts.push_back(parts[part].strings()[static_cast<size_t>(source)]);
    else copy_element(parts[part], source, result, flat);
  }
  if (result.dtype() == DType::kString) return Tensor::of_strings(std::move(texts), dims);
  return result;
}

RunValue join(const FlowStep& step, const Operands& in) {
  std::vector<Tensor> parts;
  for (const RunValue& item : sequence_of(step, in[0])) parts.push_back(item.tensor);
  if (!parts.empty()) return joined(step, parts, step.ints[0], step.ints[1] != 0);
  if (step.ints.size() < 3) fail_step(step, "a sequence without elements; legal: a sequence with elements");
  Ints dims(step.ints.begin() + 2, step.ints.end());
  dims[0] = 0;
  const auto dtype = static_cast<DType>(step.ints[2]);
  return dtype == DType::kString ? Tensor::of_strings({}, dims) : Tensor(dtype, dims);
}

RunValue slice(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  const auto rank = std::ssize(x.dims());
  const Ints starts = ints_of(step, *in[1], "starts"), ends = ints_of(step, *in[2], "ends");
  Ints axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (in[3]) axes = ints_of(step, *in[3], "axes");
  const Ints steps = in[4] ? ints_of(step, *in[4], "steps") : Ints(starts.size(), 1);
  if (starts.size() != ends.size() || axes.size() != starts.size() || steps.size() != starts.size() ||
      std::ssize(starts) > rank)
    fail_step(step, fmt::format("{} starts and {} ends for rank {}; legal: as many of each, and at most the rank",
                                starts.size(), ends.size(), rank));
  std::vector<Ints> places(static_cast<size_t>(rank));  // along each axis
  for (size_t d = 0; d < places.size(); ++d) {
    places[d].resize(static_cast<size_t>(x.dims()[d]));
    std::iota(places[d].begin(), places[d].end(), 0);
  }
  std::set<int64_t> seen;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axis_of(step, axes[i], rank);
    if (!seen.insert(axis).second) fail_step(step, fmt::format("axis {} is named twice; legal: each axis once", axis));
    if (steps[i] == 0 || steps[i] == INT64_MIN)
      fail_step(step, fmt::format("a step of {}; legal: any but 0", steps[i]));
    const int64_t extent = x.dims()[static_cast<size_t>(axis)];
    if (!step.ints.empty() && step.ints[0] != 0 && (ends[i] < 0 || ends[i] > extent))
      fail_step(step, fmt::format("{} elements of a dimension of {}; legal: 0 to {}", ends[i], extent, extent));
    const auto bounded = [&](int64_t place, int64_t low, int64_t high) {
      return std::clamp(place < 0 ? place + extent : place, low, std::max(low, high));
    };
    Ints& kept = places[static_cast<size_t>(axis)];
    kept.clear();
    if (extent == 0) continue;
    if (steps[i] > 0) {
      const int64_t end = bounded(ends[i], 0, extent);
      for (int64_t k = bounded(starts[i], 0, extent); k < end;) {
        kept.push_back(k);
        if (__builtin_add_overflow(k, steps[i], &k)) break;
      }
    } else {
      const int64_t end = bounded(ends[i], -1, extent - 1);
      for (int64_t k = bounded(starts[i], 0, extent - 1); k > end;) {
        kept.push_back(k);
        if (__builtin_add_overflow(k, steps[i], &k)) break;
      }
    }
  }
  Ints dims;
  for (const Ints& list : places) dims.push_back(std::ssize(list));
  return rearranged(x, dims, [&](Ints index) {
    for (size_t d = 0; d < index.size(); ++d) index[d] = places[d][static_cast<size_t>(index[d])];
    return index;
  });
}

RunValue reshape(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  const Ints wanted = ints_of(step, *in[1], "shape");
  Ints dims = wanted;
  bool fits = true;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] == 0 && step.ints[0] == 0) {
      fits = fits && d < x.dims().size();
      dims[d] = d < x.dims().size() ? x.dims()[d] : 0;
    }
  const auto open = std::find(dims.begin(), dims.end(), -1);
  if (open != dims.end()) {
    *open = 1;
    fits = fits && std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim > 0; }) &&
           x.num_elements() % product(dims) == 0;
    *open = fits ? x.num_elements() / product(dims) : 0;
  }
  if (!fits || std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; }) ||
      product(dims) != x.num_elements())
    fail_step(step, fmt::format("the shape [{}] for {} elements; legal: a shape of as many elements",
                                fmt::join(wanted, ","), x.num_elements()));
  return x.with_dims(dims);
}

RunValue squeeze(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  std::set<int64_t> dropped;
  if (in[1]) {
    for (const int64_t axis : ints_of(step, *in[1], "axes")) {
      dropped.insert(axis_of(step, axis, std::ssize(x.dims())));
      const int64_t at = axis_of(step, axis, std::ssize(x.dims()));
      if (x.dims()[static_cast<size_t>(at)] != 1)
        fail_step(step, fmt::format("dimension {} of [{}] cannot be left out; legal: dimensions of 1", at,
                                    fmt::join(x.dims(), ",")));
    }
  } else {
    for (size_t d = 0; d < x.dims().size(); ++d)
      if (x.dims()[d] == 1) dropped.insert(static_cast<int64_t>(d));
  }
  Ints dims;
  for (size_t d = 0; d < x.dims().size(); ++d)
    if (!dropped.count(static_cast<int64_t>(d))) dims.push_back(x.dims()[d]);
  return x.with_dims(dims);
}

RunValue unsqueeze(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  const Ints axes = ints_of(step, *in[1], "axes");
  const int64_t rank = std::ssize(x.dims()) + std::ssize(axes);
  std::set<int64_t> fresh;
  for (const int64_t axis : axes)
    if (const int64_t at = axis_of(step, axis, rank); !fresh.insert(at).second)
      fail_step(step, fmt::format("axis {} is named twice; legal: each axis once", at));
  Ints dims;
  size_t own = 0;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(fresh.count(d) ? 1 : x.dims()[own++]);
  return x.with_dims(dims);
}

RunValue transpose(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  Ints perm = step.ints;
  if (perm.empty())
    for (auto d = std::ssize(x.dims()); d-- > 0;) perm.push_back(d);
  if (perm.size() != x.dims().size())
    fail_step(step, fmt::format("perm has {} entries for rank {}; legal: one for each dimension", perm.size(),
                                x.dims().size()));
  Ints dims;
  for (const int64_t from : perm) dims.push_back(x.dims().at(static_cast<size_t>(from)));
  return rearranged(x, dims, [&](const Ints& index) {
    Ints source(index.size());
    for (size_t d = 0; d < index.size(); ++d) source[static_cast<size_t>(perm[d])] = index[d];
    return source;
  });
}

RunValue gather(const FlowStep& step, const Operands& in) {
  const Tensor &x = in[0]->tensor, &places = in[1]->tensor;
  const auto axis = static_cast<ptrdiff_t>(axis_of(step, step.ints[0], std::ssize(x.dims())));
  const int64_t extent = x.dims()[static_cast<size_t>(axis)];
  Ints dims(x.dims().begin(), x.dims().begin() + axis);
  dims.insert(dims.end(), places.dims().begin(), places.dims().end());
  dims.insert(dims.end(), x.dims().begin() + axis + 1, x.dims().end());
  for (int64_t i = 0; i < places.num_elements(); ++i)
    if (const int64_t place = places.get_int(i); place < -extent || place >= extent)
      fail_step(step,
                fmt::format("index {} of a dimension of {}; legal: {} to {}", place, extent, -extent, extent - 1));
  const auto inner = std::ssize(places.dims());
  return rearranged(x, dims, [&](const Ints& index) {
    const Ints chosen(index.begin() + axis, index.begin() + axis + inner);
    const int64_t place = places.get_int(ravel(chosen, places.dims()));
    Ints source(index.begin(), index.begin() + axis);
    source.push_back(place < 0 ? place + extent : place);
    source.insert(source.end(), index.begin() + axis + inner, index.end());
    return source;
  });
}

RunValue expand(const FlowStep& step, const Operands& in) {
  const Tensor& x = in[0]->tensor;
  const Ints wanted = ints_of(step, *in[1], "shape");
  if (std::any_of(wanted.begin(), wanted.end(), [](int64_t dim) { return dim < 0; }))
    fail_step(step, fmt::format("the shape [{}] for a tensor [{}]; legal: shapes that broadcast",
                                fmt::join(wanted, ","), fmt::join(x.dims(), ",")));
  const Ints dims = broadcast(step, x.dims(), wanted);
  Ints places;
  for (int64_t i = 0; i < product(dims); ++i) places.push_back(broadcast_place(x, dims, i));
  return take(x, places, dims);
}

const RunValue& map_of(const FlowStep& step, const RunValue* value) {
  if (value->kind != ValueKind::kMap) fail_step(step, "an operand is no map; legal: a map");
  return *value;
}

RunValue zip_map(const FlowStep& step, const Operands& in) {
  const Tensor &scores = in[0]->tensor, &keys = in[1]->tensor;
  const int64_t columns = scores.dims().empty() ? 1 : scores.dims().back();
  if (scores.dims().size() > 2 || columns != keys.num_elements())
    fail_step(step, fmt::format("scores of shape [{}] for {} classes; legal: a column for each",
                                fmt::join(scores.dims(), ","), keys.num_elements()));
  std::vector<RunValue> rows;
  for (int64_t r = 0; r < (scores.dims().size() == 2 ? scores.dims()[0] : 1); ++r) {
    Ints places(static_cast<size_t>(columns));
    std::iota(places.begin(), places.end(), r * columns);
    rows.emplace_back(ValueKind::kMap, std::vector<RunValue>{keys, take(scores, places, {columns})});
  }
  return {ValueKind::kSequence, std::move(rows)};
}

bool same_key(const Tensor& a, int64_t i, const Tensor& b, int64_t k) {
  if (a.dtype() == DType::kString) return a.strings()[static_cast<size_t>(i)] == b.strings()[static_cast<size_t>(k)];
  return a.get_int(i) == b.get_int(k);
}

RunValue dict_vectorize(const FlowStep& step, const Operands& in) {
  const RunValue& map = map_of(step, in[0]);
  const Tensor &own = map.items[0].tensor, &values = map.items[1].tensor, &keys = in[1]->tensor;
  Tensor result(values.dtype(), {1, keys.num_elements()});
  for (int64_t i = 0; i < own.num_elements(); ++i)
    for (int64_t k = 0; k < keys.num_elements(); ++k)
      if (same_key(own, i, keys, k)) copy_element(values, i, result, k);
  return result;
}

RunValue cast_map(const FlowStep& step, const Operands& in) {
  const RunValue& map = map_of(step, in[0]);
  const Tensor &keys = map.items[0].tensor, &values = map.items[1].tensor;
  const bool fill = step.ints[1] != 0;
  Tensor result(values.dtype(), {1, fill ? step.ints[2] : keys.num_elements()});
  for (int64_t i = 0; i < keys.num_elements(); ++i) {
    int64_t place = keys.get_int(i);
    if (fill && place < 0) fail_step(step, fmt::format("the key {}; legal: 0 or more", place));
    if (fill && place >= step.ints[2]) continue;
    if (!fill) {
      place = 0;
      for (int64_t k = 0; k < keys.num_elements(); ++k) place += keys.get_int(k) < keys.get_int(i);
    }
    copy_element(values, i, result, place);
  }
  return result;
}

}  // namespace

int64_t axis_of(const FlowStep& step, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    fail_step(step, fmt::format("axis {} for rank {}; legal: {} to {}", axis, rank, -rank, rank - 1));
  return axis < 0 ? axis + rank : axis;
}

Ints ints_of(const FlowStep& step, const RunValue& value, const char* what) {
  const Tensor& list = value.tensor;
  if (!value.is_tensor() || (list.dtype() != DType::kI64 && list.dtype() != DType::kI32) || list.dims().size() > 1)
    fail_step(step, fmt::format("{} is no list of integers; legal: i32 or i64 of rank 1", what));
  Ints values;
  for (int64_t i = 0; i < list.num_elements(); ++i) values.push_back(list.get_int(i));
  return values;
}

void fail_step(const FlowStep& step, const std::string& what) {
  throw UserError({"TSR-7041", fmt::format("{}: {}; the run has no outputs", step.loc, what), "", "", ""});
}

std::string text_of(const RunValue& value) {
  if (!value.is_tensor()) return fmt::format("{} of {} elements", kind_text(&value), value.items.size());
  return fmt::format("{}[{}]", dtype_name(value.tensor.dtype()), fmt::join(value.tensor.dims(), ","));
}

int64_t number_of(const FlowStep& step, const RunValue& value, const char* what) {
  const DType dtype = value.tensor.dtype();
  if (!value.is_tensor() || (dtype != DType::kI64 && dtype != DType::kI32) || value.tensor.num_elements() != 1)
    fail_step(step, fmt::format("{} is no single integer; legal: one i32 or i64", what));
  return value.tensor.get_int(0);
}

std::vector<int64_t> broadcast(const FlowStep& step, const Ints& a, const Ints& b) {
  Ints dims(std::max(a.size(), b.size()), 1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t x = d < a.size() ? a[a.size() - 1 - d] : 1, y = d < b.size() ? b[b.size() - 1 - d] : 1;
    if (x != y && x != 1 && y != 1)
      fail_step(step, fmt::format("operands of shapes [{}] and [{}]; legal: shapes that broadcast", fmt::join(a, ","),
                                  fmt::join(b, ",")));
    dims[dims.size() - 1 - d] = x == 1 ? y : x;
  }
  return dims;
}

int64_t broadcast_place(const Tensor& x, const Ints& dims, int64_t flat) {
  Ints index = unravel(flat, dims);
  index.erase(index.begin(), index.end() - std::ssize(x.dims()));
  for (size_t d = 0; d < index.size(); ++d)
    if (x.dims()[d] == 1) index[d] = 0;
  return ravel(index, x.dims());
}

void copy_element(const Tensor& from, int64_t i, Tensor& to, int64_t k) {
  if (is_float(from.dtype())) to.set_double(k, from.get_double(i));
  else to.set_int(k, from.get_int(i));
}

Tensor take(const Tensor& x, const Ints& places, std::vector<int64_t> dims) {
  if (x.dtype() == DType::kString) {
    std::vector<std::string> texts;
    for (const int64_t place : places) texts.push_back(x.strings().at(static_cast<size_t>(place)));
    return Tensor::of_strings(std::move(texts), std::move(dims));
  }
  Tensor result(x.dtype(), std::move(dims));
  for (size_t i = 0; i < places.size(); ++i) copy_element(x, places[i], result, static_cast<int64_t>(i));
  return result;
}

void append(const FlowStep& step, RunValue& list, const RunValue& item) {
  require_element(step, sequence_of(step, &list), item);
  list.items.push_back(item);
}

RunValue value_result(const FlowStep& step, const Operands& in) {
  switch (step.op) {
    case FlowOp::kSequence: {
      std::vector<RunValue> items;
      for (const RunValue* item : in) items.push_back(*item);
      return {ValueKind::kSequence, std::move(items)};
    }
    case FlowOp::kInsert: return insert(step, in);
    case FlowOp::kErase: return erase(step, in);
    case FlowOp::kAt: {
      const auto& items = sequence_of(step, in[0]);
      return items[static_cast<size_t>(place_of(step, *in[1], std::ssize(items), false))];
    }
    case FlowOp::kLength: return length(step, in);
    case FlowOp::kSplit: return split(step, in);
    case FlowOp::kJoin: return join(step, in);
    case FlowOp::kOptional:
      return {ValueKind::kOptional, in[0] ? std::vector<RunValue>{*in[0]} : std::vector<RunValue>{}};
    case FlowOp::kHasElement: {
      Tensor result(DType::kBool, {});
      result.set_int(0, in[0] && (in[0]->kind != ValueKind::kOptional || !in[0]->items.empty()));
      return result;
    }
    case FlowOp::kGetElement:
      if (in[0]->kind != ValueKind::kOptional) return *in[0];
      if (in[0]->items.empty()) fail_step(step, "an optional without an element; legal: an optional that has one");
      return in[0]->items[0];
    case FlowOp::kZipMap: return zip_map(step, in);
    case FlowOp::kDictVectorize: return dict_vectorize(step, in);
    case FlowOp::kCastMap: return cast_map(step, in);
    default: break;
  }
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i] && !in[i]->is_tensor()) fail_step(step, fmt::format("operand {} is no tensor; legal: tensors", i));
  const Ints& dims = in[0]->tensor.dims();
  switch (step.op) {
    case FlowOp::kShape: {
      const int64_t rank = std::ssize(dims);
      const auto bounded = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
      const int64_t begin = bounded(step.ints[0]), end = std::max(begin, bounded(step.ints[1]));
      return Tensor::from_ints(Ints(dims.begin() + begin, dims.begin() + end));
    }
    case FlowOp::kSize:
      if (!step.ints.empty()) {
        Tensor empty(DType::kBool, {});
        empty.set_int(0, product(dims) == 0);
        return empty;
      }
      return Tensor::from_ints({product(dims)}).with_dims({});
    case FlowOp::kSlice: return slice(step, in);
    case FlowOp::kReshape: return reshape(step, in);
    case FlowOp::kSqueeze: return squeeze(step, in);
    case FlowOp::kUnsqueeze: return unsqueeze(step, in);
    case FlowOp::kTranspose: return transpose(step, in);
    case FlowOp::kGather: return gather(step, in);
    case FlowOp::kExpand: return expand(step, in);
    case FlowOp::kRange: return range_of(step, in[0]->tensor, in[1]->tensor, in[2]->tensor);
    case FlowOp::kPad: return padded(step, in);
    case FlowOp::kConcat: {
      std::vector<Tensor> parts;
      for (const RunValue* part : in) parts.push_back(part->tensor);
      return joined(step, parts, step.ints[0], false);
    }
    case FlowOp::kFlatten: {
      const int64_t rank = std::ssize(dims), axis = step.ints[0] < 0 ? step.ints[0] + rank : step.ints[0];
      if (axis < 0 || axis > rank) fail_step(step, fmt::format("axis {} for rank {}", step.ints[0], rank));
      return in[0]->tensor.with_dims(
          {product(Ints(dims.begin(), dims.begin() + axis)), product(Ints(dims.begin() + axis, dims.end()))});
    }
    default: throw InternalError("a flow step without a meaning");
  }
}

}  // namespace tessera::inline interp
