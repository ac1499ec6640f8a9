#include "driver/process_rank.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "support/error.h"
#include "types/mesh.h"

namespace tessera::inline driver {

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

void require_processes(const ProcessRank& process, int64_t wanted, const std::string& what, const std::string& hint) {
  if (process.ranks == wanted) return;
  throw UserError({.id = "TSR-6251",
                   .message = fmt::format("{} for {} processes, and this run has {}", what, wanted, process.ranks),
                   .node = {},
                   .legal = "as many processes as the mesh has",
                   .hint = hint});
}

}  // namespace tessera::inline driver
