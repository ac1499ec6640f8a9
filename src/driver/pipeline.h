// The steps between an imported graph and a planned program. One object runs any step of any level: it leaves out what
// the level, the options or a limit leave out, has the runner watch it, and keeps what the last step changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "driver/options.h"
#include "driver/pass_application.h"
#include "driver/pass_runner.h"
#include "graph/graph.h"
#include "program/pass.h"
#include "program/program.h"
#include "support/remarks.h"
#include "target/target.h"

namespace tessera::inline driver {

// Of one compile; what it is given must outlive it.
class Pipeline {
 public:
  // `decides`: the machine that passes and rules decide for. `applications`: of optional passes so far, those that the
  // limit left out included; it is counted on.
  Pipeline(const DriverOptions& options, const Target& decides, PassRunner& runner, int64_t& applications);

  // The graph passes: simplified, and operators grouped that become one kernel.
  Graph simplify(Graph graph);
  // Each group becomes a kernel with a naive loop program.
  Program lower(const Graph& graph);
  // Rules write the loops that suit the machine, loop passes bring them into the shape that code generation wants, and
  // calls and buffers get their order and their places.
  Program schedule_and_plan(Program program);
  // Whether generated code of the program is optimised, which is an application.
  bool may_optimize_code(const Program& program);

 private:
  bool is_enabled(std::string_view pass) const { return !disabled_.contains(std::string(pass)); }
  bool may_run(std::string_view pass, int min_level) const;
  // Counts an application, and says whether it is done.
  bool may_apply(PassApplication& application);
  // Has `change` change `ir`, unless the limit leaves the application out. What later steps rely on does not count.
  template <typename Ir, typename Change>
  void apply(PassApplication application, bool counts, Ir& ir, const Change& change);
  void run_program_passes(ProgramPhase phase, Program& program);
  void use_kernels_of_the_user(Program& program);
  void move_to_devices(Program& program);
  void schedule(Program& program);
  bool may_join(std::string_view step, const Kernel& made) const;
  void run_loop_passes(Program& program);
  // UserError TSR-4081 when the program needs more memory than is allowed, with what lives where most is needed.
  void check_memory(const Program& program) const;
  // Passes write here, and observers are told as soon as a step has ended. Null: nobody wants them.
  Remarks* remarks();
  void tell_remarks();

  const DriverOptions& options_;
  const Target& decides_;
  const std::set<std::string> disabled_;
  PassRunner& runner_;
  Remarks remarks_;
  size_t told_ = 0;  // of remarks_
  int64_t& applications_;
};

}  // namespace tessera::inline driver
