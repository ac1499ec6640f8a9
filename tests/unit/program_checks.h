// What tests of programs share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "program/printer.h"
#include "target/target.h"
#include "types/tensor.h"

namespace tessera {

inline Target machine() {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  return target;
}

// Bit for bit.
inline void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const Program& program) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(a[i].bytes(), b[i].bytes(), static_cast<size_t>(a[i].num_bytes())), 0) << i << print(program);
}

}  // namespace tessera
