#include "loop/parser.h"

#include <fmt/format.h>

#include "arith/expr_parser.h"
#include "loop/intrinsic.h"
#include "support/error.h"

namespace tessera::inline loop {
namespace {

constexpr int kMaxDepth = 200;  // of nested statements

class Parser {
 public:
  Parser(TextReader& reader, const std::vector<Var>& symbols, const Intrinsics& declared = {})
      : reader_(reader), symbols_(symbols), declared_(declared) {}

  LoopProgram kernel() {
    LoopProgram program;
    reader_.expect("kernel");
    program.name = reader_.name('@', "a kernel");
    if (reader_.accept("<")) {
      do {
        program.symbols.push_back(define_var("a symbol", true));
        for (const Var& known : symbols_)
          if (known->name == program.symbols.back()->name) scope_.names[known->name] = program.symbols.back() = known;
      } while (reader_.accept(","));
      reader_.expect(">");
    }
    params(program);
    reader_.expect("->");
    const size_t num_inputs = program.params.size();
    params(program);
    program.num_outputs = static_cast<int>(program.params.size() - num_inputs);
    program.body = braces();
    return program;
  }

 private:
  void params(LoopProgram& program) {
    reader_.expect("(");
    if (reader_.accept(")")) return;
    do {
      program.params.push_back(declaration("a parameter", MemoryScope::kGlobal));
      define_buffer(program.params.back());
    } while (reader_.accept(","));
    reader_.expect(")");
  }

  // The name is checked here and defined by the caller, because a shape cannot use its own buffer.
  BufferPtr declaration(const char* what, MemoryScope scope) {
    const std::string name = new_name(what);
    reader_.expect(":");
    const DType dtype = parse_dtype_word(reader_);
    return make_buffer(name, dtype, parse_shape(reader_, scope_), scope);
  }

  std::string new_name(const char* what, bool is_symbol = false) {
    TextReader start = reader_;
    std::string name = is_symbol ? reader_.symbol(what) : reader_.word(what);
    if (!is_symbol && is_reserved_word(name))
      start.fail("TSR-3121", fmt::format("'{}' is a word of the language, not a name", name));
    if (scope_.names.count(name) != 0 || scope_.buffers.count(name) != 0)
      start.fail("TSR-3122", fmt::format("'{}' is defined already around this place", name), "a name of its own");
    return name;
  }

  Var define_var(const char* what, bool is_symbol = false) {
    const std::string name = new_name(what, is_symbol);
    Var var = make_var(name);
    scope_.names.emplace(name, var);
    defined_.push_back(name);
    return var;
  }

  void define_buffer(const BufferPtr& buffer) {
    scope_.buffers.emplace(buffer->name, buffer);
    defined_.push_back(buffer->name);
  }

  // Forgets what was defined since `mark`.
  void leave_scope(size_t mark) {
    while (defined_.size() > mark) {
      scope_.names.erase(defined_.back());
      scope_.buffers.erase(defined_.back());
      defined_.pop_back();
    }
  }

  Stmt braces() {
    if (++depth_ > kMaxDepth)
      reader_.fail("TSR-3123", fmt::format("statements are nested more than {} deep", kMaxDepth));
    reader_.expect("{");
    const size_t mark = defined_.size();
    Stmt body = statements();
    leave_scope(mark);
    reader_.expect("}");
    --depth_;
    return body;
  }

  // Up to the closing brace.
  Stmt statements() {
    std::vector<Stmt> stmts;
    std::vector<std::pair<size_t, BufferPtr>> allocs;  // each one's body begins at that statement
    while (!reader_.peek_is("}")) {
      if (reader_.accept("alloc")) {
        allocs.emplace_back(stmts.size(), allocation());
        if (allocs.size() > kMaxAllocs)
          reader_.fail("TSR-3123", fmt::format("more than {} allocations in one block", kMaxAllocs));
      } else {
        stmts.push_back(statement());
      }
    }
    for (; !allocs.empty(); allocs.pop_back()) {
      const auto begin = stmts.begin() + static_cast<std::ptrdiff_t>(allocs.back().first);
      Stmt body = alloc(allocs.back().second, seq({begin, stmts.end()}));
      stmts.erase(begin, stmts.end());
      stmts.push_back(std::move(body));
    }
    return seq(std::move(stmts));
  }

