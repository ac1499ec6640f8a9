#include "accel/network/unit_kernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/expand.h"
#include "accel/network/tile_sizes.h"
#include "accel/tokens.h"
#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline network {

namespace {

// Where an instruction's parameter lies: a buffer's index for each index of the parameter.
struct Place {
  BufferPtr buffer;
  std::function<std::vector<Expr>(const std::vector<Expr>& inner)> index;
  Expr inside = {};  // of a padded one: where it is read
};

std::function<std::vector<Expr>(const std::vector<Expr>&)> behind(std::vector<Expr> outer) {
  return [outer = std::move(outer)](const std::vector<Expr>& inner) {
    std::vector<Expr> all = outer;
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  };
}

// The nest of an instruction at some places.
Stmt instance(const UnitInstruction& instruction, const std::vector<Place>& places,
              const std::vector<int64_t>& immediates) {
  const LoopProgram& kernel = *instruction.intrinsic->pattern();
  std::map<const Buffer*, const Place*> of;
  for (size_t p = 0; p < places.size(); ++p) of[kernel.params[p].get()] = &places[p];
  VarMap symbols;
  for (size_t s = 0; s < kernel.symbols.size(); ++s) symbols[kernel.symbols[s].get()] = Expr(immediates[s]);
  // Its loops, with variables of their own.
  walk(
      kernel.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kFor) symbols[s->var.get()] = make_var(s->var->name);
      },
      [](const Expr&) {});
  const std::function<Stmt(const Stmt&)> copy = [&](const Stmt& s) -> Stmt {
    const auto value = [&](const Expr& e) {
      return transform(substitute(e, symbols), [&](const Expr& part) -> Expr {
        if (part->kind != ExprKind::kLoad) return {};
        const Place& place = *of.at(part->buffer.get());
        const Expr element = load(place.buffer, place.index(part->operands));
        return place.inside ? select(place.inside, element, const_of(element.dtype(), 0)) : element;
      });
    };
    switch (s->kind) {
      case StmtKind::kFor:
        return for_loop(symbols.at(s->var.get()), s->begin, s->extent, ForKind::kSerial, copy(s->stmts[0]));
      case StmtKind::kStore: {
        std::vector<Expr> indices;
        for (const Expr& index : s->indices) indices.push_back(substitute(index, symbols));
        const Place& place = *of.at(s->buffer.get());
        return store(place.buffer, place.index(indices), value(s->value));
      }
      default: {
        std::vector<Stmt> children;
        for (const Stmt& child : s->stmts) children.push_back(copy(child));
        return seq(std::move(children));
      }
    }
  };
  return tensorized(instruction.intrinsic, copy(kernel.body));
}

// Buffers and operands are typed: an instruction that moves any type is found by its width.
class Builder {
 public:
  Builder(const UnitRoles& roles, const Contraction& of, const Cover& cover, const UnitTiling& tiling)
      : roles_(roles), of_(of), cover_(cover), tiling_(tiling), sizes_(roles, of, cover, tiling) {}

  UnitKernel build() {
    make_params();
    make_buffers();
    Stmt body = for_loop(tile_, 0, tiles(), ForKind::kSerial, tile());
    std::vector<Stmt> first = load_rows();
    if (first_clear_) first.push_back(first_clear_);
    first.push_back(body);
    body = seq(std::move(first));
    for (const BufferPtr& buffer : allocations_) body = alloc(buffer, body);
    result_.program.name = of_.kernel->name;
    result_.program.num_outputs = 1;
    result_.program.params.push_back(out_);
    result_.program.body = std::move(body);
    result_.tiling = tiling_;
    return std::move(result_);
  }

 private:
  // ---- parameters ----

  BufferPtr add_param(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                      UnitKernel::Input input) {
    BufferPtr buffer = make_buffer(name, dtype, make_shape(shape));
    input.dtype = dtype;
    input.shape = shape;
    result_.program.params.push_back(buffer);
    result_.inputs.push_back(std::move(input));
    return buffer;
  }

  BufferPtr add_activation(size_t param) {
    for (size_t i = 0; i < result_.inputs.size(); ++i)
      if (result_.inputs[i].kind == UnitKernel::Input::Kind::kActivation && result_.inputs[i].param == param)
        return result_.program.params[i];
    const TensorParam& of = of_.kernel->params[param];
    const Shape shape = physical_shape(of.buffer->shape, of.layout);
    return add_param(of.buffer->name, of.buffer->dtype, *static_dims(shape),
                     {UnitKernel::Input::Kind::kActivation, param, {}, {}, {}});
  }

