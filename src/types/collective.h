// What processes of a mesh do together with one tensor each. In every group along `axes` by itself, of n ranks:
//   all_reduce      every rank gets the sum (or product, minimum, maximum) of all operands
//   all_gather      every rank gets all operands, one behind the other along dimension 0
//   reduce_scatter  of the sum of all operands, the i-th of n equal parts along dimension 0 for the i-th rank
//   all_to_all      the i-th rank gets the i-th of n equal parts along dimension 0 of each operand, one behind the
//   other
//   rank_shift      every rank gets the operand of the one that stands `shift` places before it; zeros where none does
// And between two ranks:
//   send            gives a tensor to another rank
//   receive         gets it; a *message* of a number of its own is sent and received once in a run
//
// A program that all ranks run says each of these once; where every rank has the same operand, all get what the
// operator's own loops compute (ops/collectives.cpp), which is therefore what one process alone computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "types/mesh.h"

namespace tessera::inline types {

enum class CollectiveKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend, kReceive, kShift };
enum class CollectiveCombiner : uint8_t { kNone, kSum, kProd, kMin, kMax };
// "all_reduce"; "sum", and "none" of kinds that combine nothing.
std::string_view collective_kind_name(CollectiveKind kind);
std::string_view collective_combiner_name(CollectiveCombiner combiner);
std::optional<CollectiveKind> find_collective_kind(std::string_view name);
std::optional<CollectiveCombiner> find_collective_combiner(std::string_view name);

struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveCombiner combiner = CollectiveCombiner::kNone;
  Mesh mesh;
  std::vector<std::string> axes;  // of the mesh
  std::string name;               // of the node, for messages; no line breaks
  int64_t peer = -1;              // kSend, kReceive: the other rank
  int64_t message = -1;           // kSend, kReceive: its number
  int64_t shift = 0;              // kShift: not 0; below it, operands go to ranks that stand before
  // Not 0: it stays in its place among what a rank does, and collectives of other turns are others.
  int64_t turn = 0;
  bool operator==(const Collective&) const = default;

  bool stays() const { return is_message() || turn != 0; }
  bool is_message() const { return kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive; }
  int64_t group_size() const { return mesh.group_size(axes); }
  // "collective all_reduce sum over data of data=2,model=2 as w.gradient", "collective send none over stage of stage=2
  // with 1 message 5 as h.sent", "collective all_gather none over data of data=2 in turn 1 as w", "collective
  // rank_shift none over rows of rows=4 by -1 as x.halo", and back; none where the text is no such.
  std::string to_string() const;
  static std::optional<Collective> parse(std::string_view text);
};

}  // namespace tessera::inline types
