// Candidates measured by this machine and by workers elsewhere (worker.h), each round shared evenly among all of them.
//
// A worker that goes away, does not answer, or answers something else than the protocol says costs nothing but time:
// its share is measured by others or by this machine instead, it is reported once, and asked again for a connection
// after a while.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tune/channel.h"
#include "tune/measurer.h"
#include "tune/worker_protocol.h"

namespace tessera::inline tune {

// What this machine measures beside the workers: its share, what no worker could, or nothing.
enum class MeasureHere : uint8_t { kToo, kWhenNobodyElse, kNever };

struct RemoteOptions {
  std::vector<HostPort> workers;
  std::string token;
  MeasureHere here = MeasureHere::kToo;  // kNever where code for the target does not run here
  double connect_seconds = 3;
  double silence_seconds = 10;                              // after which a worker without signs of life is lost
  double retry_seconds = 10;                                // until a lost worker is asked again
  double patience_seconds = 60;                             // with kNever: without any worker, until the search ends
  const std::atomic<bool>* stop = nullptr;                  // set by a signal handler: no more patience
  std::function<void(const std::string& line)> on_message;  // may be null
};

// Not thread-safe.
class RemoteMeasurer : public Measurer {
 public:
  // Connects to all workers. UserError TSR-6410 when one refuses the token or the protocol, or is another kind of
  // machine than `target` says; one that is not there is only reported. With kNever one must be there, or TSR-6413.
  RemoteMeasurer(Target target, BenchLimits limits, RemoteOptions options);

  // With kNever, UserError TSR-6413 when there has been no worker for a while: nothing was measured then.
  std::vector<MeasuredTrial> measure(const MeasuredKernel& kernel, const KnobPoint& incumbent,
                                     const std::vector<KnobPoint>& candidates, bool thorough) override;
  std::vector<MachineRecord> machines() const override;

 private:
  struct Worker {
    HostPort address;
    Channel channel;
    MachineRecord machine;
    size_t most_bytes = 0;
    bool told = false;              // that it is lost
    std::set<std::string> refused;  // hashes of kernels that it does not take
    std::chrono::steady_clock::time_point asked;
  };
  struct Share {
    Worker* worker = nullptr;
    std::vector<size_t> candidates;
  };

  static bool is_there(const Worker& worker) { return worker.channel.open(); }
  // UserError TSR-6410.
  bool connect(Worker& worker, std::string& why);
  void connect_again(Worker& worker);
  void lose(Worker& worker, const std::string& why);
  // Waits for a worker that takes the kernel; false when all that are there do not. UserError TSR-6413.
  bool wait_for_worker(const std::string& kernel);
  // Those of `which` that are still to be measured: workers were lost, or do not take the kernel.
  std::vector<size_t> measure_once(const MeasuredKernel& kernel, WorkerJob& job,
                                   const std::vector<KnobPoint>& candidates, const std::vector<size_t>& which,
                                   std::vector<MeasuredTrial>& trials);
  // Reads what a worker says about its share; which of it is still to be measured.
  std::vector<size_t> collect(Share& share, const std::string& kernel, double seconds,
                              std::vector<MeasuredTrial>& trials);
  void tell(const std::string& line) const;

  Target target_;
  BenchLimits limits_;
  RemoteOptions options_;
  LocalMeasurer local_;
  std::vector<Worker> workers_;
};

}  // namespace tessera::inline tune
