#include "package/descriptor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include "abi/module_abi.h"
#include "arith/data_symbols.h"
#include "codegen/common/object_code.h"
#include "graph/flow.h"
#include "program/donation.h"
#include "program/steps.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline package {

namespace {

// The format promises UTF-8; models promise nothing. Bytes that are none become U+FFFD.
std::string to_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    result += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

// Grows the section; tables and strings are found by offset.
class Section {
 public:
  explicit Section(size_t head) : bytes_(head) {}

  uint32_t add_text(const std::string& name) {
    const std::string text = to_utf8(name);
    const auto [place, is_new] = texts_.try_emplace(text, offset());
    if (is_new) {
      // A NUL inside a name would cut it; names of models cannot hold one in any format we read.
      const auto* data = reinterpret_cast<const std::byte*>(text.c_str());
      bytes_.insert(bytes_.end(), data, data + text.size() + 1);
    }
    return place->second;
  }

  template <typename T>
  uint32_t add_table(const std::vector<T>& rows) {
    bytes_.resize((bytes_.size() + TSR_SECTION_ALIGN - 1) / TSR_SECTION_ALIGN * TSR_SECTION_ALIGN);
    const uint32_t begin = offset();
    const auto* data = reinterpret_cast<const std::byte*>(rows.data());
    bytes_.insert(bytes_.end(), data, data + rows.size() * sizeof(T));
    return begin;
  }

  std::vector<std::byte> finish(const tsr_descriptor& head) {
    std::memcpy(bytes_.data(), &head, sizeof(head));
    return std::move(bytes_);
  }

 private:
  uint32_t offset() const {
    check(bytes_.size() <= std::numeric_limits<uint32_t>::max(), "a module's descriptor exceeds 4 GiB");
    return static_cast<uint32_t>(bytes_.size());
  }

  std::vector<std::byte> bytes_;
  std::unordered_map<std::string, uint32_t> texts_;  // equal strings are stored once
};

// A dimension as the format has it.
int64_t dim_number(const Program& program, const std::vector<Expr>& derived, const Expr& dim) {
  if (const auto value = as_int(dim)) return *value;
  int64_t number = 0;
  for (const SymbolRange& symbol : program.symbols) {
    if (symbol.var.same_node(dim)) return -number - 1;
    ++number;
  }
  for (const Expr& known : derived) {
    if (structurally_equal(known, dim)) return -number - 1;
    ++number;
  }
  throw InternalError("a dimension of no symbol: " + to_string(dim));
}

std::vector<tsr_tensor_descr> tensor_table(Section& section, const Program& program,
                                           const std::vector<BufferId>& buffers,
                                           const std::vector<std::string>& names) {
  std::vector<tsr_tensor_descr> rows;
  const std::vector<Expr> derived = derived_dims(program);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(buffers[i])];
    check(buffer.type.shape.size() <= TSR_MAX_RANK, "rank above TSR_MAX_RANK");
    tsr_tensor_descr row = {};
    row.name = section.add_text(names.empty() ? buffer.name : names.at(i));
    row.dtype = static_cast<uint32_t>(buffer.type.dtype);
    row.rank = static_cast<uint32_t>(buffer.type.shape.size());
    for (size_t axis = 0; axis < buffer.type.shape.size(); ++axis)
      row.dims[axis] = dim_number(program, derived, bound_of_size(buffer.type.shape[axis], program.symbols));
    rows.push_back(row);
  }
  return rows;
}

uint32_t add_bytes(Section& section, std::string_view text) {
  return section.add_table(std::vector<char>(text.begin(), text.end()));
}

