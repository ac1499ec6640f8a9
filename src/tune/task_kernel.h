// What a task of the tuner computes: one kernel's definition, or a joined program (te/joined_program.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "program/program.h"

namespace tessera::inline tune {

class TaskKernel {
 public:
  TaskKernel() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a definition is a task's kernel.
  TaskKernel(std::shared_ptr<const TensorProgram> single) : single_(std::move(single)) {}
  explicit TaskKernel(const Kernel& kernel) : single_(kernel.definition), joined_(kernel.joined) {}
  // With the symbols that the sizes of a joined kernel are made of: measured at the usual ones, it may be tuned.
  TaskKernel(const Program& program, const Kernel& kernel);
  explicit TaskKernel(std::shared_ptr<const JoinedProgram> joined) : joined_(std::move(joined)) {}

  explicit operator bool() const { return single_ || joined_; }
  const std::shared_ptr<const TensorProgram>& single() const { return single_; }  // null: it is joined
  const std::shared_ptr<const JoinedProgram>& joined() const { return joined_; }  // null: it is single

  // The rest REQUIRES a kernel.
  std::span<const TensorParam> params() const;  // without the result; of open sizes, at the usual ones
  TensorParam result() const;                   // of a kernel of one result; the same
  std::string text() const;                     // canonical
  std::string hash() const;                     // of the text
  bool is_open() const;                         // a run decides about sizes
  bool may_be_measured() const { return !is_open() || !usual_.empty(); }
  const std::vector<SymbolRange>& symbols() const { return symbols_; }
  // A loop program of the kernel as code for the usual sizes alone.
  LoopProgram at_usual_sizes(const LoopProgram& program) const;
  int64_t constant_bytes() const;  // of constant parameters; -1 when a shape is open

 private:
  std::shared_ptr<const TensorProgram> single_;
  std::shared_ptr<const JoinedProgram> joined_;
  std::vector<SymbolRange> symbols_;
  VarMap usual_;                     // values of the symbols, where a run decides about sizes
  std::vector<TensorParam> values_;  // the arguments of a joined kernel at these
};

}  // namespace tessera::inline tune
