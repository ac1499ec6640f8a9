#include "process_rank.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "support/error.h"
#include "types/mesh.h"

namespace tessera {

namespace {

std::optional<int64_t> number_in(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  const std::string_view text = value;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMostRanks)
    throw UserError({.id = "TSR-6250",
                     .message = fmt::format("{} is '{}' in the environment", name, text),
                     .node = {},
                     .legal = "the number that mpirun or torchrun sets",
                     .hint = fmt::format("unset {} to run one process alone", name)});
  return number;
}

}  // namespace

ProcessRank process_rank() {
  constexpr const char* kNames[][3] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpi"},
                                       {"PMI_RANK", "PMI_SIZE", "mpi"},
                                       {"RANK", "WORLD_SIZE", "gloo"}};
  for (const auto& [rank_name, size_name, communicator] : kNames) {
    const auto rank = number_in(rank_name), ranks = number_in(size_name);
    if (!rank || !ranks) continue;
    if (*rank >= *ranks)
      throw UserError(
          {.id = "TSR-6250",
           .message = fmt::format("{} is {} and {} is {} in the environment", rank_name, *rank, size_name, *ranks),
           .node = {},
           .legal = "a rank below the number of ranks",
           .hint = fmt::format("unset {} to run one process alone", rank_name)});
    return {*rank, *ranks, communicator};
  }
  return {};
}

std::string model_of_rank(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_regular_file(fs::path(path) / "plan.json")) return path;
  const ProcessRank process = process_rank();
  const fs::path own = fs::path(path) / fmt::format("rank{}.graph", process.rank);
  int64_t ranks = 0;
  while (fs::exists(fs::path(path) / fmt::format("rank{}.graph", ranks))) ++ranks;
  if (ranks != process.ranks)
    throw UserError(
        {.id = "TSR-6251",
         .message = fmt::format("'{}' is a plan for {} processes, and this run has {}", path, ranks, process.ranks),
         .node = {},
         .legal = "as many processes as the plan's mesh has",
         .hint = fmt::format("mpirun -n {} tessera run {}", ranks, path)});
  return own.string();
}

}  // namespace tessera
