#include "import/tflite/read/sparse.h"

#include <algorithm>

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

std::optional<Ints> numbers_of(const tflite::DimensionMetadata& level, bool segments) {
  const auto copied = [](const auto* vector) -> std::optional<Ints> {
    if (!vector || !vector->values()) return Ints{};
    return Ints(vector->values()->begin(), vector->values()->end());
  };
  switch (segments ? level.array_segments_type() : level.array_indices_type()) {
    case tflite::SparseIndexVector::Int32Vector:
      return copied(segments ? level.array_segments_as_Int32Vector() : level.array_indices_as_Int32Vector());
    case tflite::SparseIndexVector::Uint16Vector:
      return copied(segments ? level.array_segments_as_Uint16Vector() : level.array_indices_as_Uint16Vector());
    case tflite::SparseIndexVector::Uint8Vector:
      return copied(segments ? level.array_segments_as_Uint8Vector() : level.array_indices_as_Uint8Vector());
    default: return std::nullopt;
  }
}

// A dimension, or a dimension of blocks, in the order in which elements are stored.
struct Level {
  bool dense = true;
  int64_t size = 0;
  Ints segments, indices;
};

class Walk {
 public:
  Walk(std::vector<Level> levels, Ints order, Ints block_map, const Ints& dims, int64_t stored)
      : levels_(std::move(levels)),
        order_(std::move(order)),
        block_map_(std::move(block_map)),
        dims_(dims),
        stored_(stored) {
    at_.resize(levels_.size());
    // Each level has at most as many steps as there are elements, and one more.
    int64_t elements = 1;
    for (const int64_t extent : dims) elements *= std::max<int64_t>(extent, 1);
    most_steps_ = static_cast<int64_t>(levels_.size() + 1) * (elements + 1);
    for (size_t b = 0; b < block_map_.size(); ++b) blocks_.push_back(0);
    for (size_t level = dims.size(); level < levels_.size(); ++level)
      blocks_[static_cast<size_t>(order_[level]) - dims.size()] = levels_[level].size;
  }

  bool run(size_t level, int64_t previous) {
    if (++steps_ > most_steps_) return false;
    if (level == levels_.size()) return element();
    const Level& own = levels_[level];
    if (own.dense) {
      for (int64_t i = 0; i < own.size; ++i) {
        at_[level] = i;
        if (!run(level + 1, previous * own.size + i)) return false;
      }
      return true;
    }
    if (previous < 0 || previous + 1 >= static_cast<int64_t>(own.segments.size())) return false;
    const int64_t first = own.segments[static_cast<size_t>(previous)],
                  last = own.segments[static_cast<size_t>(previous) + 1];
    if (first < 0 || last > static_cast<int64_t>(own.indices.size())) return false;
    for (int64_t i = first; i < last; ++i) {
      at_[level] = own.indices[static_cast<size_t>(i)];
      if (!run(level + 1, i)) return false;
    }
    return true;
  }
  std::vector<int64_t>& places() { return places_; }

 private:
  bool element() {
    if (static_cast<int64_t>(places_.size()) >= stored_) return false;
    const size_t rank = dims_.size();
    Ints index(rank, 0);
    for (size_t i = 0; i < rank; ++i) index[static_cast<size_t>(order_[i])] = at_[i];
    for (size_t i = rank; i < at_.size(); ++i) {
      const size_t block = static_cast<size_t>(order_[i]) - rank;
      int64_t& own = index[static_cast<size_t>(block_map_[block])];
      own = own * blocks_[block] + at_[i];
    }
    int64_t place = 0;
    for (size_t d = 0; d < rank; ++d) {
      if (index[d] < 0 || index[d] >= dims_[d]) return false;
      place = place * dims_[d] + index[d];
    }
    places_.push_back(place);
    return true;
  }

  std::vector<Level> levels_;
  Ints order_, block_map_, blocks_, at_;
  const Ints& dims_;
  int64_t stored_, steps_ = 0, most_steps_ = 0;
  std::vector<int64_t> places_;
};

}  // namespace

std::optional<std::vector<int64_t>> sparse_places(const tflite::SparsityParameters& sparsity, const Ints& dims,
                                                  int64_t stored) {
  const auto list = [](const flatbuffers::Vector<int32_t>* v) { return v ? Ints(v->begin(), v->end()) : Ints(); };
  Ints order = list(sparsity.traversal_order()), block_map = list(sparsity.block_map());
  const auto* metadata = sparsity.dim_metadata();
  const size_t rank = dims.size(), count = rank + block_map.size();
  if (order.size() != count || !metadata || metadata->size() != count) return std::nullopt;
  // Dimensions come before the blocks' own, each once.
  Ints sorted = order;
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(rank));
  std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(rank), sorted.end());
  for (size_t i = 0; i < count; ++i)
    if (sorted[i] != static_cast<int64_t>(i)) return std::nullopt;
  for (const int64_t dim : block_map)
    if (dim < 0 || dim >= static_cast<int64_t>(rank)) return std::nullopt;
  std::vector<Level> levels;
  for (uint32_t i = 0; i < count; ++i) {
    const tflite::DimensionMetadata& from = *metadata->Get(i);
    Level level;
    level.dense = from.format() == 0;
    level.size = from.dense_size();
    if (level.dense) {
      if (level.size < 0) return std::nullopt;
    } else {
      if (i >= rank) return std::nullopt;
      auto segments = numbers_of(from, true), indices = numbers_of(from, false);
      if (!segments || !indices) return std::nullopt;
      level.segments = *std::move(segments);
      level.indices = *std::move(indices);
    }
    levels.push_back(std::move(level));
  }
  Walk walk(std::move(levels), std::move(order), std::move(block_map), dims, stored);
  if (!walk.run(0, 0) || static_cast<int64_t>(walk.places().size()) != stored) return std::nullopt;
  return std::move(walk.places());
}

}  // namespace tessera::inline tflite_import
