#include "schedule/column_blocks.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "schedule/fold_copies.h"
#include "schedule/rules/loop_builder.h"

namespace tessera {
namespace {

// Measured on Zen 5: blocks of 128 to 512 columns and of 48 to 288 rows differ by 3 %. Where a mask ends rows,
// computing the rest of a block is in vain.
constexpr int64_t kLeastColumns = 128, kMostColumns = 512, kColumnStep = 16;
constexpr int64_t kColumnBytes = 2048;  // of the second level of cache: keys and values of 64 elements take a quarter
constexpr int64_t kTileRows = 24, kMostRows = 192;  // register tiles have 4, 6, 8 or 12 rows
constexpr int64_t kPieceRows = 128;                 // for which it does not count what shared kernels take
constexpr int64_t kLongRow = 1024;  // of which blocks are faster even where all keys and values are near

bool is_load_of(const Expr& e, const BufferPtr& buffer) { return e->kind == ExprKind::kLoad && e->buffer == buffer; }

bool reads(const Stage& stage, const BufferPtr& buffer) {
  bool found = false;
  walk(stage.body.value, [&](const Expr& node) { found |= is_load_of(node, buffer); });
  return found;
}

// The dimension of `param` whose index in all of its loads in `value` is `var`, which has no other part in them;
// kNoAxis when it has none at all; empty when it is not like that.
std::optional<size_t> dimension_of(const Expr& value, const BufferPtr& param, const Var& var) {
  std::optional<size_t> found;
  bool ok = true;
  walk(value, [&](const Expr& node) {
    if (!is_load_of(node, param)) return;
    size_t dim = kNoAxis;
    for (size_t d = 0; d < node->operands.size(); ++d) {
      if (!uses_var(node->operands[d], var)) continue;
      ok &= node->operands[d].same_node(var) && dim == kNoAxis;
      dim = d;
    }
    ok &= !found || *found == dim;
    found = dim;
  });
  if (!ok) return std::nullopt;
  return found.value_or(kNoAxis);
}

// Whether `var` is nothing but an index of loads.
bool only_indexes(const Expr& value, const Var& var) {
  const Expr rest = transform(value, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return {};
    std::vector<Expr> indices = node->operands;
    for (Expr& index : indices)
      if (index.same_node(var)) index = Expr(0);
    return load(node->buffer, indices);
  });
  return !uses_var(rest, var);
}

// The columns in a stage: an axis of its output, or what it reduces. Null when it has none.
Var column_var(const Chain& chain, size_t m, const Stage& stage) {
  const ColumnBlocks& columns = *chain.columns;
  if (columns.axis[m] != kNoAxis) return stage.body.axes[columns.axis[m]].var;
  if (stage.body.is_reduction() && (m == columns.maximum || m == columns.sum || m + 1 == chain.members.size()))
    return stage.body.reduce_axes[0].var;
  return {};
}

// By parameter of member `m`, the dimension that is columns. Empty when columns are used in another way.
std::optional<std::vector<size_t>> column_dims(const Chain& chain, size_t m) {
  const TensorProgram& kernel = *chain.members[m].definition;
  std::vector<size_t> dims(kernel.params.size(), kNoAxis);
  for (const Stage& stage : kernel.stages) {
    const Var var = column_var(chain, m, stage);
    if (!var) continue;
    if (!only_indexes(stage.body.value, var)) return std::nullopt;
    for (size_t p = 0; p < dims.size(); ++p) {
      const BufferPtr& param = kernel.params[p].buffer;
      if (!reads(stage, param)) continue;
      const auto dim = dimension_of(stage.body.value, param, var);
      if (!dim || (dims[p] != kNoAxis && dims[p] != *dim)) return std::nullopt;
      dims[p] = *dim;
    }
  }
  return dims;
}

// Who reads what member `w` writes.
std::set<size_t> readers_of(const Chain& chain, size_t w) {
  std::set<size_t> readers;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const std::vector<BufferId>& args = chain.members[m].args;
    if (std::find(args.begin(), args.end() - 1, chain.members[w].args.back()) != args.end() - 1) readers.insert(m);
  }
  return readers;
}

// The parameter of member `m` that member `w` writes.
size_t param_from(const Chain& chain, size_t m, size_t w) {
  const std::vector<BufferId>& args = chain.members[m].args;
  return static_cast<size_t>(std::find(args.begin(), args.end(), chain.members[w].args.back()) - args.begin());
}

