// Loop programs and their schedules: a kernel as text, rewritten step by step, checked, timed and run.
//
//   tessera::LoopSchedule s(R"(kernel @scale(x: f32[64,100]) -> (y: f32[64,100]) {
//     for i in 0..64 { for j in 0..100 { y[i, j] = (x[i, j] * 2:f32) } }
//   })");
//   const auto j = s.split("j", {0, 16});   // 0: as many as needed
//   s.vectorize(j[1]);
//   s.check();
//   std::cout << s.emit("loop");
//
// docs/schedules.md has the language, every primitive, and what each is checked for. The methods here write one line of
// it and apply that; `apply` takes the lines themselves. The decisions that a tuner draws (sample_..) are no methods:
// `apply` takes their lines.
//
// Thread safety: one thread at a time per object. Errors: CompileError (a refused step names the loop in the way and
// what would be legal, and leaves the schedule as it was).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {

class LoopSchedule {
 public:
  struct Options {
    std::string target = "native";                 // as CompileOptions::target
    int num_threads = 1;                           // of parallel loops
    std::string kernel = "";                       // its name, where the text has several
    std::string intrinsics = "";                   // a text that declares tensor intrinsics; may be empty
    std::string intrinsics_file = "<intrinsics>";  // its name in messages; paths in it begin at its folder
  };
  // `loops`: text of loop programs. A second constructor: default arguments cannot name a nested class's defaults.
  explicit LoopSchedule(std::string_view loops);
  LoopSchedule(std::string_view loops, const Options& options);
  ~LoopSchedule();
  LoopSchedule(LoopSchedule&&) noexcept;
  LoopSchedule& operator=(LoopSchedule&&) noexcept;

  // What the last step made: names of loops and buffers, and numbers where it gives numbers.
  struct Applied {
    std::vector<std::string> names;
    std::vector<int64_t> numbers;
  };
  // Lines of a schedule, all or none of them.
  Applied apply(std::string_view steps);

  using Names = std::vector<std::string>;
  // ---- the primitives, by their names in the field
  Names split(const std::string& loop, const std::vector<int64_t>& factors);  // a factor of 0: as many as needed
  std::string fuse(const Names& loops);
  void reorder(const Names& loops);
  Names tile(const std::string& i, const std::string& j, int64_t i_factor, int64_t j_factor);
  void pad(const std::string& loop, int64_t multiple);
  void vectorize(const std::string& loop);
  void unroll(const std::string& loop);
  void parallel(const std::string& loop);
  void fission(const std::string& loop, const std::string& statement);
  void decompose_reduction(const std::string& block, const std::string& loop);
  std::string rfactor(const std::string& block, const std::string& loop);
  void predicate(const std::string& statement);
  void compute_at(const std::string& stage, const std::string& loop);
  void reverse_compute_at(const std::string& stage, const std::string& loop);
  void compute_inline(const std::string& stage);
  std::string cache_read(const std::string& buffer, const std::string& scope = "local", const std::string& reader = "");
  std::string cache_write(const std::string& stage, const std::string& scope = "local");
  void set_scope(const std::string& buffer, const std::string& scope);
  void store_at(const std::string& buffer, const std::string& loop);
  void transform_layout(const std::string& buffer, const std::string& mapping);  // "(k, j) -> [j, k]"
  std::vector<int64_t> intrinsic(const std::string& name);                       // lanes, depth
  void blockize(const std::string& loop);
  void tensorize(const std::string& loop, const std::string& intrinsic = "");
  void virtual_thread(const std::string& loop);
  void software_pipeline(const std::string& loop, int64_t statements);
  void annotate(const std::string& statement, const std::string& key, int64_t value);
  void bind(const std::string& loop,
            const std::string& axis);  // "blockIdx.x", "threadIdx.y", ...; a CPU runs it in order

  // ---- what became of it
  // "loop", "trace", "llvm", "asm", "mca", "cache": as `tessera schedule --emit`.
  std::string emit(std::string_view level) const;
  Names loops() const;    // in the order of the text
  Names buffers() const;  // parameters, then allocations

  struct Check {
    std::string output, how, text;
    bool agrees = false;
  };
  // The scheduled program beside the original on random inputs, in the interpreter and as compiled code.
  std::vector<Check> check() const;

  struct Times {
    double original_ms = 0, scheduled_ms = 0;  // medians
    double gflops = 0, peak_gflops = 0;        // of the scheduled program; of the machine's multiply-adds in f32
  };
  // About `seconds` in all. `with_original`: the naive program, too, in turn.
  Times time(double seconds = 1, bool with_original = true) const;

  // Names live until the object is changed.
  std::vector<tessera_tensor_info> inputs() const;
  std::vector<tessera_tensor_info> outputs() const;
  // Runs the compiled program. dtype and dims of each tensor are checked; the data of every output is written.
  void run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
