// Where two ways of computing a model differ: the first node whose result breaks the error budget although what it
// reads agrees, and the smallest part of the model that shows it.
//
// Values are compared at the places that exist on both sides, by name: a kernel that computes several nodes shows only
// what it writes. So the values that are compared are those of the program as it is compiled, and nothing is compiled
// otherwise in order to look at it. The part that shows a difference is then found by compiling parts: the node alone,
// the nodes that stand between it and the last values that agree, its neighbours in growing distance, the whole model;
// and by taking nodes away again as long as the rest still shows it.
//
// Rounding: two right programs differ in the last bits, and some nodes make that large (a sum of large terms behind
// which a sigmoid stands). So a part that differs is computed by the interpreter as well, on inputs changed by a few
// units in the last place; a difference of the size which that makes is no miscompilation but the model's own
// sensitivity.
//
// Memory: the reference runs once and its values are held until they are `chunk_bytes`; then the tested side, which is
// fast, runs and compares with them. Neither side's values are ever in memory all at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/compare.h"
#include "diagnose/graph_parts.h"
#include "diagnose/text_table.h"
#include "types/tensor.h"

namespace tessera::inline diagnose {

// One way to compute a model on fixed inputs.
class ValueSource {
 public:
  virtual ~ValueSource() = default;
  // The values that run() can show, by the model's names.
  virtual std::vector<std::string> names() const = 0;
  // Computes the model and shows the values of `wanted`, in an order in which none depends on a later one. Ends early
  // where it can when `see` answers false. `see` does not throw.
  using See = std::function<bool(const std::string& name, const Tensor& value)>;
  virtual void run(const std::set<std::string>& wanted, const See& see) = 0;
};

// Computes a part of the model: its results in order. May throw UserError or InternalError.
using RunPart = std::function<std::vector<Tensor>(const Graph& part, const std::vector<Tensor>& inputs)>;

struct PartRunners {
  RunPart tested;
  RunPart interpreted;
};

struct FindOptions {
  Tolerance tolerance;
  int64_t chunk_bytes = int64_t{256} << 20;
  int max_parts = 200;         // parts that are compiled at most
  double max_seconds = 120;    // after which no other part is tried
  std::set<std::string> cuts;  // the values at which the model may be cut: those that depend on inputs
  std::function<void(const std::string&)> step;  // told what is being done; may be null
};

struct ValueReport {
  std::string value, node, op_type, type;
  Comparison comparison;
};

// A part of the model that shows the difference when it is compiled alone.
struct Reproduction {
  GraphParts::Part part;
  std::vector<std::string> nodes;       // labels
  Graph graph;                          // of the part
  std::vector<Tensor> inputs, outputs;  // in the part's order: what it is given, and what the reference gives
  ValueReport output;                   // its first output that differs
};

struct Difference {
  int64_t compared = 0;              // values
  std::optional<ValueReport> first;  // the first that differs where a part shows it, or at all; empty: all agree
  bool alone = false;                // the node of `first`, compiled alone, shows it
  bool right_alone = false;          // it was compiled alone, and is right
  std::vector<ValueReport> further;  // some of those behind it
  std::optional<Reproduction> reproduction;
  std::vector<std::string> outputs;  // of the model, those that differ
  std::vector<std::string> notes;    // what else there is to say
};

// `inputs` are those of the model, in its order.
Difference find_difference(const GraphParts& model, const std::vector<Tensor>& inputs, ValueSource& reference,
                           ValueSource& tested, const PartRunners& parts, const FindOptions& options);

// The tolerance for values of a dtype: types with fewer bits than f32 cannot be held to f32's.
Tolerance tolerance_for(Tolerance tolerance, DType dtype);

std::string to_text(const Difference& difference, const TextStyle& style);
nlohmann::json to_json(const Difference& difference);

}  // namespace tessera::inline diagnose
