#include "schedule/fusion/online_softmax_emit.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "schedule/fusion/online_softmax.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

// Loads of `from` become loads of `to` at the same indices.
void redirect(TensorProgram& kernel, const BufferPtr& from, const BufferPtr& to) {
  for (Stage& stage : kernel.stages) {
    std::replace(stage.body.inputs.begin(), stage.body.inputs.end(), from, to);
    stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
      return is_load_of(node, from) ? load(to, node->operands) : Expr();
    });
  }
}

BufferPtr with_extent(const BufferPtr& buffer, size_t axis, int64_t extent) {
  Shape shape = buffer->shape;
  shape[axis] = extent;
  return make_buffer(buffer->name, buffer->dtype, shape);
}

// A kernel without a reduction over `shape`.
TensorProgram elementwise(const std::string& name, const BufferPtr& out, const std::vector<BufferPtr>& params,
                          const std::function<Expr(const std::vector<Expr>&)>& value) {
  TensorProgram kernel;
  kernel.name = name;
  for (const BufferPtr& param : params) kernel.params.push_back({param, {}});
  Stage stage;
  stage.out = out;
  stage.body.inputs = params;
  stage.body.axes = make_axes("i", out->shape);
  stage.body.value = value(stage.body.axis_vars());
  kernel.stages.push_back(std::move(stage));
  return kernel;
}

Expr begin_of(const Shape& shape, const std::vector<size_t>& rows, const Block& block) {
  Expr begin = 0;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= *as_int(shape[axis])) {
    const auto it = std::find(rows.begin(), rows.end(), axis);
    if (it != rows.end()) begin = begin + block.bases[static_cast<size_t>(it - rows.begin())] * Expr(stride);
  }
  return begin;
}

template <typename List>
List in_order(const List& list, const std::vector<size_t>& order) {
  List result;
  for (const size_t axis : order) result.push_back(list[axis]);
  return result;
}

}  // namespace

ColumnEmitter::ColumnEmitter(const Chain& chain, const std::map<BufferId, Place>& outside, const Target& target,
                             const AskRules& ask)
    : chain_(chain), columns_(*chain.columns), outside_(outside), target_(target), ask_(ask) {
  for (size_t m = 0; m < chain.members.size(); ++m) {
    rows_.emplace_back();
    for (const RowAxis& row : chain.rows) rows_.back().push_back(row.axis[m]);
  }
}

std::optional<ChainCode> ColumnEmitter::emit(const std::vector<Block>& blocks) {
  ChainCode code;
  make_buffers(columns_.extent);
  if (has_shared(chain_)) {
    const auto shared = over_columns(Expr(whole_blocks()), {}, [&](const Expr& first, int64_t size) {
      return shared_block(blocks[0], first, size);
    });
    if (!shared) return std::nullopt;
    code.shared = *shared;
  }
  for (const Block& block : blocks) {
    const auto body = rows_block(block);
    if (!body) return std::nullopt;
    code.blocks.push_back(*body);
  }
  code.local = buffers_.all;
  return code;
}

BufferPtr ColumnEmitter::local(const std::string& name, DType dtype, int64_t elements) {
  buffers_.all.push_back(make_buffer(name, dtype, {Expr(elements)}, MemoryScope::kLocal));
  return buffers_.all.back();
}

int64_t ColumnEmitter::elements_in(const Shape& shape, const std::vector<size_t>& rows, int64_t count) {
  int64_t elements = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const auto it = std::find(rows.begin(), rows.end(), axis);
    if (it == rows.end()) elements *= *as_int(shape[axis]);
    else if (it + 1 == rows.end()) elements *= count;
  }
  return elements;
}

void ColumnEmitter::make_buffers(int64_t shared_columns) {
  for (size_t m = 0; m < product(); ++m) {
    const Buffer& out = *definition(m).output().out;
    int64_t elements = elements_in(out.shape, rows_[m], chain_.block);
    if (columns_.axis[m] != kNoAxis)
      elements = elements / columns_.extent * (is_shared(m) ? shared_columns : columns_.size);
    if (m == columns_.exponential) {
      buffers_.by_member.push_back(buffers_.by_member[writer_in(chain_, chain_.members[columns_.maximum].args[0])]);
      continue;
    }
    buffers_.by_member.push_back(local(fmt::format("part{}", m), out.dtype, elements));
  }
  const auto state = [&](const char* name, size_t m) {
    const Buffer& out = *definition(m).reduction()->out;
    return local(name, DType::kF32, elements_in(out.shape, rows_[m], chain_.block));
  };
  buffers_.largest = state("largest", columns_.maximum);
  buffers_.correction = state("correction", columns_.maximum);
  buffers_.sum =
      definition(columns_.sum).stages.size() == 1 ? buffers_.by_member[columns_.sum] : state("sum", columns_.sum);
  buffers_.mixed = state("mixed", product());
}

