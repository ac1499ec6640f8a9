#include "loop/intrinsic_text.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arith/simplify.h"
#include "loop/fresh.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/unify.h"
#include "loop/verify.h"
#include "support/error.h"

namespace tessera::inline loop {
namespace {

constexpr size_t kMaxDeclarations = 1000;

// A path of the text, from its folder.
std::string beside(const std::string& file, const std::string& path) {
  const size_t slash = file.rfind('/');
  return path.starts_with('/') || slash == std::string::npos ? path : file.substr(0, slash + 1) + path;
}

class Parser {
 public:
  // `of_table`: the compiler's own.
  Parser(std::string_view text, const std::string& file, bool of_table = false)
      : reader_(text, file), file_(file), of_table_(of_table) {}

  std::vector<TensorIntrinsic> run() {
    std::vector<TensorIntrinsic> all;
    do {
      if (all.size() == kMaxDeclarations) reader_.fail("TSR-3130", "too many declarations");
      all.push_back(declaration());
      for (size_t i = 0; i + 1 < all.size(); ++i)
        if (all[i].name == all.back().name) fail(fmt::format("'{}' is declared twice", all[i].name), "");
    } while (!reader_.at_end());
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& legal) {
    reader_.fail("TSR-3130", message, legal);
  }

  TensorIntrinsic declaration() {
    TensorIntrinsic result;
    reader_.expect("intrinsic");
    result.name = reader_.quoted("the intrinsic's name");
    if (result.name.empty() || (!of_table_ && find_intrinsic(result.name)))
      fail(fmt::format("'{}' cannot be the name of an intrinsic", result.name),
           "a name that none in the compiler's table has");
    reader_.expect("{");
    std::vector<int64_t> shape;
    while (!reader_.accept("}")) {
      if (reader_.accept("needs")) {
        do result.features.push_back(reader_.quoted("a feature"));
        while (reader_.accept(","));
      } else if (of_table_ && reader_.accept("doc")) {
        result.doc = reader_.quoted("a text");
      } else if (of_table_ && reader_.accept("registers")) {
        result.registers = static_cast<int>(reader_.integer("a number"));
      } else if (of_table_ && reader_.accept("sums")) {
        result.dtype = dtype("sums");
      } else if (of_table_ && reader_.accept("code")) {
        const auto code = parse_intrinsic_code(reader_.word("a kind of code"));
        if (!code) fail("there is no such kind of code", "one of IntrinsicCode");
        result.code = *code;
      } else if (reader_.accept("use")) {
        reader_.expect("always");
        result.always = true;
      } else if (reader_.accept("shape")) {
        reader_.expect("[");
        do shape.push_back(reader_.integer("a number"));
        while (reader_.accept(","));
        reader_.expect("]");
        if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > 1 << 20 || shape[1] > 1 << 20)
          fail("a shape is lanes and depth", "two numbers from 1 to a million");
      } else if (reader_.accept("pattern")) {
        if (!of_table_) once(result.pattern(), "pattern");
        result.patterns.push_back({kernel("pattern")});
        if (const std::string problem = pattern_problem(*result.patterns.back().program); !problem.empty())
          fail(fmt::format("the pattern of '{}': {}", result.name, problem),
               "loops from 0 over numbers or symbols, sequences, stores, affine indices");
      } else if (!result.patterns.empty() && rule(result.patterns.back())) {
        continue;
      } else if (of_table_ && reader_.accept("clears")) {
        result.clear = IntrinsicPattern{kernel("pattern")};
      } else if (reader_.accept("body")) {
        implementation(result);
        result.body = kernel("body");
      } else if (reader_.accept("emit")) {
        implementation(result);
        result.like = reader_.quoted("an intrinsic of the table");
        const TensorIntrinsic* like = find_intrinsic(result.like);
        if (!like || !like->pattern()) fail(fmt::format("there is no '{}' to emit like", result.like), with_patterns());
        result.code = like->code;
        result.features.insert(result.features.end(), like->features.begin(), like->features.end());
        result.registers = like->registers;
      } else if (reader_.accept("call")) {
        implementation(result);
        result.call = reader_.quoted("the name of a function");
        if (!is_c_name(result.call)) fail(fmt::format("'{}' is no name of a function", result.call), "a name of C");
        reader_.expect("from");
        do result.link.push_back(file());
        while (reader_.accept(","));
      } else {
        reader_.fail_expected("needs, shape, pattern, body, emit, call, use or '}'");
      }
    }
    if (of_table_) finish_table_entry(result, shape);
    else finish(result, shape);
    return result;
  }

