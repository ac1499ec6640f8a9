// The thread form of a kernel: what runs on a GPU's blocks of threads. Loops over axes of blocks and threads mean "in
// order" in the loop IR (loop/stmt.h); here each becomes the threads that run it at the same time, so what one thread
// must see of another is said by barriers. They are derived (device/barriers.h): all threads of a block wait before a
// nest of thread loops that touches memory which an earlier nest has touched since the last barrier, when one of the
// two writes.
//
// before:  blockIdx.x for b in 0..8 {             after:  launch of 8 blocks of 64 threads
//            alloc part: f32[64] local                      shared part: f32[64]
//            threadIdx.x for t in 0..64 { part[t] = .. }    part[t] = ..
//            threadIdx.x for u in 0..1 { .. part[i] .. } }  barrier;  if u < 1 { .. part[i] .. }
//
// Of a block, every thread runs what stands outside of its thread loops, so that is serial loops, conditions and
// allocations, whose bounds and conditions are the same for all threads; stores that stand there run on the first
// thread. A local buffer that is allocated there is one for the block, in the memory that its threads share; a register
// buffer is each thread's own where its first dimensions are the threads, every access begins with the variables of the
// thread loops around it, and each of these dimensions is one axis; else it is the block's, too. What is allocated
// inside of thread loops is the thread's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline device {

// One launch of a grid of blocks.
struct Launch {
  std::array<Expr, 3> blocks;      // along x, y and z: constants, or expressions of the program's symbols
  std::array<int64_t, 3> threads;  // of a block
  // Loops over axes stand for the index along them; one over fewer iterations than the block has threads leaves the
  // others out. Each nest of thread loops has all axes of the block.
  Stmt body;
  std::unordered_set<const StmtNode*> barriers;  // statements of `body` before which all threads of a block wait
  // Statements whose asynchronous copies are a group; and those before whose barrier each thread waits until so many of
  // its latest groups, at most, are under way (device/barriers.h).
  std::unordered_set<const StmtNode*> copies;
  std::unordered_map<const StmtNode*, int> waits;
  std::vector<BufferPtr> shared;  // allocated in `body`
  int64_t shared_bytes = 0;       // of all of them

  int64_t num_threads() const { return threads[0] * threads[1] * threads[2]; }
};

struct DeviceKernel {
  std::vector<Launch> launches;  // one after the other
  std::string problem;           // why the program has no thread form; empty when it has
};

// REQUIRES: a program that verifies. What stands outside of all loops over blocks is a launch of one thread.
DeviceKernel thread_form(const LoopProgram& program);

}  // namespace tessera::inline device
