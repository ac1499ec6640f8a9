#include <gtest/gtest.h>

#include <random>

#include "schedule/sketches/sketch.h"
#include "support/error.h"
#include "te/canonical.h"
#include "tune/channel.h"
#include "tune/worker_protocol.h"

namespace tessera {
namespace {

constexpr char kKernel[] =
    "param {0,1/16,1%16} f32 i64:4 i64:20\n"
    "param  const f32 i64:20 i64:8\n"
    "axis i64:4\n"
    "axis i64:8\n"
    "reduce i64:20\n"
    "e0 = load b0 f32 v0 v2\n"
    "e1 = load b1 f32 v2 v1\n"
    "e2 = mul f32 e0 e1\n"
    "stage  sum e2 f32 i64:4 i64:8\n"
    "axis i64:4\n"
    "axis i64:8\n"
    "e3 = load b2 f32 v3 v4\n"
    "e4 = max f32 e3 f32:0x0p+0\n"
    "stage  none e4 f32 i64:4 i64:8\n";

TEST(CanonicalText, IsReadBack) {
  const TensorProgram program = parse_canonical_text(kKernel);
  EXPECT_EQ(canonical_text(program), kKernel);
  ASSERT_EQ(program.stages.size(), 2u);
  EXPECT_TRUE(program.params[1].is_constant());
  EXPECT_EQ(program.params[0].layout.to_string(), "{0,1/16,1%16}");
}

TEST(CanonicalText, AnythingElseIsRefusedWithItsLine) {
  const auto why = [](std::string text, const std::string& from, const std::string& to) {
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    try {
      parse_canonical_text(text);
    } catch (const UserError& error) {
      EXPECT_EQ(error.diagnostic().id, "TSR-6406");
      return error.diagnostic().message;
    }
    return std::string();
  };
  EXPECT_NE(why("", "", ""), "");
  const std::pair<const char*, const char*> changes[] = {
      {"i64:20", "i64:-1"},
      {"f32 i64:4", "f99 i64:4"},
      {"{0,1/16,1%16}", "{0,1/16,1%8}"},
      {"{0,1/16,1%16}", "{0,1/16"},
      {"{0,1/16,1%16}", "{0,7}"},
      {"load b0 f32 v0 v2", "load b9 f32 v0 v2"},
      {"load b0 f32 v0 v2", "load b0 f32 v0"},
      {"load b0 f32 v0 v2", "load b0 f32 v0 v9"},
      {"load b0 f32 v0 v2", "load b0 f64 v0 v2"},
      {"mul f32 e0 e1", "mul f32 e0 e7"},
      {"mul f32 e0 e1", "mull f32 e0 e1"},
      {"mul f32 e0 e1", "lt f32 e0 e1"},
      {"stage  sum", "stage  median"},
      {"stage  sum", "stage  none"},
      {"reduce i64:20", "reduce i64:9999999999999999999"},
      {"e4 = max", "e9 = max"},
      {"param  const", "param const"},  // right, but not in the canonical form
      {"f32:0x0p+0", "f32:zero"},
  };
  for (const auto& [from, to] : changes) EXPECT_NE(why(kKernel, from, to), "") << to;
  EXPECT_NE(why(kKernel, "mul f32 e0 e1", "mul f32 e0 e7").find("line 8"), std::string::npos);
  // Deep expressions end before what walks them does.
  std::string deep = "param  f32\ne0 = load b0 f32\n";
  for (int i = 1; i < 100000; ++i) deep += "e" + std::to_string(i) + " = neg f32 e" + std::to_string(i - 1) + "\n";
  EXPECT_NE(why(deep, "", ""), "");
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string text = kKernel;
    for (int change = 0; change < 3; ++change) text[random() % text.size()] = static_cast<char>(random() % 96 + 32);
    why(text, "", "");
  }
}

TEST(WorkerProtocol, MessagesComeBackAsTheyWere) {
  std::string why;
  const auto greeting = parse_greeting(to_message(Greeting{kWorkerProtocol, "a \"token\""}), why);
  ASSERT_TRUE(greeting) << why;
  EXPECT_EQ(greeting->token, "a \"token\"");
  const auto hello = parse_hello(to_message(WorkerHello{{0, "facts", 50, 10}, 4096}), why);
  ASSERT_TRUE(hello) << why;
  EXPECT_EQ(hello->machine.facts, "facts");
  EXPECT_EQ(hello->most_bytes, 4096);
  const auto trace = parse_trace_point("// sketch.map\nu = sample_categorical([1, 2]) decided [2]\nunroll(i0)\n", why);
  ASSERT_TRUE(trace) << why;
  const WorkerJob job{kKernel, 2,   {"injective", {}}, {{"register_tile", {{"rows", 4}}}, *trace, {"injective", {}}},
                      true,    2.5, {0, 65536}};
  const auto read = parse_job(to_message(job), why);
  ASSERT_TRUE(read) << why;
  EXPECT_EQ(read->kernel, job.kernel);
  EXPECT_EQ(read->candidates, job.candidates);
  EXPECT_EQ(read->incumbent, job.incumbent);
  EXPECT_EQ(read->run_seconds, 2.5);
  EXPECT_TRUE(read->thorough);
  EXPECT_EQ(read->reuse, job.reuse);
  WorkerAnswer answer{WorkerAnswer::Kind::kTrial, 3, {"ok", "", {{{1.5, 2.5}, {1, 2}}}, -1}, ""};
  const auto trial = parse_answer(to_message(answer), why);
  ASSERT_TRUE(trial) << why;
  EXPECT_EQ(trial->number, 3u);
  EXPECT_EQ(trial->trial.times.rounds, answer.trial.times.rounds);
  answer.kind = WorkerAnswer::Kind::kRefused;
  answer.error = "too large";
  const auto refused = parse_answer(to_message(answer), why);
  ASSERT_TRUE(refused) << why;
  EXPECT_EQ(refused->kind, WorkerAnswer::Kind::kRefused);
  EXPECT_EQ(refused->error, "too large");
  answer.kind = WorkerAnswer::Kind::kError;
  answer.error = "no";
  EXPECT_FALSE(parse_answer(to_message(answer), why));
  EXPECT_EQ(why, "no");
}

TEST(WorkerProtocol, WhatIsNoneIsAReason) {
  std::string why;
  const std::string good = to_message(WorkerJob{kKernel, 1, {"injective", {}}, {{"injective", {}}}, false, 1});
  ASSERT_TRUE(parse_job(good, why));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"\"threads\":1", "\"threads\":0"},
                                                                                 {"\"threads\":1", "\"threads\":1e99"},
                                                                                 {"\"seconds\":1", "\"seconds\":-1"},
                                                                                 {"[\"injective\"]", "[]"},
                                                                                 {"[\"injective\"]", "[\"in{ject\"]"},
                                                                                 {"[\"injective\"]", "[\"// a\\nb(\"]"},
                                                                                 {"[\"injective\"]", "[\"//\"]"},
                                                                                 {"[\"injective\"]", "7"},
                                                                                 {"\"reuse\":[]", "\"reuse\":[-1]"},
                                                                                 {"\"reuse\":[]", "\"reuse\":[1e300]"},
                                                                                 {"\"reuse\":[]", "\"reuse\":null"},
                                                                                 {"false", "null"}}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(parse_job(text, why)) << text;
    EXPECT_NE(why, "");
  }
  for (const char* text : {R"({"trial":0,"status":"fine","detail":"","rounds":[[1,1]]})",
                           R"({"trial":0,"status":"ok","detail":"","rounds":[]})",
                           R"({"trial":0,"status":"ok","detail":"","rounds":[[1]]})",
                           R"({"trial":0,"status":"ok","detail":"","rounds":[[0,1]]})",
                           R"({"trial":-1,"status":"ok","detail":"","rounds":[[1,"x"]]})", "{}", "[]", "", "\xff"})
    EXPECT_FALSE(parse_answer(text, why)) << text;
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int change = 0; change < 3; ++change) text[random() % text.size()] = static_cast<char>(random());
    parse_job(text, why);
    parse_answer(text, why);
    parse_greeting(text, why);
    parse_hello(text, why);
  }
}

TEST(WorkerProtocol, TokensAreTheSameOnlyWhenAllOfThemIs) {
  EXPECT_TRUE(same_token("0123456789abcdef", "0123456789abcdef"));
  for (const char* other : {"", "0", "0123456789abcdeg", "1123456789abcdef", "0123456789abcdef0", "0123456789abcde",
                            "0123456789abcdef0123456789abcdef"})
    EXPECT_FALSE(same_token("0123456789abcdef", other)) << other;
}

TEST(Channel, AddressesAreHostsAndPorts) {
  EXPECT_EQ(parse_host_port("127.0.0.1:7000").port, 7000);
  EXPECT_EQ(parse_host_port("[::1]:7000").host, "::1");
  EXPECT_EQ(to_string(parse_host_port("[::1]:7000")), "[::1]:7000");
  for (const char* bad : {"", "7000", ":7000", "host", "host:", "host:x", "host:70000", "::1:7000", "host:-1"})
    EXPECT_THROW(parse_host_port(bad), UserError) << bad;
}

}  // namespace
}  // namespace tessera
