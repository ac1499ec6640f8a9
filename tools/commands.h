// The verbs of the command line: each file cmd_*.cpp declares its flags and does its work. A new verb is such a file
// and two lines here: its declaration, and its place among the others.
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
Command add_export_command(CLI::App& root);
Command add_report_command(CLI::App& root);
Command add_operators_command(CLI::App& root);
Command add_doctor_command(CLI::App& root);
Command add_diff_command(CLI::App& root);
Command add_bisect_command(CLI::App& root);
Command add_reduce_command(CLI::App& root);
Command add_opt_command(CLI::App& root);
Command add_schedule_command(CLI::App& root);
Command add_accel_command(CLI::App& root);
Command add_quantize_command(CLI::App& root);
Command add_tune_command(CLI::App& root);
Command add_db_command(CLI::App& root);
Command add_train_command(CLI::App& root);
Command add_strip_command(CLI::App& root);
Command add_grad_command(CLI::App& root);
Command add_gradcheck_command(CLI::App& root);
Command add_parallelize_command(CLI::App& root);
Command add_generate_command(CLI::App& root);
Command add_serve_command(CLI::App& root);
Command add_worker_command(CLI::App& root);
Command add_completion_command(CLI::App& root);
Command add_man_command(CLI::App& root);

// In the order of the help.
inline constexpr Command (*kVerbs[])(CLI::App& root) = {
    add_compile_command, add_run_command,        add_verify_command,      add_bench_command,    add_explain_command,
    add_inspect_command, add_export_command,     add_operators_command,   add_doctor_command,   add_diff_command,
    add_bisect_command,  add_reduce_command,     add_opt_command,         add_schedule_command, add_accel_command,
    add_tune_command,    add_db_command,         add_quantize_command,    add_train_command,    add_strip_command,
    add_grad_command,    add_gradcheck_command,  add_parallelize_command, add_generate_command, add_serve_command,
    add_worker_command,  add_completion_command, add_man_command,         add_report_command,
};

}  // namespace tessera
