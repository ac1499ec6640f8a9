// Counts the applications of passes in one compile and leaves out those beyond a limit: what bisect searches with.
//
// An application is an optional graph or program pass on the whole model, a schedule rule on one kernel that it takes,
// an optional loop pass on one kernel, or the optimisation of the generated code. What later steps rely on (passes that
// -O0 runs, lowering, memory planning) is always done and does not count. The first applications are the same whatever
// the limit is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline driver {

struct PassApplication {
  enum class Kind : uint8_t { kGraphPass, kProgramPass, kScheduleRule, kLoopPass, kCodegen };
  Kind kind = Kind::kGraphPass;
  std::string pass;
  std::string nodes;  // of the kernel; empty for the whole model
};

// "graph pass", "schedule rule", ...
const char* application_kind_name(PassApplication::Kind kind);

// One compile's: not shared between threads.
class PassLimit {
 public:
  explicit PassLimit(int64_t limit = INT64_MAX) : limit_(limit) {}

  // Whether the next application is done.
  bool allow(PassApplication application) {
    seen_.push_back(std::move(application));
    return std::ssize(seen_) <= limit_;
  }
  // Whether the last one that allow() was asked for is the last that is done: its texts are kept.
  bool at_limit() const { return std::ssize(seen_) == limit_; }

  // In order, those that were left out included.
  const std::vector<PassApplication>& seen() const { return seen_; }

  std::string before, after;  // texts of the IR that the last application changed: the graph, kernel or program

 private:
  int64_t limit_;
  std::vector<PassApplication> seen_;
};

}  // namespace tessera::inline driver
