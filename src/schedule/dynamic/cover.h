// An axis of open extent covered with tiles of fixed sizes.
#pragma once

#include <string>
#include <vector>

#include "arith/expr.h"

namespace tessera::inline schedule {

// Tiles of one size: `count` of them, where `base` is the first place of number `var`.
struct TileSegment {
  int64_t size = 1;
  Var var;
  Expr count, base;
};

// Tiles of these sizes, the largest first, for all places of an axis. What is left behind the tiles of the first size
// is done by the next one, whose last tile ends where the axis does, over places that are done already; a smaller size
// is for axes that are shorter than that. Places are done twice then: what a kernel stores must not be what it reads.
// Without size 1 an axis shorter than the last size is left out.
std::vector<TileSegment> cover_axis(const Expr& extent, const std::vector<int64_t>& sizes, const std::string& name);

// The same without places that are done twice. Behind the tiles of the larger sizes stands at most one of those below
// `smallest`. REQUIRES: `smallest` is one of the sizes, and all sizes below it are there.
std::vector<TileSegment> cover_axis_once(const Expr& extent, const std::vector<int64_t>& sizes, int64_t smallest,
                                         const std::string& name);

}  // namespace tessera::inline schedule
