#include "schedule/fusion/overlapped_tiles.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/fusion/chain_search.h"
#include "schedule/fusion/strip_cut.h"
#include "te/index_map.h"

namespace tessera::inline schedule {
namespace {

// Whether an index of an image is made of a place of the output and one of a window.
bool has_window(const TensorProgram& kernel) {
  const std::vector<IndexMap> maps = index_maps(kernel.reduction()->body);
  return std::any_of(maps.begin(), maps.end(), [](const IndexMap& map) {
    return std::any_of(map.dims.begin(), map.dims.end(), [](const IndexDim& dim) { return dim.uses.size() > 1; });
  });
}

// A kernel that filters channels by themselves, and what stands before or behind it, or both. Other kernels do more
// for each byte, and are as fast on their own where they have been measured.
bool has_filter(const TiledChain& chain) {
  const auto filters = [&](size_t m) { return filters_channels(*chain.members[m].definition); };
  return chain.members.size() == 2 ? filters(0) || filters(1) : filters(1);
}

class StripPlanner {
 public:
  explicit StripPlanner(JoinPlanner& planner) : planner_(planner), program_(planner.program()) {}

  void run() {
    keep_alone();
    Search search{{}, *this};
    for (size_t c = 0; c < program_.calls.size(); ++c)
      if (planner_.flow().is_free(c))
        for (const TiledChain& chain : chains_of(*planner_.flow().definition(c), c))
          search_chains(planner_, chain, search);
    std::stable_sort(search.chains.begin(), search.chains.end(),
                     [](const TiledChain& a, const TiledChain& b) { return a.gain > b.gain; });
    for (const TiledChain& chain : search.chains)
      if (std::all_of(chain.members.begin(), chain.members.end(),
                      [&](const TiledKernel& m) { return planner_.flow().is_free(m.call); }))
        join(chain);
  }

 private:
  // All chains that are a gain (chain_search.h).
  struct Search {
    static constexpr std::string_view kStep = kOverlappedTiles;
    static constexpr size_t kMostMembers = 3;
    static constexpr bool kOnlyFirst = false;

    static std::vector<size_t> calls_of(const TiledChain& chain) {
      std::vector<size_t> calls;
      for (const TiledKernel& member : chain.members) calls.push_back(member.call);
      return calls;
    }
    bool may_want(const CallLink& link) const { return planner.may_want(link); }
    std::variant<TiledChain, std::string_view> larger(const TiledChain& chain, const CallLink& link,
                                                      size_t param) const {
      return planner.larger(chain, link, param);
    }
    void found(TiledChain chain) {
      if (!has_filter(chain)) return;
      const std::string_view why = choose_strip(chain, planner.planner_.target());
      if (why.empty()) return chains.push_back(std::move(chain));
      for (size_t m = 0; m + 1 < chain.members.size(); ++m)
        planner.planner_.refuse(kStep, chain.members[m].call, chain.members[m + 1].call, std::string(why));
    }

    std::vector<TiledChain> chains;
    StripPlanner& planner;
  };

  void keep_alone() {
    std::map<int32_t, bool> alone;
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      if (!planner_.flow().is_free(c)) continue;
      const Kernel& kernel = planner_.kernel_of(c);
      const auto [it, is_new] = alone.try_emplace(program_.calls[c].kernel, false);
      const ChoosePoint& choose = planner_.options().choose;
      if (is_new) it->second = is_symbolic(*kernel.definition) || (choose && choose(kernel).point);
      if (it->second) planner_.flow().set_free(c, false);
    }
  }

  bool may_want(const CallLink& link) const {
    const auto filters = [&](size_t call) {
      const TensorProgram* kernel = planner_.flow().definition(call);
      return kernel && filters_channels(*kernel) && has_window(*kernel);
    };
    return filters(link.writer) || filters(link.reader);
  }

  std::variant<TiledChain, std::string_view> larger(const TiledChain& chain, const CallLink& link, size_t p) const {
    const TiledKernel& first = chain.members.front();
    if (link.reader != first.call) return "";
    // One parameter stands for one buffer here.
    const std::vector<BufferId>& args = planner_.args_of(first.call);
    if (std::count(args.begin(), args.end(), link.value) != 1 || planner_.flow().num_readers(link.value) != 1)
      return "what lies between them is read twice";
    return with_writer(chain, p, *planner_.flow().definition(link.writer), link.writer);
  }

  void join(const TiledChain& chain) {
    const std::vector<size_t> calls = Search::calls_of(chain);
    std::vector<NumberedMember> members;
    for (const TiledKernel& member : chain.members)
      members.push_back({member.definition, planner_.args_of(member.call)});
    planner_.join(planner_.define(kOverlappedTiles, calls, std::move(members), true,
                                  planner_.kernel_of(calls.back()).program.name + "_strips"));
  }

  JoinPlanner& planner_;
  const Program& program_;
};

}  // namespace

void plan_overlapped_tiles(JoinPlanner& planner) { StripPlanner(planner).run(); }

}  // namespace tessera::inline schedule
