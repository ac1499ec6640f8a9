#include "train/shards.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace tessera::inline train {

int64_t shard_size(int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; }

Tensor own_shard(const Tensor& whole, const DataParallel& how) {
  const int64_t size = shard_size(whole.num_elements(), how.ranks);
  Tensor part(whole.dtype(), {size});
  const int64_t begin = std::min(how.rank * size, whole.num_elements());
  const int64_t count = std::min(size, whole.num_elements() - begin);
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(dtype_bytes(whole.dtype(), elements)); };
  std::memset(part.mutable_bytes(), 0, bytes(size));
  std::memcpy(part.mutable_bytes(), whole.bytes() + bytes(begin), bytes(count));
  return part;
}

ValueId Shards::flat(ValueId v) const {
  const int64_t elements = o_.type(v).num_elements();
  return o_.type(v).rank() == 1 ? v : o_.op("reshape", {v}, {{"shape", Shape{elements}}});
}

ValueId Shards::row(ValueId v) const {
  const int64_t elements = o_.type(v).num_elements();
  const int64_t more = shard_size(elements, how_.ranks) * how_.ranks - elements;
  if (more == 0) return flat(v);
  return o_.op("pad", {flat(v), o_.zero(o_.type(v).dtype)},
               {{"low", Shape{0}}, {"high", Shape{more}}, {"mode", std::string("constant")}});
}

ValueId Shards::own(ValueId row) const {
  const int64_t size = o_.type(row).num_elements() / how_.ranks;
  return o_.op(
      "slice", {row},
      {{"starts", std::vector<int64_t>{how_.rank * size}}, {"sizes", Shape{size}}, {"steps", std::vector<int64_t>{1}}});
}

ValueId Shards::sum(ValueId v) const { return collective(o_, "reduce_scatter", row(v), how_, "sum"); }

ValueId Shards::whole(ValueId own, const Shape& shape, int64_t turn) const {
  const ValueId all = collective(o_, "all_gather", own, how_, nullptr, "", "data", turn);
  const TensorType type{o_.type(own).dtype, shape, {}};
  const int64_t elements = type.num_elements();
  const ValueId row =
      o_.type(all).num_elements() == elements
          ? all
          : o_.op(
                "slice", {all},
                {{"starts", std::vector<int64_t>{0}}, {"sizes", Shape{elements}}, {"steps", std::vector<int64_t>{1}}});
  return shape.size() == 1 ? row : o_.op("reshape", {row}, {{"shape", shape}});
}

ValueId Shards::exchanged(ValueId v) const { return collective(o_, "all_to_all", v, how_); }

Graph gathering(int64_t bytes, const DataParallel& how, const OpTable& ops) {
  Graph graph;
  graph.name = "gather";
  const ValueId part = graph.add_input("part", TensorType{DType::kU8, {bytes}, {}});
  GraphBuilder builder(graph);
  builder.set_loc("gather");
  const GraphOps o{builder, ops};
  const bool of_stages = how.pipeline.stages > 1;
  const char* along = how.tensor > 1 ? (how.pipeline.is_used() ? "data,stage,model" : "data,model")
                      : !of_stages   ? "data"
                      : how.is_cut() ? "data,stage"
                                     : "stage";
  graph.outputs = {collective(o, "all_gather", part, how, nullptr, "", along)};
  return graph;
}

}  // namespace tessera::inline train
