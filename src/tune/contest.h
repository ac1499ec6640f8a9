// The last word of a search: who stands in a model, what the rules choose, what the records held before, or what this
// search found.
//
// What is found has to be surely faster than what stands already - the records' choice, where there is one, else the
// default - kernel by kernel inside of the whole model, and as a whole. What the records held goes only where the
// default is surely faster than it. "Surely" is verdict_of (statistics.h), and where a proven choice would go,
// kLeastGain at least; what is undecided changes nothing that was in use. So of several searches over one file none
// makes a model slower than the one before left it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "records/records.h"
#include "tune/model_tasks.h"

namespace tessera::inline tune {

enum class Standing : uint8_t { kDefault, kStored, kFound };

// One way of compiling the model.
struct Lineup {
  Standing graph = Standing::kDefault;      // what is done to the model as a whole (driver/graph_choice.h)
  std::map<std::string, Standing> kernels;  // by structural hash; the default of those that are not named
  bool others = false;                      // with the records' choices for kernels that are not in the contest

  bool is_stored() const { return others || !kernels.empty(); }
  auto operator<=>(const Lineup&) const = default;
};

// Runs the lineups in turn until it is decided, or time is over.
using MeasureLineups = std::function<ModelTimes(const std::vector<Lineup>& lineups,
                                                const std::function<bool(const ModelTimes&)>& decided)>;

// A place for which somebody beside the default asks.
struct Contestant {
  std::string hash;  // of a kernel
  bool has_stored = false, has_found = false;
  Standing stands = Standing::kDefault;  // the result
  // Of what lost against what stood: with how long the default, or the stored choice, took in the same rounds. No
  // rounds: it does not run in the model.
  std::optional<PairedTimes> found_lost, stored_lost;
};

struct Contest {
  std::vector<Contestant> kernels;
  Contestant graph;         // a graph that is found is another one than the stored
  bool has_others = false;  // records for kernels of the model that are not in the contest

  // Results.
  PairedTimes gain;                  // what stands beside the default; no rounds where that is the default itself
  std::optional<PairedTimes> whole;  // of what was found and is lost, as a whole, beside what stood before
};

// Whether a proven choice lost to the default. What was proven once goes for a loss, and for a gain of its kernel, that
// is worth another schedule: the same schedule in two modules is a little faster in one of them, since code and weights
// lie elsewhere, and enough rounds show that.
bool is_surely_slower(const PairedTimes& times);

void hold_contest(Contest& contest, const MeasureLineups& measure);

// What became of the model as a whole, in a sentence.
std::string verdict_text(const Contest& held);

// What the records hold of one place after the contest: what was found is their choice, or no candidate any more; a
// choice that lost, and a candidate that had no choice to lose against, are kept as "reverted". `candidate`: the record
// of what was found, where something was.
void settle(RecordFile& records, const RecordKey& key, const Contestant& result,
            const std::optional<ChoiceRecord>& candidate);

}  // namespace tessera::inline tune