// The reduction of f32 over one axis, alone or followed by one stage; null when it is none.
const Stage* reduction_of(const TensorProgram& kernel, Combiner combiner) {
  const Stage* reduction = kernel.reduction();
  if (!reduction || reduction != &kernel.stages[0] || kernel.stages.size() > 2 ||
      reduction->body.combiner != combiner || reduction->out->dtype != DType::kF32 ||
      reduction->body.reduce_axes.size() != 1)
    return nullptr;
  return reduction;
}

// Finds the members of a softmax and a product with its numerators.
bool find_softmax(Chain& chain) {
  ColumnBlocks& columns = *chain.columns;
  const size_t count = chain.members.size(), product = count - 1;
  const auto definition = [&](size_t m) -> const TensorProgram& { return *chain.members[m].definition; };
  columns.maximum = count;
  for (size_t m = 0; m < product; ++m)
    if (reduction_of(definition(m), Combiner::kMax) && definition(m).stages.size() == 1 &&
        definition(m).params.size() == 1 &&
        is_load_of(definition(m).reduction()->body.value, definition(m).params[0].buffer))
      columns.maximum = m;
  if (columns.maximum == count || !chain.inner.contains(chain.members[columns.maximum].args[0])) return false;
  const size_t scores = writer_in(chain, chain.members[columns.maximum].args[0]);
  const std::set<size_t> of_maximum = readers_of(chain, columns.maximum);
  if (of_maximum.size() != 1) return false;
  columns.exponential = *of_maximum.begin();
  const TensorProgram& exponential = definition(columns.exponential);
  if (readers_of(chain, scores) != std::set{columns.maximum, columns.exponential} || exponential.params.size() != 2 ||
      !subtracts_maximum(exponential, param_from(chain, columns.exponential, scores),
                         param_from(chain, columns.exponential, columns.maximum), definition(columns.maximum)) ||
      exponential.output().out->dtype != DType::kF32)
    return false;
  std::set<size_t> of_exponential = readers_of(chain, columns.exponential);
  if (of_exponential.size() != 2 || of_exponential.erase(product) != 1) return false;
  columns.sum = *of_exponential.begin();
  const Stage* sum = reduction_of(definition(columns.sum), Combiner::kSum);
  if (!sum || definition(columns.sum).params.size() != 1 ||
      !is_load_of(sum->body.value, definition(columns.sum).params[0].buffer) ||
      readers_of(chain, columns.sum) != std::set{product})
    return false;
  // The sum scales the product afterwards, and is no factor of it.
  const Stage* products = reduction_of(definition(product), Combiner::kSum);
  if (!products) return false;
  const TensorProgram& last = definition(product);
  const BufferPtr &numerators = last.params[param_from(chain, product, columns.exponential)].buffer,
                  &sums = last.params[param_from(chain, product, columns.sum)].buffer;
  const Expr& value = products->body.value;
  int factors = 0;
  bool others = false;
  walk(value, [&](const Expr& node) {
    factors += is_load_of(node, numerators);
    others |= is_load_of(node, sums);
  });
  const bool is_product = value->kind == ExprKind::kBinary && value->binary == BinaryOp::kMul && factors == 1 &&
                          (is_load_of(value->operands[0], numerators) || is_load_of(value->operands[1], numerators));
  for (const Stage& stage : last.stages)
    if (&stage != products) walk(stage.body.value, [&](const Expr& node) { others |= is_load_of(node, numerators); });
  return is_product && !others;
}

