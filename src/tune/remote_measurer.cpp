#include "tune/remote_measurer.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "support/error.h"
#include "te/canonical.h"

namespace tessera::inline tune {

namespace {

[[noreturn]] void fail_without_workers(const Target& target, const std::string& what) {
  throw UserError(
      {.id = "TSR-6413",
       .message = fmt::format("there is no worker for {}: {}", target.triple, what),
       .node = {},
       .legal = "at least one worker that is there, because code for the target does not run on this machine",
       .hint = "start it again, then go on with --resume: what was measured so far is in the records"});
}

}  // namespace

RemoteMeasurer::RemoteMeasurer(Target target, BenchLimits limits, RemoteOptions options)
    : target_(std::move(target)), limits_(limits), options_(std::move(options)), local_(target_, limits_) {
  for (const HostPort& address : options_.workers) {
    Worker& worker = workers_.emplace_back();
    worker.address = address;
    std::string why;
    if (!connect(worker, why)) lose(worker, why);
  }
  if (options_.here == MeasureHere::kNever && std::none_of(workers_.begin(), workers_.end(), is_there))
    fail_without_workers(target_, "none answers");
}

void RemoteMeasurer::tell(const std::string& line) const {
  if (options_.on_message) options_.on_message(line);
}

bool RemoteMeasurer::connect(Worker& worker, std::string& why) {
  worker.asked = std::chrono::steady_clock::now();
  const Deadline deadline = deadline_in(options_.connect_seconds);
  worker.channel = connect_to(worker.address, options_.connect_seconds, why);
  std::string text;
  if (!worker.channel.open() ||
      !worker.channel.send(to_message(Greeting{kWorkerProtocol, options_.token}), deadline, why) ||
      !worker.channel.receive(text, kMostAnswerBytes, deadline, why))
    return false;
  const auto hello = parse_hello(text, why);
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw UserError(
        {.id = "TSR-6410",
         .message = fmt::format("the worker {} cannot be used: {}", to_string(worker.address), what),
         .node = {},
         .legal = "a worker with the same token and the same kind of machine: processor, features and caches",
         .hint = hint});
  };
  // What it says instead is for the user to mend; too many connections pass.
  if (!hello && why != "too many connections") refuse(why, "compare the token files and the versions of both sides");
  if (!hello) {
    worker.channel.close();
    return false;
  }
  if (hello->machine.facts != machine_facts(target_))
    refuse(fmt::format("it measures for another kind of machine: {}", hello->machine.facts),
           fmt::format("this search is for {}; give both sides the same --target, or tune there and merge the records "
                       "with 'tessera db merge'",
                       machine_facts(target_)));
  worker.machine = hello->machine;
  worker.most_bytes = static_cast<size_t>(std::max<int64_t>(0, hello->most_bytes));
  if (worker.told) tell(fmt::format("worker {} is there again", to_string(worker.address)));
  worker.told = false;
  return true;
}

void RemoteMeasurer::connect_again(Worker& worker) {
  std::string why;
  try {
    if (connect(worker, why)) return;
  } catch (const UserError& error) {
    // Another token or another machine at the same address now: no reason to end a search that is under way.
    why = error.diagnostic().message;
  }
  lose(worker, why);
}

void RemoteMeasurer::lose(Worker& worker, const std::string& why) {
  worker.channel.close();
  worker.asked = std::chrono::steady_clock::now();
  if (!worker.told)
    tell(fmt::format("worker {} is lost: {}; others do what it should have done", to_string(worker.address), why));
  worker.told = true;
}

std::vector<MachineRecord> RemoteMeasurer::machines() const {
  std::vector<MachineRecord> result;
  for (const Worker& worker : workers_) result.push_back(worker.machine);
  return result;
}

std::vector<size_t> RemoteMeasurer::collect(Share& share, const std::string& kernel, double seconds,
                                            std::vector<MeasuredTrial>& trials) {
  std::vector<size_t> missing = share.candidates;
  const Deadline last = deadline_in(seconds);
  std::string text, why;
  while (true) {
    const Deadline next = std::min(last, deadline_in(options_.silence_seconds));
    if (!share.worker->channel.receive(text, kMostAnswerBytes, next, why)) break;
    auto answer = parse_answer(text, why);
    if (!answer) break;
    if (answer->kind == WorkerAnswer::Kind::kAlive) continue;
    if (answer->kind == WorkerAnswer::Kind::kRefused) {
      if (share.worker->refused.insert(kernel).second)
        tell(fmt::format("worker {} does not measure a kernel: {}; others do", to_string(share.worker->address),
                         answer->error));
      return missing;
    }
    if (answer->kind == WorkerAnswer::Kind::kDone) {
      if (missing.empty()) return {};
      why = "it left trials out";
      break;
    }
    if (answer->number >= share.candidates.size()) {
      why = "it answered what nobody asked";
      break;
    }
    const size_t candidate = share.candidates[answer->number];
    if (std::erase(missing, candidate) == 0) {
      why = "it answered twice";
      break;
    }
    answer->trial.machine = static_cast<int>(share.worker - workers_.data());
    trials[candidate] = std::move(answer->trial);
  }
  lose(*share.worker, why);
  return missing;
}

