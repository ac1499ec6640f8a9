#include "accel/rtl/kernel_module.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arith/simplify.h"
#include "loop/printer.h"
#include "support/error.h"

namespace tessera::inline rtl {

namespace {

bool is_f32(DType dtype) { return dtype == DType::kF32; }

// Bits of a value; a truth value has one, and eight where it is stored.
int value_bits(DType dtype) { return dtype == DType::kBool ? 1 : dtype_bits(dtype); }

std::string value_type(DType dtype) {
  if (value_bits(dtype) == 1) return "logic";
  return fmt::format("logic {}[{}:0]", is_signed_int(dtype) ? "signed " : "", value_bits(dtype) - 1);
}

// The whole number with its bits: 32'sd5, -(32'sd5) as 32'hfffffffb.
std::string literal(DType dtype, int64_t value) {
  const int bits = value_bits(dtype);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return fmt::format("{}'{}h{:x}", bits, is_signed_int(dtype) ? "s" : "", static_cast<uint64_t>(value) & mask);
}

class KernelWriter {
 public:
  KernelWriter(const Accelerator& unit, const UnitInstruction& kind)
      : unit_(unit), kind_(kind), kernel_(*kind.intrinsic->pattern()) {}

  KernelModule write() {
    KernelModule result;
    for (size_t p = 0; p < kernel_.params.size(); ++p) {
      const Buffer& param = *kernel_.params[p];
      check_type(param.dtype);
      result.reads.push_back(!is_output(p) || is_loaded(param) || !is_overwritten(param));
      names_[&param] = (is_output(p) ? "out_" : "op_") + param.name;
    }
    for (const Var& symbol : kernel_.symbols) symbols_.insert(symbol.get());
    find_lanes();
    std::string copies, body;
    for (size_t p = 0; p < kernel_.params.size(); ++p)
      if (is_output(p))
        copies += fmt::format("    {} = {};\n", names_.at(kernel_.params[p].get()),
                              result.reads[p] ? "op_" + kernel_.params[p]->name : "'0");
    if (lanes_) body += fmt::format("      {};\n", assignment(*lane_store_.get()));
    else statement(kernel_.body, 3, body);
    const std::string lane = lanes_ ? "_lane" : "";
    result.text = fmt::format("// {}\nmodule kernel_{}{} (\n    input logic enable{}\n);\n", summary(), kind_.name,
                              lane, ports(result.reads, lanes_));
    // Lanes are one piece of code that Verilator calls.
    if (lanes_) result.text += "  /* verilator no_inline_module */\n";
    if (uses_f32_) result.text += "`include \"f32.svh\"\n";
    for (const auto& [name, text] : functions_) result.text += text;
    result.text += locals_;
    result.text += "  always_comb begin\n" + copies + "    if (enable) begin\n" + body + "    end\n  end\nendmodule\n";
    if (lanes_) result.text += all_lanes(result.reads);
    return result;
  }

 private:
  bool is_output(size_t p) const { return p + static_cast<size_t>(kernel_.num_outputs) >= kernel_.params.size(); }

  // A kernel that computes each element of its results of the same elements of its operands, and nothing else.
  void find_lanes() {
    const Stmt& loop = kernel_.body;
    if (loop->kind != StmtKind::kFor || loop->stmts[0]->kind != StmtKind::kStore || !is_const_int(loop->begin, 0))
      return;
    const Stmt& store = loop->stmts[0];
    const auto extent = as_int(loop->extent);
    bool apart = extent.has_value() && kernel_.num_outputs == 1;
    const auto is_lane = [&](const std::vector<Expr>& index) {
      return index.size() == 1 && index[0].same_node(loop->var);
    };
    apart = apart && is_lane(store->indices);
    for (const BufferPtr& param : kernel_.params) apart = apart && extent && elements_of(*param) == *extent;
    size_t uses = 0, loads = 0;
    const std::function<void(const Expr&)> count = [&](const Expr& e) {
      uses += e.same_node(loop->var);
      loads += e->kind == ExprKind::kLoad;
      if (e->kind == ExprKind::kLoad) apart = apart && is_lane(e->operands);
      for (const Expr& operand : e->operands) count(operand);
    };
    count(store->value);
    if (!apart || uses != loads) return;
    lanes_ = *extent;
    lane_store_ = store;
  }

