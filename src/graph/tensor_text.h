// The text form of types and constant tensors, shared by the printer and the parser of graphs.
//   f32[1,3,n,(h * 2)]{0,1/16,2,3,1%16}                                  types; the layout only when it is not
//   row-major dense<f32[2,2] 0.5 -1 2 nan>  splat<i64[64] 0>                       at most kMaxDense elements; all
//   elements equal hex<f32[128] 0x0000803f...>                                          the row-major bytes in memory
//   order elided<f32[128] 0x00c0ffee00c0ffee>                                  content hash only: no data
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "arith/tensor_type.h"
#include "support/text_reader.h"
#include "types/tensor.h"

namespace tessera::inline graph {

inline constexpr int64_t kMaxDense = 64;
// A text of a few bytes must not ask for any amount of memory.
inline constexpr int64_t kMaxSplatBytes = int64_t{256} << 20;
inline constexpr int64_t kMaxLayoutBlock = 1 << 16;

using SymbolScope = std::unordered_map<std::string, Var>;

std::string tensor_text(const Tensor& tensor, bool elide_big);
// Digits enough to read the same number back; always distinguishable from an integer ("1.0", "1e-05", "inf").
std::string double_text(double value);

// The bytes of a dense tensor; empty when a dim is negative or the product does not fit into 63 bits.
std::optional<int64_t> checked_bytes(DType dtype, const std::vector<int64_t>& dims);
// Why `layout` is no layout of a tensor of this rank; empty when it is one.
std::string layout_problem(const Layout& layout, int rank);

TensorType parse_type(TextReader& reader, const SymbolScope& symbols);
// An expression of symbols, as dimensions are written.
Expr parse_size(TextReader& reader, const SymbolScope& symbols);
// "[n in 1..64, m in 8..32:8]" behind its first bracket; adds to `scope` what it declares.
std::vector<SymbolRange> parse_symbols(TextReader& reader, SymbolScope& scope);
Layout parse_layout(TextReader& reader);
// `keyword` is one of dense, splat, hex, elided and has been read already.
TensorPtr parse_tensor(TextReader& reader, std::string_view keyword);

}  // namespace tessera::inline graph
