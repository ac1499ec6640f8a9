// Which calls of a program become one, and what they become: decided once, before kernels get loops of their own, on
// what kernels compute and hand to one another.
//
// A *chain* is a call and calls above it whose results only the chain reads: these stay inside of the joined kernel,
// which goes through all members block by block. There is one search for chains (chain_search.h), and two kinds:
//   fuse_rows         block of rows by block of rows (fuse_rows.h): softmax, norms, attention
//   overlapped_tiles  strip of rows by strip of rows, whose ends are computed twice (overlapped_tiles.h): images
// What a chain computes is a joined program (te/joined_program.h), and its code is made of that alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "schedule/choose.h"
#include "schedule/fusion/call_flow.h"
#include "support/remarks.h"
#include "target/target.h"

namespace tessera::inline schedule {

struct PlannedKernel {
  Kernel kernel;
  std::vector<PackedParam> packed;  // parameters that want to be stored otherwise
};

struct PlannedJoin {
  std::string_view step;       // that joins them
  std::vector<size_t> calls;   // ascending; the joined one takes the place of the last
  std::vector<BufferId> args;  // of the joined one
  size_t kernel = 0;           // of JoinPlan::kernels
  std::string loc;             // the nodes of all
};

// Two calls that a step looked at and left apart.
struct RefusedJoin {
  std::string_view step;
  size_t writer = 0, reader = 0;
  std::string reason;
};

struct JoinPlan {
  std::vector<PlannedKernel> kernels;
  std::vector<PlannedJoin> joins;  // no call is in two of them
  std::vector<RefusedJoin> refused;
};

struct JoinOptions {
  std::set<std::string_view> steps;  // that may join calls
  AskRules ask;
  AllowRule allow;     // as in schedule_program
  ChoosePoint choose;  // as there; a kernel of images with a point of its own stays alone
};
JoinPlan plan_joins(const Program& program, const Target& target, const JoinOptions& options);

// Tells why calls stay apart; `remarks` may be null. REQUIRES: the program of the plan, before it is changed.
void tell_refused(const JoinPlan& plan, const Program& program, Remarks* remarks);

struct PackedKernel {
  int32_t kernel = 0;
  std::vector<PackedParam> packed;
};
// Replaces calls as planned. Buffers that nobody uses any more stay; weights are not yet packed.
std::vector<PackedKernel> apply_joins(Program& program, JoinPlan plan);

}  // namespace tessera::inline schedule
