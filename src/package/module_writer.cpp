#include "package/module_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "abi/module_abi.h"
#include "codegen/common/object_code.h"
#include "graph/flow.h"
#include "loop/arithmetic_unit.h"
#include "package/atomic_file.h"
#include "package/descriptor.h"
#include "package/value_json.h"
#include "program/donation.h"
#include "program/memory_plan.h"
#include "program/reuse_distance.h"
#include "support/error.h"
#include "te/work_formulas.h"

namespace tessera::inline package {

namespace {

// XXH3 over pieces that arrive one after the other.
class Digest {
 public:
  Digest() { XXH3_64bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

uint64_t digest_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t align_up(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

// Writes pieces to a descriptor and knows where it is. What reaches the file are whole huge pages at their boundaries:
// file systems whose page cache has pages of many sizes (ext4 and XFS, Linux 6.16) keep each write together as one, and
// a process that maps the module then reads the weights through one entry of the TLB for 2 MB instead of 512.
class Writer {
 public:
  Writer(int fd, std::string what) : fd_(fd), what_(std::move(what)) { held_.reserve(kHugePage); }

  uint64_t offset() const { return offset_; }
  void add(std::span<const std::byte> bytes) {
    offset_ += bytes.size();
    while (!bytes.empty()) {
      if (held_.empty() && bytes.size() >= kHugePage) {
        const size_t whole = bytes.size() / kHugePage * kHugePage;
        write_fully(fd_, bytes.first(whole), what_);
        bytes = bytes.subspan(whole);
        continue;
      }
      const size_t taken = std::min(kHugePage - held_.size(), bytes.size());
      held_.insert(held_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
      bytes = bytes.subspan(taken);
      if (held_.size() == kHugePage) flush();
    }
  }
  void pad_to(uint64_t offset, Digest* digest = nullptr) {
    static constexpr std::array<std::byte, 4096> kZeros = {};
    check(offset >= offset_, "module sections overlap");
    while (offset_ < offset) {
      const auto zeros = std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), offset - offset_));
      if (digest) digest->add(zeros);
      add(zeros);
    }
  }
  // Call at the end.
  void flush() {
    write_fully(fd_, held_, what_);
    held_.clear();
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;

  int fd_;
  std::string what_;
  uint64_t offset_ = 0;          // of what was added
  std::vector<std::byte> held_;  // added and not yet written; begins at a huge page's boundary
};

// The buffers that hold weights, by place; one for each place, since equal weights may share theirs. Those that are
// left do not overlap (checked while writing).
std::vector<const ProgramBuffer*> weights_in_order(const Program& program, int32_t device) {
  std::vector<const ProgramBuffer*> weights;
  for (const ProgramBuffer& buffer : program.buffers) {
    if (buffer.kind != BufferKind::kWeight || buffer.alias_of >= 0 || buffer.device != device) continue;
    check(buffer.offset >= 0, "weight " + buffer.name + " has no place in the weights region");
    check(buffer.data && buffer.data->has_data() && buffer.data->num_bytes() == buffer.bytes,
          "weight " + buffer.name + " does not have the bytes its type needs");
    if (buffer.bytes > 0) weights.push_back(&buffer);  // one without bytes may have the place of any other
  }
  std::stable_sort(weights.begin(), weights.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  const auto is_shared = [](const ProgramBuffer* a, const ProgramBuffer* b) {
    return a->offset == b->offset && a->bytes == b->bytes &&
           std::memcmp(a->data->bytes(), b->data->bytes(), static_cast<size_t>(a->bytes)) == 0;
  };
  weights.erase(std::unique(weights.begin(), weights.end(), is_shared), weights.end());
  return weights;
}

// Those of a device (0: the host), from here on.
void write_weights(Writer& writer, const Program& program, int32_t device, Digest& digest) {
  const uint64_t begin = writer.offset();
  for (const ProgramBuffer* weight : weights_in_order(program, device)) {
    const std::span<const std::byte> bytes(weight->data->bytes(), static_cast<size_t>(weight->bytes));
    writer.pad_to(begin + static_cast<uint64_t>(weight->offset), &digest);
    digest.add(bytes);
    writer.add(bytes);
  }
  const int64_t end =
      device == 0 ? program.weight_bytes : program.devices[static_cast<size_t>(device) - 1].weight_bytes;
  writer.pad_to(begin + static_cast<uint64_t>(end), &digest);
}

nlohmann::json describe_tensors(const Program& program, const std::vector<BufferId>& buffers) {
  nlohmann::json list = nlohmann::json::array();
  for (const BufferId id : buffers) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(id)];
    list.push_back({{"name", buffer.name}, {"type", buffer.type.to_string()}, {"bytes", buffer.bytes}});
  }
  return list;
}

std::vector<BufferId> own(const std::vector<BufferId>& buffers, size_t count) {
  return {buffers.begin(), buffers.begin() + static_cast<ptrdiff_t>(count)};
}

// "in_place": whether a run writes the state's new value over the old one.
nlohmann::json describe_states(const Program& program) {
  nlohmann::json list = nlohmann::json::array();
  const auto aliases = output_aliases(program);
  for (size_t i = 0; i < program.states.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(program.inputs[program.num_own_inputs() + i])];
    const std::pair<int, int> pair{program.num_own_outputs() + i, program.num_own_inputs() + i};
    list.push_back({{"name", program.states[i].name},
                    {"type", buffer.type.to_string()},
                    {"bytes", buffer.bytes},
                    {"in_place", std::find(aliases.begin(), aliases.end(), pair) != aliases.end()}});
  }
  return list;
}

nlohmann::json describe_ports(const std::vector<FlowPort>& ports) {
  nlohmann::json list = nlohmann::json::array();
  for (const FlowPort& port : ports) list.push_back({{"name", port.name}, {"type", port.type.to_string()}});
  return list;
}

}  // namespace

// nlohmann::json keeps keys sorted: the text is the same every time.
std::string module_metadata(const Program& program, const ModuleInfo& info) {
  nlohmann::json json = {
      {"format", "tessera-module"},
      {"producer", info.producer},
      {"model", {{"name", info.model_name}, {"digest", info.model_digest}}},
      {"target",
       {{"triple", info.target_triple},
        {"cpu", info.target_cpu},
        {"features", info.features},
        {"threads", info.num_threads}}},
      {"options", info.options},
      {"inputs", program.flow ? describe_ports(program.flow->inputs)
                              : describe_tensors(program, own(program.inputs, program.num_own_inputs()))},
      {"outputs", program.flow ? describe_ports(program.flow->outputs)
                               : describe_tensors(program, own(program.outputs, program.num_own_outputs()))},
      {"memory",
       {{"arena_bytes", program.arena_bytes},
        {"weight_bytes", program.weight_bytes},
        {"scratch_bytes_per_worker", program.scratch_bytes}}},
  };
  for (const ProgramDevice& device : program.devices)
    json["devices"].push_back({{"name", device.name},
                               {"kind", device.kind},
                               {"arena_bytes", device.arena_bytes},
                               {"weight_bytes", device.weight_bytes}});
  for (const CodeVariant& variant : info.variants)
    json["variants"].push_back({{"name", variant.name}, {"features", variant.features}});
  if (!program.states.empty()) json["states"] = describe_states(program);
  nlohmann::json kernels = nlohmann::json::array();
  const auto traffic = known_traffic(program);
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const KernelCall& call = program.calls[i];
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    nlohmann::json arguments = nlohmann::json::array();
    for (const CallTraffic& argument : traffic[i])
      arguments.push_back({argument.bytes, argument.distance, argument.calls});
    nlohmann::json entry = {{"name", kernel.program.name},
                            {"loc", call.loc},
                            {"rule", kernel.rule},
                            {"unit", arithmetic_unit(kernel.program)},
                            {"flops", kernel.flops},
                            {"bytes", kernel.bytes},
                            {"constant_bytes", kernel.definition ? count_constant_bytes(*kernel.definition) : -1},
                            {"traffic", std::move(arguments)}};
    if (kernel.device != 0) {
      entry["device"] = kernel.device;
      entry["operation"] = operation_name(call.kernel);
    }
    // Of sizes that a run knows.
    if (kernel.definition && kernel.flops < 0) entry["flops_formula"] = to_string(flops_formula(*kernel.definition));
    if (kernel.definition && kernel.bytes < 0) entry["bytes_formula"] = to_string(bytes_formula(*kernel.definition));
    kernels.push_back(std::move(entry));
  }
  json["kernels"] = std::move(kernels);
  json["operators"] = info.operators;
  if (!info.sizes.empty()) json["sizes"] = info.sizes;
  // Why the model is steps of a run and no graph.
  if (program.flow) json["flow"] = {{"node", program.flow->why.node}, {"reason", program.flow->why.reason}};
  // What one call does, and which bytes of the arena are taken from which step to which.
  nlohmann::json calls = nlohmann::json::array(), arena = nlohmann::json::array(), weights = nlohmann::json::array();
  for (const KernelCall& call : program.calls) calls.push_back(call.kernel);
  for (const Lifetime& lifetime : arena_lifetimes(program)) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(lifetime.buffer)];
    if (buffer.device != 0) continue;
    arena.push_back({{"name", buffer.name},
                     {"offset", buffer.offset},
                     {"bytes", lifetime.bytes},
                     {"first", lifetime.first},
                     {"last", lifetime.last}});
  }
  for (const ProgramBuffer& buffer : program.buffers) {
    if (buffer.kind != BufferKind::kWeight || buffer.alias_of >= 0) continue;
    weights.push_back(
        {{"name", buffer.name}, {"type", buffer.type.to_string()}, {"offset", buffer.offset}, {"bytes", buffer.bytes}});
  }
  json["calls"] = std::move(calls);
  json["arena"] = std::move(arena);
  json["weights"] = std::move(weights);
  json["values"] = values_to_json(program.flow ? std::vector<ValuePlace>() : value_locations(program));
  // Names come from models: what is not UTF-8 is replaced, never refused.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

