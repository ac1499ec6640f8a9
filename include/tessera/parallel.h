// Processes that share a model (docs/parallel.md): which of them this is, and plans for what each computes.
//
//   const ShardedModel plan(graph, {.mesh = "data=2,model=2"});
//   compile_file(plan.graph(this_process().rank), "part.so");   // and run it in each process that mpirun starts
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/graph.h"

namespace tessera {

struct ThisProcess {
  int64_t rank = 0, ranks = 1;
  std::string communicator = "mpi";  // the device that collectives run on: "mpi", or "gloo" of torchrun's processes
};
// As mpirun or torchrun says in the environment; one process alone without. CompileError TSR-6250 for numbers that are
// none.
ThisProcess this_process();

// "data=2,model=2" as it was given. CompileError TSR-2110 for what is no mesh.
std::string checked_mesh(const std::string& text);

// How an input or a constant lies: for each axis of the mesh the dimension that it cuts, or -1: all have copies.
struct PlacedValue {
  std::string name;
  std::vector<int> dims;
};

struct ShardingSettings {
  std::string mesh;                 // "data=2,model=2": the axis `data` cuts inputs along dimension 0
  std::vector<PlacedValue> places;  // what is not left to the plan
  double bytes_per_second = 5e9;    // that a process sends
  double latency_seconds = 2e-5;    // of a collective
};

// A plan: a sharding for each value, and what that costs. Immutable; copies share it.
class ShardedModel {
 public:
  // CompileError TSR-2110 for a mesh or places that do not fit, TSR-2111 for a model with states or open sizes.
  ShardedModel(const builder::Graph& model, const ShardingSettings& settings);

  std::string text(bool values) const;  // as `tessera parallelize` prints it; `values`: with --values
  std::string json() const;             // as --json prints it
  int64_t ranks() const;
  // How a value of the model lies, "@{data,_}+sum(model)"; empty: there is none of this name.
  std::string sharding(const std::string& value) const;
  // What a rank runs: it takes whole inputs, and has whole outputs. REQUIRES: 0 <= rank < ranks().
  builder::Graph graph(int64_t rank) const;
  // Writes plan.json and the graph of each rank, for `mpirun -n N tessera run FOLDER`.
  void save(const std::string& folder) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace tessera
