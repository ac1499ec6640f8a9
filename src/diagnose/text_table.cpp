#include "diagnose/text_table.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline diagnose {

namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

// The bytes of the first (from the end: last) `count` characters.
std::string_view leading(std::string_view text, size_t count) {
  size_t end = 0;
  while (end < text.size() && (count > 0 || is_continuation(text[end]))) {
    if (!is_continuation(text[end])) --count;
    ++end;
  }
  return text.substr(0, end);
}

std::string_view trailing(std::string_view text, size_t count) {
  size_t begin = text.size();
  while (begin > 0 && count > 0) {
    --begin;
    if (!is_continuation(text[begin])) --count;
  }
  return text.substr(begin);
}

std::string scaled(double value, double base, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (std::next(unit) != units.end() && std::abs(value) >= 999.5) {
    value /= base;
    ++unit;
  }
  const int digits = unit == units.begin() && value == std::floor(value) ? 0
                     : value < 9.995                                     ? 2
                     : value < 99.95                                     ? 1
                                                                         : 0;
  return fmt::format("{:.{}f}{}", value, digits, *unit);
}

}  // namespace

std::string shortened(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  const size_t tail = (width - 2) / 2;
  return fmt::format("{}..{}", leading(text, width - 2 - tail), trailing(text, tail));
}

std::string painted(std::string_view text, std::string_view colour, const TextStyle& style) {
  return style.colour && !colour.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", colour, text) : std::string(text);
}

void TextTable::add(std::vector<std::string> cells, std::string_view colour) {
  check(cells.size() == columns_.size(), "a table's row has another number of cells than the table has columns");
  for (size_t i = 0; i + 1 < cells.size(); ++i) cells[i] = shortened(cells[i], columns_[i].max_width);
  rows_.push_back({std::move(cells), std::string(colour)});
}

std::string TextTable::to_string(const TextStyle& style, size_t indent) const {
  if (rows_.empty()) return "";
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width_of(columns_[i].title));
    for (const Row& row : rows_) widths[i] = std::max(widths[i], width_of(row.cells[i]));
  }
  const auto line = [&](const auto& cell_of, std::string_view colour) {
    std::string text(indent, ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string blanks(widths[i] - width_of(cell), ' ');
      if (columns_[i].align == Align::kRight) text += blanks + cell;
      else text += cell + blanks;
      text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return painted(text, colour, style) + "\n";
  };
  std::string result = line([&](size_t i) -> const std::string& { return columns_[i].title; }, "1");
  for (const Row& row : rows_) {
    result += line([&](size_t i) -> const std::string& { return row.cells[i]; }, row.colour);
  }
  return result;
}

std::string bytes_text(double bytes) { return scaled(bytes, 1000, {" B", " kB", " MB", " GB", " TB"}); }

std::string time_text(double microseconds) { return scaled(microseconds, 1000, {" us", " ms", " s"}); }

std::string count_text(double count) { return scaled(count, 1000, {"", " k", " M", " G", " T"}); }

}  // namespace tessera::inline diagnose
