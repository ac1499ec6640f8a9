#include "accel/rtl/shell.h"

#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline rtl {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  if (std::filesystem::exists(path) && read_text(path) == text) return;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw UserError({.id = "TSR-6102",
                     .message = fmt::format("cannot write '{}'", path),
                     .node = path,
                     .legal = "a folder that can be written to",
                     .hint = {}});
}

std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

CommandResult run_command(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  CommandResult result;
  if (!pipe) return {.status = -1, .text = std::strerror(errno)};
  std::array<char, 4096> buffer{};
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) result.text.append(buffer.data(), count);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace tessera::inline rtl
