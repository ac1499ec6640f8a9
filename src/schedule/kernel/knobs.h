// What a schedule rule leaves open for a search: knobs with lists of legal values, and points, which give knobs values.
//
// A rule asks for its knobs while it works (`Knobs::choose`), with the value that its own model of the machine prefers;
// so its default is a point of its space, and a space needs no description beside the rule (spaces that are defined by
// running the template: AutoTVM, Chen et al., "Learning to optimize tensor programs", 2018). Which knobs there are, and
// their values, depends on the kernel and the target alone; a rule declines a point whose values do not go together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline schedule {

// The meaning of knobs' names and values. A rule whose knobs change meaning raises its own version (schedule.h).
inline constexpr int kKnobFormat = 1;

struct Knob {
  std::string name;
  std::vector<int64_t> values;  // ascending, not empty
  int64_t preferred = 0;        // one of them: the rule's own choice
};

// The place of a space at which a kernel is scheduled: values of a rule's knobs, where those that it does not name have
// the rule's own choice; or the decisions of a sketch (sketch.h), whose schedule is then there as a whole.
// Text form: register_tile{rows=6,vectors=2}; without knobs: injective. Of a sketch this is a name, not the schedule.
struct KnobPoint {
  std::string rule;                                     // or the sketch
  std::vector<std::pair<std::string, int64_t>> values;  // in order of the rule's questions, or of the trace
  std::string trace = {};                               // the schedule's text (trace.h) when it is a sketch

  bool operator==(const KnobPoint& other) const = default;
};

inline bool is_trace(const KnobPoint& point) { return !point.trace.empty(); }
std::string to_string(const KnobPoint& point);
// What tells two points of one kernel apart.
inline std::string identity_of(const KnobPoint& point) { return is_trace(point) ? point.trace : to_string(point); }
// Empty with a reason in `why` when the text is none. parse(to_string(p)) is p.
std::optional<KnobPoint> parse_knob_point(std::string_view text, std::string& why);
// "register_tile" of "register_tile{rows=6}".
std::string_view rule_name_of(std::string_view point_text);

struct KnobSpace {
  std::string rule;
  std::vector<Knob> knobs;

  // Number of points, those included that the rule declines; INT64_MAX when there are more.
  int64_t size() const;
  // REQUIRES: 0 <= number < size().
  KnobPoint point(int64_t number) const;
  KnobPoint preferred() const;
};

// The questions of one application of a rule. Not thread-safe; one object for each application.
class Knobs {
 public:
  Knobs() = default;
  // REQUIRES: `point` outlives this object.
  explicit Knobs(const KnobPoint& point) : point_(&point) {}

  // For one of several kernels that read the same packed weights: a rule then stores them in an order that does not
  // depend on its tile. `point` as above.
  static Knobs sharing_weights(const KnobPoint* point = nullptr) {
    Knobs knobs;
    knobs.point_ = point;
    knobs.shares_weights_ = true;
    return knobs;
  }
  bool shares_weights() const { return shares_weights_; }

  // Whether somebody asked for this rule by name: it then declines only what it cannot do.
  bool asked() const { return point_ != nullptr; }
  // The value of a knob, one of `values` or `preferred`, which is the answer where no point says otherwise.
  int64_t choose(const std::string& name, std::vector<int64_t> values, int64_t preferred);
  bool choose_flag(const std::string& name, bool preferred) { return choose(name, {0, 1}, preferred ? 1 : 0) != 0; }

  // The knobs so far, in order.
  const std::vector<Knob>& seen() const { return seen_; }
  // Why the rule has no such point. Empty when it has.
  const std::string& illegal_value() const { return refused_; }  // of a knob that the rule has asked for
  std::string unknown_knob() const;                              // after the rule is done: one that it did not ask for
  std::string refusal() const { return refused_.empty() ? unknown_knob() : refused_; }

 private:
  const KnobPoint* point_ = nullptr;
  bool shares_weights_ = false;
  std::vector<Knob> seen_;
  std::string refused_;
};

}  // namespace tessera::inline schedule
