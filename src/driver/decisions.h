// What a compile asks whoever started it. Every answer has a default, so that an implementation overrides what it knows
// about; what is fixed before a compile begins stands in DriverOptions as data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "driver/graph_choice.h"
#include "schedule/choose.h"

namespace tessera::inline graph {
class Graph;
}
namespace tessera::inline program {
struct Program;
struct Kernel;
}  // namespace tessera::inline program

namespace tessera::inline accel {
struct Accelerator;
}
namespace tessera::inline tensor_programs {
struct TensorProgram;
}

namespace tessera::inline driver {

// Asked from the compile's thread. One object may be asked by several compiles, one after the other.
class Decisions {
 public:
  virtual ~Decisions() = default;

  // Before every step: whether the compile ends there, with error TSR-5111.
  virtual bool is_cancelled() { return false; }

  // Of what the answers below come from: it differs when they do. Caches of modules hold it, and a compile that
  // promises results which no measurement decides is refused where it is not empty. Empty: the answers are the
  // defaults.
  virtual std::string digest() const { return ""; }

  // What is done to a model otherwise than by default. Asked once, of models without open sizes, and in place of
  // DriverOptions::graph_choice. `model_hash` gives the model's hash (graph_choice.h), which costs the passes on
  // graphs: it is to be called where models are known at all. Nothing: the options' own choice stands.
  virtual std::optional<TunedGraph> choose_graph(const std::function<std::string()>& model_hash) {
    (void)model_hash;
    return std::nullopt;
  }

  // How a kernel runs, where that was found to be better than the rules' own choice (schedule/choose.h). Asked for
  // every kernel, some of them twice.
  virtual TunedChoice choose_schedule(const Kernel& kernel) {
    (void)kernel;
    return {};
  }

  // How a kernel is cut into tiles on an accelerator, as a point of driver/unit_tilings.h, where that was found to take
  // fewer cycles than the compiler's own choice. `kernel` is what the unit computes of it, in the unit's layouts.
  virtual TunedChoice choose_tiling(const Accelerator& unit, const std::shared_ptr<const TensorProgram>& kernel) {
    (void)unit, (void)kernel;
    return {};
  }

  // What a step gave: the compile goes on with what stands there afterwards. For tests of what finds miscompilations.
  virtual void amend(std::string_view step, Graph& graph) { (void)step, (void)graph; }
  virtual void amend(std::string_view step, Program& program) { (void)step, (void)program; }
};

// The answers above.
inline std::shared_ptr<Decisions> default_decisions() noexcept { return std::make_shared<Decisions>(); }

}  // namespace tessera::inline driver
