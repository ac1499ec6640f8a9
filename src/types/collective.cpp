#include "types/collective.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tessera::inline types {
namespace {

constexpr std::array<std::string_view, 7> kKinds = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                    "send",       "receive",    "rank_shift"};
constexpr std::array<std::string_view, 5> kCombiners = {"none", "sum", "prod", "min", "max"};

template <typename Enum, size_t n>
std::optional<Enum> find_in(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

// The text up to a blank, which it takes off.
std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// The next word as a number; `none` where it is none.
int64_t next_number(std::string_view& text, int64_t none = -1) {
  const std::string_view word = next_word(text);
  int64_t number = none;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? number : none;
}

}  // namespace

std::string_view collective_kind_name(CollectiveKind kind) { return kKinds[static_cast<size_t>(kind)]; }
std::string_view collective_combiner_name(CollectiveCombiner combiner) {
  return kCombiners[static_cast<size_t>(combiner)];
}
std::optional<CollectiveKind> find_collective_kind(std::string_view name) {
  return find_in<CollectiveKind>(kKinds, name);
}
std::optional<CollectiveCombiner> find_collective_combiner(std::string_view name) {
  return find_in<CollectiveCombiner>(kCombiners, name);
}

std::string Collective::to_string() const {
  std::string along;
  for (const std::string& axis : axes) along += (along.empty() ? "" : ",") + axis;
  return "collective " + std::string(collective_kind_name(kind)) + " " +
         std::string(collective_combiner_name(combiner)) + " over " + along + " of " + mesh.to_string() +
         (is_message() ? " with " + std::to_string(peer) + " message " + std::to_string(message) : "") +
         (kind == CollectiveKind::kShift ? " by " + std::to_string(shift) : "") +
         (turn != 0 ? " in turn " + std::to_string(turn) : "") + " as " + name;
}

std::optional<Collective> Collective::parse(std::string_view text) {
  Collective result;
  if (next_word(text) != "collective") return std::nullopt;
  const auto kind = find_collective_kind(next_word(text));
  const auto combiner = find_collective_combiner(next_word(text));
  if (!kind || !combiner || next_word(text) != "over") return std::nullopt;
  const std::string_view axes = next_word(text);
  if (next_word(text) != "of" || !parse_mesh(next_word(text), result.mesh).empty() ||
      !parse_mesh_axes(axes, result.mesh, result.axes).empty())
    return std::nullopt;
  result.kind = *kind;
  if (result.is_message()) {
    if (next_word(text) != "with" || (result.peer = next_number(text)) < 0 || next_word(text) != "message" ||
        (result.message = next_number(text)) < 0 || result.peer >= result.mesh.ranks())
      return std::nullopt;
  }
  std::string_view word = next_word(text);
  if (result.kind == CollectiveKind::kShift) {
    if (word != "by" || (result.shift = next_number(text, 0)) == 0) return std::nullopt;
    word = next_word(text);
  }
  if (word == "in") {
    if (next_word(text) != "turn" || (result.turn = next_number(text)) < 1) return std::nullopt;
    word = next_word(text);
  }
  if (word != "as") return std::nullopt;
  result.combiner = *combiner;
  result.name = text;
  return result;
}

}  // namespace tessera::inline types
