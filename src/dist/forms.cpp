#include "dist/forms.h"

#include <algorithm>
#include <limits>

#include "support/error.h"

namespace tessera::inline dist {

void Forms::add(ValueId value, const Sharding& sharding) {
  std::vector<Sharding>& forms = forms_[value];
  if (std::find(forms.begin(), forms.end(), sharding) == forms.end()) forms.push_back(sharding);
}

std::pair<Sharding, std::vector<Move>> Forms::bring(ValueId value, const Sharding& to) {
  const TensorType& type = graph_.type(value);
  std::pair<Sharding, std::vector<Move>> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Sharding& from : forms_.at(value)) {
    // What is no sum any more does not become one again.
    if (std::any_of(to.partial.begin(), to.partial.end(),
                    [&](const PartialAxis& p) { return !from.is_partial(p.axis); }))
      continue;
    std::vector<Move> moves = moves_between(from, to, type, mesh_, speed_);
    const double seconds = moves_seconds(moves, from, type, mesh_, speed_);
    if (seconds < least) least = seconds, best = {from, std::move(moves)};
  }
  check(least < std::numeric_limits<double>::infinity(), "a value in no form that leads to another one");
  Sharding now = best.first;
  for (const Move& move : best.second) add(value, now = after_move(now, move));
  return best;
}

}  // namespace tessera::inline dist