// Finds the columns in all members that have them.
bool find_columns(Chain& chain) {
  ColumnBlocks& columns = *chain.columns;
  const size_t count = chain.members.size(), product = count - 1;
  const auto definition = [&](size_t m) -> const TensorProgram& { return *chain.members[m].definition; };
  columns.axis.assign(count, kNoAxis);
  const auto extent = as_int(definition(columns.maximum).reduction()->body.reduce_axes[0].extent);
  if (!extent) return false;
  columns.extent = *extent;
  for (size_t m = count; m-- > 0;) {
    const bool reduces = m == columns.maximum || m == columns.sum || m == product;
    if (reduces &&
        (columns.axis[m] != kNoAxis || as_int(definition(m).reduction()->body.reduce_axes[0].extent) != columns.extent))
      return false;
    if (columns.axis[m] == kNoAxis && !reduces) {
      // It runs once for a block of rows, and what it reads has no columns.
      if (definition(m).reduction() || chain.rows.back().axis[m] == kNoAxis) return false;
      continue;
    }
    const auto dims = column_dims(chain, m);
    if (!dims) return false;
    for (size_t p = 0; p < dims->size(); ++p) {
      const BufferId arg = chain.members[m].args[p];
      const TensorParam& param = definition(m).params[p];
      if (!chain.inner.contains(arg)) {
        if ((*dims)[p] != kNoAxis && !param.layout.row_major()) return false;
        continue;
      }
      size_t& axis = columns.axis[writer_in(chain, arg)];
      if ((*dims)[p] == kNoAxis) continue;
      if ((axis != kNoAxis && axis != (*dims)[p]) || as_int(param.buffer->shape[(*dims)[p]]) != columns.extent)
        return false;
      axis = (*dims)[p];
    }
  }
  // Nobody reads what has columns in another way.
  for (size_t m = 0; m < count; ++m) {
    const auto dims = column_dims(chain, m);
    for (size_t p = 0; p < definition(m).params.size(); ++p)
      if (const BufferId arg = chain.members[m].args[p]; chain.inner.contains(arg))
        if (columns.axis[writer_in(chain, arg)] != (dims ? (*dims)[p] : kNoAxis)) return false;
  }
  return columns.axis[columns.exponential] != kNoAxis;
}

// Loads of `from` are loads of `to`, where `indices` says.
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

class ColumnEmitter {
 public:
  ColumnEmitter(const Chain& chain, const std::map<BufferId, Place>& outside, const Target& target, const AskRules& ask)
      : chain_(chain), columns_(*chain.columns), outside_(outside), target_(target), ask_(ask) {
    for (size_t m = 0; m < chain.members.size(); ++m) {
      rows_.emplace_back();
      for (const RowAxis& row : chain.rows) rows_.back().push_back(row.axis[m]);
    }
  }

  std::optional<ChainCode> emit(const std::vector<Block>& blocks) {
    ChainCode code;
    make_buffers();
    if (has_shared(chain_)) {
      const auto shared = shared_columns(blocks[0]);
      if (!shared) return std::nullopt;
      code.shared = *shared;
    }
    for (const Block& block : blocks) {
      const auto body = rows_block(block);
      if (!body) return std::nullopt;
      code.blocks.push_back(*body);
    }
    code.local = local_;
    return code;
  }

 private:
  const TensorProgram& definition(size_t m) const { return *chain_.members[m].definition; }
  size_t product() const { return chain_.members.size() - 1; }
  int64_t whole_blocks() const { return columns_.extent / columns_.size; }
  int64_t rest() const { return columns_.extent % columns_.size; }
  bool is_shared(size_t m) const { return chain_.rows.back().axis[m] == kNoAxis; }

  BufferPtr local(const std::string& name, DType dtype, int64_t elements) {
    local_.push_back(make_buffer(name, dtype, {Expr(elements)}, MemoryScope::kLocal));
    return local_.back();
  }

