#include "schedule/dynamic/cover.h"

namespace tessera::inline schedule {

std::vector<TileSegment> cover_axis(const Expr& extent, const std::vector<int64_t>& sizes, const std::string& name) {
  std::vector<TileSegment> segments;
  Expr done = 0, left = extent;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = sizes[i];
    TileSegment segment{size, make_var(name), left, {}};
    if (size == 1) {
      segment.base = done + segment.var;
    } else if (i == 0) {
      segment.count = floordiv(extent, size);
      segment.base = segment.var * Expr(size);
      done = segment.count * Expr(size);
      left = floormod(extent, size);
    } else {
      const Expr fits = extent >= Expr(size);
      segment.count = select(fits, floordiv(left + Expr(size - 1), size), Expr(0));
      segment.base = min(done + segment.var * Expr(size), extent - Expr(size));
      left = select(fits, Expr(0), left);
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

std::vector<TileSegment> cover_axis_once(const Expr& extent, const std::vector<int64_t>& sizes, int64_t smallest,
                                         const std::string& name) {
  std::vector<TileSegment> segments;
  Expr done = 0, left = extent;
  for (const int64_t size : sizes) {
    TileSegment segment{size, make_var(name), {}, {}};
    if (size >= smallest) {
      segment.count = floordiv(left, size);
      segment.base = done + segment.var * Expr(size);
      done = done + segment.count * Expr(size);
      left = floormod(left, size);
    } else {
      segment.count = select(equal(left, Expr(size)), Expr(1), Expr(0));
      segment.base = done + segment.var;
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace tessera::inline schedule
