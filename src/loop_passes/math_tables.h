// Written by fit_polynomials.py: coefficients, constant term first. 'f32' tables are rounded to float.
#pragma once

namespace tessera::math_tables {

// ---- F32 --------------------------------------------------------------------------------
// exp(r) = 1 + r + r^2 * p(r), |r| <= ln(2)/2; error 3.1e-09
inline constexpr double kExpF32[] = {
    0x1.fffffc0000000p-2, 0x1.5554900000000p-3, 0x1.5558f40000000p-5, 0x1.123a6a0000000p-7, 0x1.6a23840000000p-10,
};
// log(1 + f) = f - f^2/2 + f^3 * p(f), 1 + f from sqrt(1/2) to sqrt(2); error 7.5e-10
inline constexpr double kLogF32[] = {
    0x1.5555480000000p-2,  -0x1.0000060000000p-2, 0x1.99a4b60000000p-3,  -0x1.555c4e0000000p-3, 0x1.23376a0000000p-3,
    -0x1.fc220a0000000p-4, 0x1.e6f0520000000p-4,  -0x1.de3bde0000000p-4, 0x1.1457800000000p-4,
};
// tanh(x) = x + x * z * p(z), z = x^2, |x| <= 0.625; error 4.4e-09
inline constexpr double kTanhF32[] = {
    -0x1.5555320000000p-2, 0x1.1107260000000p-3, -0x1.b83c5a0000000p-5, 0x1.5226960000000p-6, -0x1.75e1aa0000000p-8,
};
// erf(x) = x + x * p(z), z = x^2, |x| <= 0.875; error 2.0e-10
inline constexpr double kErfF32[] = {
    0x1.06eba80000000p-3, -0x1.8127440000000p-2,  0x1.ce2e840000000p-4,  -0x1.b819a80000000p-6,
    0x1.553aba0000000p-8, -0x1.ae7f9a0000000p-11, 0x1.6bdf660000000p-14,
};
// -log(1 - erf(x)) = p(x - 0.875), x from 0.875 to 4; error 4.6e-11
inline constexpr double kErfTailF32[] = {
    0x1.88672e0000000p+0, 0x1.3711700000000p+1,   0x1.a730600000000p-1,  0x1.803a400000000p-5,  -0x1.73f7f80000000p-7,
    0x1.2195120000000p-9, -0x1.300ad40000000p-12, 0x1.fa3f780000000p-17, 0x1.f7c9fa0000000p-21,
};
// ---- F64 --------------------------------------------------------------------------------
// exp(r) = 1 + r + r^2 * p(r), |r| <= ln(2)/2; error 5.3e-20
inline constexpr double kExpF64[] = {
    0x1.0000000000000p-1,  0x1.555555555555bp-3,  0x1.5555555555503p-5,  0x1.111111110ec5ep-7,
    0x1.6c16c16c3049cp-10, 0x1.a01a01b37e17fp-13, 0x1.a01a01368a1f7p-16, 0x1.71ddf021104a2p-19,
    0x1.27e5b4522a57ap-22, 0x1.af6be782b616bp-26, 0x1.1e3d1a8d6a274p-29,
};
// log((1 + s) / (1 - s)) = 2s + s * z * p(z), z = s^2 up to 0.0295; error 1.6e-20
inline constexpr double kLogF64[] = {
    0x1.5555555555555p-1, 0x1.9999999999dfep-2, 0x1.249249242b513p-2, 0x1.c71c7258eb019p-3,
    0x1.745cde3b710e0p-3, 0x1.3b20aa913cb98p-3, 0x1.0f5cdf6ed7ca2p-3, 0x1.0f6245c22ff13p-3,
};
// tanh(x) = x + x * z * p(z), z = x^2, |x| <= 0.625; error 1.4e-20
inline constexpr double kTanhF64[] = {
    -0x1.5555555555555p-2,  0x1.11111111110d1p-3,  -0x1.ba1ba1ba1735cp-5,  0x1.664f488183d27p-6,
    -0x1.226e3529dedd4p-7,  0x1.d6d3c5a98d67ap-9,  -0x1.7da294895be13p-10, 0x1.354da5170a286p-11,
    -0x1.f4bd1cd6a0148p-13, 0x1.919bf1a019bf8p-14, -0x1.333cb5c14f271p-15, 0x1.8bc2a3509f6b3p-17,
    -0x1.30e929892dbb8p-19,
};
// erf(x) = x + x * p(z), z = x^2, |x| <= 1.0; error 3.3e-23
inline constexpr double kErfF64[] = {
    0x1.06eba8214db69p-3,  -0x1.812746b0379e7p-2,  0x1.ce2f21a042be2p-4,  -0x1.b82ce31288b47p-6,
    0x1.565bcd0e6a2c6p-8,  -0x1.c02db40035516p-11, 0x1.f9a326f79296fp-14, -0x1.f4d25bf6dfa56p-17,
    0x1.b9e6c357a974dp-20, -0x1.5f73c0d0a7ddap-23, 0x1.fcbaf8b680190p-27, -0x1.517b6ab7e147bp-30,
    0x1.9a032b2df0d4cp-34, -0x1.b3ce1df5169c5p-38, 0x1.3b6f77794ecd6p-42,
};
// -log(1 - erf(x)) = p(x - 1), x from 1 to 2.5; error 3.7e-20
inline constexpr double kErfTailF64[] = {
    0x1.d97fbf27aa2a1p+0,   0x1.51c9b0006c23dp+1,   0x1.afabc11a28f90p-1,   0x1.5477f09c9e424p-5,
    -0x1.48c9d4092a8c9p-7,  0x1.033f692257fdap-9,   -0x1.f1b48d55b459dp-13, -0x1.b8c4c6579b21ap-16,
    0x1.c76e4aed09fb5p-16,  -0x1.41b94cb7d4b30p-17, 0x1.1168775100804p-19,  -0x1.0ecfa1b1d9f4cp-23,
    -0x1.c28acaecc17e5p-24, 0x1.c5ae36302c0d4p-25,  -0x1.d826516b545d2p-27, 0x1.1f365b66fef0bp-29,
    -0x1.43ba5e3fdce64p-33,
};
// -log(1 - erf(x)) = p(x - 2.5), x from 2.5 to 6; error 4.2e-26
inline constexpr double kErfFarTailF64[] = {
    0x1.f3a2dc8691b91p+2,   0x1.56925248da93cp+2,   0x1.e3460a18c562ep-1,   0x1.63cc1da7a055ep-7,
    -0x1.1bd558ec3fa0cp-9,  0x1.b961395e55ffbp-12,  -0x1.4317329844985p-14, 0x1.ac03d49aafc7dp-17,
    -0x1.dadba5e24053ap-20, 0x1.4ef43d9c4371ep-23,  0x1.b0df8a395cf36p-27,  -0x1.774950b0d4492p-27,
    0x1.e1c46aaa3c4aap-29,  -0x1.cc1077be6d7fbp-31, 0x1.63236137d4dd6p-33,  -0x1.b6a80a089719ap-36,
    0x1.978305778d5c6p-39,  -0x1.f59af91e7e8f7p-43, 0x1.2ed4ee8e22a82p-47,
};
// ---- F64 only: the rarer functions --------------------------------------------------
// sin(r) = r + r * z * p(z), z = r^2, |r| <= pi/4; error 1.9e-21
inline constexpr double kSin[] = {
    -0x1.5555555555555p-3,  0x1.111111111110bp-7,  -0x1.a01a01a018ae6p-13, 0x1.71de3a5339a8ap-19,
    -0x1.ae6452988e007p-26, 0x1.612092e325d06p-33, -0x1.aaa55d5c32e34p-41,
};
// cos(r) = 1 - z/2 + z^2 * p(z), z = r^2, |r| <= pi/4; error 2.2e-23
inline constexpr double kCos[] = {
    0x1.5555555555555p-5,  -0x1.6c16c16c16c10p-10, 0x1.a01a01a018decp-16, -0x1.27e4fb75fd990p-22,
    0x1.1eed8ca3d24efp-29, -0x1.93933870ce5cep-37, 0x1.aac5c2d09fb99p-45,
};
// asin(x) = x + x * z * p(z), z = x^2, |x| <= 0.5; error 9.8e-19
inline constexpr double kAsin[] = {
    0x1.5555555555578p-3, 0x1.333333332df84p-4,  0x1.6db6db7225dc7p-5, 0x1.f1c71a8dd1561p-6, 0x1.6e8bdfa52b3a2p-6,
    0x1.1c49e2ce6260fp-6, 0x1.ca20cc8a6cb6bp-7,  0x1.757b84f30c3ecp-7, 0x1.6173bccaadc35p-7, 0x1.e2c188abd1c35p-9,
    0x1.6491d6253214ep-6, -0x1.59535fe20c9a7p-6, 0x1.0bb00c2d74ba2p-5,
};
// atan(x) = x + x * z * p(z), z = x^2, |x| <= tan(pi/8); error 4.5e-20
inline constexpr double kAtan[] = {
    -0x1.5555555555554p-2, 0x1.999999999965ap-3, -0x1.2492492475d5ap-3, 0x1.c71c71b778edfp-4,
    -0x1.745d14bfd5013p-4, 0x1.3b136eaf6ab77p-4, -0x1.110c79e1f9a9bp-4, 0x1.e17283f5071c3p-5,
    -0x1.ab80accaba804p-5, 0x1.70f9ae0e4dfe0p-5, -0x1.1253969e1d1aep-5, 0x1.f2562e894223dp-7,
};
// sinh(x) = x + x * z * p(z), z = x^2, |x| <= 1; error 6.8e-23
inline constexpr double kSinh[] = {
    0x1.5555555555555p-3,  0x1.1111111111111p-7,  0x1.a01a01a019fbdp-13, 0x1.71de3a557431fp-19,
    0x1.ae645673db841p-26, 0x1.61246b20cb5c1p-33, 0x1.ae75567940adbp-41, 0x1.9a7f5b21dd881p-49,
};
// log2((1 + s) / (1 - s)) = s * (2 / ln(2) + z * (2 / (3 ln(2)) + z * p(z))), z = s^2 up to 0.0295; error 2.4e-22
inline constexpr double kPowLog2[] = {
    0x1.2776c50ef9bfcp-1, 0x1.a61762a7aec77p-2, 0x1.484b13d6bf026p-2, 0x1.0c9a85336b327p-2,
    0x1.c68eecedbce50p-3, 0x1.8a093d0916defp-3, 0x1.5905a364b0fddp-3, 0x1.61ad6440606eap-3,
};
// ---- constants in parts whose products with small integers are exact --------------------
inline constexpr double kLn2PartsF32[] = {
    0x1.62e4000000000p-1,
    0x1.7f7d1cf79abcap-20,
};
inline constexpr double kLn2PartsF64[] = {
    0x1.62e42fefa2000p-1,
    0x1.9ef35793c7673p-41,
};
inline constexpr double kHalfPiPartsF64[] = {
    0x1.921fb54000000p+0,
    0x1.10b4611800000p-30,
    0x1.313198a000000p-61,
    0x1.701b839a25205p-92,
};
inline constexpr double kTwoOverPiParts[] = {
    0x1.45f3060000000p-1,   0x1.b939100000000p-26,  0x1.529fc20000000p-52,
    0x1.d5f47c0000000p-78,  0x1.4d37700000000p-102, 0x1.b6c52a0000000p-129,
    0x1.3278860000000p-153, 0x1.2083fc0000000p-177, 0x1.458eaf7aef158p-202,
};
// ---- constants in two parts of 53 bits --------------------
inline constexpr double kTwoOverLn2[] = {
    0x1.71547652b82fep+1,
    0x1.777d0ffda0d24p-55,
};
inline constexpr double kTwoThirdsOverLn2[] = {
    0x1.ec709dc3a03fdp-1,
    0x1.d27f05548af0cp-55,
};
inline constexpr double kLn2Twofold[] = {
    0x1.62e42fefa39efp-1,
    0x1.abc9e3b39803fp-56,
};

}  // namespace tessera::math_tables
