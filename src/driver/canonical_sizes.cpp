#include "driver/canonical_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "driver/canonical_exprs.h"
#include "interp/loop_interp.h"
#include "loop_passes/simplify_loops.h"
#include "program/memory_plan.h"
#include "program/steps.h"
#include "support/error.h"
#include "support/hash.h"

namespace tessera::inline driver {
namespace {

// Nodes of an expression that is written into its readers. Where kernels are alike none need be; where they are fused
// in other ways, what one program computes in a kernel of its own must be seen through.
constexpr size_t kMostNodes[] = {0, 3000};
constexpr int64_t kMostMade = int64_t{1} << 22;  // elements of a constant that a kernel computes from weights
constexpr int64_t kVectorLanes = 16;

// Thrown, and caught by SizeProver: what this file has no form for.
struct NoForm {
  std::string what;
};

int64_t product(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Row-major.
Expr flat_index(const std::vector<Expr>& index, const std::vector<int64_t>& dims) {
  Expr flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * Expr(dims[d]) + index[d];
  return flat;
}

// REQUIRES: no dimension is 0.
std::vector<Expr> index_of(const Expr& flat, const std::vector<int64_t>& dims) {
  std::vector<Expr> index(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    const Expr quotient = stride == 1 ? flat : floordiv(flat, stride);
    index[d] = dims[d] == 1 ? Expr(0) : floormod(quotient, dims[d]);
    stride *= dims[d];
  }
  // No remainder of the outermost axis that has more than one place.
  for (size_t d = 0; d < dims.size(); ++d) {
    stride /= dims[d];
    if (dims[d] == 1) continue;
    index[d] = stride == 1 ? flat : floordiv(flat, stride);
    break;
  }
  return index;
}

// Elements of a buffer, or of a stage inside a kernel: `body` of the logical axes.
struct Array {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  Layout layout;
  std::vector<Var> axes;
  Expr body;

  Expr at(const std::vector<Expr>& index) const {
    VarMap map;
    for (size_t i = 0; i < axes.size(); ++i) map[axes[i].get()] = index[i];
    return substitute(body, map);
  }

  // At a place of the memory.
  Expr at_place(const Expr& place) const {
    if (layout.row_major()) return at(index_of(place, dims));
    const std::vector<Expr> physical = index_of(place, physical_dims());
    std::vector<Expr> index(dims.size(), Expr(0));
    for (size_t i = 0; i < layout.dims.size(); ++i) {
      const LayoutDim& dim = layout.dims[i];
      Expr& axis = index[static_cast<size_t>(dim.axis)];
      axis = axis + (dim.part == LayoutDim::Part::kQuotient ? physical[i] * Expr(dim.block) : physical[i]);
    }
    return at(index);
  }

  std::vector<int64_t> physical_dims() const { return *static_dims(physical_shape(make_shape(dims), layout)); }
};

// The values of one program.
class Form {
 public:
  Form(SizeProver& prover, CanonicalExprs& exprs, size_t most_nodes, const Program& program, const SizePoint& point)
      : prover_(prover), exprs_(exprs), most_nodes_(most_nodes), program_(program), memory_(program.buffers.size()) {
    for (size_t i = 0; i < program.symbols.size(); ++i) symbols_[program.symbols[i].var.get()] = point[i];
  }

  // A number for each output; equal numbers are equal values.
  std::vector<int64_t> run() {
    block(steps_of(program_));
    std::vector<int64_t> numbers;
    for (const BufferId id : program_.outputs) numbers.push_back(exprs_.number_of(leaf(value_of(id))));
    return numbers;
  }

  std::vector<int64_t> dims_of(BufferId id) const { return dims(at(id).type.shape); }

 private:
  struct Piece {
    int64_t begin = 0, count = 0;  // elements
    Array array;
  };

  const ProgramBuffer& at(BufferId id) const { return program_.buffers.at(static_cast<size_t>(id)); }

  Expr bound(const Expr& e) const { return symbols_.empty() ? e : simplify(substitute(e, symbols_)); }

  int64_t value(const Expr& e) const {
    const auto number = as_int(bound(e));
    if (!number) throw NoForm{"a size that is no number"};
    return *number;
  }

  std::vector<int64_t> dims(const Shape& shape) const {
    std::vector<int64_t> result;
    for (const Expr& dim : shape) result.push_back(value(dim));
    return result;
  }

  Array array_of(DType dtype, std::vector<int64_t> dims, Layout layout = {}) const {
    Array array{dtype, std::move(dims), std::move(layout), {}, {}};
    for (size_t i = 0; i < array.dims.size(); ++i) array.axes.push_back(make_var("a"));
    return array;
  }

  Array array_of(const LeafPtr& leaf, std::vector<int64_t> dims, Layout layout = {}) const {
    Array array = array_of(leaf->dtype, std::move(dims), std::move(layout));
    std::vector<Expr> index(array.axes.begin(), array.axes.end());
    array.body = load(leaf, {flat_index(index, array.dims)});
    return array;
  }

  // ---- buffers ----

  struct Place {
    BufferId root = -1;
    int64_t begin = 0, count = 0;  // elements
  };

  Place place_of(BufferId id) const {
    const ProgramBuffer& buffer = at(id);
    Array shape{buffer.type.dtype, dims_of(id), buffer.type.layout, {}, {}};
    Place place{id, 0, product(shape.physical_dims())};
    int64_t bytes = 0;
    for (; at(place.root).alias_of >= 0; place.root = at(place.root).alias_of) {
      const ProgramBuffer& view = at(place.root);
      bytes += view.view_offset_formula ? value(view.view_offset_formula) : view.view_offset;
    }
    const int64_t bits = dtype_bits(buffer.type.dtype);
    if (bytes != 0 && (bits == 0 || bytes * 8 % bits != 0)) throw NoForm{"a view inside an element"};
    if (bytes != 0) place.begin = bytes * 8 / bits;
    if (at(place.root).type.dtype != buffer.type.dtype) throw NoForm{"a view of another dtype"};
    return place;
  }

  std::vector<Piece>& pieces_of(BufferId root) {
    std::vector<Piece>& pieces = memory_[static_cast<size_t>(root)];
    const ProgramBuffer& buffer = at(root);
    if (!pieces.empty()) return pieces;
    if (buffer.kind == BufferKind::kInput) {
      const std::vector<int64_t> dims = dims_of(root);
      const LeafPtr leaf = exprs_.leaf(fmt::format("input {} {}", buffer.index, dtype_name(buffer.type.dtype)),
                                       buffer.type.dtype, product(dims));
      pieces.push_back({0, product(dims), array_of(leaf, dims)});
    } else if (buffer.kind == BufferKind::kWeight && buffer.data) {
      Array array = weight(buffer.data, dims_of(root), buffer.type.layout);
      const int64_t count = product(array.physical_dims());
      pieces.push_back({0, count, std::move(array)});
    }
    return pieces;
  }

  Array weight(const TensorPtr& data, std::vector<int64_t> dims, const Layout& layout) {
    const int64_t count = product(dims);
    const DType dtype = data->dtype();
    if (layout.row_major() && data->has_data() && data->num_elements() == 1 && count == 1 && dtype != DType::kString) {
      Array array = array_of(dtype, std::move(dims));
      array.body = is_float(dtype) ? const_of(dtype, data->get_double(0)) : const_int(dtype, data->get_int(0));
      return array;
    }
    const std::string key = fmt::format("weight {:016x} {}", prover_.hash_of(data), layout.to_string());
    return array_of(exprs_.leaf(key, dtype, count), std::move(dims), layout);
  }

  void write(BufferId id, Array array) {
    const Place place = place_of(id);
    if (product(array.physical_dims()) != place.count) throw NoForm{"a kernel of another size than its result"};
    std::vector<Piece>& pieces = memory_[static_cast<size_t>(place.root)];
    const int64_t end = place.begin + place.count;
    std::erase_if(pieces, [&](const Piece& p) { return p.begin >= place.begin && p.begin + p.count <= end; });
    for (const Piece& p : pieces)
      if (p.begin < end && place.begin < p.begin + p.count && p.count > 0) throw NoForm{"writes that overlap"};
    pieces.push_back({place.begin, place.count, std::move(array)});
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }

  // The element at `index` of what a kernel sees as `dims` in `layout`.
  Expr read(BufferId id, const std::vector<int64_t>& dims, const Layout& layout, const std::vector<Expr>& index) {
    const Place place = place_of(id);
    const std::vector<Piece>& pieces = pieces_of(place.root);
    Array shape{at(id).type.dtype, dims, layout, {}, {}};
    const std::vector<int64_t> physical = shape.physical_dims();
    if (product(physical) != place.count) throw NoForm{"a kernel of another size than its operand"};
    if (place.count == 0) return const_of(shape.dtype, 0);  // behind a condition that never holds
    for (const Piece& p : pieces)
      if (p.begin == place.begin && p.count == place.count && p.array.dims == dims && p.array.layout == layout)
        return p.array.at(index);
    const Expr flat = flat_index(physical_index(index, layout), physical) + Expr(place.begin);
    Expr result;
    int64_t covered = place.begin + place.count;
    for (size_t i = pieces.size(); i-- > 0;) {
      const Piece& p = pieces[i];
      if (p.count == 0 || p.begin + p.count <= place.begin || p.begin >= place.begin + place.count) continue;
      if (p.begin + p.count < covered) throw NoForm{"a value that is not written"};
      covered = std::min(covered, p.begin);
      const Expr here = p.array.at_place(flat - Expr(p.begin));
      result = result ? select(flat < Expr(p.begin + p.count), here, result) : here;
    }
    if (covered > place.begin || !result) throw NoForm{"a value that is not written"};
    return result;
  }

  Array value_of(BufferId id) {
    Array array = array_of(at(id).type.dtype, dims_of(id), at(id).type.layout);
    if (product(array.dims) == 0) array.body = const_of(array.dtype, 0);
    else array.body = read(id, array.dims, array.layout, {array.axes.begin(), array.axes.end()});
    return array;
  }

  // ---- steps ----

  void block(const StepBlock& steps) {
    for (const ProgramStep& step : steps) {
      switch (step.kind) {
        case StepKind::kCalls:
          for (size_t i = 0; i < step.num_calls; ++i) call(program_.calls.at(step.first_call + i));
          break;
        case StepKind::kBranch: branch(step); break;
        case StepKind::kLoop: throw NoForm{"loops"};
        case StepKind::kBind: throw NoForm{"sizes that data decide"};
        case StepKind::kCopy:
        case StepKind::kStart:
        case StepKind::kWait: throw NoForm{"devices"};
      }
    }
  }

  void branch(const ProgramStep& step) {
    const Expr condition = simplify(read(step.condition, {}, {}, {}));
    if (const auto known = as_int(condition)) return block(step.blocks.at(*known != 0 ? 0 : 1));
    const auto before = memory_;
    block(step.blocks.at(0));
    const auto taken = std::exchange(memory_, before);
    block(step.blocks.at(1));
    for (size_t root = 0; root < memory_.size(); ++root)
      if (const BufferKind kind = at(static_cast<BufferId>(root)).kind;
          kind != BufferKind::kInput && kind != BufferKind::kWeight)
        memory_[root] = joined(condition, taken[root], memory_[root]);
  }

  // What one of the blocks leaves behind. What only one has written is read no more.
  std::vector<Piece> joined(const Expr& condition, const std::vector<Piece>& yes, const std::vector<Piece>& no) {
    std::vector<Piece> result;
    for (const Piece& a : yes)
      for (const Piece& b : no) {
        if (a.begin + a.count <= b.begin || b.begin + b.count <= a.begin) continue;
        if (a.array.body.same_node(b.array.body)) {
          result.push_back(a);
          continue;
        }
        if (a.begin != b.begin || a.count != b.count || !(a.array.layout == b.array.layout))
          throw NoForm{"blocks of a branch that write other parts of a value"};
        Array array = array_of(a.array.dtype, a.array.dims, a.array.layout);
        const Expr flat = exprs_.place();
        const std::vector<Expr> index = index_of(flat, array.dims);
        const Expr other = a.array.dims == b.array.dims ? b.array.at(index)
                           : array.layout.row_major()   ? b.array.at(index_of(flat, b.array.dims))
                                                        : throw NoForm{"blocks of a branch with other layouts"};
        const Expr tidy = exprs_.tidy(select(condition, a.array.at(index), other), a.count, 1);
        const std::vector<Expr> own(array.axes.begin(), array.axes.end());
        array.body =
            substitute(load(leaf_of(tidy, array.dtype, a.count), {flat}), {{flat.get(), flat_index(own, array.dims)}});
        result.push_back({a.begin, a.count, std::move(array)});
      }
    return result;
  }

  // ---- kernels ----

  void call(const KernelCall& call) {
    const Kernel& kernel = program_.kernels.at(static_cast<size_t>(call.kernel));
    if (makes_constant(call, kernel)) return;
    if (!kernel.definition) return procedure(call, kernel.program);
    const std::vector<Array> results = results_of(call, *kernel.definition);
    for (size_t i = 0; i < results.size(); ++i) write(call.args[call.args.size() - results.size() + i], results[i]);
  }

  std::vector<Array> results_of(const KernelCall& call, const TensorProgram& definition) {
    if (!definition.windows.empty()) throw NoForm{"a kernel of windows"};
    std::unordered_map<const Buffer*, size_t> params;
    for (size_t i = 0; i < definition.params.size(); ++i) params[definition.params[i].buffer.get()] = i;
    std::unordered_map<const Buffer*, Array> stages;
    for (const Stage& stage : definition.stages) {
      Array array = array_of(stage.out->dtype, dims(stage.out->shape), stage.layout);
      std::vector<int64_t> extents;
      for (const Axis& axis : stage.body.reduce_axes) extents.push_back(value(axis.extent));
      const int64_t count = product(array.dims), sum = product(extents);
      if (count == 0 || sum == 0) {
        array.body = count == 0 ? const_of(array.dtype, 0) : combiner_identity(stage.body.combiner, array.dtype);
        stages[stage.out.get()] = std::move(array);
        continue;
      }
      VarMap vars = symbols_;
      const Expr flat = exprs_.place();
      const std::vector<Expr> index = index_of(flat, array.dims), reduced = index_of(exprs_.summed(), extents);
      for (size_t i = 0; i < index.size(); ++i) vars[stage.body.axes[i].var.get()] = index[i];
      for (size_t i = 0; i < reduced.size(); ++i) vars[stage.body.reduce_axes[i].var.get()] = reduced[i];
      const Expr value = transform(stage.body.value, [&](const Expr& e) -> Expr {
        if (e->kind == ExprKind::kVar) {
          const auto it = vars.find(e.get());
          return it == vars.end() ? Expr() : it->second;
        }
        if (e->kind != ExprKind::kLoad) return {};
        if (const auto it = stages.find(e->buffer.get()); it != stages.end()) return it->second.at(e->operands);
        const auto param = params.find(e->buffer.get());
        if (param == params.end()) throw NoForm{"a kernel that reads what it writes"};
        return read(call.args.at(param->second), dims(e->buffer->shape), definition.params[param->second].layout,
                    e->operands);
      });
      Expr tidy = exprs_.tidy(value, count, sum);
      if (stage.body.is_reduction() && sum > 1) {
        const LeafPtr leaf = exprs_.leaf(
            fmt::format("{} {} of {}: {}", combiner_name(stage.body.combiner), count, sum, exprs_.number(tidy)),
            array.dtype, count);
        tidy = load(leaf, {flat});
      } else if (exprs_.nodes(tidy) > most_nodes_) {
        tidy = load(leaf_of(tidy, array.dtype, count), {flat});
      }
      const std::vector<Expr> own(array.axes.begin(), array.axes.end());
      array.body = substitute(tidy, {{flat.get(), flat_index(own, array.dims)}});
      stages[stage.out.get()] = std::move(array);
    }
    std::vector<Array> results;
    for (const Stage& result : definition.results()) results.push_back(stages.at(result.out.get()));
    return results;
  }

  // The elements in order as a value of their own.
  LeafPtr leaf(const Array& array) {
    const int64_t count = product(array.dims);
    if (count == 0) return leaf_of({}, array.dtype, 0);
    return leaf_of(exprs_.tidy(array.at(index_of(exprs_.place(), array.dims)), count, 1), array.dtype, count);
  }

  LeafPtr leaf_of(const Expr& tidy, DType dtype, int64_t count) {
    if (count == 0) return exprs_.leaf("nothing", dtype, 0);
    if (tidy->kind == ExprKind::kLoad && tidy->operands[0].same_node(exprs_.place()) &&
        as_int(tidy->buffer->shape[0]) == count)
      return tidy->buffer;
    return exprs_.leaf(fmt::format("{} {}", count, exprs_.number(tidy)), dtype, count);
  }

  // A kernel on weights alone, computed.
  bool makes_constant(const KernelCall& call, const Kernel& kernel) {
    if (kernel.program.num_outputs != 1 || !kernel.definition || kernel.definition->reduction()) return false;
    std::vector<BufferView> views;
    std::vector<TensorPtr> kept;
    for (size_t i = 0; i + 1 < call.args.size(); ++i) {
      const ProgramBuffer& weight = at(call.args[i]);
      if (weight.kind != BufferKind::kWeight || weight.alias_of >= 0 || !weight.data || !weight.data->has_data())
        return false;
      views.push_back({weight.data->dtype(), dims(kernel.program.params[i]->shape),
                       const_cast<std::byte*>(weight.data->bytes()), false});
    }
    const ProgramBuffer& target = at(call.args.back());
    const std::vector<int64_t> size = dims(kernel.program.params.back()->shape);
    if (target.alias_of >= 0 || !target.type.layout.row_major() || product(size) > kMostMade || product(size) == 0 ||
        dtype_bits(target.type.dtype) < 8)
      return false;
    const auto made = std::make_shared<Tensor>(target.type.dtype, size);
    views.push_back({made->dtype(), size, made->mutable_bytes(), true});
    std::vector<int64_t> symbols;
    for (const Var& symbol : kernel.program.symbols) symbols.push_back(value(symbol));
    interpret(kernel.program, std::span<const BufferView>(views), symbols);
    write(call.args.back(), weight(made, dims_of(call.args.back()), {}));
    return true;
  }

  // Loops that no definition describes: equal ones make equal results of equal operands.
  void procedure(const KernelCall& call, const LoopProgram& loops) {
    std::string key = "loops";
    const size_t inputs = call.args.size() - static_cast<size_t>(loops.num_outputs);
    for (size_t i = 0; i < inputs; ++i)
      key += fmt::format(" {}{}", exprs_.number_of(leaf(value_of(call.args[i]))),
                         at(call.args[i]).type.layout.to_string());
    std::vector<BufferPtr> params = loops.params;
    for (const BufferPtr& param : params) key += fmt::format(" {}", fmt::join(dims(param->shape), ","));
    Stmt body = symbols_.empty() ? loops.body : substitute(loops.body, symbols_);
    body = simplify_statement(in_vectors(body), {});
    key += fmt::format(" {}", exprs_.number(body, loops.params));
    for (size_t i = inputs; i < call.args.size(); ++i) {
      const BufferId id = call.args[i];
      const std::vector<int64_t> size = dims_of(id);
      if (!at(id).type.layout.row_major()) throw NoForm{"a procedure with a layout"};
      write(id, array_of(exprs_.leaf(fmt::format("{} result {}", key, i - inputs), at(id).type.dtype, product(size)),
                         size));
    }
  }

  // Vector loops as loops over whole vectors and a rest, which those of open extents are.
  static Stmt in_vectors(const Stmt& s) {
    return transform(s, nullptr, [](const Stmt& loop) -> Stmt {
      if (loop->kind != StmtKind::kFor) return {};
      const auto extent = as_int(simplify(loop->extent));
      const auto part = [&](const Expr& begin, const Expr& extent_of_part, ForKind kind) {
        return for_loop(loop->var, begin, extent_of_part, kind, loop->stmts[0]);
      };
      if (loop->for_kind != ForKind::kVectorized || !extent) {
        const bool serial = loop->for_kind == ForKind::kSerial || loop->for_kind == ForKind::kVectorized;
        return serial ? Stmt() : part(loop->begin, loop->extent, ForKind::kSerial);
      }
      const int64_t whole = *extent / kVectorLanes;
      const auto at = [&](const Expr& place) {
        return substitute(loop->stmts[0], {{loop->var.get(), loop->begin + place}});
      };
      const Var number = make_var("n"), lane = make_var("l"), rest = make_var("r");
      return seq(
          {for_loop(number, 0, whole, ForKind::kSerial,
                    for_loop(lane, 0, kVectorLanes, ForKind::kSerial, at(number * Expr(kVectorLanes) + lane))),
           for_loop(rest, 0, *extent - whole * kVectorLanes, ForKind::kSerial, at(Expr(whole * kVectorLanes) + rest))});
    });
  }

  SizeProver& prover_;
  CanonicalExprs& exprs_;
  const size_t most_nodes_;
  const Program& program_;
  VarMap symbols_;
  std::vector<std::vector<Piece>> memory_;  // of roots
};

}  // namespace

std::string SizeProver::difference(const Program& general, const SizePoint& point, const Program& own) {
  std::string what;
  for (const size_t most_nodes : kMostNodes)
    if ((what = difference(general, point, own, most_nodes)).empty()) break;
  return what;
}

std::string SizeProver::difference(const Program& general, const SizePoint& point, const Program& own,
                                   size_t most_nodes) {
  try {
    CanonicalExprs exprs;
    const SizePoint none;
    Form wanted(*this, exprs, most_nodes, own, none), found(*this, exprs, most_nodes, general, point);
    if (general.outputs.size() != own.outputs.size() || general.inputs.size() != own.inputs.size())
      return "another number of inputs or outputs";
    for (const auto list : {&Program::inputs, &Program::outputs})
      for (size_t i = 0; i < (own.*list).size(); ++i)
        if (wanted.dims_of((own.*list)[i]) != found.dims_of((general.*list)[i]))
          return fmt::format("'{}' has another shape", own.buffers[static_cast<size_t>((own.*list)[i])].name);
    const std::vector<int64_t> a = wanted.run(), b = found.run();
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i])
        return fmt::format("'{}' has another form", own.buffers[static_cast<size_t>(own.outputs[i])].name);
    return "";
  } catch (const NoForm& reason) {
    return reason.what;
  } catch (const LoopFault& fault) {
    return fault.what();  // a kernel reads outside of a weight
  }
}

uint64_t SizeProver::hash_of(const TensorPtr& weight) {
  const auto [it, is_new] = hashes_.try_emplace(weight.get());
  if (is_new) {
    Hasher hasher;
    hasher.add(static_cast<uint64_t>(weight->dtype()));
    if (weight->has_data()) hasher.add_bytes(weight->bytes(), static_cast<size_t>(weight->num_bytes()));
    else hasher.add(weight->content_hash());
    it->second = {weight, hasher.value()};
  }
  return it->second.second;
}

}  // namespace tessera::inline driver
