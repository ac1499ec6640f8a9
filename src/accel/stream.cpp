#include "accel/stream.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"

namespace tessera::inline accel {

namespace {

int bits_for(int64_t most) { return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(most)))); }

std::string queues_text(const Accelerator& unit, uint32_t mask) {
  std::vector<std::string> names;
  for (size_t q = 0; q < unit.queues.size(); ++q)
    if (mask >> q & 1) names.push_back(unit.queues[q]);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The numbers of an instruction in the order of its fields, addresses in elements of their memory.
std::vector<int64_t> numbers_of(const Accelerator& unit, const StreamInstruction& instruction) {
  const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
  std::vector<int64_t> result = {instruction.kind, instruction.waits, instruction.signals};
  result.insert(result.end(), instruction.extents.begin(), instruction.extents.end());
  for (size_t p = 0; p < kind.operands.size(); ++p) {
    const UnitOperand& operand = instruction.operands[p];
    const bool in_dram = kind.operands[p] == kDram;
    const int64_t element = in_dram ? 1 : unit.memories[static_cast<size_t>(kind.operands[p])].element;
    if (in_dram) result.push_back(operand.segment);
    result.push_back(operand.base / element);
    for (const int64_t stride : operand.strides) result.push_back(stride / element);
    if (kind.padded[p])
      for (const auto& [begin, end] : operand.inside) result.push_back(begin), result.push_back(end);
  }
  result.insert(result.end(), instruction.immediates.begin(), instruction.immediates.end());
  return result;
}

}  // namespace

int64_t steps_of(const StreamInstruction& instruction) {
  int64_t steps = 1;
  for (const int64_t extent : instruction.extents)
    if (extent == 0) return 0;
  for (const int64_t extent : instruction.extents)
    if (__builtin_mul_overflow(steps, extent, &steps)) return std::numeric_limits<int64_t>::max();
  return steps;
}

void for_each_access(const Accelerator& unit, const StreamInstruction& instruction,
                     const std::function<void(size_t, int64_t)>& visit) {
  const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
  const size_t loops = instruction.extents.size();
  std::vector<int64_t> at(loops, 0);
  const int64_t steps = steps_of(instruction);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t p = 0; p < instruction.operands.size(); ++p) {
      const UnitOperand& operand = instruction.operands[p];
      int64_t address = operand.base;
      bool read = true;
      for (size_t l = 0; l < loops; ++l) {
        const int64_t first = kind.padded[p] ? operand.inside[l].first : 0;
        address += (at[l] - first) * operand.strides[l];
        if (kind.padded[p]) read = read && at[l] >= first && at[l] < operand.inside[l].second;
      }
      if (read) visit(p, address);
    }
    for (size_t l = loops; l-- > 0;) {
      if (++at[l] < instruction.extents[l]) break;
      at[l] = 0;
    }
  }
}

void for_each_place(const UnitInstruction& kind, const StreamInstruction& instruction, size_t operand,
                    const std::function<void(int64_t address)>& visit) {
  if (steps_of(instruction) == 0) return;
  const UnitOperand& of = instruction.operands[operand];
  int64_t first = of.base;
  std::vector<std::pair<int64_t, int64_t>> loops;  // strides above 0, and extents
  for (size_t l = 0; l < instruction.extents.size(); ++l) {
    int64_t begin = 0, end = instruction.extents[l];
    if (kind.padded[operand]) {
      begin = std::max<int64_t>(of.inside[l].first, 0), end = std::min(end, of.inside[l].second);
      if (end <= begin) return;
      first += (begin - of.inside[l].first) * of.strides[l];
    }
    if (of.strides[l] == 0 || end - begin == 1) continue;
    if (of.strides[l] < 0) first += (end - begin - 1) * of.strides[l];
    loops.emplace_back(std::abs(of.strides[l]), end - begin);
  }
  // Steps of one loop that fill the gaps between those of another are one run of places.
  std::sort(loops.begin(), loops.end());
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const auto& [stride, extent] : loops) {
    if (!runs.empty() && stride % runs.back().first == 0 && stride / runs.back().first <= runs.back().second)
      runs.back().second += stride / runs.back().first * (extent - 1);
    else runs.emplace_back(stride, extent);
  }
  std::vector<int64_t> at(runs.size(), 0);
  int64_t address = first;
  while (true) {
    visit(address);
    size_t l = 0;
    for (; l < runs.size(); ++l) {
      address += runs[l].first;
      if (++at[l] < runs[l].second) break;
      address -= runs[l].first * runs[l].second;
      at[l] = 0;
    }
    if (l == runs.size()) return;
  }
}

