#include "codegen/gpu/gpu_codegen.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "abi/launch_table.h"
#include "codegen/common/host_plan.h"
#include "codegen/common/object_code.h"
#include "codegen/gpu/gpu_dialects.h"
#include "codegen/source/c_text.h"
#include "codegen/source/kernel_printer.h"
#include "device/thread_form.h"
#include "support/error.h"

namespace tessera::inline gpu_codegen {
namespace {

bool uses_doubles(const LoopProgram& program) {
  bool found = false;
  for (const BufferPtr& param : program.params) found = found || param->dtype == DType::kF64;
  walk(
      program.body, [&](const Stmt& s) { found = found || (s->buffer && s->buffer->dtype == DType::kF64); },
      [&](const Expr& e) { found = found || e->dtype == DType::kF64; });
  return found;
}

// Of each parameter of a kernel, whether all calls give it memory that begins at a multiple of 16 bytes. Buffers do;
// views may begin anywhere.
std::vector<bool> aligned_params(const Program& program, size_t kernel) {
  constexpr int64_t kVectorBytes = 16;
  std::vector<bool> aligned(program.kernels[kernel].program.params.size(), true);
  const auto begins_aligned = [&](BufferId id) {
    for (const ProgramBuffer* buffer = &program.buffers[static_cast<size_t>(id)]; buffer->alias_of >= 0;
         buffer = &program.buffers[static_cast<size_t>(buffer->alias_of)])
      if (buffer->view_offset_formula || buffer->view_offset % kVectorBytes != 0) return false;
    return true;
  };
  for (const KernelCall& call : program.calls)
    for (size_t i = 0; static_cast<size_t>(call.kernel) == kernel && i < call.args.size(); ++i)
      aligned[i] = aligned[i] && begins_aligned(call.args[i]);
  return aligned;
}

// A number of blocks as the table has it (abi/launch_table.h). Empty where it has no such form.
std::string blocks_text(const Expr& blocks, const std::vector<Var>& symbols) {
  if (const auto number = as_int(blocks)) return fmt::format("{}", std::max<int64_t>(*number, 0));
  if (blocks->kind == ExprKind::kConst) return "";
  if (blocks->kind == ExprKind::kVar) {
    const auto it = std::find_if(symbols.begin(), symbols.end(), [&](const Var& var) { return blocks.same_node(var); });
    return it == symbols.end() ? "" : fmt::format("s{}", it - symbols.begin());
  }
  if (blocks->kind != ExprKind::kBinary) return "";
  char operation = 0;
  switch (blocks->binary) {
    case BinaryOp::kAdd: operation = '+'; break;
    case BinaryOp::kSub: operation = '-'; break;
    case BinaryOp::kMul: operation = '*'; break;
    case BinaryOp::kFloorDiv: operation = '/'; break;
    case BinaryOp::kFloorMod: operation = '%'; break;
    case BinaryOp::kMin: operation = '<'; break;
    case BinaryOp::kMax: operation = '>'; break;
    default: return "";
  }
  const Expr &left = blocks->operands[0], &right = blocks->operands[1];
  // The table's numbers have no sign.
  if (const auto number = as_int(right); number && *number < 0 && (operation == '+' || operation == '-')) {
    const std::string a = blocks_text(left, symbols);
    return a.empty() ? "" : fmt::format("{},{},{}", a, -*number, operation == '+' ? '-' : '+');
  }
  if (const auto number = as_int(right); number && *number < 0 && operation == '*') {
    const std::string a = blocks_text(left, symbols);
    return a.empty() ? "" : fmt::format("0,{},{},*,-", a, -*number);
  }
  if (as_int(left).value_or(0) < 0) return "";
  const std::string a = blocks_text(left, symbols), b = blocks_text(right, symbols);
  return a.empty() || b.empty() ? "" : fmt::format("{},{},{}", a, b, operation);
}

// What profilers show of a kernel: its nodes, or what its program is called.
std::string name_of(const Kernel& kernel) {
  constexpr size_t kMostLetters = 100;
  return identifier(kernel.loc.empty() ? kernel.program.name : kernel.loc).substr(0, kMostLetters);
}

// Text behind "//" in one line.
std::string comment(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\\'; }, ' ');
  return text;
}

}  // namespace

std::string no_gpu_code(const LoopProgram& program) {
  std::string problem;
  const auto see = [&](DType dtype) {
    if (problem.empty() && !has_c_type(dtype)) problem = fmt::format("elements of type {}", dtype_name(dtype));
  };
  for (const BufferPtr& param : program.params) see(param->dtype);
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->buffer) see(s->buffer->dtype);
      },
      [&](const Expr& e) { see(e->dtype); });
  if (!problem.empty()) return problem;
  const DeviceKernel kernel = thread_form(program);
  for (const Launch& launch : kernel.launches)
    for (const Expr& blocks : launch.blocks)
      if (const std::string text = blocks_text(blocks, program.symbols); text.empty() || text.size() >= TSR_BLOCKS_TEXT)
        return "a number of blocks that takes too long a formula";
  return kernel.problem;
}

std::string generate_gpu_source(const Program& program, int32_t device, const Dialect& dialect) {
  const HostPlan plan(program);
  COps ops(dialect);
  std::string table, kernels;
  int64_t most_threads = 1, most_shared = 0;
  bool doubles = false;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel& kernel = program.kernels[i];
    if (kernel.device != device) continue;
    const DeviceKernel form = thread_form(kernel.program);
    check(form.problem.empty(), "kernel " + kernel.program.name + " has no thread form: " + form.problem);
    doubles = doubles || uses_doubles(kernel.program);
    table += fmt::format("//tsr operation {} {} {} {}\n", operation_name(static_cast<int32_t>(i)),
                         kernel.program.params.size(), kernel.program.symbols.size(), form.launches.size());
    if (!kernel.loc.empty()) kernels += fmt::format("\n// {}\n", comment(kernel.loc));
    for (size_t l = 0; l < form.launches.size(); ++l) {
      const Launch& launch = form.launches[l];
      const std::string name =
          fmt::format("k{}_{}{}", i, name_of(kernel), form.launches.size() > 1 ? fmt::format("_{}", l) : "");
      const auto blocks = [&](size_t axis) { return blocks_text(launch.blocks[axis], kernel.program.symbols); };
      const int64_t shared = is_shared_dynamic(launch, dialect) ? launch.shared_bytes : 0;
      table +=
          fmt::format("//tsr launch {} {} {} {} {} {} {}{}\n", name, blocks(0), blocks(1), blocks(2), launch.threads[0],
                      launch.threads[1], launch.threads[2], shared > 0 ? fmt::format(" {}", shared) : "");
      KernelPrinter printer(kernel.program, name, plan.alias_classes[i], ops, &launch, aligned_params(program, i));
      kernels += printer.print();
      most_threads = std::max(most_threads, launch.num_threads());
      most_shared = std::max(most_shared, launch.shared_bytes);
    }
  }
  const std::string helpers = ops.helper_text();
  doubles = doubles || helpers.find("f64") != std::string::npos;
  return fmt::format("//tsr 1 {}\n//tsr limits {} {} {}\n", dialect.name.substr(0, dialect.name.find(' ')),
                     most_threads, most_shared, doubles ? 1 : 0) +
         table + prelude_of(dialect, doubles, kernels) + helpers + kernels;
}

}  // namespace tessera::inline gpu_codegen
