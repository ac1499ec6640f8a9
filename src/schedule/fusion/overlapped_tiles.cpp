#include "schedule/fusion/overlapped_tiles.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "program/memory_plan.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/fusion/joined_calls.h"
#include "schedule/kernel/loop_builder.h"
#include "te/index_map.h"

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostMembers = 3;
constexpr int64_t kLeastPlaces = 224;  // of a strip: with fewer, rests of register tiles show
// Of the time. The estimate is rough, and without the results between them other buffers lie elsewhere: DenseNet-121
// with batches of 6 to 10 gained 5 % of its first convolution and lost 30 % of the whole.
constexpr double kLeastGain = 0.2;

// How a kernel reads an image: row y of its output needs the rows of the window at y as far as there are such.
struct Reads {
  size_t dim = 0;  // of the image, that of its rows
  IndexWindow window;
};

int64_t rows_read(const Reads& reads, int64_t rows) {
  const IndexWindow& window = reads.window;
  return window.step * (rows - 1) + window.hi - window.lo + 1;
}

struct TiledKernel {
  size_t call = 0;
  const TensorProgram* definition = nullptr;
  size_t row_axis = 0;  // of its output
  int64_t rows = 1;     // of its output
  // Of all but the first: the parameter that is the result of the member before, and how it is read.
  size_t param = 0;
  Reads reads;
};

struct TiledChain {
  std::vector<TiledKernel> members;  // in the order of their calls; the last one's output leaves the chain
  int64_t images = 1;                // along the outermost axis, each for itself
  int64_t strip = 1;                 // rows of the output
  double gain = 0;                   // see estimate
};

int64_t axis_extent(const Stage& stage, size_t axis) { return as_int(stage.out->shape[axis]).value_or(0); }

// How `kernel` reads parameter `param` along `axis` of its output; empty when in another way than by rows.
std::optional<Reads> reads_along(const TensorProgram& kernel, const Buffer* param, size_t axis) {
  std::optional<Reads> reads;
  for (const Stage& stage : kernel.stages) {
    if (axis >= stage.body.axes.size()) return std::nullopt;
    for (const IndexMap& map : index_maps(stage.body, param)) {
      std::optional<size_t> dim;
      for (size_t d = 0; d < map.dims.size(); ++d) {
        if (!map.dims[d].use_of({false, axis})) continue;
        if (dim) return std::nullopt;
        dim = d;
      }
      if (!dim) return std::nullopt;
      const std::optional<IndexWindow> window = window_along(stage.body, map.dims[*dim], axis);
      if (!window || window->step < 1) return std::nullopt;
      if (!reads) reads = Reads{*dim, *window};
      if (reads->dim != *dim || reads->window.step != window->step) return std::nullopt;
      reads->window.lo = std::min(reads->window.lo, window->lo);
      reads->window.hi = std::max(reads->window.hi, window->hi);
    }
  }
  return reads;
}

// Whether the kernel reads of `param` only the image that it is at.
bool reads_own_image(const TensorProgram& kernel, const Buffer* param) {
  return std::all_of(kernel.stages.begin(), kernel.stages.end(), [&](const Stage& stage) {
    const std::vector<IndexMap> maps = index_maps(stage.body, param);
    return std::all_of(maps.begin(), maps.end(),
                       [](const IndexMap& map) { return map.dims[0].sole == AxisRef{false, 0}; });
  });
}

// Whether each element of the result is a reduction over an image of its own: depthwise convolutions and pooling.
bool filters_channels(const TensorProgram& kernel) {
  const Stage* reduction = kernel.reduction();
  if (!reduction) return false;
  const std::vector<Axis>& axes = reduction->body.axes;
  const std::vector<IndexMap> maps = index_maps(reduction->body);
  return std::any_of(maps.begin(), maps.end(), [&](const IndexMap& map) {
    for (size_t i = 0; i < axes.size(); ++i)
      if (as_int(axes[i].extent) != 1 && !map.mentions({false, i})) return false;
    return true;
  });
}

bool is_whole_in(const Layout& layout, size_t axis) {
  return std::none_of(layout.dims.begin(), layout.dims.end(), [&](const LayoutDim& dim) {
    return dim.axis == static_cast<int>(axis) && dim.part != LayoutDim::Part::kWhole;
  });
}