std::vector<tsr_value_descr> value_table(Section& section, const std::vector<FlowPort>& ports) {
  std::vector<tsr_value_descr> rows;
  for (const FlowPort& port : ports) {
    tsr_value_descr row = {};
    row.name = section.add_text(port.name);
    row.dtype = static_cast<uint32_t>(port.type.dtype);
    row.key = static_cast<uint32_t>(port.type.key);
    check(port.type.wrappers.size() <= TSR_MAX_WRAPPERS, "a type of too many levels");
    row.num_wrappers = static_cast<uint32_t>(port.type.wrappers.size());
    for (size_t i = 0; i < port.type.wrappers.size(); ++i)
      row.wrappers[i] = static_cast<uint32_t>(port.type.wrappers[i]);
    row.rank = -1;
    // Ranks that no tensor of the module has are not held against a run.
    if (port.type.dims && port.type.dims->size() <= TSR_MAX_RANK) {
      row.rank = static_cast<int32_t>(port.type.dims->size());
      std::copy(port.type.dims->begin(), port.type.dims->end(), row.dims);
    }
    row.slot = static_cast<uint32_t>(port.slot);
    rows.push_back(row);
  }
  return rows;
}

static_assert(static_cast<int>(FlowOp::kPiece) == TSR_FLOW_PIECE &&
              static_cast<int>(FlowOp::kWhile) == TSR_FLOW_WHILE &&
              static_cast<int>(FlowOp::kSequence) == TSR_FLOW_SEQUENCE &&
              static_cast<int>(FlowOp::kGetElement) == TSR_FLOW_GET_ELEMENT &&
              static_cast<int>(FlowOp::kFlatten) == TSR_FLOW_FLATTEN &&
              static_cast<int>(FlowOp::kRange) == TSR_FLOW_RANGE && static_cast<int>(FlowOp::kPad) == TSR_FLOW_PAD &&
              static_cast<int>(FlowOp::kStringConcat) == TSR_FLOW_STRING_CONCAT &&
              static_cast<int>(FlowOp::kStringRank) == TSR_FLOW_STRING_RANK &&
              static_cast<int>(FlowOp::kCastMap) == TSR_FLOW_CAST_MAP && kFlowBlock == TSR_FLOW_BLOCK);

void add_flow(Section& section, const Program& program, tsr_descriptor& head) {
  if (!program.flow) return;
  const Flow& flow = *program.flow;
  const auto inputs = value_table(section, flow.inputs), outputs = value_table(section, flow.outputs);
  std::vector<tsr_step_descr> steps;
  for (const FlowStep* step : steps_in_order(flow.body)) {
    tsr_step_descr row = {};
    row.op = static_cast<uint32_t>(step->op);
    row.name = section.add_text(step->loc);
    row.piece = step->piece;
    row.num_inputs = static_cast<uint32_t>(step->inputs.size());
    row.inputs = section.add_table(step->inputs);
    row.num_outputs = static_cast<uint32_t>(step->outputs.size());
    row.outputs = section.add_table(step->outputs);
    row.num_ints = static_cast<uint32_t>(step->ints.size());
    row.ints = section.add_table(step->ints);
    steps.push_back(row);
  }
  std::vector<tsr_piece_descr> pieces;
  tsr_piece_descr next = {};
  for (const ProgramPiece& piece : program.pieces) {
    next.num_inputs = static_cast<uint32_t>(piece.num_inputs);
    next.num_outputs = static_cast<uint32_t>(piece.num_outputs);
    next.num_checks = static_cast<uint32_t>(piece.num_checks);
    next.num_symbols = static_cast<uint32_t>(piece.num_symbols);
    pieces.push_back(next);
    next.first_input += next.num_inputs;
    next.first_output += next.num_outputs;
    next.first_check += next.num_checks;
    next.first_symbol += next.num_symbols;
  }
  std::vector<tsr_string_descr> strings;
  for (const std::string& text : flow.strings)
    strings.push_back({add_bytes(section, text), static_cast<uint32_t>(text.size())});
  section.add_text("");  // what stands behind the last table
  head.num_slots = static_cast<uint32_t>(flow.slots.size());
  head.num_value_inputs = static_cast<uint32_t>(inputs.size());
  head.value_inputs = section.add_table(inputs);
  head.num_value_outputs = static_cast<uint32_t>(outputs.size());
  head.value_outputs = section.add_table(outputs);
  head.num_pieces = static_cast<uint32_t>(pieces.size());
  head.pieces = section.add_table(pieces);
  head.num_strings = static_cast<uint32_t>(strings.size());
  head.strings = section.add_table(strings);
  head.num_steps = static_cast<uint32_t>(steps.size());
  head.steps = section.add_table(steps);
}

