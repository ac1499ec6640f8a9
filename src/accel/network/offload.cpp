#include "accel/network/offload.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/expand.h"
#include "accel/network/tile_sizes.h"
#include "accel/simulate.h"
#include "accel/tokens.h"
#include "arith/simplify.h"
#include "loop/naive_loops.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline network {

namespace {

// Where an element lies in a row-major buffer: the sum of a number and multiples of variables. Empty when it is no
// such.
struct Linear {
  int64_t first = 0;
  std::vector<int64_t> by;
};
std::optional<Linear> linear_place(const std::vector<Expr>& index, const Shape& shape, const std::vector<Var>& vars,
                                   const Bounds& bounds) {
  Expr flat = 0;
  for (size_t d = 0; d < index.size(); ++d) flat = flat * shape[d] + index[d];
  flat = simplify(flat, bounds);
  Linear result;
  VarMap zero;
  for (const Var& var : vars) {
    const auto by = linear_coefficient(flat, var, bounds);
    if (!by) return std::nullopt;
    result.by.push_back(*by);
    zero[var.get()] = 0;
  }
  const auto first = as_int(simplify(substitute(flat, zero)));
  if (!first) return std::nullopt;
  result.first = *first;
  return result;
}

class Offloader {
 public:
  Offloader(Program& program, const Accelerator& unit, const OffloadOptions& options)
      : program_(program), unit_(unit), options_(options), roles_(roles_of(unit, why_no_unit_)) {}

  std::set<int32_t> run(const std::function<bool(const KernelCall&)>& wanted,
                        const std::function<void(const KernelCall&, const std::string&)>& declined) {
    std::vector<KernelCall> old = std::exchange(program_.calls, {});
    std::vector<size_t> first;  // of what each call has become
    for (const KernelCall& call : old) {
      first.push_back(program_.calls.size());
      std::string reason;
      if (wanted(call)) {
        std::string rest;
        reason = move(call, rest);
        if (!rest.empty()) declined(call, "sums alone run there: " + rest);
        if (reason.empty()) continue;
        declined(call, reason);
      }
      program_.calls.push_back(call);
    }
    first.push_back(program_.calls.size());
    for_each_step(program_.steps, [&](ProgramStep& step) {
      if (step.kind != StepKind::kCalls) return;
      const size_t begin = first[step.first_call], end = first[step.first_call + step.num_calls];
      step.first_call = begin;
      step.num_calls = end - begin;
    });
    return unit_kernels_;
  }

 private:
  // A kernel that the unit takes, as often as it is called with the same weights or others.
  struct Taken {
    std::shared_ptr<const TensorProgram> definition;  // of the unit's part, in layouts that suit it
    std::optional<TensorProgram> rest;                // what the host does with sums
    Contraction contraction;
    Cover cover;
    UnitKernel kernel;
    std::string why_rest;                   // the host does something with sums
    int32_t number = -1, rest_number = -1;  // of kernels
  };

  ProgramBuffer& at(BufferId id) { return program_.buffers[static_cast<size_t>(id)]; }

  // The reason why it stays; `rest` why a part of it does.
  std::string move(const KernelCall& call, std::string& rest) {
    if (!why_no_unit_.empty()) return fmt::format("of {}, {}", unit_.name, why_no_unit_);
    const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
    if (!kernel.definition) return "it has loops of its own, which are no instructions";
    const auto [it, is_new] = taken_.try_emplace(call.kernel);
    if (is_new) it->second = take(kernel);
    if (const auto* not_taken = std::get_if<NotOffloaded>(&it->second)) return not_taken->reason;
    Taken& taken = *std::get<std::shared_ptr<Taken>>(it->second);
    const auto is_known = [&](size_t param) {
      return data_of(arg_of(call, taken.definition->params[param].buffer)) != nullptr;
    };
    for (const UnitKernel::Input& input : taken.kernel.inputs) {
      if (input.kind == UnitKernel::Input::Kind::kWeights && !is_known(input.param))
        return "its weights are not known when it is compiled";
      for (const CoverRow& row : input.rows)
        if (row.param != SIZE_MAX && !is_known(row.param))
          return "what it computes with is not known when it is compiled";
    }
    rest = taken.why_rest;
    return give(call, taken);
  }

