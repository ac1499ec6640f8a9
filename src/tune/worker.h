// `tessera worker`: builds, runs and times candidates for searches on other machines.
//
// Each connection is served in a process of its own, so that whatever it does ends with it; kernels are built and run
// in processes below that (kernel_bench.h). Timing is exclusive: one comparison at a time, whoever asked. A connection
// has to name the token within 10 s; messages, candidates of a job, sizes of operands and the time of a build or a run
// have limits, and only so many connections are served at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "target/target.h"
#include "tune/channel.h"
#include "tune/runner_process.h"

namespace tessera::inline tune {

struct WorkerOptions {
  HostPort listen{"127.0.0.1", 7070};
  std::string token_file;
  int64_t most_bytes = 1 << 20;  // of one message
  double build_seconds = 20;     // of one build
  double run_seconds = 10;       // of one comparison
  int jobs = 2;                  // builds of one connection at a time
  int most_connections = 4;
  int64_t most_operand_bytes = int64_t{1} << 30;
  RunnerCommand runner;                                       // that runs code for the target; empty: this machine does
  std::function<void(const HostPort& address)> on_listening;  // may be null
  std::function<void(const std::string& line)> on_event;      // of the parent process; may be null
  const std::atomic<bool>* stop = nullptr;                    // set by a signal handler
};

// The token of a file: its first line. UserError TSR-6408 when it cannot be read, when others may read it, or when it
// is shorter than 16 bytes.
std::string read_token(const std::string& path);

// Serves until `stop`, then ends what it started. Candidates are built here for `target`, and run by options.runner, or
// here. UserError TSR-6408, TSR-6409, TSR-6412. REQUIRES: a runner, or runs_here(target).
void run_worker(const Target& target, const WorkerOptions& options);

}  // namespace tessera::inline tune