Place ColumnEmitter::place_of(size_t m, const Shape& shape, const Block& block, const Expr& first) const {
  Place place{buffers_.by_member[m], begin_of(shape, rows_[m], block), {}};
  if (columns_.axis[m] != kNoAxis && is_shared(m))
    place.shift = first * Expr(elements_in(definition(m).output().out->shape, rows_[m], 1) / columns_.extent);
  return place;
}

ColumnEmitter::Cut ColumnEmitter::cut_columns(size_t m, const Block& block, const Expr& first, int64_t size) const {
  Cut cut{definition(m), {}};
  const auto dims = *column_dims(chain_, m);
  for (Stage& stage : cut.kernel.stages) {
    if (columns_.axis[m] != kNoAxis) {
      stage.body.axes[columns_.axis[m]].extent = size;
      const BufferPtr old = stage.out;
      stage.out = with_extent(old, columns_.axis[m], size);
      redirect(cut.kernel, old, stage.out);
    } else if (stage.body.is_reduction()) {
      stage.body.reduce_axes[0].extent = size;
    }
  }
  for (size_t p = 0; p < dims.size(); ++p) {
    TensorParam& param = cut.kernel.params[p];
    const BufferId arg = chain_.members[m].args[p];
    if (!chain_.inner.contains(arg)) {
      Place place = outside_.at(arg);
      if (dims[p] != kNoAxis && !outside_at_block_) {
        int64_t stride = 1;
        for (size_t d = dims[p] + 1; d < param.buffer->shape.size(); ++d) stride *= *as_int(param.buffer->shape[d]);
        place.shift = first * Expr(stride);
      }
      cut.places.push_back(std::move(place));
      continue;
    }
    if (dims[p] != kNoAxis) {
      const BufferPtr old = param.buffer;
      param.buffer = with_extent(old, dims[p], size);
      redirect(cut.kernel, old, param.buffer);
    }
    cut.places.push_back(place_of(writer_in(chain_, arg), param.buffer->shape, block, first));
  }
  return cut;
}

std::optional<Stmt> ColumnEmitter::place(Cut& cut, const Block& block, const std::vector<size_t>& rows) const {
  cut_rows(cut.kernel, chain_, block, rows);
  return place_kernel(cut.kernel, cut.places, block, ask_);
}

std::optional<Stmt> ColumnEmitter::shared_block(const Block& block, const Expr& first, int64_t size) const {
  std::vector<Stmt> kernels;
  for (size_t m = 0; m < product(); ++m) {
    if (!is_shared(m)) continue;
    Cut cut = cut_columns(m, block, first, size);
    cut.places.push_back(place_of(m, cut.kernel.output().out->shape, block, first));
    if (!add_member(m, place(cut, block, rows_[m]), kernels)) return std::nullopt;
  }
  return seq(std::move(kernels));
}

bool ColumnEmitter::add_member(size_t m, std::optional<Stmt> kernel, std::vector<Stmt>& parts) const {
  if (!kernel) return false;
  if (before_)
    if (Stmt before = before_(m)) parts.push_back(std::move(before));
  parts.push_back(*std::move(kernel));
  if (after_)
    if (Stmt after = after_(m)) parts.push_back(std::move(after));
  return true;
}

std::optional<Stmt> ColumnEmitter::over_columns(
    const Expr& whole, const Expr& with_rest,
    const std::function<std::optional<Stmt>(const Expr&, int64_t)>& body) const {
  std::vector<Stmt> parts;
  if (whole_blocks() > 0) {
    const Var number = make_var("c");
    const auto part = body(number * Expr(columns_.size), columns_.size);
    if (!part) return std::nullopt;
    parts.push_back(for_loop(number, 0, whole, ForKind::kSerial, *part));
  }
  if (rest() > 0) {
    const auto part = body(Expr(whole_blocks() * columns_.size), rest());
    if (!part) return std::nullopt;
    parts.push_back(with_rest ? if_then(with_rest, *part) : *part);
  }
  return seq(std::move(parts));
}

