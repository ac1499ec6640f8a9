// Simulated steps of many ranks: what formulas say of rings, pipelines and shared links, and what cannot be.
#include <time.h>

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/simulate.h"
#include "support/error.h"

namespace tessera {
namespace {

using Kind = RankStep::Kind;

Mesh mesh_of(const std::string& text) {
  Mesh mesh;
  EXPECT_EQ(parse_mesh(text, mesh), "");
  return mesh;
}

Network network_of(const std::string& text) {
  Network network;
  EXPECT_EQ(parse_network(text, network), "");
  return network;
}

RankStep work(double seconds) { return {.kind = Kind::kWork, .seconds = seconds}; }
RankStep together(CollectiveKind kind, const std::string& axis, int64_t bytes) {
  return {.kind = Kind::kCollective, .collective = kind, .axis = axis, .bytes = bytes};
}
RankStep send(int64_t peer, int64_t message, int64_t bytes) {
  return {.kind = Kind::kSend, .bytes = bytes, .peer = peer, .message = message};
}
RankStep receive(int64_t peer, int64_t message, int64_t bytes) {
  return {.kind = Kind::kReceive, .bytes = bytes, .peer = peer, .message = message};
}

TEST(Network, Text) {
  EXPECT_EQ(to_text(network_of("1=5/20,8=1.25/50")), "1=5/20,8=1.25/50");
  Network network;
  for (const char* wrong :
       {"", "1", "1=5", "1=5/", "1=/5", "=5/5", "2=5/5", "1=5/5,", "1=5/5,1=5/5", "1=5/5,8=1/1,12=1/1", "1=0/5",
        "1=-1/5", "1=5/-1", "1=nan/5", "1=5/inf", "1=5/5,999999999=1/1", "1=5/5x", "1=5x/5"})
    EXPECT_NE(parse_network(wrong, network), "") << wrong;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {  // it answers, whatever it is given
    std::string text;
    for (size_t length = random() % 16; length-- > 0;) text += "0123456789=/,.-e \xff"[random() % 18];
    if (parse_network(text, network).empty()) {
      EXPECT_FALSE(network.empty());
      EXPECT_EQ(network[0].ranks, 1);
    }
  }
}

// Rings of n ranks that have links of their own: steps of a latency and an n-th each.
TEST(Simulate, RingsOfLinksOfTheirOwn) {
  constexpr double kBandwidth = 2e9, kLatency = 3e-6;
  const Network network = network_of("1=2/3");
  for (const int64_t n : {1, 2, 3, 4, 7, 64})
    for (const int64_t bytes : {0, 1, 4096, 1 << 20}) {
      const Mesh mesh = mesh_of(fmt::format("data={},model=2", n));
      const auto seconds = [&](CollectiveKind kind) {
        return simulate(mesh, {{together(kind, "data", bytes)}}, network).seconds;
      };
      const auto rounds = static_cast<double>(n - 1), part = static_cast<double>(bytes) / static_cast<double>(n);
      const double one = rounds * (kLatency + part / kBandwidth);
      EXPECT_NEAR(seconds(CollectiveKind::kAllReduce), 2 * one, 1e-12);
      EXPECT_NEAR(seconds(CollectiveKind::kReduceScatter), one, 1e-12);
      EXPECT_NEAR(seconds(CollectiveKind::kAllToAll), one, 1e-12);
      EXPECT_NEAR(seconds(CollectiveKind::kAllGather), rounds * (kLatency + static_cast<double>(bytes) / kBandwidth),
                  1e-12);
    }
}

// Ranks of one host share its link: rings along `data` all leave it, those along `model` do not.
TEST(Simulate, SharedLinks) {
  const Network network = network_of("1=10/0,4=10/0");
  const Mesh mesh = mesh_of("data=2,model=4");
  const auto seconds = [&](const char* axis) {
    return simulate(mesh, {{together(CollectiveKind::kAllReduce, axis, 8'000'000)}}, network).seconds;
  };
  EXPECT_NEAR(seconds("model"), 6 * 2e6 / 10e9, 1e-12);
  EXPECT_NEAR(seconds("data"), 2 * 4e6 / (10e9 / 4), 1e-12);
  const SimulatedRanks step = simulate(mesh, {{together(CollectiveKind::kAllReduce, "data", 8'000'000)}}, network);
  EXPECT_EQ(step.link_bytes, (std::vector<double>{8 * 8e6, 8 * 8e6}));
}

// A link is shared while both groups are at work: of two sums of a second each, the second one begins at 0.5 s, both go on
// at half the speed until 1.5 s, and what is left of the second one has the link for itself.
TEST(Simulate, LinksAreSharedWhileBothAreAtWork) {
  const RankStep sum = together(CollectiveKind::kAllReduce, "data", 1'000'000'000);
  const std::vector<RankSteps> steps = {{sum, work(0.6)}, {work(0.5), sum}};
  const auto seconds = [&](const std::vector<RankSteps>& of) {
    return simulate(mesh_of("data=2,stage=2"), of, network_of("1=10/0,2=1/0")).seconds;
  };
  EXPECT_NEAR(seconds(steps), 1.5 + 0.6, 1e-9);
  EXPECT_NEAR(seconds({{sum}, {work(0.5), sum}}), 2.0, 1e-9);
  EXPECT_NEAR(seconds({{sum}, {sum}}), 2.0, 1e-9);
  EXPECT_NEAR(seconds({{sum}, {work(1), sum}}), 2.0, 1e-9);
}

// Equal stages, messages that take no time: (p - 1) / (m + p - 1) of the time nothing is done.
TEST(Simulate, BubblesOfPipelines) {
  for (const int64_t p : {1, 2, 3, 4, 8})
    for (const int64_t m : {1, 2, 4, 16}) {
      std::vector<RankSteps> steps(static_cast<size_t>(p));
      for (int64_t s = 0; s < p; ++s) {
        RankSteps& own = steps[static_cast<size_t>(s)];
        for (int64_t i = 0; i < m; ++i) {
          if (s > 0) own.push_back(receive(-1, i, 0));
          own.push_back(work(1));
          if (s + 1 < p) own.push_back(send(1, i, 0));
        }
        for (int64_t i = m; i-- > 0;) {
          if (s + 1 < p) own.push_back(receive(1, m + i, 0));
          own.push_back(work(2));
          if (s > 0) own.push_back(send(-1, m + i, 0));
        }
      }
      const SimulatedRanks step = simulate(mesh_of(fmt::format("data=3,stage={}", p)), steps, network_of("1=1/0"));
      EXPECT_NEAR(step.seconds, 3 * static_cast<double>(m + p - 1), 1e-9);
      EXPECT_NEAR(1 - step.working, static_cast<double>(p - 1) / static_cast<double>(m + p - 1), 1e-9);
    }
}

// A message has a latency and its bytes; two go one behind the other over the sender's link.
TEST(Simulate, Messages) {
  const std::vector<RankSteps> steps = {{send(1, 0, 1000), send(1, 1, 1000), work(1e-6)},
                                        {receive(-1, 1, 1000), receive(-1, 0, 1000), work(2e-6)}};
  const SimulatedRanks step = simulate(mesh_of("data=1,stage=2"), steps, network_of("1=1/5"));
  EXPECT_NEAR(step.seconds, 2 * 1e-6 + 5e-6 + 2e-6, 1e-15);
  EXPECT_THROW(simulate(mesh_of("data=1,stage=2"), {{receive(1, 0, 1)}, {receive(-1, 0, 1)}}, network_of("1=1/5")),
               InternalError);
  EXPECT_THROW(simulate(mesh_of("data=2"), {{}, {}}, network_of("1=1/5")), InternalError);
}

// 4,096 ranks, hosts of eight and racks of 64, 400 collectives.
TEST(Simulate, ThousandsOfRanksInASecond) {
  RankSteps steps;
  for (int layer = 0; layer < 200; ++layer)
    for (const char* axis : {"model", "data"})
      steps.push_back(work(1e-4)), steps.push_back(together(CollectiveKind::kAllReduce, axis, 1 << 20));
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  const SimulatedRanks step = simulate(mesh_of("data=512,model=8"), {steps}, network_of("1=50/2,8=25/5,64=100/10"));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const double took =
      static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
  fmt::print("4096 ranks, {} steps each: {:.3f} s for {:.3f} s of theirs\n", steps.size(), took, step.seconds);
  EXPECT_GT(step.seconds, 400 * 1e-4);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(took, 1);
#endif
}

}  // namespace
}  // namespace tessera