bool is_written(const UnitInstruction& kind, size_t operand) {
  return operand + static_cast<size_t>(kind.intrinsic->pattern()->num_outputs) >= kind.operands.size();
}

std::string print(const Accelerator& unit, const InstructionStream& stream) {
  std::string text = fmt::format("stream of {}: {} instructions of {} bits\n", unit.name, stream.instructions.size(),
                                 instruction_bits(unit));
  for (size_t i = 0; i < stream.segments.size(); ++i)
    text += fmt::format("segment {} {}: {} bytes{}\n", i, stream.segments[i].name, stream.segments[i].bytes,
                        stream.segments[i].output ? ", written" : "");
  for (size_t i = 0; i < stream.instructions.size(); ++i) {
    const StreamInstruction& instruction = stream.instructions[i];
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    const LoopProgram& kernel = *kind.intrinsic->pattern();
    text += fmt::format("{:>5} {:<8} {:<10} [{}]", i, unit.queues[static_cast<size_t>(kind.queue)], kind.name,
                        fmt::join(instruction.extents, ","));
    for (size_t p = 0; p < instruction.operands.size(); ++p) {
      const UnitOperand& operand = instruction.operands[p];
      const bool in_dram = kind.operands[p] == kDram;
      text += fmt::format(" {}={}+{} by [{}]", kernel.params[p]->name,
                          in_dram ? stream.segments[static_cast<size_t>(operand.segment)].name
                                  : unit.memories[static_cast<size_t>(kind.operands[p])].name,
                          operand.base, fmt::join(operand.strides, ","));
      if (!kind.padded[p]) continue;
      std::vector<std::string> box;
      for (const auto& [begin, end] : operand.inside) box.push_back(fmt::format("{}..{}", begin, end));
      text += fmt::format(" within [{}]", fmt::join(box, ","));
    }
    for (size_t s = 0; s < instruction.immediates.size(); ++s)
      text += fmt::format(" {}={}", kernel.symbols[s]->name, instruction.immediates[s]);
    if (instruction.waits) text += fmt::format(" waits for {}", queues_text(unit, instruction.waits));
    if (instruction.signals) text += fmt::format(" signals {}", queues_text(unit, instruction.signals));
    text += '\n';
  }
  return text;
}

std::vector<EncodedField> fields_of(const Accelerator& unit, const UnitInstruction& kind) {
  const LoopProgram& kernel = *kind.intrinsic->pattern();
  const int queues = static_cast<int>(unit.queues.size());
  std::vector<EncodedField> fields = {
      {"kind", bits_for(static_cast<int64_t>(unit.instructions.size()) - 1)}, {"waits", queues}, {"signals", queues}};
  for (int l = 0; l < kind.loops; ++l) fields.push_back({fmt::format("n{}", l), kind.extent_bits});
  for (size_t p = 0; p < kind.operands.size(); ++p) {
    const std::string& name = kernel.params[p]->name;
    int bits = kDramAddressBits;
    if (kind.operands[p] == kDram) {
      fields.push_back({name + ".segment", kDramSegmentBits});
    } else {
      const UnitMemory& memory = unit.memories[static_cast<size_t>(kind.operands[p])];
      bits = bits_for(memory.bytes / memory.element - 1);
    }
    fields.push_back({name + ".base", bits});
    for (int l = 0; l < kind.loops; ++l) fields.push_back({fmt::format("{}.stride{}", name, l), bits + 1, true});
    if (kind.padded[p])
      for (int l = 0; l < kind.loops; ++l)
        for (const char* end : {"begin", "end"})
          fields.push_back({fmt::format("{}.{}{}", name, end, l), kind.extent_bits});
  }
  for (const Var& symbol : kernel.symbols) {
    const auto [least, most] = kind.intrinsic->patterns[0].rules.ranges.at(symbol->name);
    const bool is_signed = least < 0;
    const int bits = std::max(bits_for(std::max<int64_t>(most, 0)), least < 0 ? bits_for(-(least + 1)) : 1);
    fields.push_back({symbol->name, bits + is_signed, is_signed});
  }
  return fields;
}

int64_t instruction_bits(const Accelerator& unit) {
  int64_t most = 0;
  for (const UnitInstruction& kind : unit.instructions) {
    int64_t bits = 0;
    for (const EncodedField& field : fields_of(unit, kind)) bits += field.bits;
    most = std::max(most, bits);
  }
  return (most + 63) / 64 * 64;
}

