// Element types whose elements stand in blocks with the scale that they share, as language models are stored in
// (GGUF's): the one place that says what the bytes of a block mean.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "arith/expr.h"

namespace tessera::inline ops {

// Byte `i` of the block as an i32; the index may be any expression of type i64.
using BlockByte = std::function<Expr(const Expr& i)>;

struct BlockedFormat {
  std::string_view name;  // "q4_1"
  int64_t elements = 0;   // of a block, which are neighbours in a row
  int64_t bytes = 0;
  // Element `i` of the block, 0 <= i < elements, as the f32 that the format defines: products and sums are rounded one
  // by one.
  Expr (*element)(const BlockByte& byte, const Expr& i);
};

std::span<const BlockedFormat> blocked_formats();
const BlockedFormat* find_blocked_format(std::string_view name);  // null when there is none
std::vector<std::string_view> blocked_format_names();

}  // namespace tessera::inline ops
