#include "tune/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "driver/analysis/kernel_times.h"
#include "driver/engine/isolated.h"
#include "loop/naive_loops.h"
#include "loop/verify.h"
#include "package/anonymous_file.h"
#include "support/error.h"
#include "te/canonical.h"
#include "tune/worker_protocol.h"

namespace tessera::inline tune {

namespace {

constexpr double kGreetingSeconds = 10, kSendSeconds = 30, kIdleSeconds = 3600, kWrongTokenSeconds = 0.5;
constexpr size_t kMostReason = 400;  // bytes of an answer

// What a connection and all below it may use beyond its operands: the compiler's own memory, and several copies.
int64_t most_memory(int64_t operand_bytes) {
  constexpr int64_t kCompiler = int64_t{4} << 30;
  return kCompiler + 8 * operand_bytes;
}

void limit_memory(int64_t operand_bytes) {
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow alone is larger
  const auto bytes = static_cast<rlim_t>(most_memory(operand_bytes));
  const rlimit most{bytes, bytes};
  setrlimit(RLIMIT_AS, &most);
#endif
}

// Held by one process at a time; the kernel lets go when that process ends, however it does.
class TimingLock {
 public:
  explicit TimingLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    check(file_ >= 0, "the lock of timings cannot be opened");
    while (flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~TimingLock() { ::close(file_); }
  TimingLock(const TimingLock&) = delete;
  TimingLock& operator=(const TimingLock&) = delete;

 private:
  int file_;
};

// Sends a sign of life each second while there is nothing else to say.
class Talker {
 public:
  explicit Talker(Channel& channel) : channel_(channel), thread_([this] { run(); }) {}
  ~Talker() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Talker(const Talker&) = delete;
  Talker& operator=(const Talker&) = delete;

  bool say(const WorkerAnswer& answer) {
    const std::lock_guard lock(mutex_);
    std::string why;
    good_ = good_ && channel_.send(to_message(answer), deadline_in(kSendSeconds), why);
    return good_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(kAliveSeconds), [this] { return done_; })) {
      std::string why;
      good_ = good_ && channel_.send(to_message(WorkerAnswer()), deadline_in(kSendSeconds), why);
    }
  }

  Channel& channel_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false, good_ = true;
  std::thread thread_;
};

int64_t operand_bytes(const TensorProgram& kernel) {
  int64_t sum = 0;
  const auto add = [&](const BufferPtr& buffer, const Layout& layout) {
    int64_t elements = 1;
    for (const Expr& dim : physical_shape(buffer->shape, layout))
      if (__builtin_mul_overflow(elements, as_int(dim).value_or(1), &elements)) elements = INT64_MAX / 64;
    if (__builtin_add_overflow(sum, dtype_bytes(buffer->dtype, std::min(elements, INT64_MAX / 64)), &sum))
      sum = INT64_MAX;
  };
  for (const TensorParam& param : kernel.params) add(param.buffer, param.layout);
  for (const Stage& stage : kernel.stages) add(stage.out, stage.layout);
  return sum;
}

// One connection, in its own process.
class Session {
 public:
  Session(const Target& target, const WorkerOptions& options, const std::string& token, const MachineRecord& machine,
          const std::string& lock_path, Channel channel)
      : target_(target),
        options_(options),
        token_(token),
        machine_(machine),
        lock_path_(lock_path),
        channel_(std::move(channel)) {}

  void run() {
    std::string text, why;
    if (!channel_.receive(text, kMostGreetingBytes, deadline_in(kGreetingSeconds), why)) return refuse(why);
    const auto greeting = parse_greeting(text, why);
    if (!greeting || !same_token(token_, greeting->token)) {
      // Whoever tries tokens has to wait for each.
      std::this_thread::sleep_for(std::chrono::duration<double>(kWrongTokenSeconds));
      return refuse(greeting ? "the token is wrong" : why);
    }
    if (greeting->protocol != kWorkerProtocol)
      return refuse(fmt::format("this worker speaks protocol {}, not {}", kWorkerProtocol, greeting->protocol));
    if (!send(to_message(WorkerHello{machine_, options_.most_bytes}))) return;
    while (channel_.receive(text, static_cast<size_t>(options_.most_bytes), deadline_in(kIdleSeconds), why)) {
      const auto job = parse_job(text, why);
      if (!job) return refuse(why);
      if (!work(*job)) return;
    }
    refuse(why);
  }