  // What a call passes for an operand of its kernel's definition.
  BufferId arg_of(const KernelCall& call, const BufferPtr& logical) const {
    const TensorProgram& original = *program_.kernels[static_cast<size_t>(call.kernel)].definition;
    for (size_t p = 0; p < original.params.size(); ++p)
      if (original.params[p].buffer == logical) return call.args[p];
    throw InternalError("an operand that the kernel does not have");
  }

  const Tensor* data_of(BufferId id) {
    const ProgramBuffer& buffer = at(id);
    return buffer.kind == BufferKind::kWeight && buffer.alias_of < 0 && buffer.data && buffer.data->has_data()
               ? buffer.data.get()
               : nullptr;
  }

  // The same kernel with operands in layouts that suit the unit.
  std::shared_ptr<const TensorProgram> suited(const TensorProgram& kernel, const Contraction& of, const Cover* cover) {
    auto result = std::make_shared<TensorProgram>(kernel);
    const auto suit = [&](Layout& layout, const Shape& shape, size_t channel, int64_t lanes) {
      if (!suits_unit(layout, shape, channel, lanes)) layout = unit_layout(shape.size(), channel, lanes);
    };
    if (of.reduction)
      suit(result->params[of.x_param].layout, result->params[of.x_param].buffer->shape, of.x_channel_dim,
           roles_.product.in);
    suit(result->stages.back().layout, result->stages.back().out->shape, of.channel_axis, roles_.lanes());
    if (cover)
      for (const size_t param : cover->streams)
        suit(result->params[param].layout, result->params[param].buffer->shape, of.channel_axis, roles_.lanes());
    return result;
  }

  // The kernel that gives the sums alone, and what is left to do with them.
  static std::pair<TensorProgram, TensorProgram> split(const TensorProgram& kernel) {
    const Stage& reduction = *kernel.reduction();
    TensorProgram sums, rest;
    sums.name = kernel.name + "_sums";
    sums.stages = {reduction};
    sums.stages[0].layout = kernel.output().layout;
    const auto used_by = [&](const Expr& value, TensorProgram& program) {
      for (const TensorParam& param : kernel.params) {
        bool used = false;
        walk(value, [&](const Expr& e) { used = used || (e->kind == ExprKind::kLoad && e->buffer == param.buffer); });
        if (used) program.params.push_back(param);
      }
    };
    used_by(reduction.body.value, sums);
    rest.name = kernel.name + "_rest";
    used_by(kernel.output().body.value, rest);
    rest.params.push_back({reduction.out, sums.stages[0].layout, OperandKind::kActivation});
    rest.stages = {kernel.output()};
    std::vector<BufferPtr> inputs;
    for (const TensorParam& param : rest.params) inputs.push_back(param.buffer);
    rest.stages[0].body.inputs = inputs;
    return {std::move(sums), std::move(rest)};
  }

  std::variant<NotOffloaded, std::shared_ptr<Taken>> take(const Kernel& kernel) {
    auto taken = std::make_shared<Taken>();
    taken->definition = kernel.definition;
    if (auto problem = read(*taken)) return *problem;
    auto covered = cover(roles_, taken->contraction);
    std::string no_cover;
    if (const auto* problem = std::get_if<NotOffloaded>(&covered)) {
      if (!taken->contraction.reduction || taken->contraction.reduction == &taken->contraction.output())
        return *problem;
      no_cover = problem->reason;
      auto [sums, rest] = split(*kernel.definition);
      taken->definition = std::make_shared<TensorProgram>(std::move(sums));
      taken->rest = std::move(rest);
      taken->why_rest = no_cover;
      if (auto other = read(*taken)) return *other;
      covered = cover(roles_, taken->contraction);
      if (const auto* sums_problem = std::get_if<NotOffloaded>(&covered))
        return NotOffloaded{fmt::format("{}, and {}", no_cover, sums_problem->reason)};
    }
    const bool reduces = taken->contraction.reduction != nullptr;
    const auto suits = suited(*taken->definition, taken->contraction, &std::get<Cover>(covered));
    if (!reduces)
      for (size_t p = 0; p <= suits->params.size(); ++p)
        if (p < suits->params.size() ? !(suits->params[p].layout == taken->definition->params[p].layout)
                                     : !(suits->output().layout == taken->definition->output().layout))
          return NotOffloaded{"it sums nothing, and its layout is not the unit's"};
    taken->definition = suits;
    if (auto problem = read(*taken)) return *problem;
    covered = cover(roles_, taken->contraction);
    check(std::holds_alternative<Cover>(covered), "a layout does not change what instructions compute");
    taken->cover = std::move(std::get<Cover>(covered));
    auto tiling = tiling_for(*taken);
    if (const auto* problem = std::get_if<NotOffloaded>(&tiling)) return *problem;
    taken->kernel = unit_kernel(roles_, taken->contraction, taken->cover, std::get<UnitTiling>(tiling));
    return taken;
  }