  DType dtype(const char* what) {
    const auto result = parse_dtype(reader_.word(what));
    if (!result) fail("there is no such type", "f32");
    return *result;
  }

  // A line that says more about the pattern in front of it.
  bool rule(IntrinsicPattern& pattern) {
    PatternRules& rules = pattern.rules;
    const LoopProgram& program = *pattern.program;
    const auto names_of_params = [&](std::set<std::string>& names) {
      std::vector<std::string> known;
      for (const BufferPtr& param : program.params) known.push_back(param->name);
      read_names(names, known);
      return true;
    };
    const auto names_of_symbols = [&](std::set<std::string>& names) {
      std::vector<std::string> known;
      for (const Var& symbol : program.symbols) known.push_back(symbol->name);
      read_names(names, known);
      return true;
    };
    if (reader_.accept("register")) return names_of_params(rules.in_registers);
    if (reader_.accept("memory")) return names_of_params(rules.in_memory);
    if (reader_.accept("padded")) return names_of_params(rules.padded);
    if (reader_.accept("range")) {
      std::set<std::string> names;
      names_of_symbols(names);
      const int64_t least = reader_.integer("a number");
      reader_.expect("..");
      const int64_t most = reader_.integer("a number");
      if (most < least) fail("a range ends before it begins", "range n 0..7");
      for (const std::string& name : names) rules.ranges[name] = {least, most};
      return true;
    }
    if (reader_.accept("moves")) return rules.any_type = true;
    if (!of_table_) return false;
    if (reader_.accept("widened")) return names_of_params(rules.widened);
    if (reader_.accept("open")) return names_of_symbols(rules.open);
    if (reader_.accept("exactly")) return rules.exact = true;
    if (reader_.accept("shifted")) {
      do rules.shifted.insert(reader_.word("a loop"));
      while (reader_.accept(","));
      return true;
    }
    return false;
  }

  void read_names(std::set<std::string>& names, const std::vector<std::string>& known) {
    do {
      const std::string name = reader_.word("a name of the pattern's");
      if (std::find(known.begin(), known.end(), name) == known.end())
        fail(fmt::format("the pattern has no '{}'", name), fmt::format("{}", fmt::join(known, ", ")));
      names.insert(name);
    } while (reader_.accept(","));
  }

  void once(const LoopProgram* given, const char* what) {
    if (given) fail(fmt::format("a second {}", what), fmt::format("one {}", what));
  }

  void implementation(const TensorIntrinsic& result) {
    if (result.body || result.code != IntrinsicCode::kNone || !result.call.empty())
      fail("a second implementation", "one of body, emit and call");
  }

  std::shared_ptr<const LoopProgram> kernel(const char* what) {
    LoopProgram program = parse_kernel(reader_);
    // A pattern may leave open how far a loop is unrolled.
    LoopProgram serial = program;
    serial.body = transform(program.body, nullptr, [](const Stmt& s) -> Stmt {
      const bool open = s->kind == StmtKind::kFor && s->for_kind == ForKind::kUnrolled && !as_int(s->extent);
      return open ? for_loop(s->var, s->begin, s->extent, ForKind::kSerial, s->stmts[0]) : Stmt();
    });
    if (const std::vector<std::string> violations = verify(serial); !violations.empty())
      fail(fmt::format("the {} breaks the rules of loop programs: {}", what, violations[0]), "");
    return std::make_shared<const LoopProgram>(std::move(program));
  }

  static bool is_c_name(const std::string& name) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
  }

  std::string file() {
    TextReader start = reader_;
    const std::string path = beside(file_, reader_.quoted("a file"));
    struct stat info{};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      start.fail("TSR-3131", fmt::format("there is no file '{}'", path), "an object file, an archive or a library");
    return path;
  }

  static std::string with_patterns() {
    std::string names;
    for (const TensorIntrinsic& intrinsic : all_intrinsics())
      if (intrinsic.pattern()) names += (names.empty() ? "" : ", ") + intrinsic.name;
    return names;
  }

