// A program that runs and times modules for another machine than this one, or another process: the runner
// (runner/runner.cpp) behind a command such as "qemu-aarch64 -L /usr/aarch64-linux-gnu".
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runner/runner_protocol.h"
#include "target/target.h"

namespace tessera::inline tune {

// The words of a command and the runner's program behind them.
struct RunnerCommand {
  std::vector<std::string> words;
  bool empty() const { return words.empty(); }
};

// `prefix`: words with blanks between them, may be empty. `program` empty: the one for the target's architecture beside
// this program. UserError TSR-6412 when that is not there.
RunnerCommand runner_command(const std::string& prefix, const std::string& program, const Target& target);

struct RunnerPeaks {
  double gflops = 0, memory_gbytes = 0;  // of one thread, as the runner measured them
};
// Starts the command once, in a process of its own and with a limit of time. UserError TSR-6412 when it cannot be
// started, is no runner of this version, or is for a machine of another architecture or with fewer features.
RunnerPeaks check_runner(const RunnerCommand& command, const Target& target, double seconds);

// Why a runner ended or refused; for the trial that it was running.
struct RunnerFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One runner; it ends with this object, and with this process. One thread at a time.
class RunnerProcess {
 public:
  // RunnerFailure when the command cannot be started.
  explicit RunnerProcess(const RunnerCommand& command);
  ~RunnerProcess();
  RunnerProcess(const RunnerProcess&) = delete;
  RunnerProcess& operator=(const RunnerProcess&) = delete;

  // The bytes of the answer, of which there may be `most_bytes`. RunnerFailure when there is none. Has no limit of
  // time: whoever waits for this process has (isolated.h).
  std::string ask(RunnerOp op, uint32_t argument, std::span<const std::byte> bytes, size_t most_bytes);

 private:
  // Waits for its end; how it ended, and the last line that it said.
  [[noreturn]] void fail();
  void send(std::span<const std::byte> bytes);
  void receive(void* to, size_t count);

  pid_t child_ = -1;
  int socket_ = -1;
  int errors_ = -1;  // what it writes to standard error
};

}  // namespace tessera::inline tune