  std::optional<NotOffloaded> read(Taken& taken) const {
    auto contraction = contraction_of(*taken.definition);
    if (const auto* problem = std::get_if<NotOffloaded>(&contraction)) return *problem;
    taken.contraction = std::move(std::get<Contraction>(contraction));
    const Contraction& of = taken.contraction;
    const UnitProduct& product = roles_.product;
    if (!of.reduction) return std::nullopt;
    if (of.x_dtype != product.x_dtype || of.w_dtype != product.w_dtype)
      return NotOffloaded{fmt::format("it multiplies {} by {}, and {} multiplies {} by {}", dtype_name(of.x_dtype),
                                      dtype_name(of.w_dtype), product.instruction->intrinsic->name,
                                      dtype_name(product.x_dtype), dtype_name(product.w_dtype))};
    if (options_.only_full_lanes &&
        (of.summed_channels < least_filled_lanes(product.in) || of.channels < least_filled_lanes(product.out)))
      return NotOffloaded{fmt::format("{} channels by {} fill {} by {} lanes less than half", of.summed_channels,
                                      of.channels, product.in, product.out)};
    if (!weights_place(of)) return NotOffloaded{"its weights are read out of order"};
    return std::nullopt;
  }

  // Kernels of equal keys take equally long, whatever their numbers are.
  static std::string shape_key(const Taken& taken) {
    const Contraction& of = taken.contraction;
    std::string key =
        fmt::format("{} {} {} [{}]", of.channels, of.summed_channels, of.window(), fmt::join(of.place_extents, ","));
    for (const PlaceDim& dim : of.x_dims) {
      key += fmt::format(" {}:{}:{}:{}:{}", dim.axis, dim.stride, dim.first, dim.extent, dim.padded);
      for (const auto& [window, by] : dim.windows)
        key += fmt::format(",{}x{}", by, of.windows[static_cast<size_t>(window)].extent);
    }
    const auto add = [&](const CoverStep& step) {
      key += " " + step.map->instruction->name;
      for (const CoverOperand& operand : step.operands) key += fmt::format(",{}", static_cast<int>(operand.kind));
    };
    for (const CoverStep& step : taken.cover.steps) add(step);
    add(taken.cover.store);
    const auto layout = [&](const TensorParam& param) { key += param.layout.to_string() + "/"; };
    std::for_each(of.kernel->params.begin(), of.kernel->params.end(), layout);
    return key + of.output().layout.to_string() + fmt::format(" {}", taken.cover.rows.size());
  }

  std::variant<UnitTiling, NotOffloaded> tiling_for(const Taken& taken) {
    if (options_.known_tiling) {
      std::string why;
      const auto known = options_.known_tiling(taken.definition);
      if (known && cycles_of(unit_, roles_, taken.contraction, taken.cover, *known, why)) return *known;
    }
    const auto [it, is_new] = tilings_.try_emplace(shape_key(taken));
    if (is_new)
      it->second = best_tiling(unit_, roles_, taken.contraction, taken.cover, options_.threads, options_.candidates);
    return it->second;
  }

  // ---- calls ----