 private:
  bool send(const std::string& text) {
    std::string why;
    return channel_.send(text, deadline_in(kSendSeconds), why);
  }
  void refuse(const std::string& why) { send(to_message(WorkerAnswer{WorkerAnswer::Kind::kError, 0, {}, why})); }

  // What must hold before anything of the job is run; empty when it does.
  std::string objection(const WorkerJob& job, std::shared_ptr<const TensorProgram>& kernel) const {
    if (job.threads > target_.num_threads)
      return fmt::format("{} threads are asked for, of {}", job.threads, target_.num_threads);
    try {
      kernel = std::make_shared<const TensorProgram>(parse_canonical_text(job.kernel));
    } catch (const UserError& error) {
      return error.diagnostic().message;
    }
    if (!job.reuse.empty() && job.reuse.size() != kernel->params.size() + 1)
      return fmt::format("{} distances for {} operands", job.reuse.size(), kernel->params.size() + 1);
    if (const int64_t bytes = operand_bytes(*kernel); bytes > options_.most_operand_bytes)
      return fmt::format("a kernel with {} bytes of operands, of at most {}", bytes, options_.most_operand_bytes);
    // Expressions share parts, and what walks them may take long: with a limit of time, as a build.
    const std::string answer = run_isolated(
        [&] {
          const auto violations = verify(naive_loops(*kernel));
          return violations.empty() ? std::string("legal") : "not legal: " + violations[0];
        },
        options_.build_seconds);
    return answer == "legal" ? "" : "a kernel that cannot be used: " + answer.substr(0, kMostReason);
  }

  // False when the connection is over.
  bool work(const WorkerJob& job) {
    std::shared_ptr<const TensorProgram> kernel;
    if (const std::string why = objection(job, kernel); !why.empty())
      return send(to_message(WorkerAnswer{WorkerAnswer::Kind::kRefused, 0, {}, why}));
    BenchLimits limits;
    limits.build_seconds = options_.build_seconds;
    limits.run_seconds = std::min(job.run_seconds, options_.run_seconds);
    limits.jobs = options_.jobs;
    limits.memory_bytes = most_memory(options_.most_operand_bytes);
    Target target = target_;
    target.num_threads = job.threads;
    if (!measurer_ || threads_ != job.threads || run_seconds_ != limits.run_seconds) {
      measurer_ = std::make_unique<LocalMeasurer>(target, limits, options_.runner);
      threads_ = job.threads;
      run_seconds_ = limits.run_seconds;
    }
    const MeasuredKernel measured{structural_hash(job.kernel), kernel, job.reuse};
    Talker talker(channel_);
    // A few at a time: as many as are built together, so that each answer goes out soon.
    const auto chunk = static_cast<size_t>(std::max(1, options_.jobs));
    for (size_t begin = 0; begin < job.candidates.size(); begin += chunk) {
      const size_t end = std::min(job.candidates.size(), begin + chunk);
      const std::vector<KnobPoint> points(job.candidates.begin() + static_cast<std::ptrdiff_t>(begin),
                                          job.candidates.begin() + static_cast<std::ptrdiff_t>(end));
      std::vector<MeasuredTrial> trials;
      {
        const TimingLock lock(lock_path_);
        trials = measurer_->measure(measured, job.incumbent, points, job.thorough);
      }
      for (size_t i = 0; i < trials.size(); ++i)
        if (!talker.say({WorkerAnswer::Kind::kTrial, begin + i, std::move(trials[i]), ""})) return false;
    }
    return talker.say({WorkerAnswer::Kind::kDone, 0, {}, ""});
  }

