// Programs of others that the hardware is built and counted by.
#pragma once

#include <string>

namespace tessera::inline rtl {

struct CommandResult {
  int status = 0;    // -1: it did not end by itself
  std::string text;  // what it wrote, errors as well
};
CommandResult run_command(const std::string& command);

// As one word of a command.
std::string shell_word(const std::string& text);

std::string read_text(const std::string& path);
// UserError TSR-6102. A file that has this text already stays as it is.
void write_text(const std::string& path, const std::string& text);

}  // namespace tessera::inline rtl