  // What a module has besides `enable`; of one lane, or of all.
  std::string ports(const std::vector<bool>& reads, int64_t lanes) const {
    std::string text;
    for (size_t p = 0; p < kernel_.params.size(); ++p) {
      const std::string& name = kernel_.params[p]->name;
      const int64_t bits = operand_bits(kind_, p) / std::max<int64_t>(lanes, 1);
      if (reads[p]) text += fmt::format(",\n    input logic [{}:0] op_{}", bits - 1, name);
      if (is_output(p)) text += fmt::format(",\n    output logic [{}:0] out_{}", bits - 1, name);
    }
    for (const Var& symbol : kernel_.symbols)
      text += fmt::format(",\n    input logic signed [63:0] imm_{}", symbol->name);
    return text;
  }

  std::string all_lanes(const std::vector<bool>& reads) const {
    std::string connections = "        .enable";
    for (size_t p = 0; p < kernel_.params.size(); ++p) {
      const int64_t bits = operand_bits(kind_, p) / lanes_;
      const auto connect = [&](const char* prefix) {
        connections += fmt::format(",\n        .{0}_{1}({0}_{1}[{2}*l+:{2}])", prefix, kernel_.params[p]->name, bits);
      };
      if (reads[p]) connect("op");
      if (is_output(p)) connect("out");
    }
    for (const Var& symbol : kernel_.symbols) connections += fmt::format(",\n        .imm_{}", symbol->name);
    return fmt::format(
        "\nmodule kernel_{0} (\n    input logic enable{1}\n);\n  for (genvar l = 0; l < {2}; l++) begin : gen_lane\n"
        "    kernel_{0}_lane lane (\n{3}\n    );\n  end\nendmodule\n",
        kind_.name, ports(reads, 0), lanes_, connections);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError({.id = "TSR-3510",
                     .message = fmt::format("no hardware is made of {}: '{}' has {}", unit_.name, kind_.name, what),
                     .node = kind_.name,
                     .legal = "whole numbers of 8 to 64 bits and f32; what hardware computes in one step",
                     .hint = {}});
  }

  void check_type(DType dtype) const {
    const bool whole = is_int(dtype) && dtype_bits(dtype) >= 8;
    if (!whole && !is_f32(dtype) && dtype != DType::kBool) refuse(fmt::format("elements of {}", dtype_name(dtype)));
  }

  std::string summary() const {
    std::string text = print(kernel_);
    const size_t end = text.find(" {");
    return text.substr(0, end == std::string::npos ? text.size() : end);
  }

  bool is_loaded(const Buffer& buffer) const {
    bool found = false;
    walk(kernel_.body, nullptr,
         [&](const Expr& e) { found = found || (e->kind == ExprKind::kLoad && e->buffer.get() == &buffer); });
    return found;
  }

  // Whether each element is stored to whatever the values are.
  bool is_overwritten(const Buffer& buffer) const {
    std::set<int64_t> stored;
    bool sure = true;
    VarMap at;
    const std::function<void(const Stmt&)> visit = [&](const Stmt& s) {
      if (!sure) return;
      if (s->kind == StmtKind::kStore && s->buffer.get() == &buffer) {
        const auto place = as_int(simplify(substitute(flat(buffer, s->indices), at)));
        sure = place.has_value();
        if (sure) stored.insert(*place);
      } else if (s->kind == StmtKind::kFor) {
        const auto begin = as_int(simplify(substitute(s->begin, at))),
                   extent = as_int(simplify(substitute(s->extent, at)));
        sure = begin && extent;
        for (int64_t i = 0; sure && i < *extent; ++i) {
          at[s->var.get()] = Expr(*begin + i);
          visit(s->stmts[0]);
        }
      } else if (s->kind != StmtKind::kIf) {
        for (const Stmt& child : s->stmts) visit(child);
      }
    };
    visit(kernel_.body);
    return sure && static_cast<int64_t>(stored.size()) == elements_of(buffer);
  }

  static int64_t elements_of(const Buffer& buffer) {
    int64_t elements = 1;
    for (const Expr& extent : buffer.shape) elements *= as_int(extent).value_or(1);
    return elements;
  }

