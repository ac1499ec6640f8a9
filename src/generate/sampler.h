// Which token follows: the best one, or one that is drawn.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace tessera::inline generate {

struct Sampling {
  double temperature = 0;  // 0: the best token each time
  int64_t top_k = 0;       // draws among so many; 0: among all
  double top_p = 1;        // and of these among the fewest that together have this probability
};

__extension__ using Uint128 = unsigned __int128;

// numpy's default_rng: PCG64 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
// Random Number Generation", 2014) behind its SeedSequence, so that a seed draws what it draws in Python. Not
// thread-safe.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed);
  double next();  // in [0, 1)

 private:
  Uint128 state_ = 0, increment_ = 0;
};

// The number of the token. REQUIRES: scores.
int32_t choose_token(std::span<const float> scores, const Sampling& sampling, RandomNumbers& random);

}  // namespace tessera::inline generate