std::optional<Stmt> ColumnEmitter::place_elementwise(size_t m, const Block& block, TensorProgram kernel,
                                                     const std::vector<BufferPtr>& buffers) const {
  Cut cut{std::move(kernel), {}};
  for (size_t p = 0; p < buffers.size(); ++p)
    cut.places.push_back({buffers[p], begin_of(cut.kernel.output().out->shape, rows_[m], block), {}});
  return place(cut, block, rows_[m]);
}

std::vector<size_t> ColumnEmitter::mixed_order() const {
  std::vector<size_t> order = rows_[product()];
  for (size_t axis = 0; axis < definition(product()).output().out->shape.size(); ++axis)
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  return order;
}

std::vector<size_t> ColumnEmitter::mixed_rows() const {
  std::vector<size_t> rows(chain_.rows.size());
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = r;
  return rows;
}

std::vector<Expr> ColumnEmitter::maximum_at(size_t m) const {
  const TensorProgram& exponential = definition(columns_.exponential);
  const BufferPtr& maximum = exponential.params[param_from(chain_, columns_.exponential, columns_.maximum)].buffer;
  const BufferPtr& numerators = definition(m).params[param_from(chain_, m, columns_.exponential)].buffer;
  std::vector<Expr> at, read;
  walk(exponential.output().body.value, [&](const Expr& node) {
    if (is_load_of(node, maximum)) at = node->operands;
  });
  walk(definition(m).reduction()->body.value, [&](const Expr& node) {
    if (is_load_of(node, numerators)) read = node->operands;
  });
  VarMap map;
  for (size_t i = 0; i < read.size(); ++i) map[exponential.output().body.axes[i].var.get()] = read[i];
  for (Expr& index : at) index = substitute(index, map);
  return at;
}

std::optional<Stmt> ColumnEmitter::add_columns(size_t m, const Block& block, const Expr& first, int64_t size,
                                               const BufferPtr& state, const std::vector<size_t>& order,
                                               const std::vector<size_t>& rows) const {
  Cut cut = cut_columns(m, block, first, size);
  TensorProgram& kernel = cut.kernel;
  kernel.stages.resize(1);
  Stage& sum = kernel.stages[0];
  sum.layout = {};
  sum.body.axes = in_order(sum.body.axes, order);
  sum.out = make_buffer(sum.out->name, sum.out->dtype, in_order(sum.out->shape, order));
  // What only the other stage reads is not read yet.
  for (size_t p = kernel.params.size(); p-- > 0;) {
    if (reads(sum, kernel.params[p].buffer)) continue;
    kernel.params.erase(kernel.params.begin() + static_cast<std::ptrdiff_t>(p));
    cut.places.erase(cut.places.begin() + static_cast<std::ptrdiff_t>(p));
  }
  const Buffer& largest = *definition(columns_.maximum).output().out;
  const BufferPtr before = make_buffer("before", DType::kF32, sum.out->shape);
  const BufferPtr correction = make_buffer("correction", DType::kF32, largest.shape);
  Stage last;
  last.out = make_buffer("state", DType::kF32, sum.out->shape);
  last.body.axes = make_axes("i", sum.out->shape);
  last.body.inputs = {sum.out, before, correction};
  VarMap map;
  for (size_t i = 0; i < sum.body.axes.size(); ++i) map[sum.body.axes[i].var.get()] = last.body.axes[i].var;
  std::vector<Expr> at = maximum_at(m);
  for (Expr& index : at) index = substitute(index, map);
  const std::vector<Expr> own = last.body.axis_vars();
  last.body.value = load(before, own) * load(correction, at) + load(sum.out, own);
  kernel.stages.push_back(std::move(last));
  kernel.params.push_back({before, {}});
  kernel.params.push_back({correction, {}});
  const Place of_state{state, begin_of(before->shape, rows, block), {}};
  cut.places.push_back(of_state);
  cut.places.push_back({buffers_.correction, begin_of(correction->shape, rows_[columns_.maximum], block), {}});
  cut.places.push_back(of_state);
  return place(cut, block, rows);
}

