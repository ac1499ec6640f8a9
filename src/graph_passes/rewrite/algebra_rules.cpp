#include "graph_passes/rewrite/algebra_rules.h"

#include "graph_passes/rewrite/algebra_conditions.h"

namespace tessera::inline graph_passes {
namespace {

constexpr Numerics kSign = Numerics::kZeroSign, kRound = Numerics::kRounding, kExact = Numerics::kExact;
constexpr bool kOnce = true;

// The order is that of trying: the first rule that applies is taken, until none does.
constexpr AlgebraRule kRules[] = {
    // Neutral elements.
    {"add_zero", "add(x, 0)", "x", kSign},
    {"sub_zero", "sub(x, 0)", "x", kSign},
    {"zero_sub", "sub(0, x)", "neg(x)", kSign},
    {"mul_one", "mul(x, 1)", "x"},
    {"div_one", "div(x, 1)", "x"},
    {"mul_minus_one", "mul(x, -1)", "neg(x)"},
    {"div_minus_one", "div(x, -1)", "neg(x)", kExact, "floats", floats},
    {"max_lowest", "max(x, -inf)", "x"},
    {"min_highest", "min(x, inf)", "x"},
    {"unsigned_max_zero", "max(x, 0)", "x", kExact, "unsigned integers", unsigned_ints},
    {"max_zero_of_positive", "max(x, 0)", "x", kExact, "x is never negative", x_not_negative},
    {"max_same", "max(x, x)", "x"},
    {"min_same", "min(x, x)", "x"},
    {"mul_zero", "mul(x, 0)", "0", kExact, "integers: a float x may be NaN or infinite", ints},
    {"sub_same", "sub(x, x)", "0", kExact, "integers: a float x may be NaN or infinite", ints},
    // Powers.
    {"pow_one", "pow(x, 1)", "x"},
    {"pow_two", "pow(x, 2)", "mul(x, x)", kRound},
    {"pow_three", "pow(x, 3)", "mul(mul:p(x, x), x)", kRound, "f64, f32, integers", wide},
    {"pow_half", "pow(x, 0.5)", "sqrt(x)", kRound, "x is never negative: pow(-inf, 0.5) is inf", x_not_negative},
    {"pow_minus_half", "pow(x, -0.5)", "div(1, sqrt(x))", kRound, "f64, f32; x is never negative", wide_x_not_negative},
    {"pow_minus_one", "pow(x, -1)", "div(1, x)", kRound, "floats", floats},
    // Signs.
    {"neg_neg", "neg(neg(x))", "x"},
    {"add_neg", "add(x, neg(y))", "sub(x, y)"},
    {"sub_neg", "sub(x, neg(y))", "add(x, y)"},
    {"neg_sub", "neg(sub(x, y))", "sub(y, x)", kSign, "nobody else reads the difference", nullptr, kOnce},
    {"mul_neg_neg", "mul(neg(x), neg(y))", "mul(x, y)"},
    {"div_neg_neg", "div(neg(x), neg(y))", "div(x, y)", kExact, "floats", floats},
    {"mul_neg_constant", "mul(neg(x), c)", "mul(x, neg(c))"},
    {"div_neg_constant", "div(neg(x), c)", "div(x, neg(c))", kExact, "floats", floats},
    {"neg_mul_constant", "neg(mul(x, c))", "mul(x, neg(c))", kExact, "nobody else reads the product", nullptr, kOnce},
    {"abs_neg", "abs(neg(x))", "abs(x)", kExact, "not unsigned integers", not_unsigned},
    {"abs_of_positive", "abs(x)", "x", kExact, "x is never negative", x_not_negative},
    // Twice is once.
    {"not_not", "logical_not(logical_not(x))", "x"},
    {"bitwise_not_not", "bitwise_not(bitwise_not(x))", "x"},
    {"abs_abs", "abs(abs:i(x))", "i"},
    {"sign_sign", "sign(sign:i(x))", "i"},
    {"floor_floor", "floor(floor:i(x))", "i"},
    {"floor_ceil", "floor(ceil:i(x))", "i"},
    {"floor_round", "floor(round:i(x))", "i"},
    {"ceil_ceil", "ceil(ceil:i(x))", "i"},
    {"ceil_floor", "ceil(floor:i(x))", "i"},
    {"ceil_round", "ceil(round:i(x))", "i"},
    {"round_round", "round(round:i(x))", "i"},
    {"round_floor", "round(floor:i(x))", "i"},
    {"round_ceil", "round(ceil:i(x))", "i"},
    // Truth values.
    {"and_true", "logical_and(x, 1)", "x"},
    {"and_false", "logical_and(x, 0)", "0"},
    {"and_same", "logical_and(x, x)", "x"},
    {"or_false", "logical_or(x, 0)", "x"},
    {"or_true", "logical_or(x, 1)", "1"},
    {"or_same", "logical_or(x, x)", "x"},
    {"xor_false", "logical_xor(x, 0)", "x"},
    {"xor_true", "logical_xor(x, 1)", "logical_not(x)"},
    {"eq_true", "eq(x, 1)", "x", kExact, "bool", x_bool},
    {"eq_false", "eq(x, 0)", "logical_not(x)", kExact, "bool", x_bool},
    {"ne_false", "ne(x, 0)", "x", kExact, "bool", x_bool},
    {"ne_true", "ne(x, 1)", "logical_not(x)", kExact, "bool", x_bool},
    {"not_eq", "logical_not(eq(x, y))", "ne(x, y)"},
    {"not_ne", "logical_not(ne(x, y))", "eq(x, y)"},
    {"not_lt", "logical_not(lt(x, y))", "ge(x, y)", kExact, "integers: with a NaN neither holds", x_int},
    {"not_gt", "logical_not(gt(x, y))", "le(x, y)", kExact, "integers: with a NaN neither holds", x_int},
    {"select_same", "select(x, y, y)", "y"},
    {"select_true", "select(1, x, y)", "x"},
    {"select_false", "select(0, x, y)", "y"},
    {"select_not", "select(logical_not(x), y, z)", "select(x, y2, z2)", kExact, "", swap_arms},
    {"select_one_zero", "select(x, 1, 0)", "cast:k(x)", kExact, "", cast_to_result},
    // Bounds: constants meet, lower bounds go inside.
    {"max_max", "max(max(x, c), d)", "max(x, max(c, d))", kExact, "the constant does not grow", constants_do_not_grow},
    {"min_min", "min(min(x, c), d)", "min(x, min(c, d))", kExact, "the constant does not grow", constants_do_not_grow},
    {"clip_order", "max(min(x, c), d)", "min(max(x, d), c)", kSign, "one number each, d <= c", d_not_above_c},
    // Constants meet.
    {"add_add", "add(add(x, c), d)", "add(x, add(c, d))", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"add_sub", "add(sub(x, c), d)", "add(x, sub(d, c))", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"sub_add", "sub(add(x, c), d)", "add(x, sub(c, d))", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"sub_sub", "sub(sub(x, c), d)", "sub(x, add(c, d))", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"add_from", "add(sub(c, x), d)", "sub(add(c, d), x)", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"from_add", "sub(d, add(x, c))", "sub(sub(d, c), x)", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"from_from", "sub(d, sub(c, x))", "add(x, sub(d, c))", kRound, "f64, f32, integers", sums_of_constants, kOnce},
    {"mul_mul", "mul(mul(x, c), d)", "mul(x, mul(c, d))", kRound, "f64, f32 (constants in 2^-60..2^60), integers",
     products_of_constants, kOnce},
    {"mul_div", "mul(div(x, c), d)", "mul(x, div(d, c))", kRound, "f64, f32 (constants in 2^-60..2^60)",
     quotients_of_constants, kOnce},
    {"div_mul", "div(mul(x, c), d)", "mul(x, div(c, d))", kRound, "f64, f32 (constants in 2^-60..2^60)",
     quotients_of_constants, kOnce},
    {"div_div", "div(div(x, c), d)", "div(x, mul(c, d))", kRound, "f64, f32 (constants in 2^-60..2^60)",
     quotients_of_constants, kOnce},
    {"div_power_of_two", "div(x, c)", "mul(x, div(1, c))", kExact, "f64, f32; powers of two", powers_of_two},
    // What only moves elements.
    {"same_reshape", "reshape(x)", "x"},
    {"same_broadcast", "broadcast(x)", "x"},
    {"same_cast", "cast(x)", "x"},
    {"same_relayout", "relayout(x)", "x"},
    {"same_transpose", "transpose:t(x)", "x", kExact, "the order does not change", keeps_order},
    {"same_slice", "slice:s(x)", "x", kExact, "steps are positive", steps_forward},
    {"no_pad", "pad:p(x, v)", "x", kExact, "nothing is added or cut off", pads_nothing},
    {"no_edge_pad", "pad:p(x)", "x", kExact, "nothing is added or cut off", pads_nothing},
    {"concat_one", "concat(x)", "x"},
    {"reshape_reshape", "reshape:o(reshape(x))", "reshape:o(x)", kExact, "", keep_outer},
    {"broadcast_broadcast", "broadcast:o(broadcast(x))", "broadcast:o(x)", kExact, "", keep_outer},
    {"relayout_relayout", "relayout:o(relayout(x))", "relayout:o(x)", kExact, "", keep_outer},
    {"transpose_transpose", "transpose:o(transpose:i(x))", "transpose:o(x)", kExact, "", compose_transposes},
    {"transpose_of_ones", "transpose:t(x)", "reshape:o(x)", kExact, "only dimensions of extent 1 move",
     transposes_only_ones},
    {"slice_slice", "slice:o(slice:i(x))", "slice:o(x)", kExact, "", compose_slices},
    {"pad_pad", "pad:o(pad:i(x, v), v)", "pad:o(x, v)", kExact, "both add the same value, and cut off nothing",
     compose_pads},
    {"slice_of_pad", "slice:o(pad:i(x, v))", "slice:o(x)", kExact, "no added element is taken", slice_inside_pad},
    {"slice_of_concat", "slice:o(concat:k(...))", "slice:o(p)", kExact, "the slice is of one piece",
     slice_of_one_piece},
    {"concat_of_concat", "concat:o(...)", "concat:o(...)", kExact, "a piece is a concat along the same axis",
     flatten_concat},
    {"concat_of_slices", "concat:o(...)", "concat:o(...)", kExact, "pieces that are neighbours in one tensor",
     join_neighbour_slices},
    {"gather_constant", "gather:g(x, c)", "reshape:o(slice:s(x))", kExact, "one index", gather_one},
    {"reduce_nothing", "reduce:r(x)", "reshape:o(x)", kSign, "reduced dimensions have extent 1", reduces_ones},
    {"cast_cast", "cast:o(cast:i(x))", "cast:o(x)", kExact, "the inner one keeps every value", inner_cast_keeps_values},
    {"own_broadcast", "*:o(...)", "*:o(...)", kExact, "the operator broadcasts by itself", skip_broadcast},
    // Matrix products.
    {"matmul_transposes", "matmul:m(transpose:l(x), transpose:r(y))", "transpose:o(matmul:p(y, x))", kRound,
     "both swap the last two dimensions", both_transposed},
    {"matmul_of_transposed", "matmul:m(x, transpose:t(y))", "matmul:p(x, y)", kRound,
     "transpose_b, or y is a matrix and no constant, whose columns 16 to 512 rows of long sums of f32 turn themselves",
     turned_by_product},
    {"transpose_of_matmul", "transpose:t(matmul:m(x, y))", "matmul:p(y, x)", kRound,
     "matrices; x is transposed; nobody else reads the product", swaps_factors, kOnce},
    {"matmul_transpose_b", "matmul:m(x, y)", "matmul:p(x, transpose:o(y))", kRound,
     "transpose_b; y is no constant and not in blocks, x has 4 rows or more: vectors of columns are worth a copy, "
     "unless 16 to 512 rows "
     "of long sums of f32 turn them themselves",
     worth_transposing},
};

}  // namespace

std::span<const AlgebraRule> algebra_rules() { return kRules; }

}  // namespace tessera::inline graph_passes
