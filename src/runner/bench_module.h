// A module whose kernel is timed, with its operands, and with the caches as a model would leave them. Needs the run
// time's C interface and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "tessera/tessera.h"

namespace tessera {

// Bytes that are touched between the latest use of an operand and the call that is timed.
struct ReuseDistances {
  std::vector<int64_t> inputs;  // in the module's order; those that are missing count as 0
  int64_t output = 0;
  int64_t weights = 0;  // of the one that is farthest away
};

// Reads memory of its own so that the nearest caches hold what they would after as many other bytes. One thread at a
// time.
class CacheWalk {
 public:
  // Of at most `bytes` at once, by so many threads together: each core has caches of its own.
  CacheWalk(int64_t bytes, int threads);
  // What is read was not read by the walks before it that make up `bytes`.
  void walk(int64_t bytes);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  size_t bytes_ = 0, at_ = 0;
  int threads_ = 1;
  std::unique_ptr<unsigned char, Free> memory_;
};

struct BenchFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// BenchFailure from all of it where something does not run; std::bad_alloc.
class BenchModule {
 public:
  // A module's bytes, which are not needed afterwards, and the data of all inputs, one behind the other. Runs it once.
  BenchModule(std::span<const std::byte> file, int threads, std::span<const std::byte> inputs);

  // Runs it; the median time of its calls in microseconds. With `walk`, operands are as far away as `distances` say
  // when it begins.
  double timed_run(CacheWalk* walk, const ReuseDistances& distances);
  // The first output of the last run.
  std::span<const std::byte> result() const;

 private:
  struct FreeMemory {
    void operator()(void* memory) const;
  };
  struct FreeModule {
    void operator()(tessera_module* module) const { tessera_module_free(module); }
  };
  struct FreeSession {
    void operator()(tessera_session* session) const { tessera_session_free(session); }
  };
  // Of a tensor, aligned as a vector of any machine wants it.
  struct Memory {
    std::unique_ptr<void, FreeMemory> data;
    size_t bytes = 0;
  };

  void* add(std::vector<tessera_tensor>& to, const tessera_tensor_info& info);
  void leave_caches(CacheWalk& walk, const ReuseDistances& distances) const;
  void run();

  std::unique_ptr<tessera_module, FreeModule> module_;
  std::unique_ptr<tessera_session, FreeSession> session_;
  std::vector<Memory> memory_;  // inputs, then outputs
  std::vector<tessera_tensor> inputs_, outputs_;
};

}  // namespace tessera
