// tessera completion bash|zsh|fish
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "commands.h"

namespace tessera {

namespace {

// For a shell, in single quotes.
std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Options of a verb that are written with a name.
std::vector<const CLI::Option*> flags_of(const CLI::App& verb) {
  std::vector<const CLI::Option*> flags;
  for (const CLI::Option* option : verb.get_options())
    if (option->nonpositional()) flags.push_back(option);
  return flags;
}

// Names, then values of those that have a set of them; files everywhere else.
std::string bash_script(const CLI::App& root) {
  std::string names, values;
  std::vector<std::string> verbs = {"help", "version"};
  for (const CLI::App* verb : verbs_of(root)) {
    verbs.push_back(verb->get_name());
    std::vector<std::string> flags;
    for (const CLI::Option* option : flags_of(*verb)) {
      const std::vector<std::string> own = names_of(*option), choices = choices_of(*option);
      flags.insert(flags.end(), own.begin(), own.end());
      for (const std::string& name : own)
        if (!choices.empty())
          values += fmt::format("    {} {}) words={} ;;\n", verb->get_name(), name,
                                shell_quoted(fmt::format("{}", fmt::join(choices, " "))));
    }
    names += fmt::format("      {}) words={} ;;\n", verb->get_name(),
                         shell_quoted(fmt::format("{}", fmt::join(flags, " "))));
  }
  // Patterns of `case` are words with a blank between them, which must be quoted.
  std::string cases;
  for (size_t begin = 0; begin < values.size();) {
    const size_t end = values.find('\n', begin), paren = values.find(") words=", begin);
    cases +=
        fmt::format("    '{}'{}\n", values.substr(begin + 4, paren - begin - 4), values.substr(paren, end - paren));
    begin = end + 1;
  }
  return fmt::format(R"(# bash completion of tessera; load it with: source <(tessera completion bash)
_tessera() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || {{ [ "$COMP_CWORD" -eq 2 ] && [ "$verb" = help ]; }}; then
    COMPREPLY=($(compgen -W {} -- "$current"))
    return
  fi
  case "$verb $previous" in
{}  esac
  if [ -z "$words" ] && [[ "$current" == -* ]]; then
    case "$verb" in
{}    esac
  fi
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$current"))
  elif [[ "$current" == *@* ]]; then COMPREPLY=($(compgen -P "${{current%%@*}}@" -f -- "${{current#*@}}"))
  else COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _tessera tessera
)",
                     shell_quoted(fmt::format("{}", fmt::join(verbs, " "))), cases, names);
}

std::string zsh_script(const CLI::App& root) {
  // Brackets and colons have a meaning in zsh's descriptions.
  const auto plain = [](const std::string& text) {
    std::string result;
    for (const char c : first_line(text)) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
      result += c;
    }
    return result;
  };
  std::string verbs, cases;
  for (const CLI::App* verb : verbs_of(root)) {
    verbs += fmt::format("    {}\n", shell_quoted(verb->get_name() + ":" + first_line(verb->get_description())));
    cases += fmt::format("    {}) _arguments", verb->get_name());
    for (const CLI::Option* option : flags_of(*verb)) {
      const std::vector<std::string> choices = choices_of(*option);
      for (const std::string& name : names_of(*option)) {
        std::string spec = fmt::format("*{}[{}]", name, plain(option->get_description()));
        if (takes_value(*option))
          spec += fmt::format(":{}:{}", plain(option->get_type_name()),
                              choices.empty() ? "_files" : fmt::format("({})", fmt::join(choices, " ")));
        cases += " \\\n        " + shell_quoted(spec);
      }
    }
    cases += " \\\n        '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef tessera
# zsh completion of tessera; load it with: source <(tessera completion zsh)
_tessera() {{
  local -a verbs=(
{}  )
  if (( CURRENT == 2 )); then _describe verb verbs; return; fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{}  esac
}}
compdef _tessera tessera
)",
                     verbs, cases);
}

std::string fish_script(const CLI::App& root) {
  std::string text =
      "# fish completion of tessera; load it with: tessera completion fish | source\n"
      "complete -c tessera -n __fish_use_subcommand -f\n";
  for (const CLI::App* verb : verbs_of(root)) {
    text += fmt::format("complete -c tessera -n __fish_use_subcommand -a {} -d {}\n", verb->get_name(),
                        shell_quoted(first_line(verb->get_description())));
    for (const CLI::Option* option : flags_of(*verb)) {
      text += fmt::format("complete -c tessera -n '__fish_seen_subcommand_from {}'", verb->get_name());
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      const std::vector<std::string> choices = choices_of(*option);
      if (takes_value(*option)) text += " -r";
      if (!choices.empty()) text += fmt::format(" -f -a {}", shell_quoted(fmt::format("{}", fmt::join(choices, " "))));
      text += fmt::format(" -d {}\n", shell_quoted(first_line(option->get_description())));
    }
  }
  return text;
}

}  // namespace

Command add_completion_command(CLI::App& root) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = root.add_subcommand("completion", "Print what makes a shell complete verbs, options and values");
  app->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("");
  app->footer(
      "Examples:\n"
      "  source <(tessera completion bash)\n"
      "  tessera completion bash > ~/.local/share/bash-completion/completions/tessera\n"
      "  tessera completion fish > ~/.config/fish/completions/tessera.fish");
  return {
      app, [shell, &root] {
        std::cout << (*shell == "bash" ? bash_script(root) : *shell == "zsh" ? zsh_script(root) : fish_script(root));
        return kExitOk;
      }};
}

}  // namespace tessera