  void make_params() {
    const UnitProduct& product = roles_.product;
    if (of_.reduction) {
      x_ = add_activation(of_.x_param);
      std::vector<int64_t> shape = {sizes_.blocks_out_all, sizes_.blocks_in_all, of_.window()};
      append_tile(shape);
      w_ = add_param(of_.kernel->params[of_.w_param].buffer->name + "_tiles", product.w_dtype, shape,
                     {UnitKernel::Input::Kind::kWeights, of_.w_param, {}, {}, {}});
    }
    for (const size_t param : cover_.streams) streams_.push_back(add_activation(param));
    for (const CoverRow& row : cover_.rows) {
      if (rows_.contains(row.dtype)) continue;
      std::vector<CoverRow> of_type;
      for (size_t r = 0; r < cover_.rows.size(); ++r)
        if (cover_.rows[r].dtype == row.dtype) {
          row_place_.emplace(r, of_type.size());
          of_type.push_back(cover_.rows[r]);
        }
      const std::vector<int64_t> shape = {static_cast<int64_t>(of_type.size()), sizes_.blocks_out_all, roles_.lanes()};
      rows_[row.dtype].first = add_param(fmt::format("numbers_{}", dtype_name(row.dtype)), row.dtype, shape,
                                         {UnitKernel::Input::Kind::kRows, 0, {}, {}, of_type});
    }
    const Stage& output = of_.output();
    out_ = make_buffer(output.out->name, output.out->dtype, physical_shape(output.out->shape, output.layout));
  }

  void append_tile(std::vector<int64_t>& shape) const {
    const UnitProduct& product = roles_.product;
    shape.push_back(product.out_first ? product.out : product.in);
    shape.push_back(product.out_first ? product.in : product.out);
  }

  // ---- buffers in the unit's memories ----

  BufferPtr add_buffer(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    allocations_.push_back(make_buffer(name, dtype, make_shape(shape), MemoryScope::kLocal));
    return allocations_.back();
  }

  void make_buffers() {
    const UnitProduct& product = roles_.product;
    std::vector<int64_t> tile_shape = {tiling_.blocks_out};
    tile_shape.insert(tile_shape.end(), tiling_.places.begin(), tiling_.places.end());
    tile_shape.push_back(roles_.lanes());
    for (auto& [dtype, row] : rows_)
      row.second = add_buffer(fmt::format("row_{}", dtype_name(dtype)), dtype, *static_dims(row.first->shape));
    if (of_.reduction) {
      std::vector<int64_t> shape = {sizes_.x_threads, tiling_.blocks_in};
      shape.insert(shape.end(), sizes_.local.begin(), sizes_.local.end());
      shape.push_back(product.in);
      x_tile_ = add_buffer("x_tile", product.x_dtype, shape);
      shape = {sizes_.w_threads, tiling_.blocks_out, tiling_.blocks_in, of_.window()};
      append_tile(shape);
      w_tile_ = add_buffer("w_tile", product.w_dtype, shape);
      shape = tile_shape;
      shape.insert(shape.begin(), sizes_.sum_threads);
      sums_ = add_buffer("sums", DType::kI32, shape);
    }
    for (size_t s = 0; s < streams_.size(); ++s)
      stream_tiles_.push_back(add_buffer(fmt::format("stream{}", s), streams_[s]->dtype, tile_shape));
    for (size_t b = 0; b < sizes_.buffers.size(); ++b)
      step_tiles_.push_back(add_buffer(fmt::format("value{}", b), sizes_.buffers[b], tile_shape));
  }

  // ---- a tile ----

  int64_t tiles() const { return sizes_.tiles_out * sizes_.tiles_of_places; }

