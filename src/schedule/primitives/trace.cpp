#include "schedule/primitives/trace.h"

#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "arith/expr_parser.h"
#include "support/nearest_names.h"
#include "support/text_reader.h"

namespace tessera::inline schedule {
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
    if (step.primitive == "intrinsic" || is_sampling(step))
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

void resolve_names(TraceArg& arg, const std::unordered_map<std::string, int64_t>& numbers,
                   const std::unordered_map<std::string, std::string>& places) {
  if (arg.kind == TraceArg::Kind::kName) {
    if (const auto it = numbers.find(arg.text); it != numbers.end())
      arg = TraceArg::integer(it->second).with_key(arg.key);
    else if (const auto at = places.find(arg.text); at != places.end()) arg.text = at->second;
  }
  for (TraceArg& item : arg.list) resolve_names(item, numbers, places);
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

bool is_sampling(const TraceStep& step) { return step.primitive.starts_with("sample_"); }

void Replayer::draw(const TraceStep& step) {
  // An empty decision is drawn; the table checks the form of the arguments where one is there.
  const auto arg = [&](size_t i, TraceArg::Kind kind) -> const TraceArg& {
    if (i >= step.args.size() || step.args[i].kind != kind)
      throw UserError({.id = "TSR-3403",
                       .message = fmt::format("{}: wrong arguments", to_string(step)),
                       .node = {},
                       .legal = std::string(find_schedule_primitive(step.primitive)->usage),
                       .hint = {}});
    return step.args[i];
  };
  const std::string as = step.results.empty() ? "" : step.results[0];
  if (step.primitive == "sample_perfect_tile") {
    schedule_.sample_perfect_tile(arg(0, TraceArg::Kind::kName).text, arg(1, TraceArg::Kind::kInt).number,
                                  arg(2, TraceArg::Kind::kInt).number, random_, {}, step.results);
  } else if (step.primitive == "sample_compute_location") {
    schedule_.sample_compute_location(arg(0, TraceArg::Kind::kName).text, random_, {}, as);
  } else {
    std::vector<int64_t> candidates;
    for (const TraceArg& item : arg(0, TraceArg::Kind::kList).list) candidates.push_back(item.number);
    schedule_.sample_categorical(candidates, random_, {}, as);
  }
}

void Replayer::apply(const TraceStep& recorded) {
  TraceStep step = recorded;
  for (TraceArg& arg : step.args) resolve_names(arg, numbers_, places_);
  const bool sampling = is_sampling(step);
  try {
    const SchedulePrimitive* primitive = find_schedule_primitive(step.primitive);
    check(primitive != nullptr, "no primitive " + step.primitive);
    if (sampling && random_ && step.decision.empty()) {
      draw(step);
    } else {
      try {
        primitive->apply(schedule_, step);
      } catch (const UserError&) {
        if (!sampling || !random_) throw;
        draw(step);
      }
    }
  } catch (const UserError& error) {
    Diagnostic diagnostic = error.diagnostic();
    if (diagnostic.node.empty()) diagnostic.node = step.position;
    throw UserError(std::move(diagnostic));
  }
  const TraceStep& taken = schedule_.steps().back();
  if (taken.primitive == "sample_compute_location") {
    places_[taken.results[0]] = schedule_.sampled_place();
    return;
  }
  for (size_t i = 0; i < taken.results.size() && i < taken.decision.size(); ++i)
    numbers_[taken.results[i]] = taken.decision[i];
}

void replay(Schedule& schedule, std::span<const TraceStep> steps) {
  Replayer replayer(schedule);
  for (const TraceStep& step : steps) replayer.apply(step);
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

}  // namespace tessera::inline schedule
