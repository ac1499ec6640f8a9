// The text form of schedules: parse, print, read that again; then apply it to small programs, which must stay legal,
// and replay the trace. The same bytes as a tuning record's trace of a small kernel: refused, or a legal program.
#include "fuzz_target.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "schedule/primitives/trace.h"
#include "schedule/sketches/sketch.h"
#include "te/canonical.h"

using namespace tessera;

namespace {

constexpr const char* kPrograms[] = {
    R"(kernel @matmul(A: f32[16,8], B: f32[8,64]) -> (C: f32[16,64]) {
  for i in 0..16 { for j in 0..64 { C[i, j] = 0:f32 for k in 0..8 { C[i, j] = C[i, j] + A[i, k] * B[k, j] } } } })",
    R"(kernel @conv(x: f32[4,8,8], w: f32[32,4,3,3]) -> (y: f32[32,8,8]) {
  alloc xp: f32[4,10,10] local
  for pc in 0..4 { for ph in 0..10 { for pw in 0..10 {
    xp[pc, ph, pw] = select((1 <= ph & ph <= 8) & (1 <= pw & pw <= 8), x[pc, ph - 1, pw - 1], 0:f32) } } }
  for o in 0..32 { for h in 0..8 { for v in 0..8 {
    y[o, h, v] = 0:f32
    for c in 0..4 { for kh in 0..3 { for kw in 0..3 {
      y[o, h, v] = y[o, h, v] + xp[c, h + kh, v + kw] * w[o, c, kh, kw] } } } } } } })",
    R"(kernel @softmax(x: f32[8,20]) -> (y: f32[8,20]) {
  alloc top: f32[8] local
  alloc e: f32[8,20] local
  alloc total: f32[8] local
  for i0 in 0..8 { top[i0] = -inf:f32 for j0 in 0..20 { top[i0] = max(top[i0], x[i0, j0]) } }
  for i1 in 0..8 { for j1 in 0..20 { e[i1, j1] = exp(x[i1, j1] - top[i1]) } }
  for i2 in 0..8 { total[i2] = 0:f32 for j2 in 0..20 { total[i2] = total[i2] + e[i2, j2] } }
  for i3 in 0..8 { for j3 in 0..20 { y[i3, j3] = e[i3, j3] / total[i3] } } })"};

// A convolution with weights, as records have it: 4 channels of 6 x 5 places, padded by one, every second column.
constexpr const char* kKernel =
    "param  f32 i64:1 i64:4 i64:6 i64:5\n"
    "param  const f32 i64:20 i64:4 i64:3 i64:3\n"
    "axis i64:1\n"
    "axis i64:20\n"
    "axis i64:6\n"
    "axis i64:3\n"
    "reduce i64:4\n"
    "reduce i64:3\n"
    "reduce i64:3\n"
    "e0 = add i64 v2 v5\n"
    "e1 = sub i64 e0 i64:1\n"
    "e2 = le bool i64:0 e1\n"
    "e3 = lt bool e1 i64:6\n"
    "e4 = and bool e2 e3\n"
    "e5 = mul i64 v3 i64:2\n"
    "e6 = add i64 e5 v6\n"
    "e7 = sub i64 e6 i64:1\n"
    "e8 = le bool i64:0 e7\n"
    "e9 = lt bool e7 i64:5\n"
    "e10 = and bool e8 e9\n"
    "e11 = and bool e4 e10\n"
    "e12 = load b0 f32 v0 v4 e1 e7\n"
    "e13 = select f32 e11 e12 f32:0x0p+0\n"
    "e14 = load b1 f32 v1 v4 v5 v6\n"
    "e15 = mul f32 e13 e14\n"
    "stage {0,1/16,2,3,1%16} sum e15 f32 i64:1 i64:20 i64:6 i64:3\n";

void as_record(const std::string& text) {
  std::string why;
  const auto point = parse_trace_point(text, why);
  fuzz::require(point || !why.empty(), "a record is refused without a reason");
  if (!point) return;
  fuzz::require(parse_trace_point(trace_point_text(*point), why) == point, "a point's text gives another point");
  static const TensorProgram kernel = parse_canonical_text(kKernel);
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma", "avx512f"};
  const auto answer = apply_trace_point(*point, kernel, target);
  if (const auto* declined = std::get_if<Declined>(&answer)) {
    fuzz::require(!declined->reason.empty(), "a trace is declined without a reason");
    return;
  }
  const auto& scheduled = std::get<ScheduledKernel>(answer);
  fuzz::require(verify(scheduled.program).empty(), "a record makes a program that is not legal");
  for (const PackedParam& packed : scheduled.packed)
    fuzz::require(packed.param == 1 && packed.num_elements() <= 4 * 720 + (1 << 16),
                  "weights are packed out of proportion");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 20000) return 0;
  as_record(std::string(fuzz::text_of(data, size)));
  std::vector<TraceStep> steps;
  const bool read = fuzz::accepts([&] { steps = parse_trace(fuzz::text_of(data, size)); });
  if (!read) return 0;
  const std::string printed = print_trace(steps);
  fuzz::require(print_trace(parse_trace(printed)) == printed, "print, parse, print gives another text");
  if (steps.size() > 60) steps.resize(60);
  for (const char* text : kPrograms) {
    const LoopProgram program = parse_loop_program(text);
    Schedule schedule(program);
    fuzz::accepts([&] { replay(schedule, steps); });  // what was applied before a refusal stays
    const std::string result = print(schedule.program());
    fuzz::require(print(parse_loop_program(result)) == result, "the program's text does not read back");
    Schedule again(program);
    replay(again, parse_trace(schedule.trace()));
    fuzz::require(print(again.program()) == result, "the trace replays to another program");
  }
  return 0;
}
