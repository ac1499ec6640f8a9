#include "tune/worker_protocol.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "schedule/sketches/sketch.h"

namespace tessera::inline tune {

namespace {

using nlohmann::json;

constexpr size_t kMostRoundsSent = 4096;
constexpr int kMostThreads = 1024;
constexpr size_t kMostOperands = 4096;
constexpr double kMostDistance = 1e15;  // bytes

// The message that `read` fills from the object; nothing, with a reason, when the text is no object, when something in
// it has another type, or when `read` names what is bad.
template <typename Message, typename Read>
std::optional<Message> parsed(std::string_view text, std::string& why, const Read& read) {
  try {
    const json object = json::parse(text);
    if (object.is_object()) {
      if (object.contains("error")) {
        why = object.at("error").get<std::string>().substr(0, 500);
        return std::nullopt;
      }
      Message message;
      std::string bad;
      read(object, message, bad);
      if (bad.empty()) return message;
      why = bad;
      return std::nullopt;
    }
    why = "a message that is no object";
  } catch (const json::exception& error) {
    why = std::string("a message that cannot be read: ") + error.what();
  }
  return std::nullopt;
}

std::string dumped(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

// A trace begins with a comment, which no point of a rule does.
std::string point_text(const KnobPoint& point) { return is_trace(point) ? trace_point_text(point) : to_string(point); }

// Statuses are words of ours: they go into records and tables.
constexpr std::array kStatuses = {"ok", "refused", "build failed", "crash", "timeout", "wrong result"};

}  // namespace

std::string to_message(const Greeting& greeting) {
  return dumped({{"tessera", greeting.protocol}, {"token", greeting.token}});
}

std::optional<Greeting> parse_greeting(std::string_view text, std::string& why) {
  return parsed<Greeting>(text, why, [](const json& object, Greeting& greeting, std::string&) {
    const int64_t protocol = object.at("tessera").is_number_integer() ? object.at("tessera").get<int64_t>() : -1;
    greeting.protocol = static_cast<int>(std::clamp<int64_t>(protocol, -1, INT32_MAX));
    greeting.token = object.at("token").get<std::string>();
  });
}

bool same_token(std::string_view expected, std::string_view given) {
  unsigned difference = expected.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(expected[i] ^ other);
  }
  return difference == 0;
}

std::string to_message(const WorkerHello& hello) {
  return dumped({{"machine",
                  {{"facts", hello.machine.facts},
                   {"peak_gflops", hello.machine.peak_gflops},
                   {"memory_gbytes", hello.machine.memory_gbytes}}},
                 {"most_bytes", hello.most_bytes}});
}

std::optional<WorkerHello> parse_hello(std::string_view text, std::string& why) {
  return parsed<WorkerHello>(text, why, [](const json& object, WorkerHello& hello, std::string&) {
    const json& machine = object.at("machine");
    hello.machine.facts = machine.at("facts").get<std::string>();
    hello.machine.peak_gflops = machine.at("peak_gflops").get<double>();
    hello.machine.memory_gbytes = machine.at("memory_gbytes").get<double>();
    hello.most_bytes = object.at("most_bytes").get<int64_t>();
  });
}

std::string to_message(const WorkerJob& job) {
  json candidates = json::array();
  for (const KnobPoint& point : job.candidates) candidates.push_back(point_text(point));
  return dumped({{"kernel", job.kernel},
                 {"threads", job.threads},
                 {"incumbent", point_text(job.incumbent)},
                 {"candidates", std::move(candidates)},
                 {"thorough", job.thorough},
                 {"seconds", job.run_seconds},
                 {"reuse", job.reuse}});
}

std::optional<WorkerJob> parse_job(std::string_view text, std::string& why) {
  return parsed<WorkerJob>(text, why, [](const json& object, WorkerJob& result, std::string& bad) {
    const auto point = [&](const json& from) {
      const std::string text = from.get<std::string>();
      auto found = text.starts_with("//") ? parse_trace_point(text, bad) : parse_knob_point(text, bad);
      return found ? std::move(*found) : KnobPoint();
    };
    result.kernel = object.at("kernel").get<std::string>();
    const int64_t threads = object.at("threads").is_number_integer() ? object.at("threads").get<int64_t>() : 0;
    result.threads = static_cast<int>(std::clamp<int64_t>(threads, 0, kMostThreads + 1));
    result.incumbent = point(object.at("incumbent"));
    const json& candidates = object.at("candidates");
    if (!candidates.is_array() || candidates.empty() || candidates.size() > kMostCandidates)
      bad = "a job without candidates, or with too many";
    else
      for (const json& candidate : candidates) result.candidates.push_back(point(candidate));
    result.thorough = object.at("thorough").get<bool>();
    result.run_seconds = object.at("seconds").get<double>();
    const json& reuse = object.at("reuse");
    if (!reuse.is_array() || reuse.size() > kMostOperands) bad = "a job without distances, or with too many";
    else
      for (const json& distance : reuse) {
        const double bytes = distance.is_number() ? distance.get<double>() : -1;
        if (!(bytes >= 0 && bytes <= kMostDistance)) bad = "a distance out of range";
        else result.reuse.push_back(static_cast<int64_t>(bytes));
      }
    if (result.threads < 1 || result.threads > kMostThreads) bad = "a number of threads out of range";
    if (!(result.run_seconds > 0 && result.run_seconds <= 1e5)) bad = "a limit of time out of range";
  });
}

std::string to_message(const WorkerAnswer& answer) {
  switch (answer.kind) {
    case WorkerAnswer::Kind::kAlive: return dumped({{"alive", true}});
    case WorkerAnswer::Kind::kDone: return dumped({{"done", true}});
    case WorkerAnswer::Kind::kRefused: return dumped({{"refused", answer.error}});
    case WorkerAnswer::Kind::kError: return dumped({{"error", answer.error}});
    case WorkerAnswer::Kind::kTrial: break;
  }
  json rounds = json::array();
  for (const auto& [incumbent, candidate] : answer.trial.times.rounds) rounds.push_back({incumbent, candidate});
  return dumped({{"trial", answer.number},
                 {"status", answer.trial.status},
                 {"detail", answer.trial.detail},
                 {"rounds", std::move(rounds)}});
}

std::optional<WorkerAnswer> parse_answer(std::string_view text, std::string& why) {
  return parsed<WorkerAnswer>(text, why, [](const json& object, WorkerAnswer& result, std::string& bad) {
    if (object.contains("alive")) return;
    if (object.contains("done")) {
      result.kind = WorkerAnswer::Kind::kDone;
      return;
    }
    if (object.contains("refused")) {
      result.kind = WorkerAnswer::Kind::kRefused;
      result.error = object.at("refused").get<std::string>().substr(0, 500);
      return;
    }
    result.kind = WorkerAnswer::Kind::kTrial;
    const json& number = object.at("trial");
    if (!number.is_number_integer() || number.get<int64_t>() < 0) bad = "a trial without a number";
    else result.number = number.get<size_t>();
    result.trial.status = object.at("status").get<std::string>();
    result.trial.detail = object.at("detail").get<std::string>().substr(0, 2000);
    if (std::find(kStatuses.begin(), kStatuses.end(), result.trial.status) == kStatuses.end())
      bad = "a trial with a status that there is not";
    const json& rounds = object.at("rounds");
    if (!rounds.is_array() || rounds.size() > kMostRoundsSent) bad = "a trial with too many rounds";
    else
      for (const json& round : rounds) {
        const double incumbent = round.at(0).get<double>(), candidate = round.at(1).get<double>();
        if (!(incumbent > 0 && candidate > 0 && std::isfinite(incumbent) && std::isfinite(candidate)))
          bad = "a trial with times that are none";
        result.trial.times.rounds.emplace_back(incumbent, candidate);
      }
    if (result.trial.status == "ok" && result.trial.times.rounds.empty())
      bad = "a trial that was measured without times";
  });
}

}  // namespace tessera::inline tune
