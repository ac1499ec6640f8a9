#include "driver/collective_image.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "abi/collective_abi.h"
#include "support/error.h"
#include "types/dtype.h"

namespace tessera::inline driver {
namespace {

uint32_t kind_number(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return TSR_ALL_REDUCE;
    case CollectiveKind::kAllGather: return TSR_ALL_GATHER;
    case CollectiveKind::kReduceScatter: return TSR_REDUCE_SCATTER;
    case CollectiveKind::kAllToAll: return TSR_ALL_TO_ALL;
    case CollectiveKind::kSend: return TSR_SEND;
    case CollectiveKind::kReceive: return TSR_RECEIVE;
    case CollectiveKind::kShift: return TSR_RANK_SHIFT;
  }
  throw InternalError("a collective of no kind");
}

uint32_t combiner_number(CollectiveCombiner combiner) {
  switch (combiner) {
    case CollectiveCombiner::kNone: return TSR_COMBINE_NONE;
    case CollectiveCombiner::kSum: return TSR_COMBINE_SUM;
    case CollectiveCombiner::kProd: return TSR_COMBINE_PROD;
    case CollectiveCombiner::kMin: return TSR_COMBINE_MIN;
    case CollectiveCombiner::kMax: return TSR_COMBINE_MAX;
  }
  throw InternalError("a collective of no combiner");
}

class Image {
 public:
  explicit Image(size_t head) : bytes_(head) {}

  uint32_t text(const std::string& value) { return put(value.c_str(), value.size() + 1); }
  uint32_t put(const void* data, size_t size) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    const auto at = static_cast<uint32_t>(bytes_.size());
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
    return at;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// FNV-1a.
uint64_t digest_of(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return hash;
}

// Group by group, the ranks in the order in which their operands stand.
std::vector<uint32_t> groups_of(const Collective& collective) {
  std::vector<uint32_t> groups;
  for (int64_t rank = 0; rank < collective.mesh.ranks(); ++rank) {
    const std::vector<int64_t> group = collective.mesh.group_of(rank, collective.axes);
    if (group[0] == rank) groups.insert(groups.end(), group.begin(), group.end());
  }
  return groups;
}

// All collectives, and the order in which a run comes to them. Ranks have other kernels around them: those for their
// own parts of weights.
std::vector<std::byte> what_ranks_do(const Program& program, const std::vector<size_t>& kernels) {
  std::string text;
  for (const size_t k : kernels) {
    const BufferPtr& operand = program.kernels[k].program.params[0];
    text += fmt::format("{} of {}", program.kernels[k].rule, dtype_name(operand->dtype));
    for (const Expr& extent : operand->shape) text += fmt::format(" {}", *as_int(extent));
    text += '\n';
  }
  for (const KernelCall& call : program.calls)
    if (const auto it = std::find(kernels.begin(), kernels.end(), static_cast<size_t>(call.kernel));
        it != kernels.end())
      text += fmt::format("{}\n", it - kernels.begin());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

}  // namespace

std::optional<Collective> collective_of(const Kernel& kernel) { return Collective::parse(kernel.rule); }

DeviceImage generate_collectives(const Program& program, int32_t device, const Target&, const CodegenOptions&) {
  std::vector<size_t> kernels;
  for (size_t k = 0; k < program.kernels.size(); ++k)
    if (program.kernels[k].device == device) kernels.push_back(k);
  tsr_collective_header head = {};
  std::memcpy(head.magic, TSR_COLLECTIVE_MAGIC, sizeof(TSR_COLLECTIVE_MAGIC));
  head.num_operations = static_cast<uint32_t>(kernels.size());
  std::vector<tsr_collective_row> rows;
  bool sends_messages = false;
  Image image(sizeof(head) + kernels.size() * sizeof(tsr_collective_row));
  for (const size_t k : kernels) {
    const Kernel& kernel = program.kernels[k];
    const std::optional<Collective> collective = collective_of(kernel);
    check(collective.has_value(), "a kernel on a communicator is no collective: " + kernel.program.name);
    const auto ranks = static_cast<uint32_t>(collective->mesh.ranks());
    check(head.num_ranks == 0 || head.num_ranks == ranks, "collectives over several meshes");
    head.num_ranks = ranks;
    const bool receives = collective->kind == CollectiveKind::kReceive;
    const BufferPtr& operand = receives ? kernel.program.params.back() : kernel.program.params[0];
    int64_t count = 1;
    for (const Expr& extent : operand->shape) count *= *as_int(extent);
    const std::vector<uint32_t> groups = groups_of(*collective);
    tsr_collective_row row = {};
    row.entry = image.text(operation_name(static_cast<int32_t>(k)));
    row.name = image.text(collective->name);
    row.kind = kind_number(collective->kind);
    row.combiner = combiner_number(collective->combiner);
    row.dtype = static_cast<uint32_t>(operand->dtype);
    row.group_size = static_cast<uint32_t>(collective->group_size());
    row.count = static_cast<uint64_t>(count);
    row.bytes = static_cast<uint64_t>(dtype_bytes(operand->dtype, count));
    if (collective->is_message()) {
      row.peer = static_cast<uint32_t>(collective->peer);
      row.message = static_cast<uint32_t>(collective->message);
      sends_messages = true;
    }
    row.shift = static_cast<int32_t>(collective->shift);
    row.groups = image.put(groups.data(), groups.size() * sizeof(uint32_t));
    rows.push_back(row);
  }
  head.size = image.bytes().size();
  std::memcpy(image.bytes().data() + sizeof(head), rows.data(), rows.size() * sizeof(tsr_collective_row));
  std::memcpy(image.bytes().data(), &head, sizeof(head));
  // Ranks that send each other messages are stages of a pipeline: each has steps of its own.
  head.digest = sends_messages ? 0 : digest_of(what_ranks_do(program, kernels));
  std::memcpy(image.bytes().data(), &head, sizeof(head));
  return {std::move(image.bytes()), 0};
}

}  // namespace tessera::inline driver