  const Target& target_;
  const WorkerOptions& options_;
  const std::string& token_;
  const MachineRecord& machine_;
  const std::string& lock_path_;
  Channel channel_;
  std::unique_ptr<LocalMeasurer> measurer_;
  int threads_ = 0;
  double run_seconds_ = 0;
};

MachineRecord machine_of(const Target& target, const RunnerCommand& runner) {
  constexpr double kRunnerSeconds = 30;
  MachineRecord machine{0, machine_facts(target), 0, 0};
  if (runner.empty()) {
    const MachinePeaks peaks = measure_roofline(1);
    machine.peak_gflops = peaks.fma_f32.one_thread / 1e9;
    machine.memory_gbytes = peaks.levels.empty() ? 0 : peaks.levels.back().one_thread / 1e9;
  } else {
    const RunnerPeaks peaks = check_runner(runner, target, kRunnerSeconds);
    machine.peak_gflops = peaks.gflops;
    machine.memory_gbytes = peaks.memory_gbytes;
  }
  return machine;
}

}  // namespace

std::string read_token(const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw UserError(
        {.id = "TSR-6408",
         .message = fmt::format("the token file '{}' {}", path, what),
         .node = {},
         .legal = fmt::format("a file that only its owner may read (chmod 600), whose first line has {} to {} "
                              "bytes",
                              kLeastToken, kMostToken),
         .hint = "make one: (umask 077; head -c 32 /dev/urandom | base64 > token), and give a copy to the other "
                 "side"});
  };
  struct stat facts{};
  if (path.empty() || stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("is not there");
  if (facts.st_mode & (S_IRWXG | S_IRWXO)) refuse("may be read or written by others");
  std::ifstream file(path);
  std::string token(kMostToken + 1, '\0');
  file.getline(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(std::min(token.find('\0'), token.size()));
  if (file.fail() && token.empty()) refuse("cannot be read, or is empty");
  if (file.fail() || token.size() > kMostToken) refuse("has a first line that is too long");
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.size() < kLeastToken) refuse("has a token that is too short");
  return token;
}

void run_worker(const Target& target, const WorkerOptions& options) {
  const std::string token = read_token(options.token_file);
  const MachineRecord machine = machine_of(target, options.runner);
  HostPort address = options.listen;
  const int listener = listen_at(address);
  const AnonymousFile lock("tessera-worker-lock");
  const std::string lock_path = fmt::format("/proc/{}/fd/{}", getpid(), lock.fd());
  const auto tell = [&](const std::string& line) {
    if (options.on_event) options.on_event(line);
  };
  if (options.on_listening) options.on_listening(address);
  std::set<pid_t> children;
  const auto stopped = [&] { return options.stop && options.stop->load(); };
  while (!stopped()) {
    pollfd entry{listener, POLLIN, 0};
    constexpr int kPollMs = 200;
    const int ready = poll(&entry, 1, kPollMs);
    for (auto child = children.begin(); child != children.end();) {
      int status = 0;
      if (waitpid(*child, &status, WNOHANG) != *child) {
        ++child;
        continue;
      }
      tell(WIFSIGNALED(status) ? fmt::format("connection {} ended by signal {}", *child, WTERMSIG(status))
                               : fmt::format("connection {} ended", *child));
      child = children.erase(child);
    }
    if (ready <= 0) continue;
    const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    Channel channel(socket);
    if (static_cast<int>(children.size()) >= options.most_connections) {
      std::string why;
      channel.send(to_message(WorkerAnswer{WorkerAnswer::Kind::kError, 0, {}, "too many connections"}),
                   deadline_in(0.1), why);
      continue;
    }
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::signal(SIGINT, SIG_DFL);
      std::signal(SIGTERM, SIG_DFL);
      ::close(listener);
      limit_memory(options.most_operand_bytes);
      try {
        Session(target, options, token, machine, lock_path, std::move(channel)).run();
      } catch (const std::exception&) {
        _exit(1);  // a bug of ours or no memory: the connection is lost, the worker is not
      }
      _exit(0);  // no destructors: the parent's state is not ours to clean up
    }
    if (child < 0) continue;
    children.insert(child);
    tell(fmt::format("connection {} begun", child));
  }
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  ::close(listener);
}

}  // namespace tessera::inline tune