  BufferPtr allocation() {
    TextReader start = reader_;
    const BufferPtr shape = declaration("an allocation", MemoryScope::kLocal);
    MemoryScope scope = MemoryScope::kLocal;
    if (reader_.accept("register")) scope = MemoryScope::kRegister;
    else if (reader_.accept("global")) scope = MemoryScope::kGlobal;
    else if (!reader_.accept("local")) no_scope(start, shape->name);
    BufferPtr buffer = make_buffer(shape->name, shape->dtype, shape->shape, scope);
    define_buffer(buffer);
    return buffer;
  }

  // What stands on the next line has nothing to do with it.
  [[noreturn]] void no_scope(TextReader& start, const std::string& name) {
    const auto line_of = [](const std::string& position) { return position.substr(0, position.rfind(':')); };
    const bool same_line = line_of(start.position()) == line_of(reader_.position());
    const std::string what = "local or register";
    if (same_line) reader_.fail_expected(what);
    start.fail("TSR-3001", fmt::format("expected {} behind the shape of '{}'", what, name),
               fmt::format("alloc {}: ... local (memory), alloc {}: ... register", name, name));
  }

  // A statement with the lets before it.
  Stmt statement() {
    std::vector<std::string> lets;
    while (reader_.accept("let")) {
      TextReader start = reader_;
      reader_.expect("$");
      const std::string name = fmt::format("${}", reader_.integer("a number after '$'"));
      if (scope_.names.count(name) != 0) start.fail("TSR-3122", fmt::format("'{}' is defined already", name));
      reader_.expect("=");
      scope_.names.emplace(name, parse_expr(reader_, scope_));
      lets.push_back(name);
    }
    const auto end_lets = [&] {
      for (const std::string& name : lets) scope_.names.erase(name);
    };
    if (reader_.peek_is("{")) return braces();
    if (reader_.accept("if")) {
      TextReader start = reader_;
      Expr condition = parse_expr(reader_, scope_);
      if (condition.dtype() != DType::kBool)
        start.fail("TSR-3124", fmt::format("the condition of if is {}", dtype_name(condition.dtype())), "bool");
      end_lets();
      Stmt then = braces();
      Stmt otherwise;
      if (reader_.accept("else")) otherwise = reader_.peek_is("if") ? else_if() : braces();
      return if_then(std::move(condition), std::move(then), std::move(otherwise));
    }
    if (reader_.accept("tensorized")) {
      TextReader start = reader_;
      const std::string name = reader_.quoted("the name of an intrinsic");
      const TensorIntrinsic* intrinsic = find_intrinsic(name, declared_);
      if (!intrinsic) start.fail("TSR-3125", fmt::format("there is no tensor intrinsic '{}'", name), intrinsic_names());
      return tensorized(intrinsic, braces());
    }
    for (const ForKind kind :
         {ForKind::kParallel, ForKind::kVectorized, ForKind::kUnrolled, ForKind::kBlockX, ForKind::kBlockY,
          ForKind::kBlockZ, ForKind::kThreadX, ForKind::kThreadY, ForKind::kThreadZ}) {
      if (!reader_.accept(for_kind_name(kind))) continue;
      reader_.expect("for");
      return loop(kind, end_lets);
    }
    if (reader_.accept("for")) return loop(ForKind::kSerial, end_lets);
    Stmt result = parse_store();
    end_lets();
    return result;
  }

  Stmt else_if() {
    if (++depth_ > kMaxDepth)
      reader_.fail("TSR-3123", fmt::format("statements are nested more than {} deep", kMaxDepth));
    Stmt s = statement();
    --depth_;
    return s;
  }

