// Arithmetic of IEEE 754 binary32 as functions: rounded to nearest, halves to even, with denormal numbers. A NaN that
// comes in goes out quiet, the first of two; an invalid operation gives the NaN 0xffc00000. Verilator is told to call
// them: 16 lanes of each, inlined, are megabytes of code.

function automatic logic f32_is_nan(input logic [31:0] a);
  /* verilator no_inline_task */
  f32_is_nan = (a[30:23] == 8'hff) && (a[22:0] != 23'd0);
endfunction

function automatic logic [31:0] f32_nan_of(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_nan_of = f32_is_nan(a) ? (a | 32'h00400000) : f32_is_nan(b) ? (b | 32'h00400000) : 32'hffc00000;
endfunction

// What is multiplied by 2^(exponent - 150).
function automatic logic [23:0] f32_significand(input logic [31:0] a);
  /* verilator no_inline_task */
  f32_significand = {a[30:23] != 8'd0, a[22:0]};
endfunction

function automatic logic [7:0] f32_exponent(input logic [31:0] a);
  /* verilator no_inline_task */
  f32_exponent = (a[30:23] == 8'd0) ? 8'd1 : a[30:23];
endfunction

function automatic logic [5:0] f32_highest_bit(input logic [63:0] s);
  /* verilator no_inline_task */
  f32_highest_bit = 6'd0;
  for (int bit_number = 0; bit_number < 64; bit_number++) begin
    if (s[bit_number]) f32_highest_bit = bit_number[5:0];
  end
endfunction

// The number nearest to s * 2^exponent; the lowest bit of s may stand for any fraction of it, where s has more than 26
// bits.
function automatic logic [31:0] f32_rounded(input logic negative, input logic signed [11:0] exponent,
                                            input logic [63:0] s);
  /* verilator no_inline_task */
  logic signed [11:0] top;
  logic signed [11:0] shift;
  logic is_denormal;
  logic [6:0] amount;
  logic [63:0] kept;
  logic [63:0] dropped;
  logic [31:0] result;
  top = exponent + $signed({6'd0, f32_highest_bit(s)});
  is_denormal = top < -12'sd126;
  shift = (is_denormal ? -12'sd149 : top - 12'sd23) - exponent;
  amount = (shift > 12'sd64) ? 7'd64 : shift[6:0];
  if (shift <= 12'sd0) begin
    kept = s << (-shift);
    dropped = 64'd0;
  end else begin
    kept = s >> amount;
    dropped = s << (7'd64 - amount);
  end
  result = kept[31:0];
  if (!is_denormal) result = result + ({20'd0, top + 12'sd126} << 23);
  if (dropped[63] && (dropped[62:0] != 63'd0 || kept[0])) result = result + 32'd1;
  if (top > 12'sd127 || result >= 32'h7f800000) result = 32'h7f800000;
  f32_rounded = (s == 64'd0) ? {negative, 31'd0} : {negative, result[30:0]};
endfunction

function automatic logic [31:0] f32_add(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  logic swap;
  logic [31:0] greater;
  logic [31:0] lesser;
  logic [7:0] distance;
  logic [63:0] s_greater;
  logic [63:0] s_lesser;
  logic [63:0] shifted;
  logic [63:0] sum;
  swap = b[30:0] > a[30:0];
  greater = swap ? b : a;
  lesser = swap ? a : b;
  distance = f32_exponent(greater) - f32_exponent(lesser);
  s_greater = {10'd0, f32_significand(greater), 30'd0};
  s_lesser = {10'd0, f32_significand(lesser), 30'd0};
  shifted = (distance > 8'd60) ? 64'd0 : (s_lesser >> distance);
  if ((distance > 8'd60) ? (s_lesser != 64'd0) : ((shifted << distance) != s_lesser)) shifted[0] = 1'b1;
  sum = (a[31] == b[31]) ? s_greater + shifted : s_greater - shifted;
  if (f32_is_nan(a) || f32_is_nan(b)) f32_add = f32_nan_of(a, b);
  else if (greater[30:23] == 8'hff)
    f32_add = (lesser[30:23] == 8'hff && greater[31] != lesser[31]) ? 32'hffc00000 : greater;
  else if (sum == 64'd0) f32_add = {a[31] & b[31], 31'd0};
  else f32_add = f32_rounded(greater[31], $signed({4'd0, f32_exponent(greater)}) - 12'sd180, sum);
endfunction

function automatic logic [31:0] f32_sub(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_sub = f32_is_nan(b) ? f32_nan_of(a, b) : f32_add(a, {~b[31], b[30:0]});
endfunction

function automatic logic [31:0] f32_mul(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  logic negative;
  logic a_is_inf;
  logic b_is_inf;
  logic [63:0] product;
  negative = a[31] ^ b[31];
  a_is_inf = a[30:0] == 31'h7f800000;
  b_is_inf = b[30:0] == 31'h7f800000;
  product = {16'd0, {24'd0, f32_significand(a)} * {24'd0, f32_significand(b)}};
  if (f32_is_nan(a) || f32_is_nan(b)) f32_mul = f32_nan_of(a, b);
  else if (a_is_inf || b_is_inf)
    f32_mul = (a[30:0] == 31'd0 || b[30:0] == 31'd0) ? 32'hffc00000 : {negative, 31'h7f800000};
  else
    f32_mul = f32_rounded(negative, $signed({4'd0, f32_exponent(a)}) + $signed({4'd0, f32_exponent(b)}) - 12'sd300,
                          product);
endfunction

function automatic logic [31:0] f32_div(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  logic negative;
  logic a_is_inf;
  logic b_is_inf;
  logic [5:0] up_a;
  logic [5:0] up_b;
  logic [49:0] dividend;
  logic [49:0] divisor;
  logic [49:0] quotient;
  logic [49:0] remainder;
  logic signed [11:0] exponent;
  negative = a[31] ^ b[31];
  a_is_inf = a[30:0] == 31'h7f800000;
  b_is_inf = b[30:0] == 31'h7f800000;
  // Both significands get their highest bit in place 23.
  up_a = 6'd23 - f32_highest_bit({40'd0, f32_significand(a)});
  up_b = 6'd23 - f32_highest_bit({40'd0, f32_significand(b)});
  dividend = {26'd0, f32_significand(a) << up_a} << 26;
  divisor = (b[30:0] == 31'd0) ? 50'd1 : {26'd0, f32_significand(b) << up_b};
  quotient = dividend / divisor;
  remainder = dividend - quotient * divisor;
  exponent = $signed({4'd0, f32_exponent(a)}) - $signed({4'd0, f32_exponent(b)}) - $signed({6'd0, up_a}) +
             $signed({6'd0, up_b}) - 12'sd27;
  if (f32_is_nan(a) || f32_is_nan(b)) f32_div = f32_nan_of(a, b);
  else if (a_is_inf) f32_div = b_is_inf ? 32'hffc00000 : {negative, 31'h7f800000};
  else if (b_is_inf) f32_div = {negative, 31'd0};
  else if (b[30:0] == 31'd0) f32_div = (a[30:0] == 31'd0) ? 32'hffc00000 : {negative, 31'h7f800000};
  else if (a[30:0] == 31'd0) f32_div = {negative, 31'd0};
  else f32_div = f32_rounded(negative, exponent, {13'd0, quotient, remainder != 50'd0});
endfunction

function automatic logic f32_eq(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_eq = !f32_is_nan(a) && !f32_is_nan(b) && (a == b || (a[30:0] == 31'd0 && b[30:0] == 31'd0));
endfunction

function automatic logic f32_lt(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  logic is_less;
  is_less = (a[31] != b[31]) ? a[31] : a[31] ? (a[30:0] > b[30:0]) : (a[30:0] < b[30:0]);
  f32_lt = !f32_is_nan(a) && !f32_is_nan(b) && !f32_eq(a, b) && is_less;
endfunction

function automatic logic f32_le(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_le = f32_lt(a, b) || f32_eq(a, b);
endfunction

function automatic logic [31:0] f32_min(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_min = (f32_is_nan(a) || f32_is_nan(b)) ? f32_nan_of(a, b) : f32_lt(b, a) ? b : a;
endfunction

function automatic logic [31:0] f32_max(input logic [31:0] a, input logic [31:0] b);
  /* verilator no_inline_task */
  f32_max = (f32_is_nan(a) || f32_is_nan(b)) ? f32_nan_of(a, b) : f32_lt(a, b) ? b : a;
endfunction

// To a whole number, halves to even.
function automatic logic [31:0] f32_round(input logic [31:0] a);
  /* verilator no_inline_task */
  logic [7:0] shift;
  logic [63:0] kept;
  logic [63:0] dropped;
  shift = 8'd150 - f32_exponent(a);
  kept = {40'd0, f32_significand(a)} >> shift;
  dropped = (shift > 8'd40) ? {63'd0, f32_significand(a) != 24'd0} : ({40'd0, f32_significand(a)} << (8'd64 - shift));
  if (dropped[63] && (dropped[62:0] != 63'd0 || kept[0])) kept = kept + 64'd1;
  if (f32_is_nan(a)) f32_round = a | 32'h00400000;
  else if (f32_exponent(a) >= 8'd150) f32_round = a;
  else f32_round = f32_rounded(a[31], 12'sd0, kept);
endfunction

function automatic logic [31:0] f32_from_i64(input logic signed [63:0] a);
  /* verilator no_inline_task */
  f32_from_i64 = f32_rounded(a[63], 12'sd0, a[63] ? -a : a);
endfunction

// Towards zero; what is beyond `least` and `most` becomes them, and NaN 0.
function automatic logic signed [63:0] f32_to_int(input logic [31:0] a, input logic signed [63:0] least,
                                                  input logic signed [63:0] most);
  /* verilator no_inline_task */
  logic signed [9:0] up;
  logic [63:0] magnitude;
  logic signed [63:0] value;
  up = $signed({2'd0, f32_exponent(a)}) - 10'sd150;
  magnitude = (up >= 10'sd0) ? ({40'd0, f32_significand(a)} << up) : ({40'd0, f32_significand(a)} >> (-up));
  value = a[31] ? -$signed(magnitude) : $signed(magnitude);
  if (f32_is_nan(a)) f32_to_int = 64'sd0;
  else if (up > 10'sd38) f32_to_int = a[31] ? least : most;
  else f32_to_int = (value < least) ? least : (value > most) ? most : value;
endfunction
