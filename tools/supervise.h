// Processes that train together, started and watched by one that does not train: when one of them ends, all are
// started again, and go on from the last checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct SuperviseOptions {
  int64_t processes = 1;
  int64_t restarts = 0;    // at most so many
  std::string checkpoint;  // that a group which does anything writes anew
};

// The arguments of this process without the named options, which have a value each.
std::vector<std::string> arguments_without(const std::vector<std::string>& names);

// Runs `mpirun -n PROCESSES` this program with `arguments`, again and again until it ends well. It is given up when
// three in a row have not written the checkpoint, and at once when none has and it ended with an error of its own.
// Nothing that it started outlives it. The exit code is the last group's. UserError TSR-6252 where there is no mpirun.
int supervise(const std::vector<std::string>& arguments, const SuperviseOptions& options);

}  // namespace tessera
