// What `tessera tune` and `tessera worker` tell each other, as JSON in the messages of channel.h. A kernel travels as
// its canonical text (te/canonical.h) and schedules as points of rules (schedule/kernel/knobs.h) or as traces of
// primitives (schedule/sketches/sketch.h): the worker builds them itself, and no machine code is ever sent.
//
//   coordinator                                     worker
//   {"tessera":3,"token":"..."}                ->
//                                              <-   {"machine":{...},"jobs":2,"most_bytes":N}   or {"error":"..."}
//   {"kernel":"...","threads":1,"incumbent":
//    "...","candidates":[...],"thorough":false,
//    "seconds":10,"reuse":[0,65536,...]}       ->
//                                              <-   {"alive":true}                              each second
//                                              <-   {"trial":0,"status":"ok","rounds":[...]}    in order
//                                              <-   {"done":true}                               or {"refused":"..."}
//
// {"refused":...} is about the job's kernel, and other jobs may follow; {"error":...} ends the connection.
//
// Parsing takes any bytes: what is not such a message is an empty answer with a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "records/records.h"
#include "tune/measurer.h"

namespace tessera::inline tune {

inline constexpr int kWorkerProtocol = 3;
inline constexpr size_t kMostCandidates = 64;                 // of one job
inline constexpr size_t kMostAnswerBytes = 1 << 20;           // of one message of a worker
inline constexpr size_t kMostGreetingBytes = 4096;            // of the first message to a worker
inline constexpr size_t kLeastToken = 16, kMostToken = 1024;  // bytes
inline constexpr double kAliveSeconds = 1;                    // between signs of life

struct Greeting {
  int protocol = kWorkerProtocol;
  std::string token;
};
std::string to_message(const Greeting& greeting);
std::optional<Greeting> parse_greeting(std::string_view text, std::string& why);
// Takes as long for each wrong token as for the right one.
bool same_token(std::string_view expected, std::string_view given);

struct WorkerHello {
  MachineRecord machine;   // without a number
  int64_t most_bytes = 0;  // of a job's message
};
std::string to_message(const WorkerHello& hello);
std::optional<WorkerHello> parse_hello(std::string_view text, std::string& why);

struct WorkerJob {
  std::string kernel;  // canonical text
  int threads = 1;
  KnobPoint incumbent;
  std::vector<KnobPoint> candidates;
  bool thorough = false;
  double run_seconds = 10;          // BenchLimits; the worker may allow less
  std::vector<int64_t> reuse = {};  // MeasuredKernel
};
std::string to_message(const WorkerJob& job);
std::optional<WorkerJob> parse_job(std::string_view text, std::string& why);

// One message while a job runs.
struct WorkerAnswer {
  enum class Kind : uint8_t { kAlive, kTrial, kDone, kRefused, kError };
  Kind kind = Kind::kAlive;
  size_t number = 0;    // kTrial: of the candidate
  MeasuredTrial trial;  // kTrial
  std::string error;    // kRefused, kError
};
std::string to_message(const WorkerAnswer& answer);
std::optional<WorkerAnswer> parse_answer(std::string_view text, std::string& why);

}  // namespace tessera::inline tune