  template <typename EndLets>
  Stmt loop(ForKind kind, const EndLets& end_lets) {
    const size_t mark = defined_.size();
    const std::string name = new_name("a loop variable");
    reader_.expect("in");
    Expr begin = index();
    reader_.expect("..");
    Expr extent;
    if (reader_.accept("+")) {
      extent = index();
    } else {
      TextReader start = reader_;
      extent = index();
      if (!is_const_int(begin, 0)) {
        const auto first = as_int(begin);
        const auto end = as_int(extent);
        int64_t difference = 0;
        if (!first || !end || __builtin_sub_overflow(*end, *first, &difference))
          start.fail("TSR-3126", "a range with an end needs a constant begin and end, or a begin of 0",
                     "begin..+extent for other loops");
        extent = difference;
      }
    }
    end_lets();
    Var var = make_var(name);
    scope_.names.emplace(name, var);
    defined_.push_back(name);
    BufferPtr prefetched;
    std::vector<Expr> indices;
    if (reader_.accept("prefetch")) {
      if (kind != ForKind::kSerial) reader_.fail("TSR-3126", "only serial loops prefetch", "for ... prefetch ...");
      std::tie(prefetched, indices) = element("a buffer");
    }
    Stmt body = braces();
    leave_scope(mark);
    Stmt result = for_loop(std::move(var), std::move(begin), std::move(extent), kind, std::move(body));
    return prefetched ? prefetching(result, std::move(prefetched), std::move(indices)) : result;
  }

  Expr index() {
    TextReader start = reader_;
    Expr e = parse_expr(reader_, scope_);
    if (e.dtype() != DType::kI64)
      start.fail("TSR-3124", fmt::format("the range of a loop is {}", dtype_name(e.dtype())), "i64");
    return e;
  }

  std::pair<BufferPtr, std::vector<Expr>> element(const char* what) {
    TextReader start = reader_;
    const std::string name = reader_.word(what);
    const auto it = scope_.buffers.find(name);
    if (it == scope_.buffers.end())
      start.fail("TSR-3102", fmt::format("there is no buffer '{}' here", name),
                 "parameters and the allocations around this place");
    const BufferPtr buffer = it->second;
    std::vector<Expr> indices = parse_indices(reader_, scope_);
    if (indices.size() != buffer->shape.size())
      start.fail("TSR-3103", fmt::format("buffer '{}' has {} dimensions, found {} indices", name, buffer->shape.size(),
                                         indices.size()));
    return {buffer, std::move(indices)};
  }

  Stmt parse_store() {
    TextReader start = reader_;
    auto [buffer, indices] = element("a statement");
    reader_.expect("=");
    Expr value = parse_expr(reader_, scope_);
    if (value.dtype() != buffer->dtype)
      start.fail("TSR-3124", fmt::format("a value of type {} is stored to '{}' of type {}", dtype_name(value.dtype()),
                                         buffer->name, dtype_name(buffer->dtype)));
    return store(buffer, std::move(indices), std::move(value));
  }

  std::string intrinsic_names() const {
    std::string names;
    for (const TensorIntrinsic& intrinsic : all_intrinsics()) names += (names.empty() ? "" : ", ") + intrinsic.name;
    for (const TensorIntrinsic* intrinsic : declared_) names += ", " + intrinsic->name;
    return names;
  }

  static constexpr size_t kMaxAllocs = 100;

  TextReader& reader_;
  const std::vector<Var>& symbols_;
  const Intrinsics declared_;
  ExprScope scope_;
  std::vector<std::string> defined_;  // names in order of definition
  int depth_ = 0;
};

}  // namespace

LoopProgram parse_kernel(TextReader& reader, const std::vector<Var>& symbols) {
  return Parser(reader, symbols).kernel();
}

std::vector<LoopProgram> parse_loop_programs(std::string_view text, std::string_view file, const Intrinsics& declared) {
  TextReader reader(text, std::string(file));
  std::vector<LoopProgram> programs;
  while (!reader.at_end()) programs.push_back(Parser(reader, {}, declared).kernel());
  return programs;
}

LoopProgram parse_loop_program(std::string_view text, std::string_view file) {
  std::vector<LoopProgram> programs = parse_loop_programs(text, file);
  if (programs.size() != 1)
    throw UserError(
        {"TSR-3127", fmt::format("expected one kernel, found {}", programs.size()), std::string(file), "", ""});
  return std::move(programs[0]);
}

}  // namespace tessera::inline loop
