// What the calls of a program hand to one another, as those see it that join them (join_plan.h): who writes and reads
// each value, and whether it may stay inside of one kernel.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera::inline schedule {

// Call `writer` writes `value`, and call `reader` reads it.
struct CallLink {
  BufferId value = -1;
  size_t writer = 0, reader = 0;
};

class CallFlow {
 public:
  // REQUIRES: `program` outlives this object and does not change.
  explicit CallFlow(const Program& program);

  // Null for kernels without one result.
  const TensorProgram* definition(size_t call) const { return definitions_[call]; }
  // SIZE_MAX: none.
  size_t writer_of(BufferId value) const { return writer_[static_cast<size_t>(value)]; }
  size_t num_readers(BufferId value) const { return readers_[static_cast<size_t>(value)].size(); }
  // Whether no joined kernel does the call's work yet, and one may.
  bool is_free(size_t call) const { return free_[call]; }
  void set_free(size_t call, bool free) { free_[call] = free; }

  // Why the link's value is not to stay inside of a kernel that does the work of `calls`, which end with the last one
  // and have the reader among them, and of its writer. Empty when it may.
  std::string_view why_not_inside(const CallLink& link, const std::vector<size_t>& calls) const;

 private:
  std::vector<const TensorProgram*> definitions_;  // by call
  std::vector<bool> free_;                         // by call
  std::vector<size_t> writer_;                     // by value
  std::vector<std::vector<size_t>> readers_;       // by value: each call once
  // By value: in the arena, no view and without any, with a place of its own, written once, and nothing that a
  // condition of a call or a step reads or carries.
  std::vector<bool> plain_;
  std::vector<int32_t> run_;   // by call: those of one run have no branch and no loop between them
  std::vector<size_t> piece_;  // by call: of a flow
};

}  // namespace tessera::inline schedule
