#include "codegen/llvm/target.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "codegen/llvm/llvm_headers.h"
#include "codegen/llvm/llvm_target.h"
#include "support/cache_size.h"
#include "support/error.h"
#include "support/nearest_names.h"
#include "support/tile_permission.h"
#include "target/wasm.h"

namespace tessera::inline llvm_codegen {
namespace {

constexpr const char* kHostTriple = "x86_64-unknown-linux-gnu";

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::unique_ptr<llvm::MCSubtargetInfo> subtarget(const std::string& triple, const std::string& cpu,
                                                 const std::string& features) {
  return std::unique_ptr<llvm::MCSubtargetInfo>(find_llvm_target(triple).createMCSubtargetInfo(triple, cpu, features));
}

// Every feature that LLVM enables for a cpu, by name.
std::set<std::string> features_of(const std::string& triple, const std::string& cpu) {
  std::set<std::string> names;
  const auto info = subtarget(triple, cpu, "");
  for (const llvm::SubtargetFeatureKV& feature : info->getAllProcessorFeatures())
    if (info->checkFeatures(std::string("+") + feature.Key)) names.insert(feature.Key);
  return names;
}

bool is_avx10(std::string_view feature) { return feature.starts_with("avx10"); }

// Instructions, not tuning advice ("fast-...", "slow-...", "prefer-...") or modes of the assembler.
bool is_instruction_set(const std::string& name) {
  static const std::set<std::string> kAdvice = {"64bit",         "64bit-mode",  "32bit-mode",         "16bit-mode",
                                                "idivq-to-divl", "macrofusion", "branchfusion",       "nopl",
                                                "vzeroupper",    "x87",         "allow-light-256-bit"};
  for (const char* prefix :
       {"fast-",     "slow-", "prefer-", "tuning", "false-deps", "sbb-",   "no-",  "lea-",  "ermsb",   "fsrm",
        "retpoline", "lvi-",  "harden-", "use-",   "inline-",    "avoid-", "pad-", "soft-", "tagged-", "branch-"})
    if (name.starts_with(prefix)) return false;
  return !kAdvice.count(name);
}

void read_cache_sizes(Target& target) {
  const auto set = [](int64_t& field, int level) {
    if (const int64_t bytes = machine_cache_bytes(level); bytes > 0) field = bytes;
  };
  set(target.l1_bytes, 1);
  set(target.l2_bytes, 2);
  set(target.l3_bytes, 3);
}

// What generated code can make use of. If a module asked for every feature of its target, one that only the kernel or
// a cache instruction needs (clzero, xsaves, ...) would tie it to a machine for nothing; advice to the code generator
// ("fast-...") is nothing that a machine has.
bool is_used(std::string_view feature) {
  static const std::set<std::string_view> kOthers = {"sse",         "sse2",
                                                     "sse3",        "ssse3",
                                                     "sse4.1",      "sse4.2",
                                                     "popcnt",      "avx",
                                                     "avx2",        "fma",
                                                     "f16c",        "bmi",
                                                     "bmi2",        "lzcnt",
                                                     "movbe",       "cx16",
                                                     "evex512",     "avxvnni",
                                                     "avxvnniint8", "avxvnniint16",
                                                     "avxifma",     "avxneconvert",
                                                     "neon",        "fp-armv8",
                                                     "fullfp16",    "dotprod",
                                                     "bf16",        "i8mm",
                                                     "sve",         "sve2",
                                                     "m",           "a",
                                                     "f",           "d",
                                                     "c",           "v",
                                                     "zfh",         "zvfh"};
  return feature.starts_with("avx512") || feature.starts_with("amx-") || kOthers.count(feature) != 0;
}

}  // namespace

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
  });
}

const llvm::Target& find_llvm_target(const std::string& triple) {
  initialize_llvm();
  std::string reason;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, reason);
  // The module format and the argument structures are those of 64-bit little-endian Linux. WebAssembly has no modules
  // of that format (wasm_module.h); its pointers take the lower halves of the structures' fields.
  const llvm::Triple parsed(triple);
  if (found && parsed.isArch64Bit() && parsed.isLittleEndian() && parsed.isOSBinFormatELF()) return *found;
  if (found && parsed.getArch() == llvm::Triple::wasm32) return *found;
  throw UserError(
      {.id = "TSR-5001",
       .message = fmt::format("no code can be generated for the target '{}'", triple),
       .node = {},
       .legal = "native, x86-64-v2, x86-64-v3, x86-64-v4, or a triple of a 64-bit little-endian ELF system such as "
                "x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu, riscv64-unknown-linux-gnu, or wasm32, "
                "followed by ,cpu=NAME and ,+feature or ,-feature",
       .hint = did_you_mean(triple,
                            {"native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86_64-unknown-linux-gnu",
                             "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "wasm32"},
                            "check the spelling of the target")});
}

std::string llvm_features(const Target& target) {
  std::string text;
  const auto add = [&](char sign, const std::string& name) {
    if (!text.empty()) text += ',';
    text += sign;
    text += name;
  };
  // Off before on: switching a feature off also switches off what needs it.
  for (const std::string& implied : features_of(target.triple, target.cpu))
    if (!target.features.count(implied) && is_instruction_set(implied)) add('-', implied);
  for (const std::string& feature : target.features) add('+', feature);
  return text;
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int opt_level) {
  const llvm::Target& llvm_target = find_llvm_target(target.triple);
  llvm::TargetOptions options;
  const auto level = opt_level == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default;
  // Position-independent WebAssembly would import its addresses from whoever loads it.
  const auto relocation = is_wasm(target) ? llvm::Reloc::Static : llvm::Reloc::PIC_;
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target.createTargetMachine(
      target.triple, target.cpu, llvm_features(target), options, relocation, std::nullopt, level));
  check(machine != nullptr, "LLVM has no machine for " + target.triple);
  return machine;
}