  static Expr flat(const Buffer& buffer, const std::vector<Expr>& indices) {
    Expr at = 0;
    for (size_t d = 0; d < indices.size(); ++d) at = at * buffer.shape[d] + indices[d];
    return simplify(at);
  }

  // An element's bits of a vector.
  std::string element(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (lanes_) return names_.at(&buffer);
    const int bits = dtype_bits(buffer.dtype);
    return fmt::format("{}[{}*({})+:{}]", names_.at(&buffer), bits, index(flat(buffer, indices)), bits);
  }

  // An index counts in 32 bits, as loops do.
  std::string index(const Expr& e) {
    if (const auto value = as_int(e)) return std::to_string(*value);
    if (e->kind == ExprKind::kVar && !symbols_.contains(e.get())) return names_of_loops_.at(e.get());
    if (e->kind == ExprKind::kBinary) {
      const std::string a = index(e->operands[0]), b = index(e->operands[1]);
      switch (e->binary) {
        case BinaryOp::kAdd: return fmt::format("({} + {})", a, b);
        case BinaryOp::kSub: return fmt::format("({} - {})", a, b);
        case BinaryOp::kMul: return fmt::format("({} * {})", a, b);
        case BinaryOp::kFloorDiv: return fmt::format("({} / {})", a, b);  // places are not below 0
        case BinaryOp::kFloorMod: return fmt::format("({} % {})", a, b);
        default: break;
      }
    }
    refuse(fmt::format("an index '{}'", to_string(e)));
  }

  void statement(const Stmt& s, int depth, std::string& out) {
    const std::string indent(static_cast<size_t>(depth) * 2, ' ');
    switch (s->kind) {
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) statement(child, depth, out);
        return;
      case StmtKind::kFor: {
        const std::string name = unique_name("i_" + s->var->name, taken_);
        names_of_loops_[s->var.get()] = name;
        const std::string begin = index(simplify(s->begin)), end = index(simplify(s->begin + s->extent));
        out += fmt::format("{0}for (int {1} = {2}; {1} < {3}; {1}++) begin\n", indent, name, begin, end);
        statement(s->stmts[0], depth + 1, out);
        out += indent + "end\n";
        return;
      }
      case StmtKind::kIf:
        out += fmt::format("{}if ({}) begin\n", indent, value(s->condition));
        statement(s->stmts[0], depth + 1, out);
        if (s->stmts.size() > 1) {
          out += indent + "end else begin\n";
          statement(s->stmts[1], depth + 1, out);
        }
        out += indent + "end\n";
        return;
      case StmtKind::kAlloc: {
        check_type(s->buffer->dtype);
        const std::string name = unique_name("local_" + s->buffer->name, taken_);
        names_[s->buffer.get()] = name;
        locals_ +=
            fmt::format("  logic [{}:0] {};\n", elements_of(*s->buffer) * dtype_bits(s->buffer->dtype) - 1, name);
        out += fmt::format("{}{} = '0;\n", indent, name);
        return statement(s->stmts[0], depth, out);
      }
      case StmtKind::kStore: out += fmt::format("{}{};\n", indent, assignment(*s.get())); return;
      case StmtKind::kTensorized: break;
    }
    refuse("a statement that is marked as another instruction");
  }

  std::string assignment(const StmtNode& s) {
    std::string stored = value(s.value);
    if (s.buffer->dtype == DType::kBool) stored = fmt::format("{{7'd0, {}}}", stored);
    return fmt::format("{} = {}", element(*s.buffer, s.indices), stored);
  }

  std::string value(const Expr& e) {
    check_type(e.dtype());
    switch (e->kind) {
      case ExprKind::kConst:
        if (is_f32(e.dtype()))
          return fmt::format("32'h{:08x}", std::bit_cast<uint32_t>(static_cast<float>(e->float_value)));
        return literal(e.dtype(), e->int_value);
      case ExprKind::kVar:
        if (symbols_.contains(e.get())) return "imm_" + e->name;
        return fmt::format("64'({})", names_of_loops_.at(e.get()));
      case ExprKind::kLoad: {
        const std::string bits = element(*e->buffer, e->operands);
        return e.dtype() == DType::kBool ? fmt::format("({} != 8'd0)", bits) : bits;
      }
      case ExprKind::kUnary: return call(unary(e), {e->operands[0]});
      case ExprKind::kBinary: return call(binary(e), e->operands);
      case ExprKind::kSelect:
        return call(function("select_" + std::string(dtype_name(e.dtype())), e.dtype(),
                             {DType::kBool, e.dtype(), e.dtype()}, "a ? b : c"),
                    e->operands);
      case ExprKind::kCast: return call(conversion(e.dtype(), e->operands[0].dtype()), e->operands);
      case ExprKind::kFma: break;
    }
    refuse("a multiply-add that may be rounded once or twice");
  }