// How many operations a thread does in the time in which so many bytes go to where they stay between two kernels, and
// come back: 0 for the second level of cache.
double flops_of_travel(const Target& target, int64_t bytes) {
  if (bytes <= target.l2_bytes * target.num_threads / 2) return 0;
  const MeasuredRatios& ratios = target.ratios;
  const double of_vectors = bytes > target.l3_bytes / 2 ? ratios.memory_operations : ratios.l3_operations;
  const double per_byte = of_vectors * target.f32_lanes() / 16;
  return 2 * per_byte * static_cast<double>(bytes);
}

// Zeros for the places between the end of an axis and the end of its last block: vectors read them, and nothing of the
// result depends on what they read, but kernels need not write them. A null statement where there are none.
std::optional<Stmt> fill_padding(const BufferPtr& flat, const Shape& shape, const Layout& layout) {
  const auto dims = *static_dims(layout.row_major() ? shape : physical_shape(shape, layout));
  Stmt fill;
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    const LayoutDim& dim = layout.dims[d];
    if (dim.part != LayoutDim::Part::kQuotient || *as_int(shape[static_cast<size_t>(dim.axis)]) % dim.block == 0)
      continue;
    if (fill) return std::nullopt;  // no layout of ours
    int64_t before = 1, behind = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      if (i != d) (i < d ? before : behind) *= dims[i];
    const Var outer = make_var("o"), step = make_var("p");
    const Expr first = (outer * Expr(dims[d]) + Expr(dims[d] - 1)) * Expr(behind) + step * Expr(dim.block);
    if (behind % dim.block != 0) return std::nullopt;
    fill = vectorized("l", dim.block,
                      [&](const Var& lane) { return store(flat, {first + lane}, const_of(flat->dtype, 0)); });
    fill = for_loop(step, 0, behind / dim.block, ForKind::kSerial, fill);
    fill = for_loop(outer, 0, before, ForKind::kSerial, fill);
  }
  return fill;
}

// Where a strip of a member's rows begins: between 0 and `most`.
struct Start {
  Var var;
  int64_t most = 0;
};

class StripMaker {
 public:
  StripMaker(Program& program, const Target& target, const AskNamedRules& ask, const StaysAlone& stays_alone,
             const AllowRule& allow)
      : program_(program), target_(target), ask_(ask), stays_alone_(stays_alone), allow_(allow) {}

  std::vector<PackedStrips> run() {
    find_uses();
    std::vector<TiledChain> chains;
    for (size_t c = 0; c < program_.calls.size(); ++c)
      if (!taken_[c]) find_chains(c, chains);
    std::stable_sort(chains.begin(), chains.end(),
                     [](const TiledChain& a, const TiledChain& b) { return a.gain > b.gain; });
    std::set<size_t> gone;
    for (const TiledChain& chain : chains)
      if (std::none_of(chain.members.begin(), chain.members.end(),
                       [&](const TiledKernel& m) { return taken_[m.call]; }))
        join(chain, gone);
    if (gone.empty()) return {};
    const std::vector<int32_t> renumber = remove_joined(program_, gone);
    std::vector<PackedStrips> result;
    for (auto& [kernel, packed] : packed_)
      if (const int32_t number = renumber[static_cast<size_t>(kernel)]; number >= 0 && !packed.empty())
        result.push_back({number, std::move(packed)});
    return result;
  }

