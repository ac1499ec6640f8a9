#include "schedule/fusion/strip_cut.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "program/symbolic_sizes.h"
#include "schedule/fusion/strip_kernel.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kLeastPlaces = 224;  // of a strip: with fewer, rests of register tiles show
// Of the time. The estimate is rough, and without the results between them other buffers lie elsewhere: DenseNet-121
// with batches of 6 to 10 gained 5 % of its first convolution and lost 30 % of the whole.
constexpr double kLeastGain = 0.2;

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

int64_t stored_bytes(const Buffer& buffer, const Layout& layout) {
  return as_int(bytes_formula({buffer.dtype, buffer.shape, layout})).value_or(0);
}
int64_t stored_bytes(const Stage& result) { return stored_bytes(*result.out, result.layout); }

int64_t rows_read(const Reads& reads, int64_t rows) {
  const IndexWindow& window = reads.window;
  return window.step * (rows - 1) + window.hi - window.lo + 1;
}

// Of what a strip reads and writes, `rows` by member, weights left out.
int64_t strip_bytes(const TiledChain& chain, const std::vector<int64_t>& rows) {
  int64_t bytes = 0;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TiledKernel& member = chain.members[m];
    bytes += stored_bytes(member.definition->output()) / chain.images / member.rows * rows[m];
    for (size_t p = 0; p < member.definition->params.size(); ++p) {
      const TensorParam& param = member.definition->params[p];
      if (param.may_be_packed() || (m > 0 && p == member.param)) continue;
      const int64_t all = stored_bytes(*param.buffer, param.layout) / chain.images;
      const auto reads = reads_along(*member.definition, param.buffer.get(), member.row_axis);
      const int64_t extent = reads ? as_int(param.buffer->shape[reads->dim]).value_or(1) : 1;
      bytes += all / extent * (reads ? std::min(extent, rows_read(*reads, rows[m])) : 1);
    }
  }
  return bytes;
}

// Strips have one size, and are not the whole.
bool may_be_strip(const TiledChain& chain, int64_t strip) {
  const int64_t rows = chain.members.back().rows;
  return rows % strip == 0 && (strip < rows || chain.images > 1);
}

}  // namespace

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

std::vector<int64_t> strip_rows(const TiledChain& chain, int64_t strip) {
  std::vector<int64_t> rows(chain.members.size(), strip);
  for (size_t m = rows.size() - 1; m > 0; --m)
    rows[m - 1] = std::min(chain.members[m - 1].rows, rows_read(chain.members[m].reads, rows[m]));
  return rows;
}

std::vector<TiledChain> chains_of(const TensorProgram& kernel, size_t call) {
  std::vector<TiledChain> chains;
  const Stage& output = kernel.output();
  // Places of the last axis are no rows: tiles lie along it.
  for (size_t axis = 1; axis + 1 < output.out->shape.size(); ++axis) {
    const int64_t rows = axis_extent(output, axis);
    if (rows < 2 || !is_whole_in(output.layout, axis)) continue;
    TiledChain& chain = chains.emplace_back();
    chain.members.push_back({call, &kernel, axis, rows, 0, {}});
    chain.images = axis_extent(output, 0);
  }
  return chains;
}

std::variant<TiledChain, std::string_view> with_writer(const TiledChain& chain, size_t param,
                                                       const TensorProgram& writer, size_t call) {
  const TiledKernel& first = chain.members.front();
  const TensorParam& operand = first.definition->params[param];
  const auto reads = reads_along(*first.definition, operand.buffer.get(), first.row_axis);
  if (!reads || reads->dim == 0) return "one does not read the other's image by rows";
  const Stage& image = writer.output();
  if (!is_whole_in(image.layout, reads->dim) || !(image.layout == operand.layout))
    return "what lies between them is stored in blocks of rows";
  if (chain.images > 1 && (axis_extent(image, 0) != chain.images || !is_whole_in(image.layout, 0) ||
                           !reads_own_image(*first.definition, operand.buffer.get())))
    return "images of a batch are not read one by one";
  TiledChain larger = chain;
  larger.members.front().param = param;
  larger.members.front().reads = *reads;
  larger.members.insert(larger.members.begin(), {call, &writer, reads->dim, axis_extent(image, reads->dim), 0, {}});
  return larger;
}

