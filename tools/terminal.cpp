#include "terminal.h"

#include <unistd.h>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera {

namespace {

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return !(no_colour && *no_colour) && terminal && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) != 0; }
bool stdout_has_colour() { return stdout_is_terminal() && colour_wanted(); }
bool stderr_has_colour() { return stderr_is_terminal() && colour_wanted(); }

std::string coloured(std::string_view text, std::string_view colour, bool enabled) {
  return enabled ? fmt::format("\x1b[{}m{}\x1b[0m", colour, text) : std::string(text);
}

std::string json_line(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