std::vector<uint64_t> encode(const Accelerator& unit, const InstructionStream& stream) {
  const auto words = static_cast<size_t>(instruction_bits(unit) / 64);
  std::vector<uint64_t> result;
  for (size_t i = 0; i < stream.instructions.size(); ++i) {
    const StreamInstruction& instruction = stream.instructions[i];
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    const std::vector<EncodedField> fields = fields_of(unit, kind);
    const std::vector<int64_t> numbers = numbers_of(unit, instruction);
    check(fields.size() == numbers.size(), "an instruction has as many numbers as fields");
    std::vector<uint64_t> bits(words, 0);
    size_t at = 0;
    for (size_t f = 0; f < fields.size(); ++f) {
      const int width = fields[f].bits;
      const int64_t least = fields[f].is_signed ? -(int64_t{1} << (width - 1)) : 0;
      const int64_t most = (int64_t{1} << (fields[f].is_signed ? width - 1 : width)) - 1;
      if (numbers[f] < least || numbers[f] > most)
        throw UserError({.id = "TSR-3506",
                         .message = fmt::format("{} of instruction {} ({}) is {}, and its field has {} bits",
                                                fields[f].name, i, kind.name, numbers[f], width),
                         .node = {},
                         .legal = fmt::format("{} to {}", least, most),
                         .hint = "smaller tiles, or a wider field in the description"});
      const uint64_t value = static_cast<uint64_t>(numbers[f]) & (~uint64_t{0} >> (64 - width));
      bits[at / 64] |= value << (at % 64);
      if (at % 64 + static_cast<size_t>(width) > 64) bits[at / 64 + 1] |= value >> (64 - at % 64);
      at += static_cast<size_t>(width);
    }
    result.insert(result.end(), bits.begin(), bits.end());
  }
  return result;
}

std::vector<StreamInstruction> decode(const Accelerator& unit, const std::vector<uint64_t>& words) {
  const auto fail = [](const std::string& message) {
    return UserError({.id = "TSR-3507", .message = message, .node = {}, .legal = {}, .hint = {}});
  };
  const auto each = static_cast<size_t>(instruction_bits(unit) / 64);
  if (words.size() % each) throw fail(fmt::format("{} words are no instructions of {} words", words.size(), each));
  const int kind_bits = bits_for(static_cast<int64_t>(unit.instructions.size()) - 1);
  std::vector<StreamInstruction> result;
  for (size_t first = 0; first < words.size(); first += each) {
    size_t at = 0;
    const auto take = [&](int width, bool is_signed) {
      uint64_t value = words[first + at / 64] >> (at % 64);
      if (at % 64 + static_cast<size_t>(width) > 64) value |= words[first + at / 64 + 1] << (64 - at % 64);
      at += static_cast<size_t>(width);
      value &= ~uint64_t{0} >> (64 - width);
      const bool negative = is_signed && (value >> (width - 1) & 1);
      return static_cast<int64_t>(negative ? value | (width < 64 ? ~uint64_t{0} << width : 0) : value);
    };
    StreamInstruction instruction;
    instruction.kind = static_cast<int>(words[first] & (~uint64_t{0} >> (64 - kind_bits)));
    if (static_cast<size_t>(instruction.kind) >= unit.instructions.size())
      throw fail(fmt::format("instruction {} is of kind {}, and there are {}", first / each, instruction.kind,
                             unit.instructions.size()));
    const UnitInstruction& kind = unit.instructions[static_cast<size_t>(instruction.kind)];
    const std::vector<EncodedField> fields = fields_of(unit, kind);
    size_t next = 0;
    const auto number = [&] {
      const EncodedField& field = fields[next++];
      return take(field.bits, field.is_signed);
    };
    number();
    instruction.waits = static_cast<uint32_t>(number());
    instruction.signals = static_cast<uint32_t>(number());
    for (int l = 0; l < kind.loops; ++l) instruction.extents.push_back(number());
    for (size_t p = 0; p < kind.operands.size(); ++p) {
      UnitOperand operand;
      const bool in_dram = kind.operands[p] == kDram;
      const int64_t element = in_dram ? 1 : unit.memories[static_cast<size_t>(kind.operands[p])].element;
      if (in_dram) operand.segment = static_cast<int>(number());
      operand.base = number() * element;
      for (int l = 0; l < kind.loops; ++l) operand.strides.push_back(number() * element);
      if (kind.padded[p])
        for (int l = 0; l < kind.loops; ++l) {
          const int64_t begin = number();
          operand.inside.emplace_back(begin, number());
        }
      instruction.operands.push_back(std::move(operand));
    }
    while (next < fields.size()) instruction.immediates.push_back(number());
    result.push_back(std::move(instruction));
  }
  return result;
}

}  // namespace tessera::inline accel