void add_devices(Section& section, const ModuleContents& contents, tsr_descriptor& head) {
  const Program& program = contents.program;
  const ImageLayout layout = layout_images(program, contents.images);
  std::vector<tsr_device_descr> devices;
  for (size_t i = 0; i < program.devices.size(); ++i) {
    tsr_device_descr& row = devices.emplace_back();
    row.name = section.add_text(program.devices[i].name);
    row.kind = section.add_text(program.devices[i].kind);
    row.num_tokens = static_cast<uint32_t>(num_tokens(program, static_cast<int32_t>(i) + 1));
    row.image_offset = layout.devices[i].code;
    row.image_size = contents.images[i].code.size();
    row.weights_offset = layout.devices[i].weights;
    row.weights_size = static_cast<uint64_t>(program.devices[i].weight_bytes);
    row.arena_bytes = static_cast<uint64_t>(program.devices[i].arena_bytes);
    row.scratch_bytes = static_cast<uint64_t>(contents.images[i].scratch_bytes);
  }
  std::vector<tsr_operation_descr> operations;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel& kernel = program.kernels[i];
    if (kernel.device == 0) continue;
    operations.push_back(
        {static_cast<uint32_t>(kernel.device) - 1, section.add_text(operation_name(static_cast<int32_t>(i))),
         static_cast<uint32_t>(kernel.program.params.size()), static_cast<uint32_t>(kernel.program.symbols.size())});
  }
  head.num_devices = static_cast<uint32_t>(devices.size());
  head.devices = section.add_table(devices);
  head.num_operations = static_cast<uint32_t>(operations.size());
  head.operations = section.add_table(operations);
}

std::string join(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ",")); }

}  // namespace

ImageLayout layout_images(const Program& program, std::span<const DeviceImage> images) {
  check(images.size() == program.devices.size(), "a device without code, or code without a device");
  const auto aligned = [](uint64_t offset) {
    return (offset + TSR_BUFFER_ALIGN - 1) / TSR_BUFFER_ALIGN * TSR_BUFFER_ALIGN;
  };
  ImageLayout layout;
  for (size_t i = 0; i < images.size(); ++i) {
    ImageOffsets& offsets = layout.devices.emplace_back();
    offsets.code = aligned(layout.bytes);
    offsets.weights = aligned(offsets.code + images[i].code.size());
    layout.bytes = offsets.weights + static_cast<uint64_t>(program.devices[i].weight_bytes);
  }
  return layout;
}

