#include "te/joined_program.h"

#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "te/canonical.h"

namespace tessera::inline tensor_programs {
namespace {

// What argument `a` of a call of the program is.
TensorParam argument(const TensorProgram& program, size_t a) {
  if (a < program.params.size()) return program.params[a];
  const Stage& result = program.results()[a - program.params.size()];
  return {result.out, result.layout};
}

std::string text_of(const TensorParam& value) {
  return fmt::format("{}{}{}{}", dtype_name(value.buffer->dtype), to_string(value.buffer->shape),
                     value.layout.to_string(), operand_kind_suffix(value.kind));
}

std::string call_of(const JoinedMember& member) {
  const size_t count = member.program.params.size();
  std::vector<std::string> names;
  for (const size_t value : member.args) names.push_back(fmt::format("%{}", value));
  return fmt::format("{} = ({})", fmt::join(names.begin() + static_cast<std::ptrdiff_t>(count), names.end(), ", "),
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
}

}  // namespace

JoinedProgram join_programs(std::string name, const std::vector<NumberedMember>& members,
                            const std::vector<int32_t>& outside) {
  JoinedProgram result;
  result.name = std::move(name);
  result.num_args = outside.size();
  result.values.resize(outside.size());
  std::map<int32_t, size_t> numbers;
  for (size_t i = 0; i < outside.size(); ++i) numbers.emplace(outside[i], i);
  for (const NumberedMember& member : members) {
    JoinedMember own{*member.program, {}};
    for (size_t a = 0; a < member.args.size(); ++a) {
      const auto [it, is_new] = numbers.emplace(member.args[a], result.values.size());
      if (is_new) result.values.emplace_back();
      if (!result.values[it->second].buffer) result.values[it->second] = argument(*member.program, a);
      own.args.push_back(it->second);
    }
    result.members.push_back(std::move(own));
  }
  return result;
}

std::string problem_of(const JoinedProgram& program) {
  if (program.members.empty() || program.num_args == 0) return "there are no members, or no result";
  std::set<size_t> written;
  for (size_t m = 0; m < program.members.size(); ++m) {
    const JoinedMember& member = program.members[m];
    const size_t inputs = member.program.params.size();
    if (member.args.size() != inputs + member.program.num_results)
      return fmt::format("member {} has {} arguments", m, member.args.size());
    for (size_t a = 0; a < member.args.size(); ++a) {
      const size_t number = member.args[a];
      if (number >= program.values.size()) return fmt::format("member {} has a value %{} that is not there", m, number);
      const TensorParam own = argument(member.program, a);
      const TensorParam& value = program.values[number];
      if (own.buffer->dtype != value.buffer->dtype || !(own.layout == value.layout) ||
          !same_shape(own.buffer->shape, value.buffer->shape))
        return fmt::format("member {} has %{} as {}, and it is {}", m, number, text_of(own), text_of(value));
      const bool is_inner = number >= program.num_args;
      if (a < inputs) {
        if (is_inner && !written.contains(number))
          return fmt::format("member {} reads %{} before it is there", m, number);
      } else if (!written.insert(number).second || (!is_inner && number + 1 != program.num_args)) {
        return fmt::format("member {} writes %{}, which is written already or is no result", m, number);
      }
    }
  }
  if (program.members.back().args.back() + 1 != program.num_args) return "the last member does not write the result";
  return "";
}

std::string to_string(const JoinedProgram& program) {
  std::string text = "joined @" + program.name + "(";
  for (size_t i = 0; i + 1 < program.num_args; ++i)
    text += fmt::format("{}%{} {}: {}", i ? ", " : "", i, program.values[i].buffer->name, text_of(program.values[i]));
  text += fmt::format(") -> %{}: {} {{\n", program.num_args - 1, text_of(program.result()));
  for (const JoinedMember& member : program.members) {
    text += "  " + call_of(member) + " ";
    for (const char c : to_string(member.program)) text += c == '\n' ? "\n  " : std::string(1, c);
    text.resize(text.size() - 2);
  }
  return text + "}\n";
}

std::string canonical_text(const JoinedProgram& program) {
  std::string text = fmt::format("joined {} of {}\n", program.num_args, program.values.size());
  for (const JoinedMember& member : program.members)
    text += fmt::format("{}\n{}", fmt::join(member.args, " "), canonical_text(member.program));
  return text;
}

}  // namespace tessera::inline tensor_programs
