// One program for a box of sizes, from the model's own programs for some of them (lower/generalize.h), and which sizes
// it was held against.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "driver/canonical_sizes.h"
#include "driver/open_sizes.h"
#include "graph/flow.h"
#include "lower/generalize.h"

namespace tessera::inline driver {

// A size for which the model's own program is another one than that of all sizes.
struct DiffersAt {
  SizePoint point;
  std::string what;
  Program program;   // of other sizes
  SizePoint others;  // one of those
};

class SizeSearch {
 public:
  // Borrows everything. `lower` is asked without the passes `left_out`. Looks at sizes for about as long as `limits`
  // say, and always at the first and last values of the dimensions. With `beyond`, formulas of a short range are found
  // from sizes behind it, too.
  SizeSearch(const ImportedModel& model, const LowerGraph& lower, const std::set<std::string>& left_out,
             SizeProver& prover, const SearchLimits& limits, bool beyond);

  using Result = std::variant<SizedProgram, Unlike, DiffersAt, SizesRefused>;
  Result run();

  // After run() has found nothing: a program of all known sizes from some value of dimension `symbol` on, or up to it,
  // and the known size nearest to those.
  std::optional<DiffersAt> part(size_t symbol);

  // Sizes that the program was found from; the first is that of which the whole program is known.
  const std::vector<SizePoint>& points() const { return points_; }

  // Whether the model's own program for this size computes the same as `program`, and if not, `what` differs. Without
  // one for this size, it does not.
  enum class Verdict : uint8_t { kProved, kRun, kDiffers };
  Verdict verdict(const Program& program, const SizePoint& point, const Program& own, std::string& what);
  Verdict verdict(const Program& program, const SizePoint& point);

 private:
  using Found = std::variant<Program, Unlike>;

  using Own = std::variant<std::unique_ptr<Program>, SizesRefused>;
  Own program_at(const SizePoint& point);
  bool is_inside(const SizePoint& point) const;
  const Program* known_program(const SizePoint& point) const;
  void insert(const SizePoint& point, std::unique_ptr<Program> program);
  void remove_second();
  std::pair<Found, std::optional<SizePoint>> generalized();
  Found settle();
  std::vector<SizePoint> sizes_to_check();

  const ImportedModel& model_;
  const LowerGraph& lower_;
  const std::set<std::string>& left_out_;
  SizeProver& prover_;
  const SearchLimits limits_;
  const bool beyond_;
  std::vector<SizePoint> points_, avoided_;
  std::vector<std::unique_ptr<Program>> programs_;
  size_t always_ = 0;                // of sizes_to_check(): those that are looked at however long it takes
  std::set<SizePoint> may_be_none_;  // of those: sizes that the model may have no meaning for
};

}  // namespace tessera::inline driver
