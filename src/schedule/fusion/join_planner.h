// A plan of joined kernels while it is made: what the kinds of chains share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedule/fusion/call_flow.h"
#include "schedule/fusion/join_plan.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// A chain that a step has found, and what it computes as a call of it sees it.
struct FoundChain {
  std::string_view step;
  std::vector<size_t> calls;  // ascending, those included whose work other members do
  std::shared_ptr<const JoinedProgram> program;
  std::vector<BufferId> args;
  JoinedContext context;
  std::string of_constants = {};  // what the code depends on of their elements
};

class JoinPlanner {
 public:
  JoinPlanner(const Program& program, const Target& target, const JoinOptions& options)
      : program_(program), target_(target), options_(options), flow_(program) {}

  const Program& program() const { return program_; }
  const Target& target() const { return target_; }
  const JoinOptions& options() const { return options_; }
  CallFlow& flow() { return flow_; }
  const CallFlow& flow() const { return flow_; }
  const std::vector<BufferId>& args_of(size_t call) const { return program_.calls[call].args; }
  const Kernel& kernel_of(size_t call) const {
    return program_.kernels[static_cast<size_t>(program_.calls[call].kernel)];
  }

  // `members` on the program's buffers. `own_weights`: each weight that a member reads is an argument by itself.
  FoundChain define(std::string_view step, std::vector<size_t> calls, std::vector<NumberedMember> members,
                    bool own_weights, const std::string& name) const;

  // Whether there is code. The same kernels in the same order on arguments that are the same in the same places have
  // the same, which is made once.
  bool has_code(const FoundChain& chain);
  // Puts the chain into the plan where there is code that is allowed, else sets its calls free.
  void join(const FoundChain& chain);
  // The same with code that the caller made.
  void join(const FoundChain& chain, LoopProgram code);

  // The last reason that a step gives for two calls is the one that counts.
  void refuse(std::string_view step, size_t writer, size_t reader, std::string reason) {
    refused_[{step, {writer, reader}}] = std::move(reason);
  }

  JoinPlan finish() &&;

 private:
  struct Code {
    std::optional<PlannedKernel> kernel;
    std::string refused;  // why there is none
    bool is_asked = false, is_allowed = false;
    size_t number = SIZE_MAX;  // in the plan
  };
  Code& code_of(const FoundChain& chain);
  Kernel joined_kernel(const FoundChain& chain) const;  // without its code
  void take(Kernel kernel, ScheduledKernel scheduled, const FoundChain& chain, Code& code) const;
  std::string signature_of(const FoundChain& chain) const;
  std::string location_of(const FoundChain& chain) const;
  std::string add(const FoundChain& chain);

  const Program& program_;
  const Target& target_;
  const JoinOptions& options_;
  CallFlow flow_;
  std::map<std::string, Code> codes_;  // by signature
  std::map<std::pair<std::string_view, std::pair<size_t, size_t>>, std::string> refused_;
  JoinPlan plan_;
};

}  // namespace tessera::inline schedule
