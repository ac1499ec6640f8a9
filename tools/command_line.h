// What all verbs share: how help is laid out, and what is said to a mistake on the command line.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace tessera {

// Help in lines of at most 100 columns, texts beside the options.
void use_wrapped_help(CLI::App& root);

// "help VERB" as "VERB --help", "help" and "version" as the flags of that name.
std::vector<std::string> with_help_as_flag(std::vector<std::string> arguments);

// Arguments that name a pipe to read from (/dev/stdin, and /dev/fd/N of a shell's <(...)), alone or behind '@', name a
// copy in memory instead, which can be read several times and mapped.
std::vector<std::string> with_pipes_read(std::vector<std::string> arguments);

// UserError TSR-4001 in words that name what was written and what it is nearest to. `arguments` are those of the
// program, without its name.
[[noreturn]] void throw_usage_error(const CLI::App& root, const CLI::ParseError& error,
                                    const std::vector<std::string>& arguments);
[[noreturn]] void throw_no_verb(const CLI::App& root);

// For completion and the manual.
std::vector<const CLI::App*> verbs_of(const CLI::App& root);
// All names, "-i" and "--input"; none of positionals.
std::vector<std::string> names_of(const CLI::Option& option);
// What the option takes: "native" and "interp"; empty when that is open.
std::vector<std::string> choices_of(const CLI::Option& option);
// `text` in lines of at most `width` columns, broken between words; its own line breaks are kept.
std::vector<std::string> wrapped(const std::string& text, size_t width);

}  // namespace tessera
