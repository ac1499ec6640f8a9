// What standard output and standard error are connected to.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

bool stdout_is_terminal();
bool stderr_is_terminal();
// `text` in an ANSI colour ("31" is red) when `enabled`; colours are for terminals, and never with NO_COLOR set.
std::string coloured(std::string_view text, std::string_view colour, bool enabled);
bool stdout_has_colour();
bool stderr_has_colour();

// One line, the newline included. Names come from models: bytes that are not UTF-8 are replaced.
std::string json_line(const nlohmann::json& json);

}  // namespace tessera
