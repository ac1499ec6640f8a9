#!/usr/bin/env python3
"""Computes the polynomial coefficients of math_tables.h: minimax fits by the Remez exchange algorithm in 90 digits.

    python3 src/loop_passes/fit_polynomials.py > src/loop_passes/math_tables.h     (needs the PyPI package mpmath)

Each fit minimises the largest error of weight(t) * (p(t) - f(t)) over an interval. Where f has a removable
singularity the interval ends next to it."""
import struct

from mpmath import mp, mpf, matrix, lu_solve, cos, pi, exp, log, tanh, erf, erfc, sin, sqrt, asin, atan, sinh, diff

mp.dps = 90


def remez(f, weight, low, high, degree):
    """Coefficients (constant first) and the largest weighted error."""
    low, high = mpf(low), mpf(high)
    n = degree + 2
    points = [(low + high) / 2 - (high - low) / 2 * cos(pi * i / (n - 1)) for i in range(n)]
    coefficients, error = None, None
    for _ in range(30):
        a, b = matrix(n, n), matrix(n, 1)
        for i, x in enumerate(points):
            for j in range(degree + 1):
                a[i, j] = x**j
            a[i, degree + 1] = (-1)**i / weight(x)
            b[i] = f(x)
        solution = lu_solve(a, b)
        coefficients = [solution[j] for j in range(degree + 1)]

        def weighted(x):
            value = mpf(0)
            for c in reversed(coefficients):
                value = value * x + c
            return weight(x) * (value - f(x))

        # The extremum between each pair of sign changes, on a fine grid.
        grid = [(low + high) / 2 - (high - low) / 2 * cos(pi * i / (40 * n)) for i in range(40 * n + 1)]
        values = [weighted(x) for x in grid]
        groups, start = [], 0
        for i in range(1, len(values)):
            if (values[i] > 0) != (values[i - 1] > 0):
                groups.append((start, i))
                start = i
        groups.append((start, len(values)))
        new = [grid[max(range(s, e), key=lambda i: abs(values[i]))] for s, e in groups]
        error = max(abs(v) for v in values)
        if len(new) < n:
            break
        while len(new) > n:
            new.pop(0 if abs(weighted(new[0])) < abs(weighted(new[-1])) else -1)
        smallest = min(abs(weighted(x)) for x in new)
        points = new
        if smallest > error * mpf("0.999"):
            break
    return coefficients, error


def as_float(value, single):
    value = float(value)
    if single:
        value = struct.unpack("f", struct.pack("f", value))[0]
    return value.hex()


def emit(name, comment, f, weight, low, high, degree, single):
    coefficients, error = remez(f, weight, low, high, degree)
    print(f"// {comment}; error {float(error):.1e}")
    print(f"inline constexpr double {name}[] = {{")
    line = "   "
    for c in coefficients:
        text = " " + as_float(c, single) + ","
        if len(line) + len(text) > 118:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")


def split_constant(name, value, bits, count):
    """value as a sum of `count` numbers, all but the last with `bits` bits."""
    parts, rest = [], mpf(value)
    for i in range(count):
        if i + 1 < count:
            exponent = int(mp.floor(mp.log(abs(rest), 2)))
            scale = mpf(2)**(bits - 1 - exponent)
            part = mp.floor(rest * scale) / scale
        else:
            part = mpf(float(rest))
        parts.append(float(part).hex())
        rest -= part
    print(f"inline constexpr double {name}[] = {{")
    for i in range(0, len(parts), 4):
        print("    " + ", ".join(parts[i:i + 4]) + ",")
    print("};")


tiny = mpf(10)**-12


