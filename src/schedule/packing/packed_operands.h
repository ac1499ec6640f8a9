// Storing weights in the order in which kernels read them: constants while compiling, weights that arrive at run time
// by kernels of their own (kernel/pack_loops.h), whose calls stand before those that read what they packed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "schedule/kernel/pack.h"
#include "target/target.h"

namespace tessera::inline schedule {

class PackedOperands {
 public:
  PackedOperands(Program& program, const Target& target);

  // Why some call's weights cannot be packed as the rule wants them; empty when they can.
  std::string problem(int32_t kernel, const std::vector<PackedParam>& packed) const;

  // Makes the calls of `kernel` read the packed form of a parameter. That of a constant is stored as a buffer of its
  // own; the contents of a constant that nobody reads any more go at once, so that all weights are in memory once, and
  // one of them twice.
  void use(int32_t kernel, const PackedParam& packed);

  // Lets kernels that look rows up in a large constant of bytes read the packed form that there is anyway.
  void share_tables();

  // Puts the calls that pack weights of run time where they happen least often: before the outermost loop that does not
  // change the weights, else where a call reads them first. Calls that read the same packing share it.
  void place_calls();

 private:
  struct Request {
    size_t param = 0;  // of the call
    size_t packing = 0;
  };

  struct PackedConstant {
    BufferId source = -1, packed = -1;
    PackedParam packing;
  };

  void use_constant(KernelCall& call, const PackedParam& packed, std::map<BufferId, BufferId>& made);
  size_t number_of(const PackedParam& packed, BufferId source);

  Program& program_;
  const Target& target_;
  std::vector<int> uses_;  // of each root buffer, by parameters of calls
  std::vector<PackedConstant> constants_;
  std::vector<PackedParam> packings_;                // that run-time weights are stored in
  std::map<std::string, size_t> packing_numbers_;    // by what they are
  std::map<size_t, std::vector<Request>> requests_;  // by call
};

}  // namespace tessera::inline schedule