  // Of a shape whose axes `rows` are rows: the elements of a block, of `count` of the last ones.
  int64_t elements_in(const Shape& shape, const std::vector<size_t>& rows, int64_t count) const {
    int64_t elements = 1;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto it = std::find(rows.begin(), rows.end(), axis);
      if (it == rows.end()) elements *= *as_int(shape[axis]);
      else if (it + 1 == rows.end()) elements *= count;
    }
    return elements;
  }

  static Expr begin_of(const Shape& shape, const std::vector<size_t>& rows, const Block& block) {
    Expr begin = 0;
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= *as_int(shape[axis])) {
      const auto it = std::find(rows.begin(), rows.end(), axis);
      if (it != rows.end()) begin = begin + block.bases[static_cast<size_t>(it - rows.begin())] * Expr(stride);
    }
    return begin;
  }

  void make_buffers() {
    for (size_t m = 0; m < product(); ++m) {
      const Buffer& out = *definition(m).output().out;
      int64_t elements = elements_in(out.shape, rows_[m], chain_.block);
      if (columns_.axis[m] != kNoAxis && !is_shared(m)) elements = elements / columns_.extent * columns_.size;
      if (m == columns_.exponential) {
        buffers_.push_back(buffers_[writer_in(chain_, chain_.members[columns_.maximum].args[0])]);
        continue;
      }
      buffers_.push_back(local(fmt::format("part{}", m), out.dtype, elements));
    }
    const auto state = [&](const char* name, size_t m) {
      const Buffer& out = *definition(m).reduction()->out;
      return local(name, DType::kF32, elements_in(out.shape, rows_[m], chain_.block));
    };
    largest_ = state("largest", columns_.maximum);
    correction_ = state("correction", columns_.maximum);
    sum_ = definition(columns_.sum).stages.size() == 1 ? buffers_[columns_.sum] : state("sum", columns_.sum);
    mixed_ = state("mixed", product());
  }

  // Where the block of columns from `first` on of what member `m` writes lies; `shape` has that block alone.
  Place place_of(size_t m, const Shape& shape, const Block& block, const Expr& first) const {
    Place place{buffers_[m], begin_of(shape, rows_[m], block), {}};
    if (columns_.axis[m] != kNoAxis && is_shared(m))
      place.shift = first * Expr(elements_in(definition(m).output().out->shape, rows_[m], 1) / columns_.extent);
    return place;
  }

  struct Cut {
    TensorProgram kernel;
    std::vector<Place> places;  // of its parameters
  };

  // Member `m` for `size` columns from `first` on, which it has. The place of its output is not there yet.
  Cut cut_columns(size_t m, const Block& block, const Expr& first, int64_t size) const {
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
        if (dims[p] != kNoAxis) {
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

  std::optional<Stmt> place(Cut& cut, const Block& block, const std::vector<size_t>& rows) const {
    cut_rows(cut.kernel, chain_, block, rows);
    return place_kernel(cut.kernel, cut.places, block, ask_);
  }

  // Members that have columns and no rows, for all columns.
  std::optional<Stmt> shared_columns(const Block& block) const {
    std::vector<Stmt> parts;
    const auto columns = [&](const Expr& first, int64_t size) -> std::optional<Stmt> {
      std::vector<Stmt> kernels;
      for (size_t m = 0; m < product(); ++m) {
        if (!is_shared(m)) continue;
        Cut cut = cut_columns(m, block, first, size);
        cut.places.push_back(place_of(m, cut.kernel.output().out->shape, block, first));
        const auto part = place(cut, block, rows_[m]);
        if (!part) return std::nullopt;
        kernels.push_back(*part);
      }
      return seq(std::move(kernels));
    };
    return over_columns(Expr(whole_blocks()), {}, columns);
  }

  // `body` for `whole` blocks of columns, and for the rest if there is one and `with_rest` is true or null.
  std::optional<Stmt> over_columns(const Expr& whole, const Expr& with_rest,
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

  // A kernel without a reduction over `shape`.
  static TensorProgram elementwise(const std::string& name, const BufferPtr& out, const std::vector<BufferPtr>& params,
                                   const std::function<Expr(const std::vector<Expr>&)>& value) {
    TensorProgram kernel;
    kernel.name = name;
    for (const BufferPtr& param : params) kernel.params.push_back({param, {}, false});
    Stage stage;
    stage.out = out;
    stage.body.inputs = params;
    stage.body.axes = make_axes("i", out->shape);
    stage.body.value = value(stage.body.axis_vars());
    kernel.stages.push_back(std::move(stage));
    return kernel;
  }

  // The program of a kernel over what `m`'s reduction gives, in the order of axes that it has.
  std::optional<Stmt> place_elementwise(size_t m, const Block& block, TensorProgram kernel,
                                        const std::vector<BufferPtr>& buffers) const {
    Cut cut{std::move(kernel), {}};
    for (size_t p = 0; p < buffers.size(); ++p)
      cut.places.push_back({buffers[p], begin_of(cut.kernel.output().out->shape, rows_[m], block), {}});
    return place(cut, block, rows_[m]);
  }

  // By axis of what is kept of the product: the axis of its output. Rows come first.
  std::vector<size_t> mixed_order() const {
    std::vector<size_t> order = rows_[product()];
    for (size_t axis = 0; axis < definition(product()).output().out->shape.size(); ++axis)
      if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
    return order;
  }
  template <typename List>
  static List in_order(const List& list, const std::vector<size_t>& order) {
    List result;
    for (const size_t axis : order) result.push_back(list[axis]);
    return result;
  }
  std::vector<size_t> mixed_rows() const {
    std::vector<size_t> rows(chain_.rows.size());
    for (size_t r = 0; r < rows.size(); ++r) rows[r] = r;
    return rows;
  }

  // Where, in terms of the axes of member `m`, a row's maximum is. The member reads the exponentials.
  std::vector<Expr> maximum_at(size_t m) const {
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

  // The sum so far, corrected, and what member `m` sums over this block of columns. It replaces `state`.
  std::optional<Stmt> add_columns(size_t m, const Block& block, const Expr& first, int64_t size, const BufferPtr& state,
                                  const std::vector<size_t>& order, const std::vector<size_t>& rows) const {
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
    kernel.params.push_back({before, {}, false});
    kernel.params.push_back({correction, {}, false});
    const Place of_state{state, begin_of(before->shape, rows, block), {}};
    cut.places.push_back(of_state);
    cut.places.push_back({correction_, begin_of(correction->shape, rows_[columns_.maximum], block), {}});
    cut.places.push_back(of_state);
    return place(cut, block, rows);
  }

  // What member `m` makes of its complete sum; null when that is all.
  std::optional<Stmt> finish(size_t m, const Block& block, const BufferPtr& state, const std::vector<size_t>& order,
                             const std::vector<size_t>& rows) const {
    const TensorProgram& whole = definition(m);
    const Stage& sum = whole.stages[0];
    Cut cut;
    cut.kernel.name = whole.name;
    const BufferPtr total = make_buffer("total", DType::kF32, in_order(sum.out->shape, order));
    cut.kernel.params.push_back({total, {}, false});
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

  // One block of rows with one of columns.
  std::optional<Stmt> columns_block(const Block& block, const Expr& first, int64_t size) const {
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
        if (!add(add_columns(m, block, first, size, sum_, identity(m), rows_[m]))) return std::nullopt;
        continue;
      }
      if (m == product()) {
        if (!add(add_columns(m, block, first, size, mixed_, mixed_order(), mixed_rows()))) return std::nullopt;
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
        cut.kernel.params.push_back({largest_so_far, {}, false});
        cut.places.push_back({largest_, begin_of(largest->shape, rows_[m], block), {}});
      }
      cut.places.push_back(place_of(m, cut.kernel.output().out->shape, block, first));
      if (!add(place(cut, block, rows_[m]))) return std::nullopt;
      if (m != columns_.maximum) continue;
      const auto correction = [&](const std::vector<Expr>& at) {
        return unary(UnaryOp::kExp, load(largest_so_far, at) - load(largest, at));
      };
      const auto copy = [&](const std::vector<Expr>& at) { return load(largest, at); };
      const BufferPtr out = make_buffer("out", DType::kF32, largest->shape);
      if (!add(place_elementwise(m, block, elementwise("correct", out, {largest_so_far, largest}, correction),
                                 {largest_, buffers_[m], correction_})) ||
          !add(place_elementwise(m, block, elementwise("keep", out, {largest}, copy), {buffers_[m], largest_})))
        return std::nullopt;
    }
    return seq(std::move(parts));
  }

  std::vector<size_t> identity(size_t m) const {
    std::vector<size_t> order(definition(m).reduction()->out->shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    return order;
  }

  // The number of blocks of columns that the block of rows at this base sees, the rest counted as one.
  Expr visible(const Block& block) const {
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

  std::optional<Stmt> rows_block(const Block& block) const {
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
      const auto part = place(cut, block, rows_[m]);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    const auto fill = [&](const BufferPtr& buffer, double value) {
      const int64_t elements = *as_int(buffer->shape[0]), lanes = target_.f32_lanes();
      const auto vector = [&](const Expr& first, int64_t count) {
        return vectorized("l", count,
                          [&](const Var& l) { return store(buffer, {first + l}, const_float(DType::kF32, value)); });
      };
      const Var step = make_var("s");
      parts.push_back(for_loop(step, 0, elements / lanes, ForKind::kSerial, vector(step * Expr(lanes), lanes)));
      if (elements % lanes != 0) parts.push_back(vector(elements / lanes * lanes, elements % lanes));
    };
    fill(largest_, std::numeric_limits<float>::lowest());
    fill(sum_, 0);
    fill(mixed_, 0);
    const Expr count = visible(block);
    const auto columns =
        over_columns(rest() > 0 ? min(count, Expr(whole_blocks())) : count, Expr(whole_blocks()) < count,
                     [&](const Expr& first, int64_t size) { return columns_block(block, first, size); });
    if (!columns) return std::nullopt;
    parts.push_back(*columns);
    if (definition(columns_.sum).stages.size() > 1) {
      const auto part = finish(columns_.sum, block, sum_, identity(columns_.sum), rows_[columns_.sum]);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    const auto part = finish(product(), block, mixed_, mixed_order(), mixed_rows());
    if (!part) return std::nullopt;
    parts.push_back(*part);
    return seq(std::move(parts));
  }

  const Chain& chain_;
  const ColumnBlocks& columns_;
  const std::map<BufferId, Place>& outside_;
  const Target& target_;
  const AskRules& ask_;
  std::vector<std::vector<size_t>> rows_;  // by member: the axes that are rows
  std::vector<BufferPtr> local_;
  std::vector<BufferPtr> buffers_;  // by member but the last: its result, of a block of rows and of columns
  // Of a block of rows: the largest scores so far, what sums before the last block of columns are multiplied by, the
  // sums of exponentials, and those of their products with values.
  BufferPtr largest_, correction_, sum_, mixed_;
};

}  // namespace

bool find_column_blocks(Chain& chain) {
  chain.columns.emplace();
  if (find_softmax(chain) && find_columns(chain)) return true;
  chain.columns.reset();
  return false;
}

bool choose_column_blocks(Chain& chain, const Target& target) {
  ColumnBlocks& columns = *chain.columns;
  // What each block of rows reads as a whole: the keys and values of a head.
  int64_t shared = 0;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TensorProgram& kernel = *chain.members[m].definition;
    if (chain.rows.back().axis[m] == kNoAxis || !kernel.reduction()) continue;
    for (const TensorParam& param : kernel.params) {
      if (depends_on(kernel, param.buffer.get(), chain.rows.back().axis[m])) continue;
      int64_t bytes = bytes_of(*param.buffer);
      for (size_t r = 0; r + 1 < chain.rows.size(); ++r)
        if (depends_on(kernel, param.buffer.get(), chain.rows[r].axis[m])) bytes /= chain.rows[r].extent;
      shared += bytes;
    }
  }
  const bool is_long = columns.extent >= kLongRow || shared > target.l2_bytes / 2;
  const int64_t most_columns =
      chain.masked ? kLeastColumns : std::clamp(target.l2_bytes / kColumnBytes, kLeastColumns, kMostColumns);
  if (shared == 0 || !is_long || columns.extent <= most_columns) return false;
  // Threads that have no head of their own share one's rows, and each copies what the rows share.
  const int64_t extent = chain.rows.back().extent;
  int64_t outer = 1;
  for (size_t r = 0; r + 1 < chain.rows.size(); ++r) outer *= chain.rows[r].extent;
  const int64_t wanted = target.num_threads == 1 ? 1 : 4 * static_cast<int64_t>(target.num_threads);
  const int64_t pieces = (wanted + outer - 1) / outer;
  if (has_shared(chain) && pieces > 1 && extent / pieces < kPieceRows) return false;
  chain.pieces = has_shared(chain) ? pieces : 1;
  // Blocks of about one size.
  const auto even = [](int64_t all, int64_t most, int64_t step) {
    const int64_t blocks = (all + most - 1) / most, each = (all + blocks - 1) / blocks;
    return std::min((each + step - 1) / step * step, all);
  };
  columns.size = even(columns.extent, most_columns, kColumnStep);
  const int64_t most = std::min(target.l2_bytes / 8 / dtype_bytes(DType::kF32, columns.size), extent / pieces);
  chain.block = even(extent, std::clamp(most / kTileRows * kTileRows, kTileRows, kMostRows), kTileRows);
  return true;
}

std::optional<ChainCode> emit_column_blocks(const Chain& chain, const std::vector<Block>& blocks,
                                            const std::map<BufferId, Place>& outside, const Target& target,
                                            const AskRules& ask) {
  return ColumnEmitter(chain, outside, target, ask).emit(blocks);
}

}  // namespace tessera
