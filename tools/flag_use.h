// What a compile makes of --db and --kernel, for people who gave them: neither is an error when nothing in the model
// fits, and nobody should take a plain module for a tuned one.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/observer.h"
#include "tune/tuned_kernels.h"

namespace tessera {

struct CompileFlags;

// Observes one compile.
class FlagUse : public Observer {
 public:
  // The records of --db.
  void begin(const TunedKernels& records) { records_ = records; }
  // Kernels with a schedule from the records.
  size_t tuned() const { return tuned_; }
  // One line for each file of which nothing, or not all that is about this model, was used. Of a compile that did not
  // come to its kernels (a module from the cache, the graph alone): what the records alone say.
  std::vector<std::string> lines(const CompileFlags& flags) const;

 private:
  void graph_chosen(const TunedGraph& graph) override;
  void program_made(std::string_view step, const Program& program) override;
  std::string db_line(const std::string& file) const;
  std::string kernel_line(const std::string& file) const;

  TunedKernels records_;
  bool compiled_ = false, graph_ = false;  // whether there were kernels; whether the records' graph was taken
  size_t tuned_ = 0, refused_ = 0;         // kernels that the records know
  std::string graph_refused_;
  std::set<std::string> calls_, refusals_;  // declarations that are called; what kernels refused
  std::set<std::string> hashes_;            // of the kernels, as records name them
};

// The lines, to standard error.
void print_lines(const FlagUse& use, const CompileFlags& flags);

}  // namespace tessera
