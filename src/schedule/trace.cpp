#include "schedule/trace.h"

#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "arith/expr_parser.h"
#include "support/nearest_names.h"
#include "support/text_reader.h"

namespace tessera {
namespace {

constexpr size_t kMaxSteps = 10000;
constexpr int kMaxNesting = 8;     // of lists
constexpr size_t kMaxItems = 256;  // of a list

std::vector<std::string> primitive_names() {
  std::vector<std::string> names;
  for (const SchedulePrimitive& p : schedule_primitives()) names.emplace_back(p.name);
  return names;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : reader_(text, std::string(file)) {}

  std::vector<TraceStep> run() {
    std::vector<TraceStep> steps;
    while (!reader_.at_end()) {
      if (steps.size() == kMaxSteps) reader_.fail("TSR-3401", fmt::format("more than {} steps", kMaxSteps));
      const std::string line = line_of(reader_.position());
      if (line == last_line_) reader_.fail("TSR-3401", "two primitives on one line", "one primitive a line");
      steps.push_back(step());
    }
    return steps;
  }

 private:
  static std::string line_of(const std::string& position) { return position.substr(0, position.rfind(':')); }

  TraceStep step() {
    TraceStep step;
    TextReader start = reader_;
    step.position = reader_.position();
    std::vector<std::string> words = {reader_.word("a primitive or the names of its results")};
    while (reader_.accept(",")) {
      words.push_back(reader_.word("a name"));
      if (words.size() > kMaxItems) reader_.fail("TSR-3401", "too many names");
    }
    if (reader_.accept("=")) {
      step.results = std::move(words);
      start = reader_;
      step.primitive = reader_.word("a primitive");
    } else {
      if (words.size() > 1) reader_.fail_expected("'='");
      step.primitive = std::move(words[0]);
    }
    const SchedulePrimitive* primitive = find_schedule_primitive(step.primitive);
    if (!primitive) {
      const std::vector<std::string> all = primitive_names();
      const std::vector<std::string> near = nearest_names(step.primitive, all, 2);
      start.fail("TSR-3402", fmt::format("there is no primitive '{}'", step.primitive),
                 fmt::format("{}{}", near.empty() ? "" : fmt::format("{}? All: ", fmt::join(near, " or ")),
                             fmt::join(all, ", ")));
    }
    reader_.expect("(");
    last_line_ = line_of(reader_.position());
    if (!reader_.accept(")")) {
      step.args = items(")", 0);
    }
    if (step.primitive == "intrinsic" || step.primitive == "sample_perfect_tile")
      for (const std::string& name : step.results) numbers_.try_emplace(name, make_var(name));
    if (reader_.accept("decided")) {
      reader_.expect("[");
      do {
        step.decision.push_back(reader_.integer("a number"));
        if (step.decision.size() > kMaxItems) reader_.fail("TSR-3401", "too many numbers");
      } while (reader_.accept(","));
      reader_.expect("]");
    }
    return step;
  }

  // Up to and with `end`.
  std::vector<TraceArg> items(const char* end, int depth) {
    std::vector<TraceArg> list;
    if (depth > kMaxNesting) reader_.fail("TSR-3401", "lists are nested too deep");
    do {
      if (list.size() == kMaxItems) reader_.fail("TSR-3401", fmt::format("more than {} items", kMaxItems));
      list.push_back(item(depth));
    } while (reader_.accept(","));
    last_line_ = line_of(reader_.position());
    reader_.expect(end);
    return list;
  }

  TraceArg item(int depth) {
    const char c = reader_.peek();
    if (c == '[') {
      reader_.expect("[");
      return reader_.accept("]") ? TraceArg::of_list({}) : TraceArg::of_list(items("]", depth + 1));
    }
    if (c == '(') return mapping();
    if (c == '"') return TraceArg::quoted(reader_.quoted("a text"));
    if ((c >= '0' && c <= '9') || c == '-') return TraceArg::integer(reader_.integer("a number"));
    if (reader_.accept("_")) return TraceArg::open();
    std::string name = reader_.word("an argument: a name, a number, '_', a text in quotes, or a list");
    if (reader_.accept("=")) {
      if (depth > 0) reader_.fail("TSR-3401", "a named argument inside of a list");
      return item(depth + 1).with_key(std::move(name));
    }
    if (reader_.accept(".")) name += "." + reader_.word("init or update");
    if (reader_.accept("#")) {
      const int64_t number = reader_.integer("the number of a statement");
      if (number < 0) reader_.fail("TSR-3401", "the number of a statement is negative", "0 or more");
      name += fmt::format("#{}", number);
    }
    return TraceArg::name(std::move(name));
  }

  TraceArg mapping() {
    TraceArg arg;
    arg.kind = TraceArg::Kind::kMapping;
    ExprScope scope;
    std::unordered_set<std::string> dimensions;
    for (const auto& [name, var] : numbers_) scope.names.emplace(name, var);
    reader_.expect("(");
    do {
      TextReader start = reader_;
      const std::string name = reader_.word("the name of a dimension");
      arg.vars.push_back(make_var(name));
      scope.names[name] = arg.vars.back();
      if (is_reserved_word(name) || !dimensions.insert(name).second)
        start.fail("TSR-3401", fmt::format("'{}' cannot name a dimension here", name), "a name of its own");
      if (arg.vars.size() > kMaxItems) reader_.fail("TSR-3401", "too many dimensions");
    } while (reader_.accept(","));
    reader_.expect(")");
    reader_.expect("->");
    arg.index = parse_indices(reader_, scope);
    return arg;
  }

  TextReader reader_;
  std::string last_line_;
  std::unordered_map<std::string, Var> numbers_;  // names of sampled ones, which a mapping may use
};

std::string to_string(const TraceArg& arg);

template <typename Items>
std::string join_items(const Items& items) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + to_string(item);
  return text;
}

std::string to_string(const TraceArg& arg) {
  std::string text = arg.key.empty() ? "" : arg.key + "=";
  switch (arg.kind) {
    case TraceArg::Kind::kName: return text + arg.text;
    case TraceArg::Kind::kInt: return text + fmt::format("{}", arg.number);
    case TraceArg::Kind::kOpen: return text + "_";
    case TraceArg::Kind::kText: return text + quoted_text(arg.text);
    case TraceArg::Kind::kList: return text + "[" + join_items(arg.list) + "]";
    case TraceArg::Kind::kMapping: break;
  }
  std::string vars, index;
  for (const Var& v : arg.vars) vars += (vars.empty() ? "" : ", ") + v->name;
  for (const Expr& e : arg.index) index += (index.empty() ? "" : ", ") + tessera::to_string(e);
  return text + "(" + vars + ") -> [" + index + "]";
}

}  // namespace

