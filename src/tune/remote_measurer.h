// Candidates measured by this machine and by workers elsewhere (worker.h), each round shared evenly among all of them.
//
// A worker that goes away, does not answer, or answers something else than the protocol says costs nothing but time:
// its share is measured by this machine instead, it is reported once, and asked again for a connection after a while.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tune/channel.h"
#include "tune/measurer.h"
#include "tune/worker_protocol.h"

namespace tessera {

struct RemoteOptions {
  std::vector<HostPort> workers;
  std::string token;
  bool here_too = true;  // false: this machine measures only what no worker could
  double connect_seconds = 3;
  double silence_seconds = 10;                              // after which a worker without signs of life is lost
  double retry_seconds = 10;                                // until a lost worker is asked again
  std::function<void(const std::string& line)> on_message;  // may be null
};

// Not thread-safe.
class RemoteMeasurer : public Measurer {
 public:
  // Connects to all workers. UserError TSR-6410 when one refuses the token or the protocol, or is another kind of
  // machine than `target` says; one that is not there is only reported.
  RemoteMeasurer(Target target, BenchLimits limits, RemoteOptions options);

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

  // UserError TSR-6410.
  bool connect(Worker& worker, std::string& why);
  void connect_again(Worker& worker);
  void lose(Worker& worker, const std::string& why);
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

}  // namespace tessera
