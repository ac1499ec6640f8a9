#include "diagnose/text_diff.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::inline diagnose {

namespace {

// Above this many pairs of lines the middle part counts as changed altogether.
constexpr size_t kMaxPairs = 16u << 20;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct Line {
  char mark;
  std::string_view text;
};

// The lines between the common ends: a longest common subsequence stays, the rest is taken out or put in.
void add_middle(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b, size_t begin,
                size_t end_a, size_t end_b, std::vector<Line>& out) {
  const size_t n = end_a - begin, m = end_b - begin;
  if (n * m > kMaxPairs) {
    for (size_t i = begin; i < end_a; ++i) out.push_back({'-', a[i]});
    for (size_t i = begin; i < end_b; ++i) out.push_back({'+', b[i]});
    return;
  }
  std::vector<uint32_t> length((n + 1) * (m + 1), 0);  // of the longest common subsequence of the rests
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return length[i * (m + 1) + j]; };
  for (size_t i = n; i-- > 0;)
    for (size_t j = m; j-- > 0;)
      at(i, j) = a[begin + i] == b[begin + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  size_t i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && a[begin + i] == b[begin + j]) {
      out.push_back({' ', a[begin + i]});
      ++i, ++j;
    } else if (i < n && (j == m || at(i + 1, j) >= at(i, j + 1))) {
      out.push_back({'-', a[begin + i++]});
    } else {
      out.push_back({'+', b[begin + j++]});
    }
  }
}

}  // namespace

std::string text_diff(std::string_view before, std::string_view after, size_t context, size_t max_lines) {
  const std::vector<std::string_view> a = lines_of(before), b = lines_of(after);
  size_t begin = 0, end_a = a.size(), end_b = b.size();
  while (begin < end_a && begin < end_b && a[begin] == b[begin]) ++begin;
  while (end_a > begin && end_b > begin && a[end_a - 1] == b[end_b - 1]) --end_a, --end_b;
  if (begin == end_a && begin == end_b) return "";
  std::vector<Line> lines;
  for (size_t i = 0; i < begin; ++i) lines.push_back({' ', a[i]});
  add_middle(a, b, begin, end_a, end_b, lines);
  for (size_t i = end_a; i < a.size(); ++i) lines.push_back({' ', a[i]});

  std::vector<bool> shown(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].mark == ' ') continue;
    const size_t from = i - std::min(i, context), to = std::min(lines.size(), i + context + 1);
    std::fill(shown.begin() + static_cast<std::ptrdiff_t>(from), shown.begin() + static_cast<std::ptrdiff_t>(to), true);
  }
  std::string text;
  bool gap = false;
  size_t count = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!shown[i] || count >= max_lines) {
      gap = true;
      continue;
    }
    if (gap) text += "  ...\n";
    gap = false;
    ++count;
    text += lines[i].mark;
    text += ' ';
    text += lines[i].text;
    text += '\n';
  }
  return gap ? text + "  ...\n" : text;
}

}  // namespace tessera::inline diagnose