  std::string call(const std::string& name, const std::vector<Expr>& operands) {
    std::vector<std::string> values;
    for (const Expr& operand : operands) values.push_back(value(operand));
    return fmt::format("{}({})", name, fmt::join(values, ", "));
  }

  // A function of this module, written once; its arguments are a, b and c.
  std::string function(const std::string& name, DType result, const std::vector<DType>& arguments,
                       const std::string& expression) {
    std::vector<std::string> declared;
    for (size_t i = 0; i < arguments.size(); ++i)
      declared.push_back(fmt::format("input {} {}", value_type(arguments[i]), static_cast<char>('a' + i)));
    functions_[name] = fmt::format("  function automatic {} {}({});\n    {} = {};\n  endfunction\n", value_type(result),
                                   name, fmt::join(declared, ", "), name, expression);
    return name;
  }

  std::string f32_function(const std::string& name) {
    uses_f32_ = true;
    return "f32_" + name;
  }

  std::string unary(const Expr& e) {
    const DType type = e->operands[0].dtype();
    const std::string name = fmt::format("{}_{}", unary_name(e->unary), dtype_name(type));
    const auto of = [&](const std::string& expression) { return function(name, e.dtype(), {type}, expression); };
    if (is_f32(type)) {
      switch (e->unary) {
        case UnaryOp::kNeg: return of("{~a[31], a[30:0]}");
        case UnaryOp::kAbs: return of("{1'b0, a[30:0]}");
        case UnaryOp::kRound: return f32_function("round");
        case UnaryOp::kIsNan: return f32_function("is_nan");
        default: break;
      }
    } else {
      switch (e->unary) {
        case UnaryOp::kNeg: return of("-a");
        case UnaryOp::kAbs: return of(is_signed_int(type) ? "(a < 0) ? -a : a" : "a");
        case UnaryOp::kNot: return of("~a");
        default: break;
      }
    }
    if (e->unary == UnaryOp::kBitcast) return of("a");
    refuse(fmt::format("the operator '{}' on {}", unary_name(e->unary), dtype_name(type)));
  }

  std::string binary(const Expr& e) {
    const DType type = e->operands[0].dtype();
    const std::string name = fmt::format("{}_{}", binary_name(e->binary), dtype_name(type));
    const auto of = [&](const std::string& expression) { return function(name, e.dtype(), {type, type}, expression); };
    if (is_f32(type)) {
      switch (e->binary) {
        case BinaryOp::kAdd:
        case BinaryOp::kSub:
        case BinaryOp::kMul:
        case BinaryOp::kDiv:
        case BinaryOp::kMin:
        case BinaryOp::kMax:
        case BinaryOp::kEq:
        case BinaryOp::kLt:
        case BinaryOp::kLe: return f32_function(binary_name(e->binary));
        case BinaryOp::kNe: uses_f32_ = true; return of("!f32_eq(a, b)");
        case BinaryOp::kGt: uses_f32_ = true; return of("f32_lt(b, a)");
        case BinaryOp::kGe: uses_f32_ = true; return of("f32_le(b, a)");
        default: break;
      }
      refuse(fmt::format("the operator '{}' on f32", binary_name(e->binary)));
    }
    const int bits = value_bits(type);
    const bool has_sign = is_signed_int(type);
    const std::string zero = literal(type, 0), minus = literal(type, -1);
    // An amount of the width or more, taken as without a sign, shifts everything out.
    const std::string all = fmt::format("$unsigned(b) >= {}'d{}", bits, bits);
    switch (e->binary) {
      case BinaryOp::kAdd: return of("a + b");
      case BinaryOp::kSub: return of("a - b");
      case BinaryOp::kMul: return of("a * b");
      case BinaryOp::kDiv:
        return of(has_sign ? fmt::format("(b == {0}) ? {0} : (b == {1}) ? -a : a / b", zero, minus)
                           : fmt::format("(b == {0}) ? {0} : a / b", zero));
      case BinaryOp::kRem:
        return of(has_sign ? fmt::format("(b == {0}) ? a : (b == {1}) ? {0} : a % b", zero, minus)
                           : fmt::format("(b == {0}) ? a : a % b", zero));
      case BinaryOp::kMin: return of("(b < a) ? b : a");
      case BinaryOp::kMax: return of("(a < b) ? b : a");
      case BinaryOp::kAnd: return of("a & b");
      case BinaryOp::kOr: return of("a | b");
      case BinaryOp::kXor: return of("a ^ b");
      case BinaryOp::kShl: return of(fmt::format("({}) ? {} : a << b", all, zero));
      case BinaryOp::kShr:
        return of(has_sign ? fmt::format("({}) ? a >>> {} : a >>> b", all, bits - 1)
                           : fmt::format("({}) ? {} : a >> b", all, zero));
      case BinaryOp::kEq: return of("a == b");
      case BinaryOp::kNe: return of("a != b");
      case BinaryOp::kLt: return of("a < b");
      case BinaryOp::kLe: return of("a <= b");
      case BinaryOp::kGt: return of("a > b");
      case BinaryOp::kGe: return of("a >= b");
      default: break;
    }
    refuse(fmt::format("the operator '{}' on {}", binary_name(e->binary), dtype_name(type)));
  }