def main():
    print("// Written by fit_polynomials.py: coefficients, constant term first. 'f32' tables are rounded to float.")
    print("#pragma once")
    print()
    print("namespace tessera::math_tables {")
    print()
    half_ln2 = log(2) / 2
    for single in (True, False):
        suffix = "F32" if single else "F64"
        print(f"// ---- {suffix} " + "-" * 80)
        margin = mpf("1.0001") if not single else mpf("1.001")
        emit("kExp" + suffix, "exp(r) = 1 + r + r^2 * p(r), |r| <= ln(2)/2",
             lambda r: (exp(r) - 1 - r) / r**2 if abs(r) > mpf(10)**-15 else mpf(1) / 2 + r / 6,
             lambda r: r**2 / exp(r) if abs(r) > mpf(10)**-6 else mpf(10)**-12, -half_ln2 * margin, half_ln2 * margin,
             4 if single else 10, single)
        low, high = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1
        if single:
            emit("kLogF32", "log(1 + f) = f - f^2/2 + f^3 * p(f), 1 + f from sqrt(1/2) to sqrt(2)",
                 lambda f: (log(1 + f) - f + f**2 / 2) / f**3 if abs(f) > mpf(10)**-10 else mpf(1) / 3 - f / 4,
                 lambda f: f**3 / log(1 + f) if abs(f) > mpf(10)**-4 else mpf(10)**-8, low, high, 8, single)
        else:
            s_max = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1))**2
            emit("kLogF64", "log((1 + s) / (1 - s)) = 2s + s * z * p(z), z = s^2 up to 0.0295",
                 lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / (z * sqrt(z)) if z > mpf(10)**-12
                 else mpf(2) / 3 + z * 2 / 5, lambda z: z if z > mpf(10)**-5 else mpf(10)**-5, 0, s_max, 7, single)
        tanh_max = mpf("0.625")
        emit("kTanh" + suffix, "tanh(x) = x + x * z * p(z), z = x^2, |x| <= 0.625",
             lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10)**-12 else -mpf(1) / 3 + z * 2 / 15,
             lambda z: (z + mpf(10)**-6) * sqrt(z + tiny) / tanh(sqrt(z + tiny)), 0, tanh_max**2,
             4 if single else 12, single)
        erf_split = mpf("0.875") if single else mpf(1)
        emit("kErf" + suffix, f"erf(x) = x + x * p(z), z = x^2, |x| <= {float(erf_split)}",
             lambda z: erf(sqrt(z)) / sqrt(z) - 1 if z > mpf(10)**-12 else 2 / sqrt(pi) * (1 - z / 3) - 1,
             lambda z: sqrt(z + tiny) / erf(sqrt(z + tiny)), 0, erf_split**2, 6 if single else 14, single)
        if single:
            emit("kErfTailF32", "-log(1 - erf(x)) = p(x - 0.875), x from 0.875 to 4",
                 lambda t: -log(erfc(t + mpf("0.875"))), lambda t: erfc(t + mpf("0.875")), 0, mpf(4) - mpf("0.875"), 8, single)
        else:
            emit("kErfTailF64", "-log(1 - erf(x)) = p(x - 1), x from 1 to 2.5", lambda t: -log(erfc(t + 1)),
                 lambda t: erfc(t + 1), 0, mpf("1.5"), 16, single)
            emit("kErfFarTailF64", "-log(1 - erf(x)) = p(x - 2.5), x from 2.5 to 6",
                 lambda t: -log(erfc(t + mpf("2.5"))), lambda t: erfc(t + mpf("2.5")), 0, mpf("3.5"), 18, single)
    print("// ---- F64 only: the rarer functions " + "-" * 50)
    quarter = (pi / 4)**2 * mpf("1.0001")
    emit("kSin", "sin(r) = r + r * z * p(z), z = r^2, |r| <= pi/4",
         lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10)**-12 else -mpf(1) / 6 + z / 120,
         lambda z: z + mpf(10)**-6, 0, quarter, 6, False)
    emit("kCos", "cos(r) = 1 - z/2 + z^2 * p(z), z = r^2, |r| <= pi/4",
         lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2 if z > mpf(10)**-9 else mpf(1) / 24 - z / 720,
         lambda z: z**2 + mpf(10)**-8, 0, quarter, 6, False)
    emit("kAsin", "asin(x) = x + x * z * p(z), z = x^2, |x| <= 0.5",
         lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10)**-12 else mpf(1) / 6 + z * 3 / 40,
         lambda z: z + mpf(10)**-6, 0, mpf("0.25"), 12, False)
    tan_eighth = sqrt(mpf(2)) - 1
    emit("kAtan", "atan(x) = x + x * z * p(z), z = x^2, |x| <= tan(pi/8)",
         lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10)**-12 else -mpf(1) / 3 + z / 5,
         lambda z: z + mpf(10)**-6, 0, tan_eighth**2 * mpf("1.0001"), 11, False)
    emit("kSinh", "sinh(x) = x + x * z * p(z), z = x^2, |x| <= 1",
         lambda z: (sinh(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10)**-12 else mpf(1) / 6 + z / 120,
         lambda z: z + mpf(10)**-6, 0, 1, 7, False)
    s_max = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1))**2
    emit("kPowLog2", "log2((1 + s) / (1 - s)) = s * (2 / ln(2) + z * (2 / (3 ln(2)) + z * p(z))), z = s^2 up to 0.0295",
         lambda z: ((log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / (z * sqrt(z)) - mpf(2) / 3) / z / log(2)
         if z > mpf(10)**-12 else (mpf(2) / 5 + z * 2 / 7) / log(2), lambda z: z**2 + mpf(10)**-6, 0, s_max, 7, False)
    print("// ---- constants in parts whose products with small integers are exact " + "-" * 20)
    split_constant("kLn2PartsF32", log(2), 15, 2)
    split_constant("kLn2PartsF64", log(2), 40, 2)
    split_constant("kHalfPiPartsF64", pi / 2, 30, 4)
    split_constant("kTwoOverPiParts", 2 / pi, 24, 9)
    print("// ---- constants in two parts of 53 bits " + "-" * 20)
    split_constant("kTwoOverLn2", 2 / log(2), 53, 2)
    split_constant("kTwoThirdsOverLn2", mpf(2) / 3 / log(2), 53, 2)
    split_constant("kLn2Twofold", log(2), 53, 2)
    print()
    print("}  // namespace tessera::math_tables")


if __name__ == "__main__":
    main()