 private:
  void find_uses() {
    uses_ = uses_of_buffers(program_);
    taken_.assign(program_.calls.size(), false);
    std::map<int32_t, bool> alone;
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const KernelCall& call = program_.calls[c];
      const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      const auto [it, is_new] = alone.try_emplace(call.kernel, false);
      if (is_new)
        it->second = !kernel.definition || is_symbolic(*kernel.definition) || !kernel.definition->is_single() ||
                     stays_alone_(kernel);
      taken_[c] = it->second;
    }
  }

  const TensorProgram& definition_of(size_t call) const {
    return *program_.kernels[static_cast<size_t>(program_.calls[call].kernel)].definition;
  }

  // All chains that end with this call and are a gain.
  void find_chains(size_t last, std::vector<TiledChain>& chains) const {
    const Stage& output = definition_of(last).output();
    // Places of the last axis are no rows: tiles lie along it.
    for (size_t axis = 1; axis + 1 < output.out->shape.size(); ++axis) {
      const int64_t rows = axis_extent(output, axis);
      if (rows < 2 || !is_whole_in(output.layout, axis)) continue;
      TiledChain chain;
      chain.members.push_back({last, &definition_of(last), axis, rows, 0, {}});
      chain.images = axis_extent(output, 0);
      extend(chain, chains);
    }
  }

  void extend(const TiledChain& chain, std::vector<TiledChain>& chains) const {
    if (chain.members.size() == kMostMembers) return;
    const TiledKernel& first = chain.members.front();
    const KernelCall& call = program_.calls[first.call];
    std::set<BufferId> seen;
    for (size_t p = 0; p < first.definition->params.size(); ++p) {
      const auto b = static_cast<size_t>(call.args[p]);
      // One parameter stands for one buffer here.
      if (std::count(call.args.begin(), call.args.end(), call.args[p]) != 1) continue;
      if (!uses_.plain[b] || uses_.writer[b] == SIZE_MAX || uses_.readers[b].size() != 1) continue;
      const size_t writer = uses_.writer[b];
      if (taken_[writer] || writer >= first.call || !may_join(program_, uses_, writer, first.call)) continue;
      const Buffer* param = first.definition->params[p].buffer.get();
      const auto reads = reads_along(*first.definition, param, first.row_axis);
      if (!reads || reads->dim == 0) continue;
      const Stage& image = definition_of(writer).output();
      if (!is_whole_in(image.layout, reads->dim) || !(image.layout == first.definition->params[p].layout)) continue;
      if (chain.images > 1 && (axis_extent(image, 0) != chain.images || !is_whole_in(image.layout, 0) ||
                               !reads_own_image(*first.definition, param)))
        continue;
      TiledChain larger = chain;
      larger.members.front().param = p;
      larger.members.front().reads = *reads;
      larger.members.insert(larger.members.begin(),
                            {writer, &definition_of(writer), reads->dim, axis_extent(image, reads->dim), 0, {}});
      if (has_filter(larger) && choose_strip(larger)) chains.push_back(larger);
      extend(larger, chains);
    }
  }

  // Of each member: the rows that a strip computes.
  static std::vector<int64_t> strip_rows(const TiledChain& chain, int64_t strip) {
    std::vector<int64_t> rows(chain.members.size(), strip);
    for (size_t m = rows.size() - 1; m > 0; --m)
      rows[m - 1] = std::min(chain.members[m - 1].rows, rows_read(chain.members[m].reads, rows[m]));
    return rows;
  }

  int64_t result_bytes(const TiledKernel& member) const {
    return program_.buffers[static_cast<size_t>(program_.calls[member.call].args.back())].bytes;
  }

  // Of what a strip reads and writes, `rows` by member, weights left out.
  int64_t strip_bytes(const TiledChain& chain, const std::vector<int64_t>& rows) const {
    int64_t bytes = 0;
    for (size_t m = 0; m < chain.members.size(); ++m) {
      const TiledKernel& member = chain.members[m];
      const std::vector<BufferId>& args = program_.calls[member.call].args;
      bytes += result_bytes(member) / chain.images / member.rows * rows[m];
      for (size_t p = 0; p < member.definition->params.size(); ++p) {
        const TensorParam& param = member.definition->params[p];
        if (param.may_be_packed() || (m > 0 && p == member.param)) continue;
        const int64_t all = program_.buffers[static_cast<size_t>(args[p])].bytes / chain.images;
        const auto reads = reads_along(*member.definition, param.buffer.get(), member.row_axis);
        const int64_t extent = reads ? as_int(param.buffer->shape[reads->dim]).value_or(1) : 1;
        bytes += all / extent * (reads ? std::min(extent, rows_read(*reads, rows[m])) : 1);
      }
    }
    return bytes;
  }

  // A kernel that filters channels by themselves, and what stands before or behind it, or both. Other kernels do more
  // for each byte, and are as fast on their own where they have been measured.
  static bool has_filter(const TiledChain& chain) {
    const auto filters = [&](size_t m) { return filters_channels(*chain.members[m].definition); };
    return chain.members.size() == 2 ? filters(0) || filters(1) : filters(1);
  }

  // Sets `strip` and `gain`, in floating-point operations that the machine could do in the time that is saved. False
  // where there is nothing to gain.
  bool choose_strip(TiledChain& chain) const {
    const auto threads = static_cast<int64_t>(target_.num_threads);
    double saved = 0;
    int64_t weights = 0;
    double flops = 0;
    for (size_t m = 0; m < chain.members.size(); ++m) {
      const TiledKernel& member = chain.members[m];
      weights += count_constant_bytes(*member.definition);
      flops += static_cast<double>(std::max<int64_t>(0, count_flops(*member.definition)));
      if (m + 1 == chain.members.size()) continue;
      saved += flops_of_travel(target_, result_bytes(member));
    }
    if (saved == 0 || weights > target_.l2_bytes / 2) return false;
    const double least = kLeastGain * flops;
    const TiledKernel& last = chain.members.back();
    const int64_t rows = last.rows;
    int64_t row_places = 1;
    for (size_t axis = last.row_axis + 1; axis < last.definition->output().out->shape.size(); ++axis)
      row_places *= axis_extent(last.definition->output(), axis);
    const int64_t least_rows = std::min(rows / 2, (kLeastPlaces + row_places - 1) / row_places);
    chain.gain = 0;
    for (int64_t strip = std::max<int64_t>(1, least_rows); strip <= rows; ++strip) {
      if (rows % strip != 0 || (strip == rows && chain.images == 1)) continue;
      const std::vector<int64_t> computed = strip_rows(chain, strip);
      const int64_t strips = rows / strip, all = strips * chain.images;
      if (all < threads) continue;
      // What a strip leaves behind is to be there still when the next kernel reads it.
      if (weights + strip_bytes(chain, computed) > target_.l2_bytes * 5 / 8) break;
      double again = 0;
      for (size_t m = 0; m + 1 < chain.members.size(); ++m) {
        const TiledKernel& member = chain.members[m];
        const double part = static_cast<double>(computed[m] * strips) / static_cast<double>(member.rows);
        again += static_cast<double>(std::max<int64_t>(0, count_flops(*member.definition))) * (part - 1);
      }
      // Threads without a strip in the last round wait.
      const int64_t rounds = (all + threads - 1) / threads;
      const double idle = flops * (static_cast<double>(rounds * threads) / static_cast<double>(all) - 1);
      const double gain = saved - again - idle;
      if (gain < chain.gain || gain < least) continue;
      chain.gain = gain;
      chain.strip = strip;
    }
    return chain.gain > 0;
  }

  // The member's kernel for `rows` rows of its output from `starts[m]` on.
  TensorProgram strip_kernel(const TiledChain& chain, size_t m, const std::vector<int64_t>& rows,
                             const std::vector<Start>& starts, const Var& image,
                             const std::vector<BufferPtr>& results) const {
    const TiledKernel& member = chain.members[m];
    const bool is_last = m + 1 == chain.members.size();
    TensorProgram kernel;
    kernel.name = member.definition->name;
    kernel.params = member.definition->params;
    const Buffer* before = m == 0 ? nullptr : kernel.params[member.param].buffer.get();
    if (before) kernel.params[member.param].buffer = results[m - 1];
    std::unordered_map<const Buffer*, BufferPtr> stages;
    for (const Stage& stage : member.definition->stages) {
      Stage own = stage;
      VarMap moved, back;
      if (!is_last) {
        own.out = &stage == &member.definition->output() ? results[m] : strip_of(stage.out, chain, m, rows[m]);
        Axis& axis = own.body.axes[member.row_axis];
        axis.extent = rows[m];
        moved[axis.var.get()] = axis.var + starts[m].var;
        if (chain.images > 1) {
          own.body.axes[0].extent = 1;
          moved[own.body.axes[0].var.get()] = own.body.axes[0].var + image;
        }
      }
      stages[stage.out.get()] = own.out;
      // The reduction is read at the place of its own in the strip.
      Expr value = transform(stage.body.value, [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad) return {};
        const auto it = stages.find(node->buffer.get());
        if (it == stages.end()) return {};
        const Var result = make_var("result", node->dtype);
        back[result.get()] = load(it->second, node->operands);
        return result;
      });
      value = substitute(substitute(value, moved), back);
      if (before)
        value = transform(value, [&](const Expr& node) -> Expr {
          if (node->kind != ExprKind::kLoad || node->buffer.get() != before) return {};
          std::vector<Expr> index = node->operands;
          Expr& row = index[chain.members[m].reads.dim];
          row = row - starts[m - 1].var;
          if (chain.images > 1) index[0] = index[0] - image;
          return load(results[m - 1], std::move(index));
        });
      own.body.value = std::move(value);
      kernel.stages.push_back(std::move(own));
    }
    const auto window = [&](size_t axis, const Start& start, int64_t extent) {
      kernel.windows.push_back({axis, start.var, extent, 0, start.most});
    };
    if (m > 0) window(Window::kNoAxis, starts[m - 1], 1);
    window(is_last ? member.row_axis : Window::kNoAxis, starts[m], rows[m]);
    if (chain.images > 1) window(is_last ? 0 : Window::kNoAxis, {image, chain.images - 1}, 1);
    return kernel;
  }

  static BufferPtr strip_of(const BufferPtr& result, const TiledChain& chain, size_t m, int64_t rows) {
    Shape shape = result->shape;
    shape[chain.members[m].row_axis] = rows;
    if (chain.images > 1) shape[0] = 1;
    return make_buffer(result->name, result->dtype, std::move(shape));
  }

  // The name of the rule that takes the kernel as a whole.
  std::string_view rule_of(const TiledKernel& member) {
    const auto [it, is_new] = rules_.try_emplace(program_.calls[member.call].kernel);
    if (is_new)
      if (const auto answer = ask_(*member.definition)) it->second = answer->rule;
    return it->second;
  }

  struct Made {
    Kernel kernel;
    std::vector<PackedParam> packed;
    // Of each parameter: the member whose argument it is, and that argument's number.
    std::vector<std::pair<size_t, size_t>> params;
  };

  std::optional<Made> make_kernel(const TiledChain& chain) {
    const std::vector<int64_t> rows = strip_rows(chain, chain.strip);
    const size_t count = chain.members.size();
    const Var strip = make_var("strip"), image = make_var("image");
    std::vector<Start> starts(count);
    std::vector<BufferPtr> results(count), local(count);
    starts[count - 1] = {make_var("row"), chain.members.back().rows - chain.strip};
    VarMap values{{starts[count - 1].var.get(), strip * Expr(chain.strip)}};
    for (size_t m = count - 1; m-- > 0;) {
      const TiledKernel& member = chain.members[m];
      const Reads& reads = chain.members[m + 1].reads;
      results[m] = strip_of(member.definition->output().out, chain, m, rows[m]);
      if (reads.window.step == 1 && reads.window.lo == 0 && reads.window.hi == 0 &&
          member.rows == chain.members[m + 1].rows) {
        starts[m] = starts[m + 1];
        continue;
      }
      starts[m] = {make_var(fmt::format("row{}", m)), member.rows - rows[m]};
      const Expr first = values.at(starts[m + 1].var.get()) * Expr(reads.window.step) + Expr(reads.window.lo);
      values[starts[m].var.get()] = max(Expr(0), min(first, Expr(starts[m].most)));
    }

    Made made;
    std::map<BufferId, BufferPtr> outside;
    std::vector<Stmt> parts;
    for (size_t m = 0; m < count; ++m) {
      const TiledKernel& member = chain.members[m];
      const Stage& output = member.definition->output();
      const std::vector<BufferId>& args = program_.calls[member.call].args;
      auto answer = ask_(strip_kernel(chain, m, rows, starts, image, results));
      if (!answer || answer->rule != rule_of(member)) return std::nullopt;
      const LoopProgram& program = answer->scheduled.program;
      std::unordered_map<const Buffer*, BufferPtr> moved;
      for (size_t p = 0; p < args.size(); ++p) {
        const BufferPtr& own = program.params[p];
        if (own->shape.size() != 1) return std::nullopt;
        if (m > 0 && p == member.param) {
          moved[own.get()] = local[m - 1];
          continue;
        }
        if (m + 1 < count && p + 1 == args.size()) {
          local[m] = make_buffer(fmt::format("strip{}", m), own->dtype, own->shape, MemoryScope::kLocal);
          moved[own.get()] = local[m];
          continue;
        }
        const auto packed = std::find_if(answer->scheduled.packed.begin(), answer->scheduled.packed.end(),
                                         [&](const PackedParam& param) { return param.param == p; });
        if (packed == answer->scheduled.packed.end()) {
          if (const auto it = outside.find(args[p]); it != outside.end()) {
            moved[own.get()] = it->second;
            continue;
          }
        } else {
          made.packed.push_back(*packed);
          made.packed.back().param = made.params.size();
        }
        const BufferPtr param =
            make_buffer(program_.buffers[static_cast<size_t>(args[p])].name, own->dtype, own->shape);
        if (packed == answer->scheduled.packed.end()) outside[args[p]] = param;
        moved[own.get()] = param;
        made.params.emplace_back(m, p);
        made.kernel.program.params.push_back(param);
      }
      if (m + 1 < count) {
        const auto fill = fill_padding(local[m], results[m]->shape, output.layout);
        if (!fill) return std::nullopt;
        if (*fill) parts.push_back(*fill);
      }
      parts.push_back(transform(
          without_threads(program.body),
          [&](const Expr& node) -> Expr {
            if (node->kind != ExprKind::kLoad) return {};
            const auto it = moved.find(node->buffer.get());
            return it == moved.end() ? Expr() : load(it->second, node->operands);
          },
          [&](const Stmt& node) -> Stmt {
            if (node->kind == StmtKind::kStore) {
              const auto it = moved.find(node->buffer.get());
              return it == moved.end() ? Stmt() : store(it->second, node->indices, node->value);
            }
            if (node->kind != StmtKind::kFor || !node->buffer) return {};
            const auto it = moved.find(node->buffer.get());
            if (it == moved.end()) return {};
            return prefetching(for_loop(node->var, node->begin, node->extent, node->for_kind, node->stmts[0]),
                               it->second, node->indices);
          }));
    }
    const Stmt body = seq(std::move(parts));
    const std::vector<OutputLoop> loops = {{image, chain.images}, {strip, chain.members.back().rows / chain.strip}};
    made.kernel.program.body = outer_nest(loops, kJoinAll, [&](const VarMap& at) {
      VarMap here = at;
      for (const auto& [var, value] : values) here[var] = simplify(substitute(value, at));
      Stmt strips = substitute(body, here);
      for (size_t m = 0; m + 1 < count; ++m) strips = alloc(local[m], std::move(strips));
      return strips;
    });
    describe(chain, made.kernel);
    made.kernel.joined = std::make_shared<const JoinedProgram>(joined_program(chain, made));
    return made;
  }

  // Of the arguments, each is one by itself.
  JoinedProgram joined_program(const TiledChain& chain, const Made& made) const {
    std::vector<NumberedMember> members;
    std::map<std::pair<size_t, size_t>, int32_t> numbers;
    std::map<BufferId, int32_t> same;
    std::vector<int32_t> outside;
    for (const auto& [m, p] : made.params) {
      const auto number = static_cast<int32_t>(outside.size());
      outside.push_back(number);
      numbers[{m, p}] = number;
      same.emplace(program_.calls[chain.members[m].call].args[p], number);
    }
    const auto count = static_cast<int32_t>(outside.size());
    for (size_t m = 0; m < chain.members.size(); ++m) {
      const std::vector<BufferId>& args = program_.calls[chain.members[m].call].args;
      NumberedMember& member = members.emplace_back(NumberedMember{chain.members[m].definition, {}});
      for (size_t p = 0; p < args.size(); ++p) {
        const bool is_read = m > 0 && p == chain.members[m].param;
        const bool is_written = m + 1 < chain.members.size() && p + 1 == args.size();
        const auto own = numbers.find({m, p});
        member.args.push_back(is_read                ? count + static_cast<int32_t>(m) - 1
                              : is_written           ? count + static_cast<int32_t>(m)
                              : own != numbers.end() ? own->second
                                                     : same.at(args[p]));
      }
    }
    return join_programs(made.kernel.program.name, members, outside);
  }

  void describe(const TiledChain& chain, Kernel& kernel) const {
    const Kernel& last = program_.kernels[static_cast<size_t>(program_.calls[chain.members.back().call].kernel)];
    kernel.program.name = last.program.name + "_strips";
    kernel.rule = "overlapped_tiles";
    kernel.loc = location_of(chain);
    kernel.flops = kernel.bytes = 0;
    for (const BufferPtr& param : kernel.program.params)
      kernel.bytes += dtype_bytes(param->dtype, as_int(param->shape[0]).value_or(0));
    for (const TiledKernel& member : chain.members) {
      const Kernel& part = program_.kernels[static_cast<size_t>(program_.calls[member.call].kernel)];
      kernel.flops += std::max<int64_t>(part.flops, 0);
    }
  }

  std::string location_of(const TiledChain& chain) const {
    std::string text;
    for (const TiledKernel& member : chain.members) {
      const std::string& loc = program_.calls[member.call].loc;
      if (!loc.empty()) text += (text.empty() ? "" : "+") + loc;
    }
    return text;
  }

  // The same kernels in the same order on arguments that are the same in the same places make the same chain.
  std::string signature_of(const TiledChain& chain) const {
    std::string text = fmt::format("{} {}:", chain.members.back().row_axis, chain.strip);
    std::map<BufferId, size_t> numbers;
    for (const TiledKernel& member : chain.members) {
      text += fmt::format("{} {}(", program_.calls[member.call].kernel, member.param);
      for (const BufferId arg : program_.calls[member.call].args)
        text += fmt::format("{},", numbers.emplace(arg, numbers.size()).first->second);
      text += ")";
    }
    return text;
  }

  struct Joined {
    int32_t kernel = -1;  // -1 when the rules did not agree
    std::vector<std::pair<size_t, size_t>> params;
  };

  void join(const TiledChain& chain, std::set<size_t>& gone) {
    const auto [it, is_new] = made_.try_emplace(signature_of(chain));
    Joined& joined = it->second;
    if (is_new) {
      auto made = make_kernel(chain);
      if (!made || (allow_ && !allow_("overlapped_tiles", made->kernel))) return;
      joined = {static_cast<int32_t>(program_.kernels.size()), std::move(made->params)};
      packed_[joined.kernel] = std::move(made->packed);
      made->kernel.device =
          program_.kernels[static_cast<size_t>(program_.calls[chain.members.back().call].kernel)].device;
      program_.kernels.push_back(std::move(made->kernel));
    }
    if (joined.kernel < 0) return;
    std::vector<BufferId> args;
    for (const auto& [member, param] : joined.params)
      args.push_back(program_.calls[chain.members[member].call].args[param]);
    for (const PackedParam& packed : packed_.at(joined.kernel)) {
      const ProgramBuffer& weights = program_.buffers[static_cast<size_t>(root_buffer(program_, args[packed.param]))];
      if (weights.data && !packing_problem(*weights.data, packed).empty()) return;
    }
    const size_t last = chain.members.back().call;
    program_.calls[last].loc = location_of(chain);
    program_.calls[last].kernel = joined.kernel;
    program_.calls[last].args = std::move(args);
    for (const TiledKernel& member : chain.members) {
      taken_[member.call] = true;
      if (member.call != last) gone.insert(member.call);
    }
  }

  Program& program_;
  const Target& target_;
  const AskNamedRules& ask_;
  const StaysAlone& stays_alone_;
  const AllowRule& allow_;
  BufferUses uses_;
  std::vector<bool> taken_;  // by call: in a chain, or in none ever
  std::map<int32_t, std::string_view> rules_;
  std::map<std::string, Joined> made_;  // by signature
  std::map<int32_t, std::vector<PackedParam>> packed_;
};

}  // namespace

std::vector<PackedStrips> join_overlapped_tiles(Program& program, const Target& target, const AskNamedRules& ask,
                                                const StaysAlone& stays_alone, const AllowRule& allow) {
  return StripMaker(program, target, ask, stays_alone, allow).run();
}

}  // namespace tessera::inline schedule
