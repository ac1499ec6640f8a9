#include "command_line.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <regex>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "package/anonymous_file.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera {

namespace {

constexpr size_t kColumns = 100, kNameColumn = 34;

// Sentences that were broken by hand in one line; lines of examples and lists keep their breaks.
std::string reflowed(const std::string& text) {
  std::string result;
  std::string_view last;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    constexpr size_t kBroken = 70;  // a shorter line ends where it ends
    const bool goes_on =
        last.size() > kBroken && !last.starts_with(' ') && !line.starts_with(' ') && !line.ends_with(':');
    if (begin > 0) result += goes_on ? ' ' : '\n';
    result += line;
    last = line;
    begin = end + 1;
  }
  return result;
}

class WrappingFormatter : public CLI::Formatter {
 public:
  WrappingFormatter() { column_width(kNameColumn); }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return beside(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    return beside(verb->get_name(), verb->get_description());
  }
  std::string make_footer(const CLI::App* app) const override {
    std::string text;
    for (const std::string& line : wrapped(reflowed(app->get_footer()), kColumns)) text += "\n" + line;
    return text + "\n";
  }

 private:
  // The name in a column of its own, on a line of its own where it is too long.
  static std::string beside(const std::string& name, const std::string& text) {
    std::string result = "  " + name;
    const bool has_room = result.size() + 1 < kNameColumn;
    if (has_room) result.resize(kNameColumn, ' ');
    bool first = has_room;
    for (const std::string& line : wrapped(text, kColumns - kNameColumn)) {
      if (!first) result += "\n" + std::string(kNameColumn, ' ');
      result += line;
      first = false;
    }
    return result + "\n";
  }
};

const CLI::App* parsed_verb(const CLI::App& root) {
  const auto parsed = root.get_subcommands();
  return parsed.empty() ? nullptr : parsed[0];
}

std::string help_hint(const CLI::App* verb) {
  return fmt::format("see 'tessera {}--help'", verb ? verb->get_name() + " " : "");
}

[[noreturn]] void fail(const std::string& message, const std::string& legal, const std::string& hint) {
  throw UserError({.id = "TSR-4001", .message = message, .node = {}, .legal = legal, .hint = hint});
}

std::string did_you_mean(const std::vector<std::string>& nearest, const std::string& otherwise) {
  if (nearest.empty()) return otherwise;
  return fmt::format("did you mean '{}'? {}", fmt::join(nearest, "' or '"), otherwise);
}

std::vector<std::string> verb_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs_of(root)) names.push_back(verb->get_name());
  return names;
}

[[noreturn]] void throw_unexpected(const CLI::App& root, const CLI::App* verb, const CLI::ParseError& error,
                                   const std::vector<std::string>& arguments) {
  const std::vector<std::string> left = verb ? verb->remaining() : root.remaining();
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const std::string& text) { return text.starts_with('-'); });
  if (flag != left.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : (verb ? *verb : root).get_options())
      for (const std::string& known : names_of(*option))
        if (known.starts_with("--")) names.push_back(known.substr(2));
    // Without the dashes, which all of them share.
    const size_t begin = std::min(name.find_first_not_of('-'), name.size());
    std::vector<std::string> nearest = nearest_names(name.substr(begin), names, 1);
    for (std::string& known : nearest) known = "--" + known;
    fail(fmt::format("there is no option '{}'", name), "", did_you_mean(nearest, help_hint(verb)));
  }
  if (!verb) {
    // CLI11 lists what it could not place; the verb is the first that belongs to no option.
    const auto word = std::find_if(arguments.begin(), arguments.end(),
                                   [](const std::string& text) { return !text.starts_with('-'); });
    const std::string name = word == arguments.end() ? "" : *word;
    const std::vector<std::string> names = verb_names(root);
    fail(fmt::format("there is no verb '{}'", name), fmt::format("{}", fmt::join(names, ", ")),
         did_you_mean(nearest_names(name, names, 1), help_hint(nullptr)));
  }
  fail(left.empty() ? std::string(error.what())
                    : fmt::format("'{}' is one argument too many for 'tessera {}'", left[0], verb->get_name()),
       "", help_hint(verb));
}

// What an option got, from a message that begins with the option's name.
const CLI::Option* option_in(const CLI::App* verb, const std::string& message) {
  const CLI::Option* found = nullptr;
  for (const CLI::Option* option : verb ? verb->get_options() : std::vector<const CLI::Option*>{})
    for (const std::string& name : names_of(*option))
      if (message.starts_with(name + ":") || message.find(" " + name + " = ") != std::string::npos) found = option;
  return found;
}

}  // namespace

