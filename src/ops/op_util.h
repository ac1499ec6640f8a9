// What the operators' files share: the checks that infer functions make, broadcasting, buffers of bodies.
//
// Error ids of this room (each check says which it raises):
//   TSR-2020 element type not supported     TSR-2021 element types differ      TSR-2022 wrong rank
//   TSR-2023 shapes do not broadcast        TSR-2024 extents do not match      TSR-2025 attribute out of range
//   TSR-2026 window larger than its input   TSR-2027 attribute list too short or long
//   TSR-2028 number of elements differs                                        TSR-2030 a static shape is needed
//   TSR-2031 unknown word in an attribute   TSR-2032 slice outside its input   TSR-2033 unknown composite
//   TSR-2034 wrong number of operands       TSR-2035 a load outside its operand
//   TSR-2036 no data symbol              TSR-2037 no mesh, or no axes of it
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op_def.h"

namespace tessera::inline ops {

// Extents, strides, pads and the like stay below this, so that sums and products of a few of them cannot overflow.
inline constexpr int64_t kMaxExtent = int64_t{1} << 40;
inline constexpr int64_t kMaxWindowInt = int64_t{1} << 31;

// ---- element types ----
bool is_real(DType dtype);        // f64 f32 f16 bf16: what transcendental functions take
bool is_arithmetic(DType dtype);  // is_real and the integers of 8 to 64 bits
bool is_integral(DType dtype);    // the integers of 8 to 64 bits
bool is_movable(DType dtype);     // everything but string: operators that only move elements
bool is_index(DType dtype);       // what tensors of indices have: i32, i64
inline constexpr const char* kIndexTypes = "i32, i64";
inline constexpr const char* kRealTypes = "f64, f32, f16, bf16";
inline constexpr const char* kArithmeticTypes = "f64, f32, f16, bf16, i8 to i64, u8 to u64";
inline constexpr const char* kIntegralTypes = "i8 to i64, u8 to u64";
inline constexpr const char* kMovableTypes = "every type but string";

// "operand 2 of type f32[3,4]", counted from 1.
std::string describe_operand(const OpContext& ctx, size_t operand);

// TSR-2020 unless `accepted` holds for the operand's type.
void require_dtype(const OpContext& ctx, size_t operand, bool (*accepted)(DType), const char* legal);
// TSR-2021 unless operands first .. have the type of operand `first`.
void require_same_dtype(const OpContext& ctx, size_t first = 0);
// TSR-2022 unless lo <= rank <= hi.
void require_rank(const OpContext& ctx, size_t operand, int lo, int hi);
// TSR-2025 unless lo <= attribute <= hi; returns it.
int64_t require_int(const OpContext& ctx, const std::string& attr, int64_t lo, int64_t hi);
// TSR-2027 unless the list has `count` entries, TSR-2025 unless each lies in lo .. hi; returns it.
const std::vector<int64_t>& require_ints(const OpContext& ctx, const std::string& attr, size_t count, int64_t lo,
                                         int64_t hi);
// Axes of a rank-`rank` tensor: in range and each once (TSR-2025). Any order.
const std::vector<int64_t>& require_axes(const OpContext& ctx, const std::string& attr, int rank);
// TSR-2031 unless the attribute is one of `words`; returns its position.
size_t require_word(const OpContext& ctx, const std::string& attr, const std::string& value,
                    const std::vector<std::string_view>& words);

// The sizes of an attribute of kind kSizes; TSR-2027 and TSR-2025 as require_ints. What is symbolic is not held against
// the bounds, unless its range is known to lie outside of them.
Shape require_sizes(const OpContext& ctx, const std::string& attr, size_t count, int64_t lo, int64_t hi);
std::string join(const std::vector<int64_t>& values);                           // "[1, 2]"
std::string join(const Shape& sizes);                                           // "[n, 2]"
std::string plural(size_t count, std::string_view one, std::string_view many);  // "2 entries"

// TSR-2024 when dimension `axis` of operand 1 has no elements to be chosen by indices of shape `indices`.
void require_elements(const OpContext& ctx, size_t axis, const Shape& indices);

// ---- shapes ----
// True when the two extents are equal for every value of the symbols.
bool equal_extents(const Expr& a, const Expr& b);
// The numpy rule: aligned at the last dimension, an extent of 1 stretches. TSR-2023 when two extents are not provably
// equal and neither is the constant 1.
Shape broadcast_shapes(const OpContext& ctx, const Shape& a, const Shape& b);
// Where an operand of shape `operand` is read for index `out_index` of the broadcast result `out`.
std::vector<Expr> broadcast_index(const Shape& operand, const Shape& out, const std::vector<Expr>& out_index);

// ---- bodies ----
// One buffer per operand, named in0, in1, ...
std::vector<BufferPtr> input_buffers(const OpContext& ctx);
// An element of a tensor of indices as an index of a dimension: negative ones count from the end, and what is still
// outside is clamped into the range.
Expr index_in_range(const Expr& raw, const Expr& extent);
// A body with inputs and axes (named i0, i1, ...) for the operator's single result; `value` is left to the caller.
Body start_body(const OpContext& ctx);
// An elementwise body: value = f(operands read with broadcasting).
Body elementwise_body(const OpContext& ctx, const std::function<Expr(const std::vector<Expr>&)>& f);

}  // namespace tessera::inline ops
