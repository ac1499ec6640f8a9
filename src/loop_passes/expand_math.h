// Mathematical functions as polynomials in the same IR, so that every back end computes them with its own vectors,
// fuses them with their neighbours and needs no library.
//
// before:  y[i] = exp(x[i])
// after:   y[i] = bitcast:f32(...) * fma(r * r, fma(r, ...), r) ...   with r = x - round(x / ln 2) * ln 2
//
// Replaced: exp log tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh, pow (also of integers), rem and
// floormod of floats, on floats of any type. Everything else is left alone; running the pass twice changes nothing.
//
// Largest error measured against libm in double precision (tests/reference/math_test.cpp), in units of the last place:
//   f32: exp 1.0, log 0.8, tanh 1.3, erf 1.0 (in f32 arithmetic); the others and pow 0.5 (in f64, then rounded); rem 0;
//        pow with a constant power that is a number of quarters 2.2 (by square roots; from -0.5 to 1.5)
//   f64: exp 1.0, log 0.9, tanh 1.2, erf 1.1, sin and cos 2.0, tan 3.4, asin 2.1, acos 1.2, atan 1.7, sinh 2.9,
//        cosh 2.7, asinh 1.7, acosh 1.9, atanh 1.9, pow 0.7 (0 where the power is a number of f64), rem 0
//        sin, cos, tan of f64: for |x| up to 6e6; f32 arguments are reduced exactly over the whole range
// Infinities, NaN, denormal arguments and results are right; the sign of a zero result may be lost.
// Smaller floats go through f32.
//
// Method: range reduction by exponent (exp, log), by multiples of pi/2 in parts (sin, cos) or by identities; on the
// reduced range minimax polynomials that fit_polynomials.py computes. Nothing relies on kFma being rounded once.
#pragma once

#include "loop/stmt.h"
#include "target/target.h"

namespace tessera::inline loop_passes {

// A nest that stands for an intrinsic's pattern keeps its functions, as the pattern has them, unless the target (null:
// one that has them all) cannot use the intrinsic there: then it is a nest like any other.
LoopProgram expand_math(const LoopProgram& program, const Target* target = nullptr);
Expr expand_math(const Expr& e);

}  // namespace tessera::inline loop_passes