Target native_target() {
  initialize_llvm();
  Target target;
  target.triple = kHostTriple;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    if (feature.second && !is_avx10(feature.first())) target.features.insert(feature.first().str());
  // What the processor has and the kernel refuses to this process would end it.
  const auto is_amx = [](const std::string& name) { return name.starts_with("amx-"); };
  if (std::any_of(target.features.begin(), target.features.end(), is_amx) && !may_use_tiles())
    std::erase_if(target.features, is_amx);
  // The name comes from the model number and can be wrong, so only its level is used, for tuning.
  target.cpu = target.has("avx512f")  ? "x86-64-v4"
               : target.has("avx2")   ? "x86-64-v3"
               : target.has("sse4.2") ? "x86-64-v2"
                                      : "x86-64";
  read_cache_sizes(target);
  target.ratios = ratios_of_this_machine();
  target.num_threads = available_processors();
  return target;
}

Target parse_target(std::string_view spec) {
  if (spec == "native") return native_target();
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= spec.size();) {
    const size_t end = std::min(spec.find(',', begin), spec.size());
    parts.emplace_back(spec.substr(begin, end - begin));
    begin = end + 1;
  }
  Target target;
  target.num_threads = available_processors();
  target.triple = parts[0];
  std::vector<std::string> switches(parts.begin() + 1, parts.end());
  if (parts[0] == "x86-64-v2" || parts[0] == "x86-64-v3" || parts[0] == "x86-64-v4") {
    target.triple = kHostTriple;
    target.cpu = parts[0];
  } else {
    find_llvm_target(target.triple);
    target.triple = llvm::Triple::normalize(target.triple);
    const llvm::Triple triple(target.triple);
    target.cpu = triple.isX86() ? "x86-64" : triple.isRISCV() ? "generic-rv64" : "generic";
    // What every 64-bit Linux of the architecture has; LLVM's generic processor has less.
    if (triple.isRISCV()) switches.insert(switches.begin(), {"+m", "+a", "+f", "+d", "+c"});
    // What engines have had since 2021, and conversions that saturate as the IR's may.
    if (is_wasm(target))
      switches.insert(switches.begin(),
                      {"+simd128", "+bulk-memory", "+nontrapping-fptoint", "+sign-ext", "+mutable-globals"});
  }
  for (const std::string& item : switches) {
    if (!item.starts_with("cpu=")) continue;
    target.cpu = item.substr(4);
    const auto info = subtarget(target.triple, "", "");
    if (!info->isCPUStringValid(target.cpu)) {
      std::vector<std::string> names;
      for (const llvm::SubtargetSubTypeKV& cpu : info->getAllProcessorDescriptions()) names.push_back(cpu.Key);
      throw UserError(
          {.id = "TSR-5002",
           .message = fmt::format("the architecture of '{}' has no processor '{}'", target.triple, target.cpu),
           .node = {},
           .legal = join(names),
           .hint = did_you_mean(target.cpu, names, "leave cpu= out and name the features instead")});
    }
  }
  target.features = features_of(target.triple, target.cpu);
  std::string changes;
  for (const std::string& item : switches) {
    if (item.starts_with("cpu=")) continue;
    const bool has_sign = item.size() > 1 && (item[0] == '+' || item[0] == '-');
    const std::string name = has_sign ? item.substr(1) : item;
    if (item == fmt::format("+{}", kPortableTiles)) continue;
    const auto info = subtarget(target.triple, "", "");
    std::vector<std::string> names;
    for (const llvm::SubtargetFeatureKV& feature : info->getAllProcessorFeatures()) names.push_back(feature.Key);
    if (!has_sign || std::find(names.begin(), names.end(), name) == names.end())
      throw UserError(
          {.id = "TSR-5003",
           .message = has_sign ? fmt::format("the architecture of '{}' has no feature '{}'", target.triple, name)
                               : fmt::format("'{}' in a target is neither cpu=NAME nor a feature with its sign", item),
           .node = {},
           .legal = "each with + or - before it: " + join(names),
           .hint = did_you_mean(name, names, "check the spelling of the feature")});
    changes += (changes.empty() ? "" : ",") + item;
  }
  if (!changes.empty()) {
    // Through LLVM, so that a feature brings what it needs and takes away what needs it.
    const auto info = subtarget(target.triple, target.cpu, changes);
    target.features.clear();
    for (const llvm::SubtargetFeatureKV& feature : info->getAllProcessorFeatures())
      if (info->checkFeatures(std::string("+") + feature.Key)) target.features.insert(feature.Key);
  }
  std::erase_if(target.features, [](const std::string& name) { return is_avx10(name); });
  if (std::find(switches.begin(), switches.end(), fmt::format("+{}", kPortableTiles)) != switches.end())
    target.emulated.emplace(kPortableTiles);
  target.ratios = ratios_of(target.cpu);
  return target;
}

bool runs_here(const Target& target) {
  if (!llvm::Triple(target.triple).isX86()) return false;
  const Target here = native_target();
  return std::all_of(target.features.begin(), target.features.end(), [&](const std::string& name) {
    return !is_instruction_set(name) || here.has(name) || name == "cx8" || name == "nopl" || name == "sahf" ||
           name == "mmx";
  });
}

std::vector<std::string> required_features(const Target& target) {
  std::vector<std::string> names;
  for (const std::string& feature : target.features)
    if (is_used(feature)) names.push_back(feature);
  return names;
}

}  // namespace tessera::inline llvm_codegen
