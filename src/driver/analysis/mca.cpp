#include "driver/analysis/mca.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "package/anonymous_file.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The mnemonic of an instruction's line; empty for labels and directives.
std::string mnemonic(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos || begin == 0 || line[begin] == '.' || line[begin] == '#') return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

bool is_branch(const std::string& word) {
  return !word.empty() &&
         (word[0] == 'j' || word == "b" || word.starts_with("b.") || word.starts_with("cb") || word.starts_with("tb"));
}

// Arithmetic of floats, on x86-64 and AArch64.
bool is_float_arithmetic(const std::string& word) {
  static constexpr std::array kStems = {"fmadd", "fnmadd", "fmsub", "mulps", "mulpd", "mulss", "mulsd",
                                        "addps", "addpd",  "addss", "addsd", "maxps", "maxss", "minps",
                                        "fmla",  "fmul",   "fadd",  "divps", "divss", "subps", "subss"};
  return std::any_of(kStems.begin(), kStems.end(),
                     [&](const char* stem) { return word.find(stem) != std::string::npos; });
}

std::string find_mca() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path ? path : "") + ":/usr/lib/llvm-19/bin");
  std::vector<std::string> all;
  for (std::string folder; std::getline(folders, folder, ':');) all.push_back(folder);
  for (const char* name : {"llvm-mca-19", "llvm-mca"})
    for (const std::string& folder : all)
      if (const std::string file = folder + "/" + name; !folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  throw UserError({.id = "TSR-3422",
                   .message = "there is no llvm-mca on this machine",
                   .node = {},
                   .legal = "llvm-mca-19 or llvm-mca in PATH",
                   .hint = "it is part of Debian's llvm-19: apt-get install llvm-19"});
}

}  // namespace

std::string hottest_inner_loop(const std::string& assembly) {
  const std::vector<std::string> lines = lines_of(assembly);
  std::map<std::string, size_t> labels;
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> loops;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (!line.empty() && line[0] != ' ' && line[0] != '\t') {
      if (const size_t colon = line.find(':'); colon != std::string::npos) labels[line.substr(0, colon)] = i;
      continue;
    }
    if (!is_branch(mnemonic(line))) continue;
    const size_t at = line.find_last_of(" \t,");
    if (const auto label = labels.find(line.substr(at + 1)); label != labels.end()) loops.push_back({label->second, i});
  }
  const Range* best = nullptr;
  int most = -1;
  for (const Range& loop : loops) {
    const bool has_inner = std::any_of(loops.begin(), loops.end(), [&](const Range& other) {
      return other.begin >= loop.begin && other.end <= loop.end && (other.begin > loop.begin || other.end < loop.end);
    });
    if (has_inner) continue;
    int floats = 0;
    for (size_t i = loop.begin; i <= loop.end; ++i) floats += is_float_arithmetic(mnemonic(lines[i]));
    if (floats > most) {
      most = floats;
      best = &loop;
    }
  }
  if (!best) return "";
  std::string text;
  for (size_t i = best->begin; i <= best->end; ++i)
    if (lines[i].find("\t.") != 0) text += lines[i] + "\n";
  return text;
}

std::string analyze_inner_loop(const std::string& assembly, const Target& target) {
  const std::string mca = find_mca();
  const std::string loop = hottest_inner_loop(assembly);
  if (loop.empty())
    throw UserError({.id = "TSR-3423",
                     .message = "the code has no loop to analyse",
                     .node = {},
                     .legal = "code with a loop that is not unrolled completely",
                     .hint = "look at it with --emit asm"});
  AnonymousFile file("mca");
  const std::string input = (target.triple.starts_with("x86_64") ? "\t.att_syntax\n" : "") + loop;
  write_fully(file.fd(), std::as_bytes(std::span(input)), "the inner loop");
  const std::string path = fmt::format("/proc/{}/fd/{}", getpid(), file.fd());
  // Generic names have no model of their pipelines: a processor of that level stands for them.
  std::string cpu = target.cpu;
  if (cpu == "x86-64-v4") cpu = "znver4";
  else if (cpu == "x86-64-v3") cpu = "znver3";
  else if (cpu == "x86-64-v2" || cpu == "x86-64") cpu = "sandybridge";
  else if (cpu == "generic" && target.triple.starts_with("aarch64")) cpu = "neoverse-n1";
  std::string features;
  for (const std::string& feature : target.features) features += (features.empty() ? "+" : ",+") + feature;
  for (const char c : target.triple + cpu + features)
    check(std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-+,.", c),
          "a target's name is no word for a shell");
  const std::string command =
      fmt::format("{} -mtriple={} -mcpu={} -mattr={} -iterations=100 {} 2>&1", mca, target.triple, cpu, features, path);
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  check(pipe != nullptr, "popen");
  std::string report;
  std::array<char, 4096> bytes;
  for (size_t n = 0; (n = fread(bytes.data(), 1, bytes.size(), pipe.get())) > 0;) report.append(bytes.data(), n);
  if (pclose(pipe.release()) != 0)
    throw UserError({.id = "TSR-3423",
                     .message = fmt::format("llvm-mca failed: {}", report.substr(0, 500)),
                     .node = {},
                     .legal = {},
                     .hint = "look at the code with --emit asm"});
  double cycles = 0;
  if (const size_t at = report.find("Total Cycles:"); at != std::string::npos)
    cycles = std::atof(report.c_str() + at + 13) / 100;
  return fmt::format("// {:.2f} cycles an iteration on {}, data in the L1 cache\n{}\n{}", cycles, cpu, loop, report);
}

}  // namespace tessera::inline driver
