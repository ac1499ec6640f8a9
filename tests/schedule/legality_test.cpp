// What our prover calls legal is legal: random small loop programs and reorderings, parallel and vectorized loops and
// fissions of them, beside isl (Verdoolaege, isl: An Integer Set Library, ICMS 2010), which is exact on these. The
// other way round our prover may refuse what would be legal; how often is printed. TESSERA_TEST_CASES: programs;
// TESSERA_TEST_SEED: others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include <fmt/format.h>

#include "loop/parser.h"
#include "schedule/primitives/schedule.h"
#include "support/error.h"

#if TESSERA_HAVE_ISL
#include <isl/ctx.h>
#include <isl/options.h>
#include <isl/union_map.h>
#endif

namespace tessera {
namespace {

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

struct TestAccess {
  std::string array;
  std::vector<std::string> indices;
  bool is_write = false;
};
struct TestStatement {
  std::vector<TestAccess> accesses;  // the write last
  std::string guard;                 // empty: none
  bool reduction = false;            // y[..] = y[..] + others, which do not read y
};
struct TestProgram {
  std::vector<std::string> vars;
  std::vector<int> extents;
  std::vector<TestStatement> statements;

  std::string text() const {
    std::string s = "kernel @k(C: f32[9]) -> (A: f32[60,60], B: f32[60,60]) {\n";
    for (size_t i = 0; i < vars.size(); ++i) s += fmt::format("for {} in 0..{} {{\n", vars[i], extents[i]);
    for (const TestStatement& statement : statements) {
      const auto name = [](const TestAccess& a) { return fmt::format("{}[{}]", a.array, fmt::join(a.indices, ", ")); };
      std::string value = "1:f32";
      for (size_t a = 0; a + 1 < statement.accesses.size(); ++a)
        value = a == 0 ? name(statement.accesses[a])
                       : fmt::format("({} {} {})", value, statement.reduction ? "+" : "-", name(statement.accesses[a]));
      const std::string store = fmt::format("{} = {}\n", name(statement.accesses.back()), value);
      s += statement.guard.empty() ? store : fmt::format("if ({}) {{ {} }}\n", statement.guard, store);
    }
    return s + std::string(vars.size(), '}') + "}\n";
  }
};

TestProgram random_program(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  TestProgram p;
  const int loops = 2 + below(2);
  for (int i = 0; i < loops; ++i) {
    p.vars.push_back(fmt::format("i{}", i));
    p.extents.push_back(2 + below(4));
  }
  const auto affine = [&] {
    std::string e;
    for (const std::string& var : p.vars)
      if (const int c = below(5); c == 1 || c == 2 || c == 3)
        e += (e.empty() ? "" : " + ") + (c == 3 ? "2 * " + var : var);
    const int offset = below(3);
    if (e.empty()) return std::to_string(offset);
    return offset ? fmt::format("{} + {}", e, offset) : e;
  };
  const auto access = [&](bool is_write) { return TestAccess{below(3) ? "A" : "B", {affine(), affine()}, is_write}; };
  const int statements = 1 + below(3);
  for (int i = 0; i < statements; ++i) {
    TestStatement s;
    TestAccess write = access(true);
    if (below(3) == 0) {
      s.reduction = true;
      TestAccess old = write;
      old.is_write = false;
      s.accesses.push_back(old);
      TestAccess other = access(false);
      other.array = write.array == "A" ? "B" : "A";
      s.accesses.push_back(other);
    } else {
      for (int r = below(3); r > 0; --r) s.accesses.push_back(access(false));
    }
    s.accesses.push_back(write);
    if (below(3) == 0) s.guard = fmt::format("{} {} {}", affine(), below(2) ? "<" : "<=", 2 + below(5));
    p.statements.push_back(s);
  }
  return p;
}

#if TESSERA_HAVE_ISL

class Oracle {
 public:
  Oracle() : ctx_(isl_ctx_alloc()) { isl_options_set_on_error(ctx_, ISL_ON_ERROR_ABORT); }
  ~Oracle() { isl_ctx_free(ctx_); }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  // Whether the dependences keep their order when statement s at iteration i happens at time after[s].
  bool order_is_legal(const TestProgram& p, const std::vector<std::string>& after) {
    isl_union_map* dependences = dependences_of(p);
    isl_union_map* later = read(schedule(p, after));
    // Pairs (a, b) that must keep a before b and do not.
    isl_union_map* wrong =
        isl_union_map_intersect(dependences, isl_union_map_lex_ge_union_map(isl_union_map_copy(later), later));
    const bool legal = isl_union_map_is_empty(wrong) == isl_bool_true;
    isl_union_map_free(wrong);
    return legal;
  }