  Stmt tile() {
    const Expr tiles_out = sizes_.tiles_out, tiles_of_places = sizes_.tiles_of_places;
    if (tiling_.channels_inner) {
      tile_out_ = floormod(tile_, tiles_out);
      tile_of_places_ = floordiv(tile_, tiles_out);
    } else {
      tile_out_ = floordiv(tile_, tiles_of_places);
      tile_of_places_ = floormod(tile_, tiles_of_places);
    }
    Expr rest = tile_of_places_;
    first_place_.assign(of_.places.size(), Expr(0));
    for (size_t p = of_.places.size(); p-- > 0;) {
      first_place_[p] = floormod(rest, Expr(sizes_.tiles_of[p])) * Expr(tiling_.places[p]);
      rest = floordiv(rest, Expr(sizes_.tiles_of[p]));
    }
    first_out_ = tile_out_ * Expr(tiling_.blocks_out);
    std::vector<Stmt> parts;
    if (of_.reduction) {
      const Stmt clear = each_vector([&](const Vector& at) { return instance(*roles_.clear, {sum_place(at)}, {}); });
      const Expr next = tile_ + Expr(1);
      if (sizes_.clears_ahead(roles_)) first_clear_ = substitute(clear, {{tile_.get(), Expr(0)}});
      else parts.push_back(clear);
      parts.push_back(for_loop(step_, 0, sizes_.steps, ForKind::kSerial, step()));
      if (first_clear_) parts.push_back(if_then(next < Expr(tiles()), substitute(clear, {{tile_.get(), next}})));
    }
    for (size_t s = 0; s < streams_.size(); ++s)
      parts.push_back(each_vector([&](const Vector& at) {
        const TensorParam& param = of_.kernel->params[cover_.streams[s]];
        return instance(*roles_.load_sums,
                        {dram_place(streams_[s], param.layout, at), {stream_tiles_[s], behind(at.index())}}, {});
      }));
    for (size_t s = 0; s < cover_.steps.size(); ++s) {
      const CoverStep& step = cover_.steps[s];
      parts.push_back(each_vector([&](const Vector& at) {
        return computed(step, at, {step_tiles_[sizes_.buffer_of[s]], behind(at.index())});
      }));
    }
    parts.push_back(each_vector(
        [&](const Vector& at) { return computed(cover_.store, at, dram_place(out_, of_.output().layout, at)); }));
    return seq(std::move(parts));
  }

  struct Vector {
    Var block;
    std::vector<Var> places;
    std::vector<Expr> index() const {
      std::vector<Expr> result = {block};
      result.insert(result.end(), places.begin(), places.end());
      return result;
    }
  };

  Expr extent_of_place(size_t p) const {
    return min(Expr(tiling_.places[p]), Expr(of_.place_extents[p]) - first_place_[p]);
  }
  Expr extent_of_out() const { return min(Expr(tiling_.blocks_out), Expr(sizes_.blocks_out_all) - first_out_); }

  Stmt each_vector(const std::function<Stmt(const Vector&)>& body) const {
    Vector at{make_var("o"), {}};
    for (size_t p = 0; p < of_.places.size(); ++p) at.places.push_back(make_var(fmt::format("p{}", p)));
    Stmt result = body(at);
    for (size_t p = of_.places.size(); p-- > 0;)
      result = for_loop(at.places[p], 0, extent_of_place(p), ForKind::kSerial, result);
    return for_loop(at.block, 0, extent_of_out(), ForKind::kSerial, result);
  }

  Place sum_place(const Vector& at) const {
    std::vector<Expr> index = at.index();
    index.insert(index.begin(), sizes_.sum_threads > 1 ? floormod(tile_, Expr(sizes_.sum_threads)) : Expr(0));
    return {sums_, behind(std::move(index))};
  }

  // A vector of a tensor like the output.
  Place dram_place(const BufferPtr& buffer, const Layout& layout, const Vector& at) const {
    const size_t rank = of_.places.size() + 1;
    std::vector<Expr> logical(rank);
    for (size_t p = 0; p < of_.places.size(); ++p) logical[of_.places[p]] = first_place_[p] + at.places[p];
    return {buffer, in_layout(std::move(logical), of_.channel_axis, first_out_ + at.block, roles_.lanes(), layout)};
  }

  // The physical index, whose channels are those of a block.
  static std::function<std::vector<Expr>(const std::vector<Expr>&)> in_layout(std::vector<Expr> logical, size_t channel,
                                                                              const Expr& block, int64_t lanes,
                                                                              const Layout& layout) {
    return [logical = std::move(logical), channel, block, lanes, layout](const std::vector<Expr>& inner) mutable {
      if (layout.row_major()) {
        logical[channel] = block * Expr(lanes) + inner[0];
        return logical;
      }
      // Blocks are the layout's own.
      std::vector<Expr> index;
      for (const LayoutDim& dim : layout.dims) {
        const auto axis = static_cast<size_t>(dim.axis);
        if (axis != channel) index.push_back(logical[axis]);
        else index.push_back(dim.part == LayoutDim::Part::kQuotient ? block : inner[0]);
      }
      return index;
    };
  }

