#include "schedule/fusion/chain.h"

#include <algorithm>

#include "schedule/dynamic/dynamic_tiles.h"
#include "te/index_map.h"

namespace tessera::inline schedule {

int64_t elements_of(const Buffer& buffer) { return TensorType{buffer.dtype, buffer.shape, {}}.num_elements(); }
int64_t bytes_of(const Buffer& buffer) { return dtype_bytes(buffer.dtype, elements_of(buffer)); }

bool same_elements(const Buffer& a, const Buffer& b) {
  const bool fixed = static_dims(a.shape) && static_dims(b.shape);
  return fixed ? elements_of(a) == elements_of(b) : same_shape(a.shape, b.shape);
}

size_t read_along(const TensorProgram& kernel, const Buffer* param, size_t dim) {
  std::optional<size_t> found;
  for (const Stage& stage : kernel.stages)
    for (const IndexMap& map : index_maps(stage.body, param)) {
      const std::optional<AxisRef>& sole = map.dims[dim].sole;
      const size_t axis = sole && !sole->reduced ? sole->number : kNoAxis;
      found = found && *found != axis ? kNoAxis : axis;
    }
  return found.value_or(kNoAxis);
}

bool depends_on(const TensorProgram& kernel, const Buffer* param, size_t axis) {
  return std::any_of(kernel.stages.begin(), kernel.stages.end(), [&](const Stage& stage) {
    const std::vector<IndexMap> maps = index_maps(stage.body, param);
    return std::any_of(maps.begin(), maps.end(), [&](const IndexMap& map) { return map.mentions({false, axis}); });
  });
}

bool reads_in_place(const TensorProgram& kernel, const Buffer* param, size_t rank) {
  if (kernel.reduction() || kernel.output().out->shape.size() != rank) return false;
  for (size_t dim = 0; dim < rank; ++dim) {
    const size_t axis = read_along(kernel, param, dim);
    if (axis != dim && !(axis == kNoAxis && as_int(kernel.output().out->shape[dim]) == 1)) return false;
  }
  return true;
}

Chain chain_of(const JoinedProgram& joined) {
  Chain chain;
  for (const JoinedMember& member : joined.members)
    chain.members.push_back({0, &member.program, {member.args.begin(), member.args.end()}});
  for (size_t v = joined.num_args; v < joined.values.size(); ++v) chain.inner.insert(static_cast<BufferId>(v));
  return chain;
}

size_t writer_in(const Chain& chain, BufferId buffer) {
  size_t m = 0;
  while (m < chain.members.size() && chain.members[m].args.back() != buffer) ++m;
  return m;
}

bool has_shared(const Chain& chain) {
  const std::vector<size_t>& axis = chain.rows.back().axis;
  return std::find(axis.begin(), axis.end(), kNoAxis) != axis.end();
}

bool has_open_sizes(const Chain& chain) {
  return std::any_of(chain.members.begin(), chain.members.end(),
                     [](const Member& member) { return is_symbolic(*member.definition); });
}

bool has_products(const Chain& chain) {
  return std::any_of(chain.members.begin(), chain.members.end(), [](const Member& member) {
    const Stage* reduction = member.definition->reduction();
    std::set<const Buffer*> read;
    if (reduction)
      walk(reduction->body.value, [&](const Expr& node) {
        if (node->kind == ExprKind::kLoad) read.insert(node->buffer.get());
      });
    return read.size() > 1;
  });
}

}  // namespace tessera::inline schedule
