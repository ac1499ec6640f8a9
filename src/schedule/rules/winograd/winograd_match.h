// Convolutions as minimal filtering sees them, and how much of which one is worked on at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "schedule/kernel/knobs.h"
#include "target/target.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// Images in blocks of channels and a window over them of stride 1, three or five places along both dimensions, or up to
// seven along one. A volume is so many images, of which a window sees several frames: it sums over the channels of
// each.
struct FilteredConv {
  size_t x = 0, w = 0;  // parameters
  int64_t block = 0;
  int64_t images = 0;          // of the output: batch, groups and depth
  int64_t groups = 1;          // whole blocks of channels
  int64_t channel_blocks = 0;  // of the input, in a group
  int64_t height = 0, width = 0;
  int64_t window_height = 3, window_width = 3;
  int64_t row_gap = 1, column_gap = 1;  // from one place of the window to the next
  int64_t pad_top = 0, pad_left = 0;
  int64_t out_channels = 0, out_blocks = 0;  // of a group
  int64_t out_height = 0, out_width = 0;
  // Frame z of the window that image d of the output's volume sees is image d * stride + z * dilation - pad_front.
  int64_t frames = 1, depth = 1, out_depth = 1;
  int64_t stride = 1, dilation = 1, pad_front = 0;
  // Which of the output's dimensions, behind the channels, are the place of an image in its volume, the row and the
  // column within.
  enum class Dims : uint8_t { kColumn, kRowColumn, kImageRowColumn, kRowColumns } dims = Dims::kRowColumn;
  int64_t columns_wide = 0;  // kRowColumns: the extent of the last of two dimensions

  // What an output sums over, places of the window aside: channels of its group in all frames.
  int64_t summed_blocks() const { return channel_blocks * frames; }
  int64_t summed_channels() const { return summed_blocks() * block; }
  int64_t window() const { return window_height * window_width; }
  bool has_matrices(int64_t m) const;  // of tiles of m outputs
  // What number `image` among all images is.
  struct Place {
    Expr volume, group, depth;
  };
  Place place_of(const Expr& image, const Bounds& bounds) const;
  // In the order of the output's loops; the block is one of the image's group.
  std::vector<Expr> loops_at(const Expr& image, const Expr& block, const Expr& row, const Expr& column,
                             const Expr& lane, const Bounds& bounds) const;
};

// Why the kernel is no such convolution whose weights may be packed; empty when it is.
std::string match_filtered_conv(const TensorProgram& program, FilteredConv& conv);

struct WinogradPlan {
  int64_t m = 0;                   // outputs of a tile along each dimension in which windows have several places
  int64_t m_rows = 0, m_cols = 0;  // m or 1
  int64_t alpha_rows = 0, alpha_cols = 0;  // inputs of a tile
  int64_t wanted = 0;                      // tiles of a strip, before strips are made equal
  int64_t tiles_high = 0, tiles_wide = 0;  // a multiple of the gaps
  int64_t strip = 0, strips = 0;           // tiles of a strip, strips of an image
  int64_t cuts = 1;   // equal parts of the output blocks, which transform the same inputs on their own
  int64_t group = 0;  // output blocks whose sums are there at a time
  double cost = 0;    // in issue slots of a vector multiply-add of one thread

  int64_t tiles() const { return tiles_high * tiles_wide; }
  int64_t places() const { return alpha_rows * alpha_cols; }
  // Vectors from one place of the transformed tiles to the next. Odd, for a tile's places are written and read one
  // after the other, and lines a multiple of 4 KiB apart compete for the same few of the first level of cache.
  int64_t v_pitch(const FilteredConv& conv) const { return (conv.summed_blocks() * strip) | 1; }
  int64_t m_pitch() const { return (group * strip) | 1; }
};

// The cheapest plan with one of these `sizes` of tiles; nothing when no strip's scratch memory is small enough.
std::optional<WinogradPlan> choose_winograd_plan(const FilteredConv& conv, const std::vector<int64_t>& sizes,
                                                 const Target& target);
// The plan that the knobs name, whose own choice is `plan`; a reason when their values do not go together.
std::string ask_winograd_plan(const FilteredConv& conv, const Target& target, Knobs& knobs,
                              std::optional<WinogradPlan>& plan);
// The plan of a convolution that is mostly of the size `usual` and may be as large as `large`: tiles and cuts for the
// one, strips for the other.
std::optional<WinogradPlan> choose_open_plan(const FilteredConv& usual, const FilteredConv& large,
                                             const Target& target);
// What direct summation would cost, as WinogradPlan::cost.
double direct_cost(const FilteredConv& conv, const Target& target);

// Less stays in the second level of cache while other layers run.
constexpr int64_t kFarWeights = 64 << 10;

}  // namespace tessera::inline schedule
