// What a step of many ranks takes: each rank works by itself, and waits for the others where they do something
// together.
//
// Ranks are simulated one by one, up to thousands. A collective begins when the last rank of its group has come, and
// goes round as a ring does (all_reduce: 2 (n - 1) steps of an n-th of the tensor, ...). All that go over a link at the
// same time have equal shares of it, as long as they do. Messages go one behind the other over each link on their way,
// of the sender and of the receiver, while the ranks go on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dist/propagate.h"
#include "types/collective.h"
#include "types/mesh.h"

namespace tessera::inline dist {

// A link that every unit of so many neighbouring ranks has (a rank, a host, a rack), and that all of them share for
// what goes out of the unit, or comes in.
struct NetworkLevel {
  int64_t ranks = 1;
  double bytes_per_second = 5e9;
  double latency_seconds = 2e-5;
};
// From the ranks' own links outwards: the first level has one rank, each other one a multiple of the level before.
using Network = std::vector<NetworkLevel>;

// "1=5/20,8=1.25/50": each rank has a link of 5 GB/s and 20 us, each 8 of them one of 1.25 GB/s and 50 us for what goes
// further. Empty where it is one, else why not.
std::string parse_network(std::string_view text, Network& network);
std::string to_text(const Network& network);

struct RankStep {
  enum class Kind : uint8_t { kWork, kCollective, kSend, kReceive };
  Kind kind = Kind::kWork;
  double seconds = 0;                                      // kWork
  CollectiveKind collective = CollectiveKind::kAllReduce;  // kCollective; none of messages
  std::string axis = {};                                   // kCollective: of the mesh
  int64_t bytes = 0;                                       // of the rank's operand, or of the message
  int64_t peer = 0;     // kSend, kReceive: so many places further along the axis "stage"
  int64_t message = 0;  // of a number that no other one between the two has
};
using RankSteps = std::vector<RankStep>;

struct SimulatedRanks {
  double seconds = 0;              // until the last rank is done
  double working = 0;              // the share of all ranks' time in which they work
  std::vector<double> link_bytes;  // by level: what went over its links, all together
};

// `steps`: of each place along the mesh axis "stage", or one for all ranks. InternalError where ranks wait for each
// other forever.
SimulatedRanks simulate(const Mesh& mesh, const std::vector<RankSteps>& steps, const Network& network);

// What a rank does in a run of the plan: its nodes' work by the model of node_choices.h, times `scale`, and
// collectives.
RankSteps rank_steps(const Graph& graph, const ShardingPlan& plan, double scale = 1);

// One line a step, for programs that run them elsewhere: "work SECONDS", "all_reduce AXIS BYTES", "send PEER MESSAGE
// BYTES", "receive PEER MESSAGE BYTES".
std::string trace_text(const RankSteps& steps);

}  // namespace tessera::inline dist
