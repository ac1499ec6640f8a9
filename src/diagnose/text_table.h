// Aligned columns for people: what the text forms of all reports are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline diagnose {

struct TextStyle {
  bool colour = false;  // ANSI colours; for terminals only
};

// `text` in an ANSI colour ("1" is bold, "31" red, "32" green, "33" yellow, "2" faint) when the style has colours.
std::string painted(std::string_view text, std::string_view colour, const TextStyle& style);

// `text` in at most `width` columns, cut in the middle: names differ at their ends more often than at their beginnings.
std::string shortened(const std::string& text, size_t width);

// Cells are UTF-8; a character counts as one column. The last column is never padded.
class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    size_t max_width = 60;  // longer cells are cut in the middle; the last column is never cut
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns. `colour` as for painted(), for the whole row; empty: none.
  void add(std::vector<std::string> cells, std::string_view colour = "");
  bool empty() const { return rows_.empty(); }
  // The titles, then the rows, each line behind `indent` blanks. Without rows nothing.
  std::string to_string(const TextStyle& style, size_t indent = 0) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string colour;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// "512 B", "12.5 kB", "1.25 GB": powers of 1000, three digits.
std::string bytes_text(double bytes);
// "12.3 us", "4.56 ms": three digits.
std::string time_text(double microseconds);
// "950", "12.3 k", "4.56 M", "7.89 G".
std::string count_text(double count);

}  // namespace tessera::inline diagnose
