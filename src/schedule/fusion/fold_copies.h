// Kernels of a chain that need not run on their own: what they do is done where another kernel reads or stores.
#pragma once

#include <optional>

#include "te/tensor_program.h"

namespace tessera::inline schedule {

// `reader`, which reads what `copy` would have stored, with `copy`'s parameter instead of parameter `param`: the rows
// of a product (the queries of attention), of which it reads element by element and none along its innermost axis, or
// with `may_be_columns` the columns (the values), of which it reads neighbours along that axis. Empty when `copy` does
// more than copy, its elements along the reduction of rows or along columns are not contiguous, or places take more
// than a multiplication to find.
std::optional<TensorProgram> read_through(const TensorProgram& reader, size_t param, const TensorProgram& copy,
                                          bool may_be_columns);

// `kernel`, storing where `copy`, its only reader, would have: the same axes in another order, but for the innermost.
// Empty when `copy` is not like that.
std::optional<TensorProgram> store_through(const TensorProgram& kernel, const TensorProgram& copy);

// A product of scaled rows as the scaled product of rows: sum over k of (x[r, k] * f[r]) * v[k, c] is
// f[r] * sum of x[r, k] * v[k, c]. It scales the product's columns instead of the many that it sums. Where x is not
// known to be small the sum may leave the range that the other one does not: the caller sees to that.
struct ScaledAfterwards {
  TensorProgram product;           // its parameter `param` is x, and f a further one
  size_t values = 0, factors = 0;  // parameters of `scaling`: x and f
};
// Of `product`, whose parameter `param` is what `scaling` would have stored. Empty when they are not like that.
std::optional<ScaledAfterwards> scale_afterwards(const TensorProgram& product, size_t param,
                                                 const TensorProgram& scaling);

// Whether `exponential` computes exp(a - m) of its parameters number `a` and `m`, of which `maximum` gives m as the
// maximum of rows of a, its only operand: then nothing is above 1.
bool subtracts_maximum(const TensorProgram& exponential, size_t a, size_t m, const TensorProgram& maximum);

}  // namespace tessera::inline schedule
