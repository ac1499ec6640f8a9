#include "schedule/fusion/row_cut.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/fusion/chain_kernel.h"
#include "schedule/fusion/chain_rows.h"
#include "schedule/fusion/online_softmax.h"

namespace tessera::inline schedule {
namespace {

int64_t choose_size(Knobs& knobs, const char* name, int64_t preferred, int64_t extent,
                    const std::vector<int64_t>& sizes) {
  std::vector<int64_t> values;
  for (const int64_t size : sizes)
    if (size <= extent) values.push_back(size);
  return knobs.choose(name, std::move(values), preferred);
}

// With blocks of columns; empty where there are none, or whole rows are as good.
std::optional<Chain> cut_into_columns(const JoinedProgram& joined, const JoinedContext& context, const Target& target) {
  Chain chain = chain_of(joined);
  chain.may_be_long = true;
  if (!find_rows(chain, target).empty() || !find_column_blocks(chain)) return std::nullopt;
  if (!has_open_sizes(chain)) find_masked(context.constants, chain);
  return choose_column_blocks(chain, target) ? std::optional(std::move(chain)) : std::nullopt;
}

}  // namespace

std::variant<Chain, Declined> cut_into_rows(const JoinedProgram& joined, const JoinedContext& context,
                                            const Target& target, Knobs& knobs) {
  if (auto columns = cut_into_columns(joined, context, target)) {
    Chain& chain = *columns;
    if (has_open_sizes(chain)) {  // the extents may be any
      chain.block = choose_size(knobs, "block", chain.block, INT64_MAX, {8, 16, 24, 32, 48, 64, 96});
      chain.columns->size = choose_size(knobs, "columns", chain.columns->size, INT64_MAX, {32, 64, 96, 128, 192, 256});
      return std::move(chain);
    }
    chain.block = choose_size(knobs, "block", chain.block, chain.rows.back().extent, {24, 48, 72, 96, 144, 192, 288});
    chain.columns->size =
        choose_size(knobs, "columns", chain.columns->size, chain.columns->extent, {64, 128, 192, 256, 384, 512, 768});
    return std::move(chain);
  }
  Chain chain = chain_of(joined);
  if (has_open_sizes(chain)) return Declined{"a run decides about sizes, and this is no attention"};
  if (const std::string_view why = find_rows(chain, target); !why.empty()) return Declined{std::string(why)};
  chain.block = choose_size(knobs, "block", chain.block, chain.rows.back().extent,
                            {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 72, 96, 144, 192});
  find_masked(context.constants, chain);
  return chain;
}

std::variant<ScheduledKernel, Declined> fuse_rows(const JoinedProgram& joined, const JoinedContext& context,
                                                  const Target& target, const AskRules& ask, Knobs& knobs) {
  const auto cut = cut_into_rows(joined, context, target, knobs);
  if (const auto* declined = std::get_if<Declined>(&cut)) return *declined;
  auto program = make_chain_kernel(joined, context, std::get<Chain>(cut), target, ask);
  if (!program) return Declined{"the rules have no programs that go together block by block"};
  return ScheduledKernel{std::move(*program), {}};
}

}  // namespace tessera::inline schedule