  // Whether no dependence joins different iterations of loop `level` (of the same iterations of the loops around it).
  // `vectors`: updates of a reduction whose element the loop does not choose may meet.
  bool is_independent(const TestProgram& p, size_t level, bool vectors) {
    isl_union_map* dependences = dependences_of(p, vectors ? std::optional(level) : std::nullopt, true);
    const auto prefix = [&](size_t count) {
      std::vector<std::string> times(
          p.statements.size(),
          fmt::format("{}", fmt::join(p.vars.begin(), p.vars.begin() + static_cast<long>(count), ", ")));
      return read(schedule(p, times));
    };
    const auto same = [&](size_t count) {
      isl_union_map* map = prefix(count);
      isl_union_map* back = isl_union_map_reverse(isl_union_map_copy(map));
      return isl_union_map_apply_range(map, back);
    };
    isl_union_map* wrong = isl_union_map_subtract(isl_union_map_intersect(dependences, same(level)), same(level + 1));
    const bool legal = isl_union_map_is_empty(wrong) == isl_bool_true;
    isl_union_map_free(wrong);
    return legal;
  }

 private:
  isl_union_map* read(const std::string& text) { return isl_union_map_read_from_str(ctx_, text.c_str()); }

  static std::string instance(const TestProgram& p, size_t s) {
    return fmt::format("S{}[{}]", s, fmt::join(p.vars, ", "));
  }
  static std::string domain(const TestProgram& p, size_t s) {
    std::string text;
    for (size_t i = 0; i < p.vars.size(); ++i)
      text += fmt::format("{}0 <= {} < {}", i ? " and " : "", p.vars[i], p.extents[i]);
    if (!p.statements[s].guard.empty()) text += " and " + p.statements[s].guard;
    return text;
  }
  static std::string schedule(const TestProgram& p, const std::vector<std::string>& times) {
    std::string text = "{ ";
    for (size_t s = 0; s < p.statements.size(); ++s)
      text += fmt::format("{} -> [{}] : {}; ", instance(p, s), times[s], domain(p, s));
    return text + "}";
  }
  static std::string access(const TestProgram& p, size_t s, const TestAccess& a) {
    return fmt::format("{{ {} -> {}[{}] : {} }}", instance(p, s), a.array, fmt::join(a.indices, ", "), domain(p, s));
  }

  // Pairs of instances (a, b), a before b, that touch one element, at least one of them storing to it. Updates of one
  // reduction are left out: always, or (`strict`) only where `level` is given and no index depends on it.
  isl_union_map* dependences_of(const TestProgram& p, std::optional<size_t> level = {}, bool strict = false) {
    std::vector<std::string> times;
    for (size_t s = 0; s < p.statements.size(); ++s) times.push_back(fmt::format("{}, {}", fmt::join(p.vars, ", "), s));
    isl_union_map* order = read(schedule(p, times));
    order = isl_union_map_lex_lt_union_map(isl_union_map_copy(order), order);
    isl_union_map* all = read("{ }");
    for (size_t s = 0; s < p.statements.size(); ++s) {
      for (size_t t = 0; t < p.statements.size(); ++t) {
        for (const TestAccess& a : p.statements[s].accesses) {
          for (const TestAccess& b : p.statements[t].accesses) {
            if (a.array != b.array || (!a.is_write && !b.is_write)) continue;
            if (s == t && p.statements[s].reduction && a.array == p.statements[s].accesses.back().array) {
              bool chooses = false;
              if (level)
                for (const std::string& index : a.indices)
                  chooses = chooses || index.find(p.vars[*level]) != std::string::npos;
              if (!strict || (level && !chooses)) continue;
            }
            all = isl_union_map_union(
                all, isl_union_map_apply_range(read(access(p, s, a)), isl_union_map_reverse(read(access(p, t, b)))));
          }
        }
      }
    }
    return isl_union_map_intersect(all, order);
  }

