#include "driver/training/pruning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

#include "driver/training/training_loop.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/refuse.h"

namespace tessera::inline driver {
namespace {

template <typename Number>
bool reads(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Tensor ones_like(const Tensor& tensor) {
  Tensor mask(tensor.dtype(), tensor.dims());
  for (int64_t i = 0; i < mask.num_elements(); ++i) mask.set_double(i, 1);
  return mask;
}

// The parameter, and its mask.
std::string mask_of(const std::string& parameter) { return parameter + ".mask"; }

Tensor state_of(const WholeStates& states, const std::string& name) { return states.get(states.find(name)); }

void set_mask(WholeStates& states, const std::string& parameter, const Tensor& weights, const Tensor& mask) {
  Tensor pruned(weights.dtype(), weights.dims());
  for (int64_t i = 0; i < weights.num_elements(); ++i)
    pruned.set_double(i, mask.get_double(i) == 0 ? 0 : weights.get_double(i));
  states.set(states.find(parameter), pruned);
  states.set(states.find(mask_of(parameter)), mask);
}

// How much of the final share is gone in an epoch.
double progress(int64_t epoch, int64_t epochs) {
  const int64_t first = epochs / 5, last = std::max(first, epochs * 3 / 5);
  if (epoch < first) return 0;
  const double left =
      1 - static_cast<double>(std::min(epoch, last) - first + 1) / static_cast<double>(last - first + 1);
  return 1 - left * left * left;
}

bool still_changes(int64_t epoch, int64_t epochs) { return epoch <= std::max(epochs / 5, epochs * 3 / 5); }

}  // namespace

PruneSpec prune_spec(const std::string& text) {
  PruneSpec spec;
  if (text.empty()) return spec;
  constexpr std::string_view kChannels = "channels:";
  std::string_view number = text;
  spec.kind = PruneSpec::Kind::kWeights;
  if (number.starts_with(kChannels)) {
    spec.kind = PruneSpec::Kind::kChannels;
    number.remove_prefix(kChannels.size());
  } else if (const size_t colon = number.find(':'); colon != std::string_view::npos) {
    spec.kind = PruneSpec::Kind::kPattern;
    if (reads(number.substr(0, colon), spec.stays) && reads(number.substr(colon + 1), spec.of_each) && spec.stays > 0 &&
        spec.stays < spec.of_each)
      return spec;
    refuse("TSR-4080", fmt::format("--prune {}", text), "N:M with 0 < N < M, as 2:4");
  }
  if (!reads(number, spec.share) || !(spec.share > 0 && spec.share < 1))
    refuse("TSR-4080", fmt::format("--prune {}", text), "a share between 0 and 1, channels:SHARE, or N:M");
  return spec;
}

Tensor magnitude_mask(const Tensor& weights, double share) {
  Tensor mask = ones_like(weights);
  std::vector<int64_t> order(static_cast<size_t>(weights.num_elements()));
  std::iota(order.begin(), order.end(), 0);
  const auto gone = static_cast<std::ptrdiff_t>(std::llround(share * static_cast<double>(order.size())));
  const auto smaller = [&](int64_t a, int64_t b) {
    const double x = std::abs(weights.get_double(a)), y = std::abs(weights.get_double(b));
    return x != y ? x < y : a > b;
  };
  std::nth_element(order.begin(), order.begin() + gone, order.end(), smaller);
  for (auto i = order.begin(); i != order.begin() + gone; ++i) mask.set_double(*i, 0);
  return mask;
}

Tensor pattern_mask(const Tensor& weights, int64_t stays, int64_t of_each, size_t dim) {
  Tensor mask = ones_like(weights);
  const std::vector<int64_t>& dims = weights.dims();
  // Behind `dim` lies what a sum runs over in a filter; of a matrix whose sum runs over dimension 0, the columns.
  const bool by_column = dim == 0;
  int64_t rows = by_column ? 1
                           : std::accumulate(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(dim), int64_t{1},
                                             std::multiplies<>());
  int64_t length = weights.num_elements() / std::max<int64_t>(rows, 1), step = 1;
  if (by_column) {
    length = dims[0];
    rows = step = length > 0 ? weights.num_elements() / length : 0;
  }
  std::vector<int64_t> group(static_cast<size_t>(of_each));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t begin = 0; begin + of_each <= length; begin += of_each) {
      for (int64_t k = 0; k < of_each; ++k)
        group[static_cast<size_t>(k)] = by_column ? (begin + k) * step + row : row * length + begin + k;
      std::sort(group.begin(), group.end(), [&](int64_t a, int64_t b) {
        const double x = std::abs(weights.get_double(a)), y = std::abs(weights.get_double(b));
        return x != y ? x > y : a < b;
      });
      for (int64_t k = stays; k < of_each; ++k) mask.set_double(group[static_cast<size_t>(k)], 0);
    }
  return mask;
}

Importance importance_named(const std::string& name) {
  return name == "taylor" ? Importance::kTaylor : name == "bn" ? Importance::kScale : Importance::kMagnitude;
}

Pruner::Pruner(const Graph& model, const std::vector<std::string>& parameters, const PruneSpec& spec,
               Importance importance)
    : spec_(spec), importance_(importance) {
  if (importance != Importance::kMagnitude && spec.kind != PruneSpec::Kind::kChannels)
    refuse("TSR-4080", "an importance of channels, and no channels that go", "--prune channels:SHARE beside it");
  const std::set<std::string> learns(parameters.begin(), parameters.end());
  std::set<std::string> wanted;
  if (!is_used()) return;
  if (spec.kind == PruneSpec::Kind::kChannels) {
    groups_ = channel_groups(model, standard_ops());
    // All that makes a channel has to learn, or it would not become zero.
    std::erase_if(groups_, [&](const ChannelGroup& group) {
      return std::any_of(group.dims.begin(), group.dims.end(),
                         [&](const ChannelDim& dim) { return dim.produces && !learns.count(dim.constant); });
    });
    for (const ChannelGroup& group : groups_)
      for (const ChannelDim& dim : group.dims)
        if (learns.count(dim.constant)) wanted.insert(dim.constant);
  } else {
    for (const Node& node : model.nodes()) {
      const std::string name = node.attrs.get_or<std::string>("name", node.op->name);
      if (name != "conv" && name != "matmul" && name != "gemm") continue;
      const std::string weights = model.value(node.inputs[1]).name;
      if (!learns.count(weights)) continue;
      wanted.insert(weights);
      const bool transposed = node.attrs.get_or<bool>(name == "gemm" ? "trans_b" : "transpose_b", false);
      sum_dim_[weights] = name == "conv" || transposed ? 1 : 0;
    }
  }
  for (const std::string& name : parameters)
    if (wanted.count(name)) masked_.push_back(name);
  if (importance == Importance::kScale && std::none_of(groups_.begin(), groups_.end(), [&](const ChannelGroup& group) {
        return std::any_of(group.dims.begin(), group.dims.end(),
                           [&](const ChannelDim& dim) { return dim.scales && learns.count(dim.constant); });
      }))
    refuse("TSR-2083", "no channels that could go have a batch normalisation behind them", "--importance l1 or taylor");
  if (masked_.empty())
    refuse("TSR-2083", "no layer of the model can be pruned",
           spec.kind == PruneSpec::Kind::kChannels
               ? "a convolution or matrix product with weights that learn, whose channels are no output of the model"
               : "a convolution or matrix product with weights that learn");
}

void Pruner::at_epoch(WholeStates& states, int64_t epoch, int64_t epochs) const {
  const double part = progress(epoch, epochs);
  if (!is_used() || part == 0 || !still_changes(epoch, epochs)) return;
  if (spec_.kind == PruneSpec::Kind::kChannels) return prune_channels(states, spec_.share * part);
  for (const std::string& name : masked_) {
    const Tensor weights = state_of(states, name);
    set_mask(states, name, weights,
             spec_.kind == PruneSpec::Kind::kPattern
                 ? pattern_mask(weights, spec_.stays, spec_.of_each, sum_dim_.at(name))
                 : magnitude_mask(weights, spec_.share * part));
  }
}

std::vector<WeighedDim> Pruner::weighed() const {
  std::vector<WeighedDim> result;
  if (importance_ != Importance::kTaylor) return result;
  std::set<std::string> seen;
  for (const ChannelGroup& group : groups_)
    for (const ChannelDim& dim : group.dims)
      if (dim.produces && seen.insert(dim.constant).second) result.push_back({dim.constant, dim.dim});
  return result;
}

// Groups of which nothing else is known go by their magnitudes: without a batch normalisation, or before a step.
std::vector<double> Pruner::importance_of(const ChannelGroup& group, const WholeStates& states,
                                          const std::map<std::string, TensorPtr>& values) const {
  if (importance_ == Importance::kScale) {
    const std::vector<double> scales = channel_scales(group, values);
    if (!scales.empty()) return scales;
  }
  if (importance_ == Importance::kTaylor) {
    std::vector<double> total(static_cast<size_t>(group.channels), 0);
    bool is_known = false;
    for (const ChannelDim& dim : group.dims) {
      if (!dim.produces) continue;
      const Tensor own = state_of(states, dim.constant + ".importance");
      for (int64_t i = 0; i < own.num_elements(); ++i) {
        total[static_cast<size_t>(i / dim.repeat % group.channels)] += own.get_double(i);
        is_known |= own.get_double(i) != 0;
      }
    }
    if (is_known) return total;
  }
  return channel_magnitudes(group, values);
}

void Pruner::prune_channels(WholeStates& states, double share) const {
  std::map<std::string, TensorPtr> values;
  std::map<std::string, Tensor> masks;
  for (const std::string& name : masked_) {
    values[name] = std::make_shared<const Tensor>(state_of(states, name));
    masks.emplace(name, ones_like(*values[name]));
  }
  for (const ChannelGroup& group : groups_) {
    const std::vector<double> magnitude = importance_of(group, states, values);
    std::vector<int64_t> order(magnitude.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return magnitude[static_cast<size_t>(a)] < magnitude[static_cast<size_t>(b)];
    });
    const auto gone = std::min(group.channels - 1,
                               static_cast<int64_t>(std::floor(share * static_cast<double>(group.channels) + 1e-9)));
    std::vector<bool> is_gone(order.size(), false);
    for (int64_t i = 0; i < gone; ++i) is_gone[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
    for (const ChannelDim& dim : group.dims) {
      const auto found = masks.find(dim.constant);
      if (found == masks.end()) continue;
      Tensor& mask = found->second;
      int64_t inner = dim.repeat;
      for (size_t d = dim.dim + 1; d < mask.dims().size(); ++d) inner *= mask.dims()[d];
      for (int64_t i = 0; i < mask.num_elements(); ++i)
        if (is_gone[static_cast<size_t>(i / inner % group.channels)]) mask.set_double(i, 0);
    }
  }
  for (const auto& [name, mask] : masks) set_mask(states, name, *values[name], mask);
}

Graph Pruner::cut(const Graph& learnt, const Model& step) const {
  if (spec_.kind != PruneSpec::Kind::kChannels) return learnt;
  const std::vector<ChannelGroup> groups = channel_groups(learnt, standard_ops());
  KeptChannels kept;
  for (const ChannelGroup& group : groups) {
    // A channel goes where the masks of all that makes it are zero.
    std::vector<bool>& stays = kept.emplace_back(static_cast<size_t>(group.channels), false);
    for (const ChannelDim& dim : group.dims) {
      if (!dim.produces) continue;
      if (std::find(masked_.begin(), masked_.end(), dim.constant) == masked_.end()) {
        stays.assign(stays.size(), true);
        break;
      }
      const Tensor mask = step.state(state_named(step, mask_of(dim.constant)));
      int64_t inner = dim.repeat;
      for (size_t d = dim.dim + 1; d < mask.dims().size(); ++d) inner *= mask.dims()[d];
      for (int64_t i = 0; i < mask.num_elements(); ++i)
        if (mask.get_double(i) != 0) stays[static_cast<size_t>(i / inner % group.channels)] = true;
    }
    if (std::find(stays.begin(), stays.end(), true) == stays.end()) stays[0] = true;
  }
  return with_channels(learnt, groups, kept, standard_ops());
}

double Pruner::sparsity(const WholeStates& states) const {
  int64_t zeros = 0, all = 0;
  for (const std::string& name : masked_) {
    const Tensor weights = state_of(states, name);
    for (int64_t i = 0; i < weights.num_elements(); ++i) zeros += weights.get_double(i) == 0;
    all += weights.num_elements();
  }
  return all == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(all);
}

}  // namespace tessera::inline driver