std::string_view choose_strip(TiledChain& chain, const Target& target) {
  const auto threads = static_cast<int64_t>(target.num_threads);
  double saved = 0;
  int64_t weights = 0;
  double flops = 0;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const TiledKernel& member = chain.members[m];
    weights += count_constant_bytes(*member.definition);
    flops += static_cast<double>(std::max<int64_t>(0, count_flops(*member.definition)));
    if (m + 1 == chain.members.size()) continue;
    saved += flops_of_travel(target, stored_bytes(member.definition->output()));
  }
  if (saved == 0) return "what lies between them fits the second level of cache";
  if (weights > target.l2_bytes / 2) return "weights are more than half of the second level of cache";
  const double least = kLeastGain * flops;
  const TiledKernel& last = chain.members.back();
  const int64_t rows = last.rows;
  int64_t row_places = 1;
  for (size_t axis = last.row_axis + 1; axis < last.definition->output().out->shape.size(); ++axis)
    row_places *= axis_extent(last.definition->output(), axis);
  const int64_t least_rows = std::min(rows / 2, (kLeastPlaces + row_places - 1) / row_places);
  chain.gain = 0;
  for (int64_t strip = std::max<int64_t>(1, least_rows); strip <= rows; ++strip) {
    if (!may_be_strip(chain, strip)) continue;
    const std::vector<int64_t> computed = strip_rows(chain, strip);
    const int64_t strips = rows / strip, all = strips * chain.images;
    if (all < threads) continue;
    // What a strip leaves behind is to be there still when the next kernel reads it.
    if (weights + strip_bytes(chain, computed) > target.l2_bytes * 5 / 8) break;
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
  return chain.gain > 0 ? "" : "by an estimate no strip of rows saves time";
}

std::variant<TiledChain, Declined> cut_into_strips(const JoinedProgram& joined, const Target& target, Knobs& knobs) {
  std::optional<TiledChain> best;
  std::string_view why = "it has no rows that strips are made of";
  for (TiledChain chain : chains_of(joined.members.back().program, 0)) {
    bool fits = true;
    for (size_t m = joined.members.size() - 1; m-- > 0 && fits;) {
      const std::vector<size_t>& args = joined.members[m + 1].args;
      const auto param =
          static_cast<size_t>(std::find(args.begin(), args.end(), joined.members[m].args.back()) - args.begin());
      auto larger = with_writer(chain, param, joined.members[m].program, 0);
      fits = std::holds_alternative<TiledChain>(larger);
      if (fits) chain = std::move(std::get<TiledChain>(larger));
      else why = std::get<std::string_view>(larger);
    }
    if (!fits) continue;
    if (const std::string_view reason = choose_strip(chain, target); !reason.empty()) why = reason;
    else if (!best || chain.gain > best->gain) best = std::move(chain);
  }
  if (!best) return Declined{std::string(why)};
  std::vector<int64_t> strips;
  for (int64_t strip = 1; strip <= best->members.back().rows; ++strip)
    if (may_be_strip(*best, strip)) strips.push_back(strip);
  best->strip = knobs.choose("strip", std::move(strips), best->strip);
  return std::move(*best);
}

std::variant<ScheduledKernel, Declined> overlapped_tiles(const JoinedProgram& joined, const JoinedContext&,
                                                         const Target& target, const AskRules& ask, Knobs& knobs) {
  const auto cut = cut_into_strips(joined, target, knobs);
  if (const auto* declined = std::get_if<Declined>(&cut)) return *declined;
  auto scheduled = make_strip_kernel(joined, std::get<TiledChain>(cut), ask);
  if (!scheduled) return Declined{"the rules write other programs for strips than for whole images"};
  return std::move(*scheduled);
}

}  // namespace tessera::inline schedule
