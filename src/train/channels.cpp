#include "train/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "support/error.h"
#include "te/index_map.h"

namespace tessera::inline train {
namespace {

using Place = size_t;  // a dimension of a value, or an axis of a body, in the forest below

// Dimensions that belong together. All are made of the entries of the smallest one, the root's: an index of a larger
// one, divided by how many times it is larger, is the root's.
class Forest {
 public:
  Place add(const Expr& extent) {
    parent_.push_back(parent_.size());
    const auto known = as_int(extent);
    extent_.push_back(known.value_or(0));
    fixed_.push_back(!known || *known < 1);
    return parent_.size() - 1;
  }
  Place root(Place place) const {
    while (parent_[place] != place) place = parent_[place];
    return place;
  }
  int64_t extent(Place place) const { return extent_[place]; }
  bool is_fixed(Place place) const { return fixed_[root(place)]; }
  void fix(Place place) { fixed_[root(place)] = true; }

  void unite(Place a, Place b) {
    Place small = root(a), large = root(b);
    if (small == large) return;
    if (extent_[small] > extent_[large]) std::swap(small, large);
    const bool fits = extent_[small] > 0 && extent_[large] % extent_[small] == 0;
    const bool is_fixed = fixed_[small] || fixed_[large];
    if (!fits) {
      fixed_[small] = fixed_[large] = true;
      return;
    }
    parent_[large] = small;
    fixed_[small] = is_fixed;
  }

 private:
  std::vector<Place> parent_;
  std::vector<int64_t> extent_;
  std::vector<bool> fixed_;
};

bool is_depthwise(const Graph& graph, const Node& node) {
  const Shape &x = graph.type(node.inputs[0]).shape, &y = graph.type(node.outputs[0]).shape;
  const int64_t groups = node.attrs.get_or<int64_t>("groups", 1);
  return groups > 1 && as_int(x[1]) == groups && as_int(y[1]) == groups;
}

class Analysis {
 public:
  Analysis(const Graph& model, const OpTable& ops) : ops_(ops) { places_ = visit(model, {}); }

  const Forest& forest() const { return forest_; }
  Place place(ValueId value, size_t dim) const { return places_[static_cast<size_t>(value)][dim]; }

 private:
  using Places = std::vector<std::vector<Place>>;  // by value, by dimension

  // `given`: the places of a region's inputs; none: the inputs and outputs of a model, which stay.
  Places visit(const Graph& graph, const std::vector<std::vector<Place>>& given) {
    Places places(graph.values().size());
    for (size_t v = 0; v < places.size(); ++v)
      for (const Expr& extent : graph.values()[v].type.shape) places[v].push_back(forest_.add(extent));
    const auto at = [&](ValueId v) -> std::vector<Place>& { return places[static_cast<size_t>(v)]; };
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      for (size_t d = 0; d < at(graph.inputs[i]).size(); ++d)
        if (given.empty()) forest_.fix(at(graph.inputs[i])[d]);
        else forest_.unite(at(graph.inputs[i])[d], given[i][d]);
    if (given.empty())
      for (const ValueId output : graph.outputs)
        for (const Place place : at(output)) forest_.fix(place);
    for (const Node& node : graph.nodes()) {
      const auto all = [&](const auto& apply) {
        for (const auto* values : {&node.inputs, &node.outputs})
          for (const ValueId v : *values)
            for (const Place place : at(v)) apply(place);
      };
      if (node.op->kind == OpKind::kConstant) continue;
      if (node.op->name == "reshape") {
        join_reshape(graph, node, at(node.inputs[0]), at(node.outputs[0]));
      } else if (node.op->name == "conv" && is_depthwise(graph, node)) {
        forest_.unite(at(node.inputs[0])[1], at(node.outputs[0])[1]);
        forest_.unite(at(node.inputs[1])[0], at(node.outputs[0])[1]);
        forest_.unite(at(node.inputs[0])[0], at(node.outputs[0])[0]);
        for (size_t d = 2; d < at(node.inputs[0]).size(); ++d) {
          forest_.fix(at(node.inputs[0])[d]);
          forest_.fix(at(node.outputs[0])[d]);
        }
      } else if (node.op->kind == OpKind::kExpression && node.op->name != "compute" && node.op->name != "iota") {
        join_body(graph, node, at);
      } else if (node.op->kind == OpKind::kComposite && definition_of(graph, node, ops_)) {
        std::vector<std::vector<Place>> operands;
        for (const ValueId v : node.inputs) operands.push_back(at(v));
        const Graph& region = *node.regions[0];
        const Places inner = visit_region(region, operands);
        for (size_t r = 0; r < node.outputs.size(); ++r)
          for (size_t d = 0; d < at(node.outputs[r]).size(); ++d)
            forest_.unite(at(node.outputs[r])[d], inner[static_cast<size_t>(region.outputs[r])][d]);
      } else {
        all([&](Place place) { forest_.fix(place); });
      }
    }
    return places;
  }

