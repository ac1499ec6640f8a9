// What this machine offers a compiled model, measured, and what costs speed here: `tessera doctor`.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/text_table.h"

namespace tessera::inline driver {

// Takes a few seconds: it measures. The object is described in docs/cli.md.
nlohmann::json examine_machine();

// Of what examine_machine() returned.
std::string machine_text(const nlohmann::json& machine, const TextStyle& style);

}  // namespace tessera::inline driver
