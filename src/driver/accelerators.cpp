#include "driver/accelerators.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "abi/accel_abi.h"
#include "accel/network/unit_kernel.h"
#include "accel/simulate.h"
#include "accel/stream.h"
#include "codegen/llvm/llvm_codegen.h"
#include "loop_passes/pass.h"
#include "package/link.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {
namespace {

class ImageBytes {
 public:
  explicit ImageBytes(size_t head) : bytes_(head) {}

  uint32_t put(const void* data, size_t size) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    const size_t at = bytes_.size();
    check(at + size <= UINT32_MAX, "an image of an accelerator has less than 4 GB");
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
    return static_cast<uint32_t>(at);
  }
  template <typename T>
  uint32_t put(const std::vector<T>& table) {
    return put(table.data(), table.size() * sizeof(T));
  }
  std::vector<std::byte> take(const tsr_accel_header& head) {
    std::memcpy(bytes_.data(), &head, sizeof(head));
    return std::move(bytes_);
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

// A program of one kernel for each kind of instruction, on a device.
Program instruction_kernels(const Accelerator& unit, const Target& target) {
  Program program;
  program.name = unit.name;
  program.devices.push_back({unit.name, kAcceleratorKind});
  for (const UnitInstruction& kind : unit.instructions) {
    Kernel kernel;
    kernel.program = instruction_loops(kind);
    // What a back end cannot do without.
    for (const LoopPass& pass : loop_pipeline())
      if (pass.min_level == 0) kernel.program = pass.run(kernel.program, {target, 0});
    kernel.device = 1;
    kernel.loc = kind.name;
    program.kernels.push_back(std::move(kernel));
  }
  return program;
}

// How the numbers of an instruction are read.
std::vector<tsr_accel_field> image_fields(const Accelerator& unit, const UnitInstruction& kind) {
  const LoopProgram& kernel = *kind.intrinsic->pattern();
  std::vector<tsr_accel_field> result;
  const std::vector<EncodedField> fields = fields_of(unit, kind);
  size_t next = 0;
  const auto add = [&](tsr_accel_role role, size_t operand) {
    const EncodedField& field = fields[next++];
    const bool is_address = role == TSR_ACCEL_BASE || role == TSR_ACCEL_STRIDE;
    const bool in_dram = is_address && kind.operands[operand] == kDram;
    const int64_t element =
        !is_address || in_dram ? 1 : unit.memories[static_cast<size_t>(kind.operands[operand])].element;
    const int64_t width = is_address ? dtype_bytes(kernel.params[operand]->dtype, 1) : 1;
    result.push_back({static_cast<uint8_t>(field.bits), static_cast<uint8_t>(field.is_signed),
                      static_cast<uint8_t>(role), static_cast<uint8_t>(operand), static_cast<uint32_t>(element),
                      static_cast<uint32_t>(width)});
  };
  for (int i = 0; i < 3; ++i) add(TSR_ACCEL_SKIPPED, 0);
  for (int l = 0; l < kind.loops; ++l) add(TSR_ACCEL_NUMBER, 0);
  for (size_t p = 0; p < kind.operands.size(); ++p) {
    if (kind.operands[p] == kDram) add(TSR_ACCEL_SEGMENT, p);
    add(TSR_ACCEL_BASE, p);
    for (int l = 0; l < kind.loops; ++l) add(TSR_ACCEL_STRIDE, p);
    if (kind.padded[p])
      for (int l = 0; l < 2 * kind.loops; ++l) add(TSR_ACCEL_NUMBER, p);
  }
  while (next < fields.size()) add(TSR_ACCEL_NUMBER, 0);
  return result;
}

// Descriptions live as long as the process, as their intrinsics do.
struct Units {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, Accelerator> by_text;  // by file and contents
  std::map<std::string, const Accelerator*> by_name;                   // the last that was read
};
Units& units() {
  static Units all;
  return all;
}

}  // namespace

bool names_accelerator(std::string_view text) { return text.size() > 5 && text.substr(text.size() - 5) == ".json"; }

const Accelerator& accelerator_of(const std::string& file) {
  Units& all = units();
  const std::lock_guard lock(all.mutex);
  const std::string text(MappedFile::open(file, "description of an accelerator", "TSR-3508")->text());
  const auto known = all.by_text.find({file, text});
  if (known != all.by_text.end()) return known->second;
  const Accelerator& unit = all.by_text.emplace(std::pair(file, text), read_accelerator(text, file)).first->second;
  all.by_name[unit.name] = &unit;
  return unit;
}

const Accelerator& accelerator_named(const std::string& name) {
  Units& all = units();
  const std::lock_guard lock(all.mutex);
  const auto it = all.by_name.find(name);
  check(it != all.by_name.end(), "a unit that nobody has read: " + name);
  return *it->second;
}

std::string accelerator_facts(const Accelerator& unit) {
  Units& all = units();
  const std::lock_guard lock(all.mutex);
  for (const auto& [key, known] : all.by_text) {
    if (&known != &unit) continue;
    Hasher hasher;
    hasher.add(key.second);
    return fmt::format("{}{} {:016x}", kAcceleratorFacts, unit.name, hasher.value());
  }
  throw InternalError("a unit that nobody has read: " + unit.name);
}

DeviceImage generate_accelerator(const Program& program, int32_t device, const Target& target,
                                 const CodegenOptions& options) {
  const Accelerator& unit = accelerator_named(program.devices[static_cast<size_t>(device) - 1].name);
  tsr_accel_header head = {};
  std::memcpy(head.magic, TSR_ACCEL_MAGIC, sizeof(TSR_ACCEL_MAGIC));
  ImageBytes image(sizeof(head));
  const DeviceCode code = generate_llvm_operations(instruction_kernels(unit, target), 1, target, options);
  LinkOptions link;
  link.soname = "tessera_accel_image.so";
  link.exports = {kOperationNames};
  link.files = code.link;
  const std::vector<std::byte> object = link_shared_object(code.object, link);
  head.code = image.put(object);
  head.code_bytes = object.size();
  std::vector<tsr_accel_memory> memories;
  uint64_t scratch = static_cast<uint64_t>(code.scratch_bytes + 63) / 64 * 64;
  for (const UnitMemory& memory : unit.memories) {
    memories.push_back({scratch, static_cast<uint64_t>(memory.bytes)});
    scratch += static_cast<uint64_t>(memory.bytes + 63) / 64 * 64;
  }
  head.num_memories = static_cast<uint32_t>(memories.size());
  head.memories = image.put(memories);
  std::vector<tsr_accel_kind> kinds;
  for (const UnitInstruction& kind : unit.instructions) {
    std::vector<uint32_t> operands;
    for (const int memory : kind.operands)
      operands.push_back(memory == kDram ? TSR_ACCEL_DRAM : static_cast<uint32_t>(memory));
    const std::vector<tsr_accel_field> fields = image_fields(unit, kind);
    tsr_accel_kind row = {static_cast<uint32_t>(operands.size()), image.put(operands),
                          static_cast<uint32_t>(fields.size()), 0};
    row.fields = image.put(fields);
    kinds.push_back(row);
  }
  head.num_kinds = static_cast<uint32_t>(kinds.size());
  head.kinds = image.put(kinds);
  std::vector<tsr_accel_operation> operations;
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    if (program.kernels[k].device != device) continue;
    const InstructionStream stream = stream_of(unit, program.kernels[k].program);
    std::vector<uint64_t> segments;
    for (const DramSegment& segment : stream.segments) segments.push_back(static_cast<uint64_t>(segment.bytes));
    const std::string name = operation_name(static_cast<int32_t>(k));
    tsr_accel_operation row = {};
    row.entry = image.put(name.c_str(), name.size() + 1);
    row.num_segments = static_cast<uint32_t>(segments.size());
    row.segments = image.put(segments);
    row.num_instructions = stream.instructions.size();
    row.instructions = image.put(encode(unit, stream));
    operations.push_back(row);
  }
  head.num_operations = static_cast<uint32_t>(operations.size());
  head.operations = image.put(operations);
  head.words = static_cast<uint32_t>(instruction_bits(unit) / 64);
  image.put("", 0);
  head.size = image.size();
  return {image.take(head), static_cast<int64_t>(scratch)};
}

}  // namespace tessera::inline driver