  Places visit_region(const Graph& region, const std::vector<std::vector<Place>>& operands) {
    if (!operands.empty()) return visit(region, operands);
    Places places(region.values().size());
    for (size_t v = 0; v < places.size(); ++v)
      for (const Expr& extent : region.values()[v].type.shape) {
        places[v].push_back(forest_.add(extent));
        forest_.fix(places[v].back());
      }
    return places;
  }

  template <typename At>
  void join_body(const Graph& graph, const Node& node, const At& at) {
    const Body body = node_body(graph, node);
    std::vector<Place> reduced;
    for (const Axis& axis : body.reduce_axes) {
      reduced.push_back(forest_.add(axis.extent));
      if (body.combiner != Combiner::kSum) forest_.fix(reduced.back());
    }
    const auto place_of = [&](AxisRef axis) {
      return axis.reduced ? reduced[axis.number] : at(node.outputs[0])[axis.number];
    };
    for (const IndexMap& map : index_maps(body)) {
      const auto operand =
          static_cast<size_t>(std::find(body.inputs.begin(), body.inputs.end(), map.operand) - body.inputs.begin());
      if (operand >= node.inputs.size()) continue;
      const std::vector<Place>& dims = at(node.inputs[operand]);
      for (size_t d = 0; d < map.dims.size(); ++d) {
        const IndexDim& dim = map.dims[d];
        if (dim.sole && forest_.extent(place_of(*dim.sole)) == forest_.extent(dims[d])) {
          forest_.unite(place_of(*dim.sole), dims[d]);
          continue;
        }
        forest_.fix(dims[d]);
        for (const AxisUse& use : dim.uses) forest_.fix(place_of(use.axis));
      }
    }
  }

  // Dimensions between which as many elements lie before and behind: one and one belong together, and where several
  // become one, or the other way round, the first of them.
  void join_reshape(const Graph& graph, const Node& node, const std::vector<Place>& from,
                    const std::vector<Place>& to) {
    const Shape &a = graph.type(node.inputs[0]).shape, &b = graph.type(node.outputs[0]).shape;
    size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      if (i < a.size() && is_const_int(a[i], 1)) {
        ++i;
        continue;
      }
      if (j < b.size() && is_const_int(b[j], 1)) {
        ++j;
        continue;
      }
      if (i == a.size() || j == b.size()) return;  // nothing but ones, or no elements
      if (equal_extents(a[i], b[j])) {
        forest_.unite(from[i++], to[j++]);
        continue;
      }
      const size_t first_i = i, first_j = j;
      const auto left = as_int(a[i]), right = as_int(b[j]);
      if (!left || !right || *left == 0 || *right == 0) break;
      int64_t m = *left, n = *right;
      ++i, ++j;
      bool known = true;
      while (m != n && known) {
        std::optional<int64_t> more;
        if (m < n) more = i < a.size() ? as_int(a[i++]) : std::nullopt;
        else more = j < b.size() ? as_int(b[j++]) : std::nullopt;
        known = more.has_value();
        if (known) (m < n ? m : n) *= *more;
      }
      if (!known) {
        i = first_i, j = first_j;
        break;
      }
      const bool joins = i == first_i + 1 || j == first_j + 1;
      if (joins) forest_.unite(from[first_i], to[first_j]);
      for (size_t d = first_i + (joins ? 1 : 0); d < i; ++d) forest_.fix(from[d]);
      for (size_t d = first_j + (joins ? 1 : 0); d < j; ++d) forest_.fix(to[d]);
    }
    for (; i < a.size(); ++i) forest_.fix(from[i]);
    for (; j < b.size(); ++j) forest_.fix(to[j]);
  }

