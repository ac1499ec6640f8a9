// Names of dimensions that are expressions of other dimensions, as exporters write them: "past_length + length",
// "2*s1 - 1", "(s0//8)".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "arith/expr.h"

namespace tessera::inline onnx_import {

// The value of `name` as sums, differences, products and floored quotients (//) of integers and of the names in
// `sizes`; empty when it is something else, or a single name.
std::optional<Expr> parse_dim_name(const std::string& name, const std::map<std::string, Expr>& sizes);

}  // namespace tessera::inline onnx_import
