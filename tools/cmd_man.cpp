// tessera man [VERB]
#include <algorithm>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "commands.h"
#include "driver/api/version.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera {

namespace {

// Text for roff: a backslash, a hyphen, and a point or apostrophe at the begin of a line are its own.
std::string roff(const std::string& text) {
  std::string result;
  bool at_begin = true;
  for (const char c : text) {
    if (at_begin && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') result += "\\e";
    else if (c == '-') result += "\\-";
    else result += c;
    at_begin = c == '\n';
  }
  return result;
}

// Lines as they are: those of examples keep their breaks.
std::string literal(const std::string& text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

std::string option_entry(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : names_of(option)) names.push_back("\\fB" + roff(name) + "\\fR");
  if (names.empty()) names.push_back("\\fI" + roff(option.get_name(true)) + "\\fR");
  std::string title = fmt::format("{}", fmt::join(names, ", "));
  if (option.get_items_expected_max() > 0 && option.nonpositional() && !option.get_type_name().empty())
    title += " \\fI" + roff(option.get_type_name()) + "\\fR";
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" (default: {})", option.get_default_str());
  return fmt::format(".TP\n{}\n{}\n", title, roff(text));
}

std::string verb_text(const CLI::App& verb, const char* section, const char* subsection) {
  std::string text = fmt::format("{} {}\n{}.\n", section, roff(verb.get_name()), roff(verb.get_description()));
  for (const std::string& group : verb.get_groups()) {
    const auto options =
        verb.get_options([&](const CLI::Option* option) { return option->get_group() == group && !group.empty(); });
    if (options.empty()) continue;
    if (group != "Options") text += fmt::format("{} {}\n", subsection, roff(group));
    for (const CLI::Option* option : options) text += option_entry(*option);
  }
  if (!verb.get_footer().empty()) text += ".PP\n" + literal(verb.get_footer());
  return text;
}

std::string manual(const CLI::App& root, const std::string& only) {
  const std::vector<const CLI::App*> verbs = verbs_of(root);
  const std::string name = only.empty() ? "tessera" : "tessera-" + only;
  std::string text = fmt::format(".TH {} 1 \"\" \"{}\" \"Tessera\"\n.SH NAME\n", roff(name), version_text());
  if (!only.empty()) {
    const auto verb = std::find_if(verbs.begin(), verbs.end(), [&](const auto* v) { return v->get_name() == only; });
    if (verb == verbs.end()) {
      std::vector<std::string> names;
      for (const CLI::App* known : verbs) names.push_back(known->get_name());
      const std::vector<std::string> nearest = nearest_names(only, names, 1);
      throw UserError({.id = "TSR-4001",
                       .message = fmt::format("there is no verb '{}'", only),
                       .node = {},
                       .legal = fmt::format("{}", fmt::join(names, ", ")),
                       .hint = nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest[0])});
    }
    return text + fmt::format("{} \\- {}\n", roff(name), roff((*verb)->get_description())) +
           verb_text(**verb, ".SH", ".SS");
  }
  text += fmt::format("tessera \\- {}\n.SH SYNOPSIS\n.B tessera\n\\fIVERB\\fR [\\fIOPTIONS\\fR] ...\n.SH VERBS\n",
                      roff(root.get_description()));
  for (const CLI::App* verb : verbs)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(verb->get_name()), roff(verb->get_description()));
  for (const CLI::App* verb : verbs) text += verb_text(*verb, ".SH", ".SS");
  return text + ".SH EXIT STATUS\n" + literal(root.get_footer());
}

}  // namespace

Command add_man_command(CLI::App& root) {
  const auto verb = std::make_shared<std::string>();
  CLI::App* app = root.add_subcommand("man", "Print the manual page of tessera, or of one verb");
  app->add_option("VERB", *verb, "Only this one")->type_name("");
  app->footer(
      "Examples:\n"
      "  tessera man | man -l -\n"
      "  tessera man run > /usr/local/share/man/man1/tessera-run.1");
  return {app, [verb, &root] {
            std::cout << manual(root, *verb);
            return kExitOk;
          }};
}

}  // namespace tessera