  Place operand_place(const CoverOperand& operand, const Vector& at) const {
    switch (operand.kind) {
      case CoverOperand::Kind::kSum: return sum_place(at);
      case CoverOperand::Kind::kStep: return {step_tiles_[sizes_.buffer_of[operand.number]], behind(at.index())};
      case CoverOperand::Kind::kStream: {
        const auto it = std::find(cover_.streams.begin(), cover_.streams.end(), operand.number);
        return {stream_tiles_[static_cast<size_t>(it - cover_.streams.begin())], behind(at.index())};
      }
      case CoverOperand::Kind::kRow: break;
    }
    const BufferPtr& row = rows_.at(cover_.rows[operand.number].dtype).second;
    return {row, behind({Expr(static_cast<int64_t>(row_place_.at(operand.number))), first_out_ + at.block})};
  }

  Stmt computed(const CoverStep& step, const Vector& at, Place to) const {
    std::vector<Place> places;
    for (const CoverOperand& operand : step.operands) places.push_back(operand_place(operand, at));
    places.push_back(std::move(to));
    return instance(*step.map->instruction, places, step.immediates);
  }

  std::vector<Stmt> load_rows() const {
    std::vector<Stmt> result;
    for (const auto& [dtype, row] : rows_) {
      const Var r = make_var("r"), o = make_var("o");
      const Stmt nest = instance(*roles_.load_sums, {{row.first, behind({r, o})}, {row.second, behind({r, o})}}, {});
      result.push_back(for_loop(r, 0, row.first->shape[0], ForKind::kSerial,
                                for_loop(o, 0, row.first->shape[1], ForKind::kSerial, nest)));
    }
    return result;
  }

  // ---- a step: some blocks of the channels that are summed ----

  Stmt step() {
    first_in_ = step_ * Expr(tiling_.blocks_in);
    const Expr count = tile_ * Expr(sizes_.steps) + step_;
    const Expr x_count = sizes_.x_once ? tile_of_places_ : count, w_count = sizes_.w_once ? tile_out_ : count;
    x_thread_ = sizes_.x_threads > 1 ? floormod(x_count, Expr(sizes_.x_threads)) : Expr(0);
    w_thread_ = sizes_.w_threads > 1 ? floormod(w_count, Expr(sizes_.w_threads)) : Expr(0);
    Stmt x = load_x(), w = load_w();
    if (sizes_.x_once) x = if_then(equal(tile_out_, Expr(0)), x);
    if (sizes_.w_once) w = if_then(equal(tile_of_places_, Expr(0)), w);
    return seq({x, w, multiply()});
  }

  Expr extent_of_in() const { return min(Expr(tiling_.blocks_in), Expr(sizes_.blocks_in_all) - first_in_); }

  Stmt load_x() const {
    const Var block = make_var("c");
    std::vector<Expr> logical(of_.x_dims.size()), index = {x_thread_, block};
    std::vector<Var> vars;
    std::vector<Expr> extents;
    Expr inside;
    for (size_t i = 0; i < sizes_.x_dim.size(); ++i) {
      const PlaceDim& dim = of_.x_dims[sizes_.x_dim[i]];
      vars.push_back(make_var(fmt::format("y{}", i)));
      index.push_back(vars[i]);
      Expr place = Expr(dim.first), extent = sizes_.spans[i] + 1;
      if (dim.axis >= 0) {
        const auto p = static_cast<size_t>(dim.axis);
        place = place + Expr(dim.stride) * (sizes_.compact[i] ? first_place_[p] + vars[i] : first_place_[p]);
        extent = sizes_.compact[i] ? extent_of_place(p)
                                   : Expr(dim.stride) * (extent_of_place(p) - Expr(1)) + Expr(sizes_.spans[i] + 1);
      }
      if (dim.axis < 0 || !sizes_.compact[i]) place = place + vars[i];
      extents.push_back(extent);
      logical[sizes_.x_dim[i]] = place;
      if (!dim.padded) continue;
      const Expr within = logical_and(Expr(0) <= place, place < Expr(dim.extent));
      inside = inside ? logical_and(inside, within) : within;
    }
    const Layout& layout = of_.kernel->params[of_.x_param].layout;
    Place from{x_, in_layout(std::move(logical), of_.x_channel_dim, first_in_ + block, roles_.product.in, layout),
               inside};
    Stmt nest = instance(*roles_.load_x, {std::move(from), {x_tile_, behind(index)}}, {});
    for (size_t i = vars.size(); i-- > 0;) nest = for_loop(vars[i], 0, extents[i], ForKind::kSerial, nest);
    return for_loop(block, 0, extent_of_in(), ForKind::kSerial, nest);
  }

  Stmt load_w() const {
    const Var o = make_var("o"), c = make_var("c"), k = make_var("k");
    Stmt nest =
        instance(*roles_.load_w,
                 {{w_, behind({first_out_ + o, first_in_ + c, k})}, {w_tile_, behind({w_thread_, o, c, k})}}, {});
    nest = for_loop(k, 0, of_.window(), ForKind::kSerial, nest);
    nest = for_loop(c, 0, extent_of_in(), ForKind::kSerial, nest);
    return for_loop(o, 0, extent_of_out(), ForKind::kSerial, nest);
  }