void use_wrapped_help(CLI::App& root) { root.formatter(std::make_shared<WrappingFormatter>()); }

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string rest = text.substr(begin, end - begin);
    const std::string indent =
        rest.substr(0, rest.find_first_not_of(' ') == std::string::npos ? 0 : rest.find_first_not_of(' '));
    while (rest.size() > width) {
      size_t at = rest.rfind(' ', width);
      if (at == std::string::npos || at <= indent.size()) break;
      lines.push_back(rest.substr(0, at));
      rest = indent + rest.substr(at + 1);
    }
    lines.push_back(rest);
    begin = end + 1;
  }
  return lines;
}

namespace {

// The descriptor that the path names; -1 for other paths.
int descriptor_of(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    const char *begin = path.data() + std::min(folder.size(), path.size()), *end = path.data() + path.size();
    if (path.starts_with(folder) && std::from_chars(begin, end, number).ptr == end && begin != end) return number;
  }
  return -1;
}

bool is_pipe_to_read(int descriptor) {
  struct stat info = {};
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || !S_ISFIFO(info.st_mode)) return false;
  return (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY;  // that of >(...) is to be written to
}

// The path of a file in memory with all that comes out of the pipe. It lives as long as the process.
std::string copy_of_pipe(int descriptor) {
  const int copy = memfd_create("tessera-input", MFD_CLOEXEC);
  check(copy >= 0, "no file in memory for a pipe");
  std::vector<std::byte> buffer(1 << 20);
  while (true) {
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    write_fully(copy, std::span(buffer).first(static_cast<size_t>(count)), "a file in memory");
  }
  return fmt::format("/proc/self/fd/{}", copy);
}

}  // namespace

std::vector<std::string> with_pipes_read(std::vector<std::string> arguments) {
  std::map<int, std::string> copies;
  for (std::string& argument : arguments) {
    const size_t at = argument.starts_with('@')                  ? 1
                      : argument.find("=@") == std::string::npos ? 0
                                                                 : argument.find("=@") + 2;
    const int descriptor = descriptor_of(argument.substr(at));
    if (!is_pipe_to_read(descriptor)) continue;
    const auto [copy, is_new] = copies.try_emplace(descriptor);
    if (is_new) copy->second = copy_of_pipe(descriptor);
    argument = argument.substr(0, at) + copy->second;
  }
  return arguments;
}

std::vector<std::string> with_help_as_flag(std::vector<std::string> arguments) {
  if (arguments.empty()) return arguments;
  if (arguments[0] == "version") arguments[0] = "--version";
  if (arguments[0] != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.resize(std::min<size_t>(arguments.size(), 1));
  arguments.push_back("--help");
  return arguments;
}

void throw_usage_error(const CLI::App& root, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const CLI::App* verb = parsed_verb(root);
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) throw_unexpected(root, verb, error, arguments);
  const CLI::Option* option = option_in(verb, message);
  if (option && option->count() > 0) {
    const std::string name = option->get_name(), value = option->results().back();
    const std::vector<std::string> choices = choices_of(*option);
    if (!choices.empty())
      fail(fmt::format("{}: unknown value '{}'", name, value), fmt::format("{}", fmt::join(choices, ", ")),
           did_you_mean(nearest_names(value, choices, 1), help_hint(verb)));
    if (message.starts_with("Could not convert"))
      fail(fmt::format("{}: '{}' is no number", name, value), "", help_hint(verb));
  }
  // "--json Needs: --check": the name of an option, and what CLI11 says of it.
  fail(std::regex_replace(message, std::regex("^(--?[\\w-]+) (requires|excludes|Needs: |Excludes: )"), "$1 $2"), "",
       help_hint(verb));
}

void throw_no_verb(const CLI::App& root) {
  fail("a verb is required", fmt::format("{}", fmt::join(verb_names(root), ", ")), help_hint(nullptr));
}

std::vector<const CLI::App*> verbs_of(const CLI::App& root) {
  std::vector<const CLI::App*> verbs;
  for (const CLI::App* verb : root.get_subcommands([](const CLI::App*) { return true; }))
    if (!verb->get_name().empty()) verbs.push_back(verb);
  return verbs;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  std::string text;
  try {
    text = const_cast<CLI::Option&>(option).get_validator(0)->get_description();
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
  // "{a,b}", or with what they stand for: "value in {a->1,b->2} OR {1,2}".
  static const std::regex kSet("\\{([^}]*)\\}");
  std::smatch match;
  if (!std::regex_search(text, match, kSet)) return {};
  std::vector<std::string> choices(1);
  for (const char c : match[1].str()) {
    if (c == ',') choices.emplace_back();
    else choices.back() += c;
  }
  for (std::string& choice : choices) choice = choice.substr(0, choice.find("->"));
  return choices;
}

}  // namespace tessera
