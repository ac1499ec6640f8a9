// How a joined program of images (overlapped_tiles.h) is gone through: which axis are rows, which rows of each member a
// strip of the result needs, and how many rows a strip has. It follows from what the program computes and the machine;
// a point of a search may say otherwise.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "schedule/choose.h"
#include "schedule/kernel/knobs.h"
#include "target/target.h"
#include "te/index_map.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// How a kernel reads an image: row y of its output needs the rows of the window at y as far as there are such.
struct Reads {
  size_t dim = 0;  // of the image, that of its rows
  IndexWindow window;
};

struct TiledKernel {
  size_t call = 0;  // while chains are looked for
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
  double gain = 0;                   // in floating-point operations of the time that is saved
};

// Of each member: the rows that a strip computes.
std::vector<int64_t> strip_rows(const TiledChain& chain, int64_t strip);

// Chains of one kernel, for each axis of its output that may be rows.
std::vector<TiledChain> chains_of(const TensorProgram& kernel, size_t call);
// The chain with a further kernel before it, whose result is parameter number `param` of the first one. Why not, where
// that does not read it by rows.
std::variant<TiledChain, std::string_view> with_writer(const TiledChain& chain, size_t param,
                                                       const TensorProgram& writer, size_t call);

// Whether each element of the result is a reduction over an image of its own: depthwise convolutions and pooling.
bool filters_channels(const TensorProgram& kernel);

// Sets `strip` and `gain`, in floating-point operations that the machine could do in the time that is saved. Why there
// is nothing to gain; empty where there is.
std::string_view choose_strip(TiledChain& chain, const Target& target);

// Knobs: `strip`, rows of the result. REQUIRES: `joined` outlives the chain.
std::variant<TiledChain, Declined> cut_into_strips(const JoinedProgram& joined, const Target& target, Knobs& knobs);

// JoiningStep::apply of overlapped_tiles.
std::variant<ScheduledKernel, Declined> overlapped_tiles(const JoinedProgram& joined, const JoinedContext& context,
                                                         const Target& target, const AskRules& ask, Knobs& knobs);

}  // namespace tessera::inline schedule