  isl_ctx* ctx_;
};

TEST(Legality, WhatWeAllowIslAllows) {
  const int64_t cases = from_environment("TESSERA_TEST_CASES", 40);
  std::mt19937_64 random(static_cast<uint64_t>(from_environment("TESSERA_TEST_SEED", 1)));
  Oracle oracle;
  struct Tally {
    int both = 0, neither = 0, only_isl = 0;
  };
  std::map<std::string, Tally> tallies;
  for (int64_t n = 0; n < cases; ++n) {
    const TestProgram p = random_program(random);
    const LoopProgram program = parse_loop_program(p.text());
    const auto judge = [&](const std::string& what, const std::function<void(Schedule&)>& apply, bool isl_legal) {
      bool ours = true;
      std::string reason;
      try {
        Schedule schedule(program);
        apply(schedule);
      } catch (const UserError& error) {
        ours = false;
        reason = error.what();
        // Only dependences are asked about.
        ASSERT_EQ(error.diagnostic().id, "TSR-3408") << what << ": " << reason << "\n" << p.text();
      }
      Tally& tally = tallies[what.substr(0, what.find(' '))];
      ++(ours && isl_legal ? tally.both : ours ? tally.both : isl_legal ? tally.only_isl : tally.neither);
      EXPECT_FALSE(ours && !isl_legal) << what << " is taken, and isl finds a dependence that it breaks, in\n"
                                       << p.text();
    };
    Names order = p.vars;
    std::shuffle(order.begin(), order.end(), random);
    if (order != p.vars) {
      std::vector<std::string> times;
      for (size_t s = 0; s < p.statements.size(); ++s)
        times.push_back(fmt::format("{}, {}", fmt::join(order, ", "), s));
      judge(
          fmt::format("reorder {}", fmt::join(order, " ")), [&](Schedule& s) { s.reorder(order); },
          oracle.order_is_legal(p, times));
    }
    for (size_t level = 0; level < p.vars.size(); ++level) {
      judge(
          "parallel " + p.vars[level], [&](Schedule& s) { s.parallel(p.vars[level]); },
          oracle.is_independent(p, level, false));
      judge(
          "bind " + p.vars[level], [&](Schedule& s) { s.bind(p.vars[level], "threadIdx.x"); },
          oracle.is_independent(p, level, false));
      judge(
          "vectorize " + p.vars[level], [&](Schedule& s) { s.vectorize(p.vars[level]); },
          oracle.is_independent(p, level, true));
      if (p.statements.size() > 1) {
        const size_t cut = 1 + random() % (p.statements.size() - 1);
        std::vector<std::string> times;
        for (size_t s = 0; s < p.statements.size(); ++s) {
          std::vector<std::string> time(p.vars.begin(), p.vars.begin() + static_cast<long>(level));
          time.push_back(s < cut ? "0" : "1");
          time.insert(time.end(), p.vars.begin() + static_cast<long>(level), p.vars.end());
          time.push_back(std::to_string(s));
          times.push_back(fmt::format("{}", fmt::join(time, ", ")));
        }
        size_t number = 0;
        for (size_t s = 0; s < cut; ++s)
          number += p.statements[s].accesses.back().array == p.statements[cut].accesses.back().array;
        const std::string block = fmt::format("{}#{}", p.statements[cut].accesses.back().array, number);
        judge(
            fmt::format("fission {} {}", p.vars[level], block), [&](Schedule& s) { s.fission(p.vars[level], block); },
            oracle.order_is_legal(p, times));
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  for (const auto& [what, tally] : tallies) {
    std::cout << fmt::format("{}: {} allowed, {} refused rightly, {} refused that isl allows\n", what, tally.both,
                             tally.neither, tally.only_isl);
    EXPECT_GT(tally.both, 0) << what;
    EXPECT_GT(tally.neither, 0) << what;
  }
}

#else

TEST(Legality, WhatWeAllowIslAllows) {
  GTEST_SKIP() << "isl is missing (Debian: libisl-dev); scripts/setup.sh installs it";
}

#endif

}  // namespace
}  // namespace tessera