  std::string conversion(DType to, DType from) {
    const std::string name = fmt::format("{}_from_{}", dtype_name(to), dtype_name(from));
    const auto of = [&](const std::string& expression) { return function(name, to, {from}, expression); };
    if (to == from) return of("a");
    if (to == DType::kBool) return of(is_f32(from) ? "a[30:0] != 31'd0" : fmt::format("a != {}", literal(from, 0)));
    const int wide = value_bits(from), narrow = value_bits(to);
    // To 64 bits, with the sign where there is one.
    const std::string widened = wide == 64 ? "a"
                                           : fmt::format("{{{{{}{{{}}}}}, a}}", 64 - wide,
                                                         is_signed_int(from) ? fmt::format("a[{}]", wide - 1) : "1'b0");
    if (is_f32(to)) {
      if (from == DType::kU64) refuse("numbers of u64 as f32");
      uses_f32_ = true;
      return of(fmt::format("f32_from_i64({})", widened));
    }
    if (is_f32(from)) {
      if (to == DType::kU64 || to == DType::kI64) refuse("f32 as whole numbers of 64 bits");
      uses_f32_ = true;
      const int64_t most = (int64_t{1} << (is_signed_int(to) ? narrow - 1 : narrow)) - 1;
      return of(fmt::format("{}'(f32_to_int(a, {}, {}))", narrow,
                            literal(DType::kI64, is_signed_int(to) ? -most - 1 : 0), literal(DType::kI64, most)));
    }
    if (narrow == wide) return of("a");
    if (narrow < wide) return of(fmt::format("a[{}:0]", narrow - 1));
    return of(fmt::format("{{{{{}{{{}}}}}, a}}", narrow - wide,
                          is_signed_int(from) ? fmt::format("a[{}]", wide - 1) : "1'b0"));
  }

  const Accelerator& unit_;
  const UnitInstruction& kind_;
  const LoopProgram& kernel_;
  std::map<const Buffer*, std::string> names_;
  std::map<const ExprNode*, std::string> names_of_loops_;
  std::set<const ExprNode*> symbols_;
  std::unordered_set<std::string> taken_;
  std::map<std::string, std::string> functions_;
  std::string locals_;
  bool uses_f32_ = false;
  int64_t lanes_ = 0;  // of a kernel of lanes
  Stmt lane_store_;    // what one computes
};

}  // namespace

int64_t operand_bits(const UnitInstruction& kind, size_t operand) { return core_bytes(kind, operand) * 8; }

KernelModule kernel_module(const Accelerator& unit, const UnitInstruction& kind) {
  return KernelWriter(unit, kind).write();
}

}  // namespace tessera::inline rtl