  const OpTable& ops_;
  Forest forest_;
  Places places_;
};

bool is_constant(const Node& node) { return node.op->kind == OpKind::kConstant; }

// The dimensions of a product's weights that its result has: those whose channels it makes.
bool writes(const Graph& graph, const Node& product, ValueId weights, size_t dim) {
  if (product.inputs.size() < 2 || product.inputs[1] != weights) return false;
  const std::string name = product.attrs.get_or<std::string>("name", product.op->name);
  if (name == "conv") return dim == 0;
  const bool transposed = product.attrs.get_or<bool>(name == "gemm" ? "trans_b" : "transpose_b", false);
  const size_t rank = graph.type(weights).shape.size();
  if ((name == "matmul" || name == "gemm") && rank == 2) return dim == (transposed ? 0u : 1u);
  return false;
}

Tensor sliced(const Tensor& tensor, size_t dim, const std::vector<bool>& kept, int64_t repeat) {
  std::vector<int64_t> dims = tensor.dims();
  const int64_t extent = dims[dim];
  dims[dim] = std::count(kept.begin(), kept.end(), true) * repeat;
  const auto outer =
      std::accumulate(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(dim), int64_t{1}, std::multiplies<>());
  const auto inner =
      std::accumulate(dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1, dims.end(), int64_t{1}, std::multiplies<>());
  Tensor result(tensor.dtype(), dims);
  const auto row = static_cast<size_t>(dtype_bytes(tensor.dtype(), inner));
  std::byte* to = result.mutable_bytes();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t e = 0; e < extent; ++e)
      if (kept[static_cast<size_t>(e / repeat)]) {
        std::copy_n(tensor.bytes() + static_cast<size_t>(o * extent + e) * row, row, to);
        to += row;
      }
  return result;
}

}  // namespace

std::vector<ChannelGroup> channel_groups(const Graph& model, const OpTable& ops) {
  const Analysis analysis(model, ops);
  const Forest& forest = analysis.forest();
  const std::vector<std::vector<NodeId>> users = model.users();
  std::map<Place, ChannelGroup> groups;
  std::vector<Place> order;
  for (const Node& node : model.nodes()) {
    if (!is_constant(node)) continue;
    const ValueId value = node.outputs[0];
    const Shape& shape = model.type(value).shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      const Place place = analysis.place(value, d), root = forest.root(place);
      if (forest.is_fixed(place) || forest.extent(root) < 2) continue;
      ChannelDim dim{model.value(value).name, d, forest.extent(place) / forest.extent(root)};
      for (const NodeId user : users[static_cast<size_t>(value)]) {
        const Node& reader = model.node(user);
        dim.produces |= writes(model, reader, value, d);
        dim.scales |= reader.op->kind == OpKind::kComposite && reader.inputs.size() > 1 && reader.inputs[1] == value &&
                      reader.attrs.get_or<std::string>("name", "") == "batch_norm";
      }
      if (!groups.count(root)) order.push_back(root);
      groups[root].channels = forest.extent(root);
      groups[root].dims.push_back(std::move(dim));
    }
  }
  std::vector<ChannelGroup> result;
  for (const Place root : order) {
    const auto& dims = groups[root].dims;
    if (std::any_of(dims.begin(), dims.end(), [](const ChannelDim& dim) { return dim.produces; }))
      result.push_back(groups[root]);
  }
  return result;
}

std::vector<double> channel_magnitudes(const ChannelGroup& group, const std::map<std::string, TensorPtr>& values) {
  std::vector<double> total(static_cast<size_t>(group.channels), 0);
  for (const ChannelDim& dim : group.dims) {
    const auto found = values.find(dim.constant);
    if (!dim.produces || found == values.end()) continue;
    const Tensor& tensor = *found->second;
    int64_t inner = dim.repeat;
    for (size_t d = dim.dim + 1; d < tensor.dims().size(); ++d) inner *= tensor.dims()[d];
    std::vector<double> own(total.size(), 0);
    double sum = 0;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      const double magnitude = std::abs(tensor.get_double(i));
      own[static_cast<size_t>(i / inner % group.channels)] += magnitude;
      sum += magnitude;
    }
    for (size_t c = 0; c < own.size() && sum > 0; ++c) total[c] += own[c] / sum;
  }
  return total;
}