std::vector<std::byte> make_descriptor(const ModuleContents& contents) {
  const Program& program = contents.program;
  const ModuleInfo& info = contents.info;
  Section section(sizeof(tsr_descriptor));
  tsr_descriptor head = {};
  head.size = sizeof(head);
  head.abi_version = TSR_ABI_VERSION;
  head.target = section.add_text(info.target_triple);
  head.features = section.add_text(join(info.features));
  head.model_name = section.add_text(info.model_name);
  head.producer = section.add_text(info.producer);

  std::vector<tsr_tensor_descr> inputs = tensor_table(section, program, program.inputs, {});
  std::vector<tsr_tensor_descr> outputs = tensor_table(section, program, program.outputs, program.output_names);
  std::vector<tsr_check_descr> checks;
  check(program.checks.size() + program.states.size() <= outputs.size() && program.states.size() <= inputs.size(),
        "more checks and states than outputs, or more states than inputs");
  const size_t own = program.num_own_outputs(), own_inputs = program.num_own_inputs();
  for (size_t i = 0; i < program.checks.size(); ++i) {
    const tsr_tensor_descr& values = outputs[own + program.states.size() + i];
    check(values.dtype == TSR_I64 && values.rank == 1 && values.dims[0] >= 1 && values.dims[0] <= TSR_MAX_CHECK_COUNT,
          "a check that is no list of i64");
    checks.push_back({section.add_text(program.checks[i].what), section.add_text(program.checks[i].legal),
                      static_cast<uint32_t>(values.dims[0]), 0});
  }
  std::vector<tsr_alias_descr> aliases;
  std::vector<tsr_state_descr> states;
  for (size_t i = 0; i < program.states.size(); ++i) {
    const ProgramState& state = program.states[i];
    tsr_state_descr& row = states.emplace_back();
    row.tensor = inputs[own_inputs + i];
    row.tensor.name = section.add_text(state.name);
    row.initial = TSR_NO_INITIAL;
    if (state.initial < 0) continue;
    row.initial = static_cast<uint64_t>(program.buffers.at(static_cast<size_t>(state.initial)).offset);
  }
  if (!program.flow) {  // a flow's pieces have memory of the run's own
    for (const auto& [output, input] : output_aliases(program)) {
      if (static_cast<size_t>(output) >= own) states[static_cast<size_t>(output) - own].in_place = 1;
      else aliases.push_back({static_cast<uint32_t>(output), static_cast<uint32_t>(input)});
    }
  }
  outputs.resize(own);
  inputs.resize(own_inputs);
  std::vector<tsr_kernel_descr> kernels;
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    tsr_kernel_descr row = {};
    row.name = section.add_text(call.loc);
    row.flops = kernel.flops;
    row.bytes = kernel.bytes;
    kernels.push_back(row);
  }
  head.num_inputs = static_cast<uint32_t>(inputs.size());
  head.inputs = section.add_table(inputs);
  head.num_outputs = static_cast<uint32_t>(outputs.size());
  head.outputs = section.add_table(outputs);
  std::vector<tsr_symbol_descr> symbols;
  for (const SymbolRange& symbol : program.symbols)
    symbols.push_back({section.add_text(symbol.var->name), static_cast<uint32_t>(symbol.step), symbol.lo, symbol.hi});
  head.num_symbols = static_cast<uint32_t>(symbols.size());
  head.symbols = section.add_table(symbols);
  if (!symbols.empty()) {
    head.num_derived = static_cast<uint32_t>(derived_dims(program).size());
    head.num_computed = head.num_derived + static_cast<uint32_t>(arena_parts(program).size());
    head.num_data_symbols = static_cast<uint32_t>(std::count_if(program.symbols.begin(), program.symbols.end(),
                                                                [](const SymbolRange& s) { return s.is_data(); }));
    std::vector<tsr_decided_descr> decided;
    for (const DecidedDim& dim : decided_dims(program))
      decided.push_back({static_cast<uint32_t>(dim.output), static_cast<uint32_t>(dim.axis),
                         head.num_symbols + head.num_computed++, 0});
    head.num_decided = static_cast<uint32_t>(decided.size());
    head.decided = section.add_table(decided);
    check(head.num_computed <= TSR_MAX_COMPUTED, "too many sizes");
  }
  head.num_kernels = static_cast<uint32_t>(kernels.size());
  head.kernels = section.add_table(kernels);
  head.num_aliases = static_cast<uint32_t>(aliases.size());
  head.aliases = section.add_table(aliases);
  head.num_states = static_cast<uint32_t>(states.size());
  head.states = section.add_table(states);
  head.num_checks = static_cast<uint32_t>(checks.size());
  head.checks = section.add_table(checks);
  add_devices(section, contents, head);
  add_flow(section, program, head);
  head.arena_bytes = static_cast<uint64_t>(program.arena_bytes);
  head.scratch_bytes = static_cast<uint64_t>(program.scratch_bytes);
  std::vector<tsr_variant_descr> variants;
  for (const CodeVariant& variant : info.variants)
    variants.push_back({section.add_text(variant.name), section.add_text(join(variant.features)),
                        section.add_text(variant.suffix), 0});
  if (!variants.empty()) head.num_variants = static_cast<uint32_t>(variants.size());
  if (!variants.empty()) head.variants = section.add_table(variants);
  return section.finish(head);
}

}  // namespace tessera::inline package