  std::string give(const KernelCall& call, Taken& taken) {
    if (taken.number < 0) {
      taken.number = add_kernel(taken.kernel.program, nullptr, unit_.name, call.loc);
      program_.kernels.back().flops = 2 * taken.contraction.multiply_adds();  // whatever they are of
      unit_kernels_.insert(taken.number);
      if (taken.rest) taken.rest_number = add_definition(*taken.rest, call.loc);
    }
    const auto arg_of = [&](const BufferPtr& logical) { return this->arg_of(call, logical); };
    KernelCall own{taken.number, {}, call.loc};
    for (size_t i = 0; i < taken.kernel.inputs.size(); ++i) {
      const UnitKernel::Input& input = taken.kernel.inputs[i];
      switch (input.kind) {
        case UnitKernel::Input::Kind::kActivation: {
          const TensorParam& param = taken.definition->params[input.param];
          own.args.push_back(in_layout(arg_of(param.buffer), param.layout, call.loc));
          break;
        }
        case UnitKernel::Input::Kind::kWeights: {
          const BufferId arg = arg_of(taken.definition->params[input.param].buffer);
          own.args.push_back(known(taken.kernel.program.params[i], {arg, i, taken.number},
                                   [&] { return tiled_weights(taken.contraction, *data_of(arg), input.shape); }));
          break;
        }
        case UnitKernel::Input::Kind::kRows: {
          const BufferId arg = input.rows.empty() ? -1 : -2 - static_cast<BufferId>(program_.calls.size());
          own.args.push_back(known(taken.kernel.program.params[i], {arg, i, taken.number},
                                   [&] { return row_numbers(taken, input, arg_of); }));
          break;
        }
      }
    }
    const BufferId out = call.args.back();
    const Stage& stage = taken.definition->output();
    const bool direct = !taken.rest && at(out).type.layout == stage.layout;
    const BufferId result =
        direct ? out : add_buffer(stage.out->name, stage.out->dtype, stage.out->shape, stage.layout);
    own.args.push_back(result);
    program_.calls.push_back(std::move(own));
    if (direct) return {};
    if (!taken.rest) {
      convert(result, out, call.loc);
      return {};
    }
    KernelCall rest{taken.rest_number, {}, call.loc};
    for (const TensorParam& param : taken.rest->params)
      rest.args.push_back(param.buffer == stage.out ? in_layout(result, param.layout, call.loc) : arg_of(param.buffer));
    rest.args.push_back(out);
    program_.calls.push_back(std::move(rest));
    return {};
  }

  int32_t add_kernel(const LoopProgram& loops, std::shared_ptr<const TensorProgram> definition, const std::string& rule,
                     const std::string& loc) {
    Kernel kernel;
    kernel.program = loops;
    if (definition) kernel.flops = count_flops(*definition), kernel.bytes = count_bytes(*definition);
    kernel.definition = std::move(definition);
    kernel.rule = rule;
    kernel.loc = loc;
    program_.kernels.push_back(std::move(kernel));
    return static_cast<int32_t>(program_.kernels.size()) - 1;
  }

  int32_t add_definition(const TensorProgram& definition, const std::string& loc) {
    return add_kernel(naive_loops(definition), std::make_shared<TensorProgram>(definition), "naive", loc);
  }

  BufferId add_buffer(const std::string& name, DType dtype, const Shape& shape, const Layout& layout) {
    ProgramBuffer buffer;
    buffer.name = fmt::format("{}.{}{}", name, unit_.name, program_.buffers.size());
    buffer.type = {dtype, shape, layout};
    int64_t elements = 1;
    for (const Expr& extent : physical_shape(shape, layout)) elements *= *as_int(extent);
    buffer.bytes = dtype_bytes(dtype, elements);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(program_.buffers.size()) - 1;
  }

  // The value in this layout: itself, or a copy.
  BufferId in_layout(BufferId id, const Layout& layout, const std::string& loc) {
    if (at(id).type.layout == layout) return id;
    const TensorType type = at(id).type;
    const BufferId to = add_buffer(at(id).name, type.dtype, type.shape, layout);
    convert(id, to, loc);
    return to;
  }