std::vector<double> channel_scales(const ChannelGroup& group, const std::map<std::string, TensorPtr>& values) {
  std::vector<double> total;
  for (const ChannelDim& dim : group.dims) {
    const auto found = values.find(dim.constant);
    if (!dim.scales || found == values.end()) continue;
    total.resize(static_cast<size_t>(group.channels), 0);
    for (int64_t i = 0; i < found->second->num_elements(); ++i)
      total[static_cast<size_t>(i / dim.repeat % group.channels)] += std::abs(found->second->get_double(i));
  }
  return total;
}

Graph with_channels(const Graph& model, const std::vector<ChannelGroup>& groups, const KeptChannels& kept,
                    const OpTable& ops) {
  check(groups.size() == kept.size(), "an answer for each group of channels");
  const Analysis analysis(model, ops);
  const Forest& forest = analysis.forest();
  // By root: which stay, found by a dimension of a constant that is in the group.
  std::map<std::pair<std::string, size_t>, size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const ChannelDim& dim : groups[g].dims) group_of[{dim.constant, dim.dim}] = g;
  std::map<Place, const std::vector<bool>*> stays;
  for (const Node& node : model.nodes()) {
    if (!is_constant(node)) continue;
    const ValueId value = node.outputs[0];
    for (size_t d = 0; d < model.type(value).shape.size(); ++d) {
      const auto found = group_of.find({model.value(value).name, d});
      if (found != group_of.end()) stays[forest.root(analysis.place(value, d))] = &kept[found->second];
    }
  }
  const auto extent_after = [&](ValueId value, size_t d) -> Expr {
    const Place place = analysis.place(value, d), root = forest.root(place);
    const auto found = stays.find(root);
    if (found == stays.end()) return model.type(value).shape[d];
    return Expr(std::count(found->second->begin(), found->second->end(), true) *
                (forest.extent(place) / forest.extent(root)));
  };
  GraphRewriter rewriter(model);
  GraphBuilder builder(rewriter.target());
  return rewriter.run([&](GraphRewriter& to, const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<std::string> names;
    bool changes = false;
    for (const ValueId output : node.outputs) {
      names.push_back(model.value(output).name);
      for (size_t d = 0; d < model.type(output).shape.size(); ++d)
        changes |= stays.count(forest.root(analysis.place(output, d))) > 0;
    }
    for (const ValueId input : node.inputs)
      for (size_t d = 0; d < model.type(input).shape.size(); ++d)
        changes |= stays.count(forest.root(analysis.place(input, d))) > 0;
    if (!changes) return to.copy(node, inputs);
    builder.set_loc(node.loc);
    Attrs attrs = node.attrs;
    if (is_constant(node)) {
      TensorPtr value = attrs.get<TensorPtr>("value");
      for (size_t d = 0; d < value->dims().size(); ++d) {
        const Place place = analysis.place(node.outputs[0], d), root = forest.root(place);
        if (const auto found = stays.find(root); found != stays.end())
          value = std::make_shared<const Tensor>(
              sliced(*value, d, *found->second, forest.extent(place) / forest.extent(root)));
      }
      attrs.set("value", value);
    }
    if (node.op->name == "reshape" || node.op->name == "broadcast") {
      Shape shape = model.type(node.outputs[0]).shape;
      for (size_t d = 0; d < shape.size(); ++d) shape[d] = extent_after(node.outputs[0], d);
      attrs.set("shape", std::move(shape));
    }
    if (node.op->name == "slice") {
      Shape sizes = model.type(node.outputs[0]).shape;
      for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = extent_after(node.outputs[0], d);
      attrs.set("sizes", std::move(sizes));
    }
    if (node.op->name == "conv" && is_depthwise(model, node))
      attrs.set("groups", *as_int(extent_after(node.inputs[0], 1)));
    if (node.op->kind == OpKind::kComposite) {
      const auto name = attrs.get<std::string>("name");
      attrs.erase("name");
      return add_composite(builder, ops, name, inputs, std::move(attrs));
    }
    return builder.add_multi(*node.op, inputs, std::move(attrs), node.regions, names);
  });
}

}  // namespace tessera::inline train