std::optional<Stmt> ColumnEmitter::finish(size_t m, const Block& block, const BufferPtr& state,
                                          const std::vector<size_t>& order, const std::vector<size_t>& rows) const {
  const TensorProgram& whole = definition(m);
  const Stage& sum = whole.stages[0];
  Cut cut;
  cut.kernel.name = whole.name;
  const BufferPtr total = make_buffer("total", DType::kF32, in_order(sum.out->shape, order));
  cut.kernel.params.push_back({total, {}});
  cut.places.push_back({state, begin_of(total->shape, rows, block), {}});
  Stage stage = whole.output();
  if (whole.stages.size() == 1) {
    stage.body = {};
    stage.body.axes = make_axes("i", stage.out->shape);
    stage.body.value = load(sum.out, stage.body.axis_vars());
  }
  stage.body.inputs = {total};
  for (size_t p = 0; p < whole.params.size(); ++p) {
    if (!reads(stage, whole.params[p].buffer)) continue;
    const BufferId arg = chain_.members[m].args[p];
    cut.kernel.params.push_back(whole.params[p]);
    stage.body.inputs.push_back(whole.params[p].buffer);
    cut.places.push_back(chain_.inner.contains(arg)
                             ? place_of(writer_in(chain_, arg), whole.params[p].buffer->shape, block, Expr(0))
                             : outside_.at(arg));
  }
  stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
    return is_load_of(node, sum.out) ? load(total, in_order(node->operands, order)) : Expr();
  });
  cut.kernel.stages.push_back(std::move(stage));
  const BufferId result = chain_.members[m].args.back();
  cut.places.push_back(m == product() ? outside_.at(result) : place_of(m, whole.output().out->shape, block, Expr(0)));
  return place(cut, block, rows_[m]);
}

std::optional<Stmt> ColumnEmitter::columns_block(const Block& block, const Expr& first, int64_t size) const {
  std::vector<Stmt> parts;
  const auto add = [&](std::optional<Stmt> part) {
    if (part) parts.push_back(*std::move(part));
    return part.has_value();
  };
  const BufferPtr largest_so_far =
      make_buffer("largest", DType::kF32, definition(columns_.maximum).output().out->shape);
  const BufferPtr largest = make_buffer("larger", DType::kF32, largest_so_far->shape);
  for (size_t m = 0; m <= product(); ++m) {
    if (is_shared(m) || (columns_.axis[m] == kNoAxis && m != columns_.maximum && m != columns_.sum && m != product()))
      continue;
    if (m == columns_.sum) {
      if (!add_member(m, add_columns(m, block, first, size, buffers_.sum, identity(m), rows_[m]), parts))
        return std::nullopt;
      continue;
    }
    if (m == product()) {
      if (!add_member(m, add_columns(m, block, first, size, buffers_.mixed, mixed_order(), mixed_rows()), parts))
        return std::nullopt;
      continue;
    }
    Cut cut = cut_columns(m, block, first, size);
    if (m == columns_.maximum) {
      const BufferPtr of_block = cut.kernel.stages[0].out;
      Stage last;
      last.out = largest;
      last.body.axes = make_axes("i", largest->shape);
      last.body.inputs = {of_block, largest_so_far};
      const std::vector<Expr> own = last.body.axis_vars();
      last.body.value = max(load(largest_so_far, own), load(of_block, own));
      cut.kernel.stages.push_back(std::move(last));
      cut.kernel.params.push_back({largest_so_far, {}});
      cut.places.push_back({buffers_.largest, begin_of(largest->shape, rows_[m], block), {}});
    }
    cut.places.push_back(place_of(m, cut.kernel.output().out->shape, block, first));
    if (!add_member(m, place(cut, block, rows_[m]), parts)) return std::nullopt;
    if (m != columns_.maximum) continue;
    const auto correction = [&](const std::vector<Expr>& at) {
      return unary(UnaryOp::kExp, load(largest_so_far, at) - load(largest, at));
    };
    const auto copy = [&](const std::vector<Expr>& at) { return load(largest, at); };
    const BufferPtr out = make_buffer("out", DType::kF32, largest->shape);
    if (!add(place_elementwise(m, block, elementwise("correct", out, {largest_so_far, largest}, correction),
                               {buffers_.largest, buffers_.by_member[m], buffers_.correction})) ||
        !add(place_elementwise(m, block, elementwise("keep", out, {largest}, copy),
                               {buffers_.by_member[m], buffers_.largest})))
      return std::nullopt;
  }
  return seq(std::move(parts));
}