  void convert(BufferId from, BufferId to, const std::string& loc) {
    const TensorType a = at(from).type, b = at(to).type;
    TensorProgram copy;
    copy.name = "to_layout";
    copy.params = {{make_buffer("x", a.dtype, a.shape), a.layout, OperandKind::kActivation}};
    Stage stage;
    stage.out = make_buffer("y", b.dtype, b.shape);
    stage.layout = b.layout;
    stage.body.inputs = {copy.params[0].buffer};
    stage.body.axes = make_axes("i", b.shape);
    stage.body.value = load(copy.params[0].buffer, stage.body.axis_vars());
    copy.stages = {std::move(stage)};
    program_.calls.push_back({add_definition(copy, loc), {from, to}, loc});
  }

  // ---- numbers that are known ----

  struct Known {
    BufferId source;
    size_t input;
    int32_t kernel;
    auto operator<=>(const Known&) const = default;
  };
  template <typename Make>
  BufferId known(const BufferPtr& param, const Known& key, const Make& make) {
    const auto [it, is_new] = known_.try_emplace(key, -1);
    if (!is_new) return it->second;
    ProgramBuffer buffer;
    buffer.name = fmt::format("{}.{}", param->name, program_.buffers.size());
    buffer.kind = BufferKind::kWeight;
    buffer.type = {param->dtype, param->shape, {}};
    buffer.data = std::make_shared<Tensor>(make());
    buffer.bytes = buffer.data->num_bytes();
    program_.buffers.push_back(std::move(buffer));
    return it->second = static_cast<BufferId>(program_.buffers.size()) - 1;
  }

  // Of an output channel, a summed one, and places in windows.
  static std::optional<Linear> weights_place(const Contraction& of) {
    const Body& body = of.reduction->body;
    std::vector<Var> vars = {body.axes[of.channel_axis].var, of.summed_channel};
    Bounds bounds;
    bounds.set(vars[0], 0, of.channels - 1);
    bounds.set(vars[1], 0, of.summed_channels - 1);
    for (const WindowAxis& window : of.windows) {
      vars.push_back(window.var);
      bounds.set(window.var, 0, window.extent - 1);
    }
    VarMap zero;  // axes of extent 1
    for (const Axis& axis : body.axes)
      if (is_const_int(axis.extent, 1) && !axis.var.same_node(vars[0])) zero[axis.var.get()] = 0;
    const TensorParam& param = of.kernel->params[of.w_param];
    std::vector<Expr> index;
    for (const Expr& i : of.w_index) index.push_back(substitute(i, zero));
    return linear_place(physical_index(index, param.layout), physical_shape(param.buffer->shape, param.layout), vars,
                        bounds);
  }

  Tensor tiled_weights(const Contraction& of, const Tensor& data, const std::vector<int64_t>& shape) const {
    const Linear place = *weights_place(of);
    const UnitProduct& product = roles_.product;
    Tensor result(product.w_dtype, shape);
    const auto width = static_cast<size_t>(dtype_bytes(product.w_dtype, 1));
    const int64_t window = of.window();
    for (int64_t o = 0; o < of.channels; ++o)
      for (int64_t c = 0; c < of.summed_channels; ++c)
        for (int64_t k = 0; k < window; ++k) {
          int64_t from = place.first + o * place.by[0] + c * place.by[1], rest = k;
          for (size_t w = of.windows.size(); w-- > 0;) {
            from += rest % of.windows[w].extent * place.by[2 + w];
            rest /= of.windows[w].extent;
          }
          const int64_t tile = ((o / product.out) * shape[1] + c / product.in) * window + k;
          const int64_t lane = product.out_first ? o % product.out * product.in + c % product.in
                                                 : c % product.in * product.out + o % product.out;
          std::memcpy(result.mutable_bytes() + static_cast<size_t>(tile * product.in * product.out + lane) * width,
                      data.bytes() + static_cast<size_t>(from) * width, width);
        }
    return result;
  }

