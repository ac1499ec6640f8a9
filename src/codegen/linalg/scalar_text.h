// Scalar expressions as operations of MLIR's arith, math and scf.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "arith/expr.h"

namespace tessera::inline linalg {

// "f32", "i64", "i1"; empty for element types that MLIR's arithmetic does not have.
std::string mlir_type(DType dtype);
// A constant's text: "1.000000e+00", "0x7FC00000", "-3", "true".
std::string mlir_number(DType dtype, double value, int64_t integer);

// Writes operations one a line, and gives each expression a name. Not a tree walk alone: a shared expression is written
// once in the block that first needs it.
class ScalarWriter {
 public:
  // `load_text`: what a load is, when it is an argument of the region; empty for one that must be extracted.
  // `tensor_of`: the name and type of the tensor that a load reads.
  struct Loads {
    std::function<std::string(const Expr& load)> argument;
    std::function<std::pair<std::string, std::string>(const Expr& load)> tensor;
  };
  ScalarWriter(std::string& out, Loads loads, int& counter) : out_(out), loads_(std::move(loads)), counter_(counter) {}

  void bind(const Var& var, const std::string& name) { names_[var.operator->()] = name; }
  // The name of its value, of the type mlir_type(e->dtype).
  std::string write(const Expr& e);

 private:
  std::string line(const std::string& text);
  std::string constant(DType dtype, double value, int64_t integer);
  std::string unary_text(const Expr& e);
  std::string binary_text(const Expr& e);
  std::string cast_text(const Expr& e);
  std::string extracted(const Expr& load);
  std::string chosen(const std::string& condition, DType dtype, const Expr& a, const Expr& b);

  std::string& out_;
  Loads loads_;
  int& counter_;
  std::string indent_ = "      ";
  std::unordered_map<const ExprNode*, std::string> names_;
};

}  // namespace tessera::inline linalg