  Stmt multiply() const {
    const UnitProduct& product = roles_.product;
    const Var c = make_var("c");
    std::vector<Var> windows;
    Expr flat = 0;
    for (const WindowAxis& window : of_.windows) {
      windows.push_back(make_var("k"));
      flat = flat * Expr(window.extent) + windows.back();
    }
    Vector at{make_var("o"), {}};
    for (size_t p = 0; p < of_.places.size(); ++p) at.places.push_back(make_var(fmt::format("p{}", p)));
    std::vector<Expr> x_index = {x_thread_, c};
    for (size_t i = 0; i < sizes_.x_dim.size(); ++i) {
      const PlaceDim& dim = of_.x_dims[sizes_.x_dim[i]];
      Expr place = 0;
      if (dim.axis >= 0)
        place = (sizes_.compact[i] ? Expr(1) : Expr(dim.stride)) * at.places[static_cast<size_t>(dim.axis)];
      for (const auto& [w, by] : dim.windows) place = place + Expr(by) * windows[static_cast<size_t>(w)];
      x_index.push_back(place);
    }
    std::vector<Place> places(3);
    places[product.x] = {x_tile_, behind(x_index)};
    places[product.w] = {w_tile_, behind({w_thread_, at.block, c, flat})};
    places[product.d] = sum_place(at);
    Stmt nest = instance(*product.instruction, places, {});
    for (size_t p = of_.places.size(); p-- > 0;)
      nest = for_loop(at.places[p], 0, extent_of_place(p), ForKind::kSerial, nest);
    for (size_t w = windows.size(); w-- > 0;)
      nest = for_loop(windows[w], 0, of_.windows[w].extent, ForKind::kSerial, nest);
    nest = for_loop(c, 0, extent_of_in(), ForKind::kSerial, nest);
    return for_loop(at.block, 0, extent_of_out(), ForKind::kSerial, nest);
  }

  const UnitRoles& roles_;
  const Contraction& of_;
  const Cover& cover_;
  const UnitTiling tiling_;
  const TileSizes sizes_;
  UnitKernel result_;
  BufferPtr x_, w_, out_, x_tile_, w_tile_, sums_;
  std::vector<BufferPtr> streams_, stream_tiles_, step_tiles_, allocations_;
  std::map<DType, std::pair<BufferPtr, BufferPtr>> rows_;  // in DRAM, in the unit
  std::map<size_t, size_t> row_place_;
  const Var tile_ = make_var("tile"), step_ = make_var("step");
  Expr tile_out_, tile_of_places_, first_out_, first_in_, x_thread_, w_thread_;
  std::vector<Expr> first_place_;
  Stmt first_clear_;  // where tiles clear the sums of the next
};

}  // namespace

Layout unit_layout(size_t rank, size_t channel_dim, int64_t lanes) {
  return Layout::blocked(static_cast<int>(rank), static_cast<int>(channel_dim), lanes);
}

bool suits_unit(const Layout& layout, const Shape& shape, size_t channel_dim, int64_t lanes) {
  if (layout.row_major()) {
    const auto channels = as_int(shape[channel_dim]);
    return channel_dim + 1 == shape.size() && channels && *channels % lanes == 0;
  }
  bool whole = true;
  for (const LayoutDim& dim : layout.dims)
    if (static_cast<size_t>(dim.axis) == channel_dim)
      whole = whole && dim.part != LayoutDim::Part::kWhole && dim.block == lanes;
    else whole = whole && dim.part == LayoutDim::Part::kWhole;
  const LayoutDim& last = layout.dims.back();
  return whole && static_cast<size_t>(last.axis) == channel_dim && last.part == LayoutDim::Part::kRemainder;
}

UnitKernel unit_kernel(const UnitRoles& roles, const Contraction& of, const Cover& cover, const UnitTiling& tiling) {
  return Builder(roles, of, cover, tiling).build();
}

InstructionStream stream_of(const Accelerator& unit, const LoopProgram& program) {
  InstructionStream stream = expand(unit, program);
  order_by_need(unit, stream);
  place_tokens(unit, stream);
  encode(unit, stream);  // every number fits its field
  const std::vector<std::string> problems = check_stream(unit, stream);
  check(problems.empty(), fmt::format("a stream that is not proven: {}", fmt::join(problems, "; ")));
  return stream;
}

}  // namespace tessera::inline network