  template <typename ArgOf>
  Tensor row_numbers(const Taken& taken, const UnitKernel::Input& input, const ArgOf& arg_of) {
    Tensor result(input.dtype, input.shape);
    const int64_t places = input.shape[1] * input.shape[2];
    for (size_t r = 0; r < input.rows.size(); ++r) {
      const CoverRow& row = input.rows[r];
      Linear from;
      const Tensor* data = nullptr;
      if (row.param != SIZE_MAX) {
        const TensorParam& param = taken.definition->params[row.param];
        data = data_of(arg_of(param.buffer));
        const Var channel = make_var("channel");
        std::vector<Expr> index = row.value->operands;
        if (row.dim != SIZE_MAX) index[row.dim] = channel;
        Bounds bounds;
        bounds.set(channel, 0, taken.contraction.channels - 1);
        const auto place = linear_place(physical_index(index, param.layout),
                                        physical_shape(param.buffer->shape, param.layout), {channel}, bounds);
        check(place.has_value(), "numbers of channels lie in order");
        from = *place;
      }
      for (int64_t c = 0; c < places; ++c) {
        // Lanes beyond the last channel compute what nobody reads.
        const int64_t to = static_cast<int64_t>(r) * places + c, channel = std::min(c, taken.contraction.channels - 1);
        if (data)
          std::memcpy(result.mutable_bytes() + to * 4, data->bytes() + (from.first + channel * from.by[0]) * 4, 4);
        else if (is_float(row.dtype)) result.set_double(to, row.value->float_value);
        else result.set_int(to, row.value->int_value);
      }
    }
    return result;
  }

  Program& program_;
  const Accelerator& unit_;
  const OffloadOptions options_;
  std::string why_no_unit_;
  const UnitRoles roles_;
  std::set<int32_t> unit_kernels_;
  std::map<int32_t, std::variant<NotOffloaded, std::shared_ptr<Taken>>> taken_;
  std::map<std::string, std::variant<UnitTiling, NotOffloaded>> tilings_;
  std::map<Known, BufferId> known_;
};

}  // namespace

std::optional<int64_t> cycles_of(const Accelerator& unit, const UnitRoles& roles, const Contraction& of,
                                 const Cover& cover, const UnitTiling& tiling, std::string& why) {
  const auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  const UnitProduct& product = roles.product;
  bool is_own = tiling.places.size() == of.place_extents.size() &&
                within(tiling.blocks_out, blocks_of(of.channels, product.out)) &&
                within(tiling.blocks_in, of.reduction ? blocks_of(of.summed_channels, product.in) : 1) &&
                within(tiling.x_threads, unit.threads) && within(tiling.w_threads, unit.threads) &&
                within(tiling.sum_threads, unit.threads);
  for (size_t p = 0; is_own && p < tiling.places.size(); ++p) is_own = within(tiling.places[p], of.place_extents[p]);
  if (!is_own || !TileSizes(roles, of, cover, tiling).fit(unit, roles)) {
    why = is_own ? "the unit's memories do not hold its tiles" : "it is a tiling of another kernel";
    return std::nullopt;
  }
  try {
    InstructionStream stream = expand(unit, unit_kernel(roles, of, cover, tiling).program);
    order_by_need(unit, stream);
    place_tokens(unit, stream);
    const SimulatedRun run = simulate(unit, stream);
    if (run.problem.empty()) return run.cycles;
    why = run.problem;
  } catch (const UserError& error) {
    why = error.diagnostic().message;  // a memory, or a field, is too small
  }
  return std::nullopt;
}

std::variant<UnitTiling, NotOffloaded> best_tiling(const Accelerator& unit, const UnitRoles& roles,
                                                   const Contraction& of, const Cover& cover, int threads,
                                                   size_t candidates) {
  auto found = tilings_of(unit, roles, of, cover, threads, candidates);
  if (const auto* problem = std::get_if<NotOffloaded>(&found)) return *problem;
  const auto& tilings = std::get<std::vector<UnitTiling>>(found);
  std::string problem;
  const UnitTiling* best = nullptr;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const UnitTiling& tiling : tilings) {
    const auto cycles = cycles_of(unit, roles, of, cover, tiling, problem);
    if (cycles && *cycles < least) least = *cycles, best = &tiling;
  }
  if (!best) return NotOffloaded{problem};
  return *best;
}

std::set<int32_t> offload_calls(
    Program& program, const Accelerator& unit, const OffloadOptions& options,
    const std::function<bool(const KernelCall& call)>& wanted,
    const std::function<void(const KernelCall& call, const std::string& reason)>& declined) {
  return Offloader(program, unit, options).run(wanted, declined);
}

}  // namespace tessera::inline network