std::string to_string(const TraceStep& step) {
  std::string text;
  for (const std::string& name : step.results) text += (text.empty() ? "" : ", ") + name;
  if (!text.empty()) text += " = ";
  text += step.primitive + "(" + join_items(step.args) + ")";
  if (!step.decision.empty()) text += fmt::format(" decided [{}]", fmt::join(step.decision, ", "));
  return text;
}

const SchedulePrimitive* find_schedule_primitive(std::string_view name) {
  for (const SchedulePrimitive& primitive : schedule_primitives())
    if (primitive.name == name) return &primitive;
  return nullptr;
}

std::vector<TraceStep> parse_trace(std::string_view text, std::string_view file) { return Parser(text, file).run(); }

std::string print_trace(std::span<const TraceStep> steps) {
  std::string text;
  for (const TraceStep& step : steps) text += to_string(step) + "\n";
  return text;
}

namespace {

// Names of sampled numbers stand for their values from their step on.
void resolve_numbers(TraceArg& arg, const std::unordered_map<std::string, int64_t>& numbers) {
  if (arg.kind == TraceArg::Kind::kName)
    if (const auto it = numbers.find(arg.text); it != numbers.end())
      arg = TraceArg::integer(it->second).with_key(arg.key);
  for (TraceArg& item : arg.list) resolve_numbers(item, numbers);
  for (Expr& index : arg.index)
    index = transform(index, [&](const Expr& e) -> Expr {
      if (e->kind != ExprKind::kVar) return {};
      for (const Var& dimension : arg.vars)
        if (dimension.same_node(e)) return {};
      const auto it = numbers.find(e->name);
      return it == numbers.end() ? Expr() : Expr(it->second);
    });
}

}  // namespace

void replay(Schedule& schedule, std::span<const TraceStep> steps) {
  std::unordered_map<std::string, int64_t> numbers;
  for (const TraceStep& recorded : steps) {
    TraceStep step = recorded;
    for (TraceArg& arg : step.args) resolve_numbers(arg, numbers);
    try {
      const SchedulePrimitive* primitive = find_schedule_primitive(step.primitive);
      check(primitive != nullptr, "no primitive " + step.primitive);
      primitive->apply(schedule, step);
    } catch (const UserError& error) {
      Diagnostic diagnostic = error.diagnostic();
      if (diagnostic.node.empty()) diagnostic.node = step.position;
      throw UserError(std::move(diagnostic));
    }
    const TraceStep& taken = schedule.steps().back();
    for (size_t i = 0; i < taken.results.size() && i < taken.decision.size(); ++i)
      numbers[taken.results[i]] = taken.decision[i];
  }
}

std::variant<LoopProgram, Diagnostic> apply_trace(const LoopProgram& program, std::string_view text,
                                                  const std::optional<Target>& target, std::string_view file) {
  try {
    Schedule schedule(program, target);
    replay(schedule, parse_trace(text, file));
    schedule.check_finished();
    return schedule.program();
  } catch (const UserError& error) {
    return error.diagnostic();
  }
}

}  // namespace tessera
