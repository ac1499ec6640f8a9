// The model that learns: read, compiled, and written with what it has learnt.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/options.h"
#include "driver/training/pruning.h"
#include "driver/training/whole_states.h"
#include "graph/graph.h"
#include "package/anonymous_file.h"
#include "tessera/train.h"

namespace tessera::inline driver {

struct TrainingRequest {
  const std::string &model, &output;
  const TrainSettings& settings;
  const DriverOptions& driver;
  const std::string& communicator;  // by which processes reach each other: the kind of a device
};

// For so many samples, where the model leaves that open.
Graph read_graph(const std::string& path, const TrainingRequest& request, int64_t batch);
// The model whose weights learn, of the graph of a reader: training makes what it needs of it, and what has learnt goes
// back into it.
Graph learner(const Graph& graph, const TrainingRequest& request);
// With the values that fake quantisation makes of what its products read, where the request asks for it.
Graph with_fake_integers(const Graph& learner, const TrainingRequest& request);

// For a graph that has no open sizes any more.
DriverOptions options_of_graph(const TrainingRequest& request);
Compiled compiled_code(Graph graph, const TrainingRequest& request);
std::unique_ptr<Model> loaded(const Compiled& code, const TrainingRequest& request);
inline std::unique_ptr<Model> compiled(Graph graph, const TrainingRequest& request) {
  return loaded(compiled_code(std::move(graph), request), request);
}

// What in the step first gave numbers that are not finite, of its inputs and states: a sentence; empty: not found.
std::string cause_of(const Graph& step, const std::vector<Tensor>& inputs, const TrainingRequest& request);

// Makes what is written of a graph as it is read, whatever its sizes.
using Finish = std::function<Graph(const Graph&)>;

// `names`: of the first states, what has learnt and statistics. All but `names` outlives the result.
Finish finish_of(const TrainingRequest& request, const Model& step, const WholeStates& states, const Pruner& pruner,
                 const std::vector<std::string>& names);

// The model of the request, finished: with the batch open as it is in the model, where a graph can say that.
Graph finished_graph(const TrainingRequest& request, const Finish& finish);
// The same compiled, with the batch open from 1 to the request's.
AnonymousFile finished_module(const TrainingRequest& request, const Finish& finish);

// A module, or a model with the new weights in another format: with the batch open as it is in the model, where the
// format and a graph can say it.
void write_trained(const TrainingRequest& request, const Finish& finish);

}  // namespace tessera::inline driver
