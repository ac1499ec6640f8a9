// How fast the processes of this run reach each other: `tessera doctor --comm`.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/text_table.h"
#include "driver/process_rank.h"

namespace tessera::inline driver {

// Compiles collectives of several sizes and runs them, all processes at the same time; the median of each. Takes a few
// seconds. The object is described in docs/cli.md. UserError TSR-4080 for one process alone.
nlohmann::json examine_communication(const ProcessRank& process);

// Of what examine_communication() returned.
std::string communication_text(const nlohmann::json& communication, const TextStyle& style);

}  // namespace tessera::inline driver
