// Channels of a model that can be taken out of its graph: dimensions of values that belong together, because an
// operator reads one where it writes the other. Removing channel 3 of a convolution removes its filter, its bias, the
// statistics of the normalisation behind it, and what the next layers multiply it with.
//
// What belongs together is read off the operators' bodies (te/index_map.h): an axis that is an index by itself joins
// the dimensions where it is one. Dimensions of inputs and outputs, and those of which an operator wants more (windows,
// groups, the largest of all), stay as they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline train {

// A dimension of a constant. Channel c of the group has its entries c * repeat .. c * repeat + repeat - 1.
struct ChannelDim {
  std::string constant;
  size_t dim = 0;
  int64_t repeat = 1;
  bool produces = false;  // the product that reads the constant writes these channels; else it reads them
  bool scales = false;    // a batch normalisation multiplies the channels with it
};

struct ChannelGroup {
  int64_t channels = 0;
  std::vector<ChannelDim> dims;  // in the order of the graph; at least one produces them
};

// Sizes of `model` may be symbols, except those of channels.
std::vector<ChannelGroup> channel_groups(const Graph& model, const OpTable& ops);

// By group: true for channels that stay. REQUIRES: as many as the group has.
using KeptChannels = std::vector<std::vector<bool>>;

// The sum over a group's producing constants of the magnitudes that belong to each channel, each constant's divided by
// its mean, so that no layer counts more for its scale. `value_of` answers the constants' values.
std::vector<double> channel_magnitudes(const ChannelGroup& group, const std::map<std::string, TensorPtr>& values);

// The magnitudes of what batch normalisations multiply each channel with (Liu et al. 2017), the sum of several; empty:
// there is none.
std::vector<double> channel_scales(const ChannelGroup& group, const std::map<std::string, TensorPtr>& values);

// `model` without the other channels. The groups are channel_groups(model).
Graph with_channels(const Graph& model, const std::vector<ChannelGroup>& groups, const KeptChannels& kept,
                    const OpTable& ops);

}  // namespace tessera::inline train
