// The search for chains of calls (join_plan.h), which is the same for each kind of chain.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "schedule/fusion/join_planner.h"

namespace tessera::inline schedule {

// Makes `chain` larger by calls above it, one by one: the members from the last one upwards, and the operands of each
// in their order, say which. `kind` has
//   kStep, kMostMembers
//   kOnlyFirst                      take the first call that fits, and no other one in its place
//   std::vector<size_t> calls_of(chain)  ascending
//   bool may_want(link)             whether it is worth a reason when the two stay apart
//   std::variant<Chain, std::string_view> larger(chain, link, param): with the link's writer, or why not; the link's
//     value is parameter number `param` of its reader, and may stay inside as far as others are concerned
//   void found(chain)               each larger one
template <typename Chain, typename Kind>
void search_chains(JoinPlanner& planner, const Chain& chain, Kind& kind) {
  const std::vector<size_t> calls = kind.calls_of(chain);
  if (calls.size() == Kind::kMostMembers) return;
  for (size_t m = calls.size(); m-- > 0;) {
    const std::vector<BufferId>& args = planner.args_of(calls[m]);
    for (size_t p = 0; p + 1 < args.size(); ++p) {
      const CallLink link{args[p], planner.flow().writer_of(args[p]), calls[m]};
      if (link.writer == SIZE_MAX || std::find(calls.begin(), calls.end(), link.writer) != calls.end()) continue;
      std::string_view why = planner.flow().why_not_inside(link, calls);
      if (why.empty()) {
        const std::variant<Chain, std::string_view> larger = kind.larger(chain, link, p);
        if (const Chain* fitting = std::get_if<Chain>(&larger)) {
          kind.found(*fitting);
          search_chains(planner, *fitting, kind);
          if (Kind::kOnlyFirst) return;
          continue;
        }
        why = std::get<std::string_view>(larger);
      }
      if (!why.empty() && kind.may_want(link)) planner.refuse(Kind::kStep, link.writer, link.reader, std::string(why));
    }
  }
}

}  // namespace tessera::inline schedule
