// The verbs of the command line: each file cmd_*.cpp declares its flags and does its work.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tessera {

// Exit codes, documented in docs/cli.md.
inline constexpr int kExitOk = 0;
inline constexpr int kExitUserError = 1;
inline constexpr int kExitMismatch = 2;
inline constexpr int kExitInternal = 64;
inline constexpr int kExitInterrupted = 130;

struct Command {
  CLI::App* app = nullptr;   // owned by the root
  std::function<int()> run;  // after parsing; answers the exit code
};

Command add_compile_command(CLI::App& root);
Command add_run_command(CLI::App& root);
Command add_verify_command(CLI::App& root);
Command add_bench_command(CLI::App& root);
Command add_explain_command(CLI::App& root);
Command add_inspect_command(CLI::App& root);
Command add_doctor_command(CLI::App& root);
Command add_diff_command(CLI::App& root);
Command add_bisect_command(CLI::App& root);
Command add_reduce_command(CLI::App& root);
Command add_opt_command(CLI::App& root);
Command add_schedule_command(CLI::App& root);
Command add_tune_command(CLI::App& root);
Command add_db_command(CLI::App& root);
Command add_worker_command(CLI::App& root);

}  // namespace tessera
