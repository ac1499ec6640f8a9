// Numbers of a test that draws its cases.
#pragma once

#include <cstdint>
#include <random>

namespace tessera {

class RandomNumbers {
 public:
  explicit RandomNumbers(unsigned seed) : random_(seed) {}

  // low .. high, both included.
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  bool coin() { return pick(0, 1) == 1; }

 private:
  std::mt19937 random_;
};

}  // namespace tessera