  // Of the pattern, as far as nothing else is said.
  static void read_shape(TensorIntrinsic& result) {
    std::vector<int64_t> extents;
    walk(
        result.patterns[0].program->body,
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kFor && as_int(s->extent)) extents.push_back(*as_int(s->extent));
        },
        nullptr);
    result.lanes = extents.empty() ? 1 : static_cast<int>(extents[0]);
    result.depth = extents.size() < 2 ? 1 : static_cast<int>(extents[1]);
  }

  void finish_table_entry(TensorIntrinsic& result, const std::vector<int64_t>& shape) {
    check(result.code != IntrinsicCode::kNone, result.name + " has no code");
    if (!result.patterns.empty()) {
      const LoopProgram& pattern = *result.patterns[0].program;
      result.dtype = pattern.params.back()->dtype;
      result.factors = pattern.params[0]->dtype;
      result.second_factors = pattern.params[1]->dtype;
      read_shape(result);
    }
    if (result.clear) result.clear->rules = result.patterns.at(0).rules;
    check(!result.patterns.empty() || !shape.empty(), result.name + " has no shape");
    if (!shape.empty()) result.lanes = static_cast<int>(shape[0]), result.depth = static_cast<int>(shape[1]);
  }

  void finish(TensorIntrinsic& result, const std::vector<int64_t>& shape) {
    if (!result.pattern()) fail(fmt::format("'{}' has no pattern", result.name), "pattern kernel @..");
    if (!result.body && result.code == IntrinsicCode::kNone && result.call.empty())
      fail(fmt::format("'{}' has nothing that stands for it", result.name), "body, emit or call");
    if (result.body) check_body(result);
    if (!result.body && !result.patterns[0].rules.padded.empty())
      fail(fmt::format("'{}' has padded operands, and no body to read around them", result.name), "body");
    if (!result.call.empty())
      for (const BufferPtr& param : result.pattern()->params)
        if (dtype_bits(param->dtype) < 8)
          fail(fmt::format("'{}' calls a function with {}, and a pointer cannot mean {} of a byte", result.name,
                           param->name, dtype_bits(param->dtype) == 4 ? "half" : "a quarter"),
               "types of a byte or more");
    if (!result.like.empty()) {
      const TensorIntrinsic& like = *find_intrinsic(result.like);
      if (const std::string problem = unify(*like.pattern(), result.pattern()->body).problem; !problem.empty())
        fail(fmt::format("the pattern of '{}' is not that of '{}': {}", result.name, result.like, problem),
             print(*like.pattern()));
      result.lanes = like.lanes, result.depth = like.depth;
    }
    const LoopProgram& pattern = *result.pattern();
    result.dtype = pattern.params.back()->dtype;
    if (!shape.empty()) result.lanes = static_cast<int>(shape[0]), result.depth = static_cast<int>(shape[1]);
    else if (result.like.empty()) read_shape(result);
  }

  // Parameters and symbols as the pattern has them, each indexed there by loops that choose one dimension each.
  void check_body(const TensorIntrinsic& result) {
    const LoopProgram &pattern = *result.pattern(), &body = *result.body;
    const auto same_type = [](const BufferPtr& a, const BufferPtr& b) {
      if (a->dtype != b->dtype || a->shape.size() != b->shape.size()) return false;
      for (size_t i = 0; i < a->shape.size(); ++i)
        if (to_string(a->shape[i]) != to_string(b->shape[i])) return false;
      return true;
    };
    const auto signature = [](const LoopProgram& program) {
      const std::string text = print(program);
      return text.substr(0, text.find(" {\n"));
    };
    if (pattern.num_outputs != body.num_outputs || pattern.symbols.size() != body.symbols.size() ||
        !std::equal(pattern.params.begin(), pattern.params.end(), body.params.begin(), body.params.end(), same_type))
      fail(fmt::format("the body of '{}' has other parameters than the pattern: {}", result.name, signature(body)),
           signature(pattern));
    const auto plain = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      std::vector<const ExprNode*> seen;
      for (const Expr& index : indices) {
        if (index->kind != ExprKind::kVar || std::count(seen.begin(), seen.end(), index.get()))
          fail(fmt::format("the pattern of '{}' indexes {} by {}", result.name, buffer.name, to_string(index)),
               "with a body: a loop of its own for each dimension");
        seen.push_back(index.get());
      }
    };
    walk(
        pattern.body,
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kStore) plain(*s->buffer, s->indices);
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kLoad) plain(*e->buffer, e->operands);
        });
    walk(
        body.body,
        [&](const Stmt& s) {
          if (s->kind == StmtKind::kAlloc && s->buffer->scope != MemoryScope::kRegister)
            fail(fmt::format("the body of '{}' allocates {} in memory", result.name, s->buffer->name), "register");
          if (s->kind == StmtKind::kTensorized || (s->kind == StmtKind::kFor && is_concurrent(s->for_kind)))
            fail(fmt::format("the body of '{}' has '{}'", result.name, summary(s)), "");
        },
        [&](const Expr& e) {
          if (e->kind == ExprKind::kUnary && e->unary >= UnaryOp::kExp && e->unary <= UnaryOp::kAtanh &&
              e->unary != UnaryOp::kSqrt)
            fail(fmt::format("the body of '{}' has {}", result.name, unary_name(e->unary)), "call");
        });
  }

  TextReader reader_;
  const std::string file_;
  const bool of_table_;
};

}  // namespace