bool RemoteMeasurer::wait_for_worker(const std::string& kernel) {
  constexpr auto kPause = std::chrono::milliseconds(500);
  const Deadline last = deadline_in(options_.patience_seconds);
  while (std::none_of(workers_.begin(), workers_.end(), is_there)) {
    const bool stopped = options_.stop && options_.stop->load();
    if (stopped || std::chrono::steady_clock::now() > last)
      fail_without_workers(target_, stopped
                                        ? "all are lost"
                                        : fmt::format("all have been lost for {:.0f} s", options_.patience_seconds));
    std::this_thread::sleep_for(kPause);
    for (Worker& worker : workers_) connect_again(worker);
  }
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const Worker& worker) { return is_there(worker) && !worker.refused.contains(kernel); });
}

std::vector<size_t> RemoteMeasurer::measure_once(const MeasuredKernel& kernel, WorkerJob& job,
                                                 const std::vector<KnobPoint>& candidates,
                                                 const std::vector<size_t>& which, std::vector<MeasuredTrial>& trials) {
  const auto now = std::chrono::steady_clock::now();
  std::vector<Share> shares;
  for (Worker& worker : workers_) {
    if (!is_there(worker) && now - worker.asked >= std::chrono::duration<double>(options_.retry_seconds))
      connect_again(worker);
    if (is_there(worker) && !worker.refused.contains(kernel.hash)) shares.push_back({&worker, {}});
  }
  std::vector<size_t> here, missing;
  const bool shares_here = options_.here == MeasureHere::kToo || shares.empty();
  const size_t parts = shares.size() + (shares_here ? 1 : 0);
  for (size_t i = 0; i < which.size(); ++i) {
    // This machine has the first, so that a single candidate that is measured again is measured here.
    const size_t part = i % parts + (shares_here ? 0 : 1);
    if (part == 0 || shares[part - 1].candidates.size() >= kMostCandidates) here.push_back(which[i]);
    else shares[part - 1].candidates.push_back(which[i]);
  }
  for (Share& share : shares) {
    if (share.candidates.empty()) continue;
    job.candidates.clear();
    for (const size_t i : share.candidates) job.candidates.push_back(candidates[i]);
    const std::string message = to_message(job);
    std::string why;
    const bool fits = message.size() <= share.worker->most_bytes;
    if (fits && share.worker->channel.send(message, deadline_in(options_.silence_seconds), why)) continue;
    // A kernel too large for its limit is no fault of the worker.
    if (!fits) {
      if (share.worker->refused.insert(kernel.hash).second)
        tell(fmt::format("worker {} does not take messages of {} bytes", to_string(share.worker->address),
                         message.size()));
    } else lose(*share.worker, why);
    here.insert(here.end(), share.candidates.begin(), share.candidates.end());
    share.candidates.clear();
  }
  const auto measure_here = [&](const std::vector<size_t>& those) {
    if (options_.here == MeasureHere::kNever) {
      missing.insert(missing.end(), those.begin(), those.end());
      return;
    }
    if (those.empty()) return;
    std::vector<KnobPoint> points;
    for (const size_t i : those) points.push_back(candidates[i]);
    auto measured = local_.measure(kernel, job.incumbent, points, job.thorough);
    for (size_t i = 0; i < those.size(); ++i) trials[those[i]] = std::move(measured[i]);
  };
  measure_here(here);
  for (Share& share : shares) {
    if (share.candidates.empty()) continue;
    const double each = limits_.build_seconds + limits_.run_seconds;
    measure_here(collect(share, kernel.hash, 60 + each * static_cast<double>(share.candidates.size() + 1), trials));
  }
  return missing;
}

std::vector<MeasuredTrial> RemoteMeasurer::measure(const MeasuredKernel& kernel, const KnobPoint& incumbent,
                                                   const std::vector<KnobPoint>& candidates, bool thorough) {
  constexpr int kMostInVain = 3;  // workers that were lost without an answer
  WorkerJob job;
  job.kernel = kernel.definition.text();
  job.threads = target_.num_threads;
  job.incumbent = incumbent;
  job.thorough = thorough;
  job.run_seconds = limits_.run_seconds;
  job.reuse = kernel.reuse;

  std::vector<MeasuredTrial> trials(candidates.size());
  std::vector<size_t> which(candidates.size());
  std::iota(which.begin(), which.end(), size_t{0});
  int in_vain = 0;
  while (!which.empty()) {
    MeasuredTrial failed;
    if (options_.here == MeasureHere::kNever && !wait_for_worker(kernel.hash))
      failed = {"refused", "no worker takes the kernel", {}, -1};
    else if (in_vain == kMostInVain)  // perhaps these did that
      failed = {"crash", "workers were lost while they had it", {}, -1};
    if (!failed.status.empty()) {
      for (const size_t i : which) trials[i] = failed;
      break;
    }
    const size_t before = which.size();
    which = measure_once(kernel, job, candidates, which, trials);
    in_vain = which.size() == before ? in_vain + 1 : 0;
  }
  return trials;
}

}  // namespace tessera::inline tune
