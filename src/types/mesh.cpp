#include "types/mesh.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace tessera::inline types {
namespace {

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), fits);
}

// The parts between commas.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

int64_t Mesh::ranks() const {
  int64_t count = 1;
  for (const MeshAxis& axis : axes) count *= axis.extent;
  return count;
}

std::string Mesh::to_string() const {
  std::string text;
  for (const MeshAxis& axis : axes) text += (text.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.extent);
  return text;
}

int Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return static_cast<int>(i);
  return -1;
}

std::vector<int64_t> Mesh::place_of(int64_t rank) const {
  std::vector<int64_t> place(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    place[i] = rank % axes[i].extent;
    rank /= axes[i].extent;
  }
  return place;
}

int64_t Mesh::rank_at(const std::vector<int64_t>& place) const {
  int64_t rank = 0;
  for (size_t i = 0; i < axes.size(); ++i) rank = rank * axes[i].extent + place[i];
  return rank;
}

int64_t Mesh::group_size(const std::vector<std::string>& along) const {
  int64_t count = 1;
  for (const std::string& name : along) count *= axes[static_cast<size_t>(find(name))].extent;
  return count;
}

std::vector<int64_t> Mesh::group_of(int64_t rank, const std::vector<std::string>& along) const {
  std::vector<int64_t> members = {rank};
  for (const std::string& name : along) {
    const auto axis = static_cast<size_t>(find(name));
    std::vector<int64_t> longer;
    for (const int64_t member : members) {
      std::vector<int64_t> place = place_of(member);
      for (place[axis] = 0; place[axis] < axes[axis].extent; ++place[axis]) longer.push_back(rank_at(place));
    }
    members = std::move(longer);
  }
  return members;
}

std::string parse_mesh(std::string_view text, Mesh& mesh) {
  mesh.axes.clear();
  int64_t ranks = 1;
  for (const std::string_view part : parts_of(text)) {
    const size_t at = part.find('=');
    if (at == std::string_view::npos) return quoted(part) + " is not NAME=EXTENT";
    MeshAxis axis{std::string(part.substr(0, at)), 0};
    const std::string_view number = part.substr(at + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), axis.extent);
    if (!is_name(axis.name)) return quoted(axis.name) + " is no name of an axis";
    if (mesh.find(axis.name) >= 0) return "there are two axes " + quoted(axis.name);
    if (error != std::errc() || end != number.data() + number.size() || axis.extent < 1 ||
        axis.extent > kMostRanks / ranks)
      return "axis " + quoted(axis.name) + " has the extent " + quoted(number);
    ranks *= axis.extent;
    mesh.axes.push_back(std::move(axis));
  }
  return "";
}

std::string parse_mesh_axes(std::string_view text, const Mesh& mesh, std::vector<std::string>& axes) {
  axes.clear();
  for (const std::string_view part : parts_of(text)) {
    if (mesh.find(part) < 0) return "the mesh " + mesh.to_string() + " has no axis " + quoted(part);
    if (std::find(axes.begin(), axes.end(), part) != axes.end()) return "axis " + quoted(part) + " stands twice";
    axes.emplace_back(part);
  }
  return "";
}

}  // namespace tessera::inline types
