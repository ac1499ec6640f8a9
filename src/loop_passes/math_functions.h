// The functions of expand_math.h as expressions. `x` and the result are f64 or f32 as the argument is; functions
// without an f32 form of their own take f64 only.
#pragma once

#include "arith/expr.h"

namespace tessera::math {

Expr exp(const Expr& x);   // f32 or f64
Expr log(const Expr& x);   // f32 or f64
Expr tanh(const Expr& x);  // f32 or f64
Expr erf(const Expr& x);   // f32 or f64

// f64. `narrow`: x holds a value of f32 or a narrower type, and is reduced exactly however large it is.
Expr sin(const Expr& x, bool narrow);
Expr cos(const Expr& x, bool narrow);
Expr tan(const Expr& x, bool narrow);

// f64.
Expr asin(const Expr& x);
Expr acos(const Expr& x);
Expr atan(const Expr& x);
Expr sinh(const Expr& x);
Expr cosh(const Expr& x);
Expr asinh(const Expr& x);
Expr acosh(const Expr& x);
Expr atanh(const Expr& x);

// f64. `narrow`: x and y hold values of f32 or a narrower type.
Expr pow(const Expr& x, const Expr& y, bool narrow);
Expr fmod(const Expr& x, const Expr& y, bool narrow);

// Integers of any width: by squaring, wrapping; a negative exponent gives the truncated reciprocal power.
Expr integer_pow(const Expr& base, const Expr& exponent);

}  // namespace tessera::math
