// Holds loops with axes of blocks and threads against what they are to compute: as loops, and as threads in three
// orders; and without each barrier, which must show.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "device/thread_form.h"
#include "interp/thread_interp.h"
#include "loop/stmt.h"
#include "types/tensor.h"

namespace tessera {

inline constexpr ThreadOrder kOrders[] = {ThreadOrder::kForwards, ThreadOrder::kBackwards, ThreadOrder::kShuffled};

// Eighths from -2 to 2.
std::vector<Tensor> random_params(const LoopProgram& program, std::mt19937& random);

// Of another shape as it is: parameters of rules are flat.
Tensor reshaped(const Tensor& tensor, const Buffer& like);

// Results of a program of fixed sizes for what is given as all of its parameters.
std::vector<Tensor> by_loops(const LoopProgram& program, const std::vector<Tensor>& given);
std::vector<Tensor> by_threads(const LoopProgram& program, const DeviceKernel& kernel, const std::vector<Tensor>& given,
                               ThreadOrder order);

// Empty when they agree: floats within so much of the largest.
std::string difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance = 1e-5);

struct Counts {
  std::map<std::string, int> taken;
  int barriers = 0, waits = 0;
};

// Fails the test where something does not agree, or where no order of the threads shows that a barrier or a wait for
// copies is missing. `tolerance`: as for difference().
void expect_threads_agree(const LoopProgram& program, const std::vector<Tensor>& given, const std::vector<Tensor>& want,
                          Counts& counts, bool needs_all_barriers = true, double tolerance = 1e-5);

}  // namespace tessera