uint64_t write_module(int fd, const std::string& what, const ModuleContents& contents) {
  Writer writer(fd, what);
  tsr_footer footer = {};
  footer.code_size = contents.code.size();
  footer.code_digest = digest_of(contents.code);
  writer.add(contents.code);

  footer.weights_offset = align_up(writer.offset(), TSR_WEIGHTS_ALIGN);
  writer.pad_to(footer.weights_offset);
  Digest weights_digest;
  write_weights(writer, contents.program, 0, weights_digest);
  footer.weights_size = static_cast<uint64_t>(contents.program.weight_bytes);
  footer.weights_digest = weights_digest.value();

  const ImageLayout images = layout_images(contents.program, contents.images);
  footer.images_offset = align_up(writer.offset(), TSR_BUFFER_ALIGN);
  writer.pad_to(footer.images_offset);
  Digest images_digest;
  for (size_t i = 0; i < contents.images.size(); ++i) {
    writer.pad_to(footer.images_offset + images.devices[i].code, &images_digest);
    images_digest.add(contents.images[i].code);
    writer.add(contents.images[i].code);
    writer.pad_to(footer.images_offset + images.devices[i].weights, &images_digest);
    write_weights(writer, contents.program, static_cast<int32_t>(i) + 1, images_digest);
  }
  footer.images_size = images.bytes;
  footer.images_digest = images_digest.value();

  const std::vector<std::byte> descriptor = make_descriptor(contents);
  footer.descriptor_offset = align_up(writer.offset(), TSR_SECTION_ALIGN);
  footer.descriptor_size = descriptor.size();
  footer.descriptor_digest = digest_of(descriptor);
  writer.pad_to(footer.descriptor_offset);
  writer.add(descriptor);

  const std::string metadata = module_metadata(contents.program, contents.info);
  const auto metadata_bytes = std::as_bytes(std::span(metadata));
  footer.metadata_offset = writer.offset();
  footer.metadata_size = metadata.size();
  footer.metadata_digest = digest_of(metadata_bytes);
  writer.add(metadata_bytes);

  footer.file_size = writer.offset() + sizeof(footer);
  std::memcpy(footer.magic, TSR_FOOTER_MAGIC, sizeof(footer.magic));
  const auto footer_bytes = std::as_bytes(std::span(&footer, 1));
  footer.footer_digest = digest_of(footer_bytes.first(offsetof(tsr_footer, footer_digest)));
  writer.add(footer_bytes);
  writer.flush();
  return footer.file_size;
}

void write_module_file(const std::string& path, const ModuleContents& contents) {
  AtomicFile file(path, "module");
  write_module(file.fd(), "module '" + path + "'", contents);
  file.commit();
}

AnonymousFile write_module_memory(const ModuleContents& contents) {
  AnonymousFile file("tessera-module");
  write_module(file.fd(), "a module in memory", contents);
  return file;
}

}  // namespace tessera::inline package