std::vector<TensorIntrinsic> parse_table_intrinsics(std::string_view text, const std::string& file) {
  return Parser(text, file, true).run();
}

Intrinsics parse_intrinsics(std::string_view text, const std::string& file) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::vector<TensorIntrinsic>> known;
  const std::lock_guard lock(mutex);
  auto it = known.find({file, std::string(text)});
  if (it == known.end()) it = known.emplace(std::pair(file, std::string(text)), Parser(text, file).run()).first;
  Intrinsics result;
  for (const TensorIntrinsic& intrinsic : it->second) result.push_back(&intrinsic);
  return result;
}

std::vector<int64_t> intrinsic_shape(const TensorIntrinsic& intrinsic) { return {intrinsic.lanes, intrinsic.depth}; }

Stmt intrinsic_body(const TensorIntrinsic& intrinsic, const Stmt& nest) {
  std::vector<Stmt> around;
  const PatternMatch match =
      unify(*intrinsic.pattern(), intrinsic_nest(intrinsic, nest, around), intrinsic.patterns[0].rules);
  check(match.problem.empty(), intrinsic.name + ": " + match.problem);
  const LoopProgram& body = *intrinsic.body;
  VarMap symbols;
  for (size_t i = 0; i < body.symbols.size(); ++i) symbols[body.symbols[i].get()] = Expr(match.symbols[i]);
  const auto region_of = [&](const Buffer* buffer) -> const PatternRegion* {
    for (size_t i = 0; i < body.params.size(); ++i)
      if (body.params[i].get() == buffer) return &match.regions[i];
    return nullptr;
  };
  // What the body's places are in terms of the pattern's loops.
  const auto place_of = [&](const PatternRegion& region, const std::vector<Expr>& indices) {
    VarMap map;
    for (size_t i = 0; i < indices.size(); ++i) map[region.pattern_at[i].get()] = indices[i];
    return map;
  };
  // The nest's index of an element that the body has at `indices`.
  const auto placed = [&](const PatternRegion& region, const std::vector<Expr>& indices) {
    const VarMap map = place_of(region, indices);
    std::vector<Expr> result;
    for (const Expr& index : region.at) result.push_back(simplify(substitute(index, map)));
    return result;
  };
  Stmt result = transform(
      with_fresh_definitions(body.body),
      [&](const Expr& e) -> Expr {
        if (e->kind == ExprKind::kVar) {
          const auto it = symbols.find(e.get());
          return it == symbols.end() ? Expr() : it->second;
        }
        if (e->kind != ExprKind::kLoad) return {};
        const PatternRegion* region = region_of(e->buffer.get());
        if (!region) return {};
        const Expr element = load(region->buffer, placed(*region, e->operands));
        if (!region->inside) return element;
        const Expr zero = is_float(e.dtype()) ? const_float(e.dtype(), 0) : const_int(e.dtype(), 0);
        return select(simplify(substitute(region->inside, place_of(*region, e->operands))), element, zero);
      },
      [&](const Stmt& s) -> Stmt {
        if (s->kind != StmtKind::kStore) return {};
        const PatternRegion* region = region_of(s->buffer.get());
        return region ? store(region->buffer, placed(*region, s->indices), s->value) : Stmt();
      });
  for (size_t i = around.size(); i-- > 0;)
    result = for_loop(around[i]->var, around[i]->begin, around[i]->extent, around[i]->for_kind, result);
  return result;
}

}  // namespace tessera::inline loop