std::vector<size_t> ColumnEmitter::identity(size_t m) const {
  std::vector<size_t> order(definition(m).reduction()->out->shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}

Expr ColumnEmitter::visible(const Block& block) const {
  const int64_t all = whole_blocks() + (rest() > 0 ? 1 : 0);
  if (!chain_.masked) return all;
  const auto& used = chain_.masked->used;
  const Var& base = block.bases.back();
  Expr count;
  std::optional<int64_t> behind;  // of the block of rows behind
  for (int64_t row = block.hi;; row -= chain_.block) {
    const int64_t most = *std::max_element(used.begin() + row, used.begin() + row + block.count);
    const int64_t own = (most + columns_.size - 1) / columns_.size;
    if (!count) count = own;
    else if (own != behind) count = select(base <= Expr(row), Expr(own), count);
    behind = own;
    if (row == block.lo) return count;
  }
}

std::optional<Stmt> ColumnEmitter::begin_rows(const Block& block) const {
  std::vector<Stmt> parts;
  for (size_t m = 0; m < product(); ++m) {
    if (is_shared(m) || columns_.axis[m] != kNoAxis || m == columns_.maximum || m == columns_.sum) continue;
    Cut cut{definition(m), {}};
    for (size_t p = 0; p < cut.kernel.params.size(); ++p) {
      const BufferId arg = chain_.members[m].args[p];
      cut.places.push_back(chain_.inner.contains(arg)
                               ? place_of(writer_in(chain_, arg), cut.kernel.params[p].buffer->shape, block, Expr(0))
                               : outside_.at(arg));
    }
    cut.places.push_back(place_of(m, cut.kernel.output().out->shape, block, Expr(0)));
    if (!add_member(m, place(cut, block, rows_[m]), parts)) return std::nullopt;
  }
  const auto fill = [&](const BufferPtr& buffer, size_t m, double value) {
    const int64_t elements = elements_in(definition(m).reduction()->out->shape, rows_[m], chain_.block);
    const int64_t lanes = target_.f32_lanes();
    const auto vector = [&](const Expr& first, int64_t count) {
      return vectorized("l", count,
                        [&](const Var& l) { return store(buffer, {first + l}, const_float(DType::kF32, value)); });
    };
    const Var step = make_var("s");
    parts.push_back(for_loop(step, 0, elements / lanes, ForKind::kSerial, vector(step * Expr(lanes), lanes)));
    if (elements % lanes != 0) parts.push_back(vector(elements / lanes * lanes, elements % lanes));
  };
  fill(buffers_.largest, columns_.maximum, std::numeric_limits<float>::lowest());
  fill(buffers_.sum, columns_.sum, 0);
  fill(buffers_.mixed, product(), 0);
  return seq(std::move(parts));
}

std::optional<Stmt> ColumnEmitter::rows_block(const Block& block) const {
  const auto begin = begin_rows(block);
  if (!begin) return std::nullopt;
  const Expr count = visible(block);
  const auto columns = over_columns(rest() > 0 ? min(count, Expr(whole_blocks())) : count, Expr(whole_blocks()) < count,
                                    [&](const Expr& first, int64_t size) { return columns_block(block, first, size); });
  const auto end = columns ? finish_rows(block) : std::nullopt;
  if (!end) return std::nullopt;
  return seq({*begin, *columns, *end});
}

std::optional<Stmt> ColumnEmitter::finish_rows(const Block& block) const {
  std::vector<Stmt> parts;
  if (definition(columns_.sum).stages.size() > 1) {
    const auto part = finish(columns_.sum, block, buffers_.sum, identity(columns_.sum), rows_[columns_.sum]);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  const auto part = finish(product(), block, buffers_.mixed, mixed_order(), mixed_rows());
  if (!part) return std::nullopt;
  parts.push_back(*part);
  return seq(std::move(parts));
}

std::optional<ChainCode> emit_column_blocks(const Chain& chain, const std::vector<Block>& blocks,
                                            const std::map<BufferId, Place>& outside, const Target& target,
                                            const AskRules& ask) {
  return ColumnEmitter(chain, outside, target, ask).emit(blocks);
}

}  // namespace tessera::inline schedule
