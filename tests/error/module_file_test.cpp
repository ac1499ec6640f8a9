// Every message about a module file: what is wrong with it, and what to do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <functional>

#include "abi/module_abi.h"
#include "module_fixture.h"
#include "runtime/core/errors.h"

namespace tessera {
namespace {

using testing::StartsWith;
using ModuleFileErrors = ModuleFolder;
const std::string kAgain = "; get the file again or compile the model again";

TEST_F(ModuleFileErrors, Missing) {
  const std::string rest = " does not exist; give the path of a file written by 'tessera compile'";
  EXPECT_EQ(load_outcome("none.so"), "TSR-7001: module file 'none.so'" + rest);
  EXPECT_EQ(load_outcome(""), "TSR-7001: module file ''" + rest);
  write("file", {});
  EXPECT_EQ(load_outcome("file/none.so"), "TSR-7001: module file 'file/none.so'" + rest);
  tessera_error error = {};
  EXPECT_EQ(tessera_module_check("none.so", &error), TESSERA_NOT_FOUND);
  EXPECT_EQ(tessera_module_check("none.so", nullptr), TESSERA_NOT_FOUND);
}

TEST_F(ModuleFileErrors, LongAndOddPathsKeepTheMessageWhole) {
  // Cut between characters, from the front; the message's own words stay.
  const std::string message = load_outcome(std::string(3000, 'a') + "/\n" + std::string(2, '\t') + "\xc3\xa4" + "z.so");
  EXPECT_EQ(message, "TSR-7002: module file '..." + std::string(230, 'a') +
                         "/???\xc3\xa4z.so' cannot be opened: File "
                         "name too long; a readable file is needed");
  const std::string cut = clip_path((std::string("\xc3\xa4") + std::string(239, 'b')).c_str()).text;
  EXPECT_EQ(cut, "..." + std::string(239, 'b'));
  EXPECT_EQ(clip_name((std::string(239, 'b') + "\xc3\xa4").c_str()).text, std::string(239, 'b') + "...");
}

TEST_F(ModuleFileErrors, Unreadable) {
  std::filesystem::create_symlink("loop.so", "loop.so");
  EXPECT_EQ(load_outcome("loop.so"),
            "TSR-7002: module file 'loop.so' cannot be opened: Too many levels of symbolic "
            "links; a readable file is needed");
  EXPECT_EQ(load_outcome("."),
            "TSR-7002: module file '.' is a directory; a regular file written by 'tessera compile' "
            "is needed");
  ASSERT_EQ(mkfifo("fifo", 0600), 0);
  EXPECT_EQ(load_outcome("fifo"),
            "TSR-7002: module file 'fifo' is not a regular file; a regular file written by "
            "'tessera compile' is needed");
  tessera_module* module = nullptr;
  tessera_error error = {};
  EXPECT_EQ(outcome(load_from_fd(-1, "m.so", nullptr, true, &module, &error), error),
            "TSR-7002: module file 'm.so' cannot be read: Bad file descriptor; a readable file is needed");
  const int huge = memfd_create("huge", 0);
  ASSERT_GE(huge, 0);
  ASSERT_EQ(ftruncate(huge, off_t{1} << 60), 0);
  EXPECT_EQ(outcome(load_from_fd(huge, "huge.so", nullptr, true, &module, &error), error),
            "TSR-7002: module file 'huge.so' cannot be mapped: Cannot allocate memory; it has 1152921504606846976 "
            "bytes");
}

TEST_F(ModuleFileErrors, NotAModule) {
  EXPECT_EQ(load_outcome(Bytes{}),
            "TSR-7003: 'm.so' is not a module: it has 0 bytes, and a module's footer alone has "
            "144; it is cut off, or not written by 'tessera compile'");
  EXPECT_THAT(load_outcome(Bytes(143)), StartsWith("TSR-7003: 'm.so' is not a module: it has 143 bytes, and"));
  EXPECT_EQ(load_outcome(Bytes(144)),
            "TSR-7003: 'm.so' is not a module: its last bytes are not a module's footer; "
            "give a file written by 'tessera compile'");
  Bytes cut = ModuleSpec().build();
  cut.pop_back();
  EXPECT_EQ(load_outcome(cut),
            "TSR-7003: 'm.so' is not a module: its last bytes are not a module's footer; it is a "
            "shared object that was cut off, or not written by 'tessera compile'");
  EXPECT_EQ(load_outcome(compile_shared_object(ModuleSpec().source)), load_outcome(cut));
}

TEST_F(ModuleFileErrors, FormatVersion) {
  Bytes bytes = ModuleSpec().build();
  bytes.back() = 9;
  EXPECT_EQ(load_outcome(bytes), std::string("TSR-7004: 'm.so' has module format 9; this runtime (") +
                                     tessera_version() +
                                     ") reads format 2; compile the model with the tessera of "
                                     "this runtime's version");
}

TEST_F(ModuleFileErrors, FooterDigest) {
  Bytes bytes = ModuleSpec().build();
  bytes[bytes.size() - sizeof(tsr_footer)] ^= 1;
  EXPECT_EQ(load_outcome(bytes), "TSR-7005: 'm.so' is damaged: its footer does not match its digest" + kAgain);
}

TEST_F(ModuleFileErrors, FileSize) {
  const Bytes bytes = ModuleSpec().build();
  Bytes without_head(bytes.begin() + 100, bytes.end());
  EXPECT_EQ(load_outcome(without_head), "TSR-7006: 'm.so' is damaged: it has " + std::to_string(bytes.size() - 100) +
                                            " bytes and was written with " + std::to_string(bytes.size()) + kAgain);
}

// A module whose footer says something else, sealed again.
Bytes with_footer(const std::function<void(tsr_footer&)>& edit) {
  Bytes bytes = ModuleSpec().build();
  tsr_footer footer = read_footer(bytes);
  edit(footer);
  seal(bytes, footer, false);
  return bytes;
}

TEST_F(ModuleFileErrors, Layout) {
  const tsr_footer good = read_footer(ModuleSpec().build());
  const auto section = [](const char* name, uint64_t offset, uint64_t size, const std::string& what) {
    return std::string("TSR-7007: 'm.so' is damaged: its ") + name + " section (offset " + std::to_string(offset) +
           ", " + std::to_string(size) + " bytes) " + what + kAgain;
  };
  const uint64_t huge = ~uint64_t{0};
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.code_size = huge; })),
            section("code", 0, huge, "does not fit in the file"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.weights_offset = huge - 65535; })),
            section("weights", huge - 65535, 16, "does not fit in the file"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.weights_size = huge; })),
            section("weights", good.weights_offset, huge, "does not fit in the file"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.weights_offset = 0; })),
            section("weights", 0, 16, "begins inside the section before it"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.descriptor_offset = 8; })),
            section("descriptor", 8, good.descriptor_size, "begins inside the section before it"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.code_size = 0; })),
            section("weights", good.weights_offset, 16, "is too far from the section before it"));
  EXPECT_EQ(load_outcome(with_footer([&](tsr_footer& footer) { footer.metadata_size += 1; })),
            section("footer", good.file_size - 144, 144, "begins inside the section before it"));
}

TEST_F(ModuleFileErrors, SectionAlignment) {
  ModuleSpec spec;
  spec.weights = Bytes(16);  // zeros, so that moving the section leaves zero padding
  Bytes bytes = spec.build();
  tsr_footer footer = read_footer(bytes);
  footer.weights_offset += 8;
  footer.weights_size -= 8;
  seal(bytes, footer, true);
  EXPECT_EQ(load_outcome(bytes), "TSR-7007: 'm.so' is damaged: its weights section is at offset " +
                                     std::to_string(footer.weights_offset) + ", not at a multiple of 65536" + kAgain);
  spec.images = Bytes(16);
  bytes = spec.build();
  footer = read_footer(bytes);
  footer.images_offset += 8;
  footer.images_size -= 8;
  seal(bytes, footer, true);
  EXPECT_EQ(load_outcome(bytes), "TSR-7007: 'm.so' is damaged: its images section is at offset " +
                                     std::to_string(footer.images_offset) + ", not at a multiple of 64" + kAgain);
  footer = read_footer(spec.build());
  footer.images_size -= 4;
  footer.descriptor_offset -= 4;
  footer.descriptor_size += 4;
  seal(bytes, footer, true);
  EXPECT_EQ(load_outcome(bytes), "TSR-7007: 'm.so' is damaged: its descriptor section is at offset " +
                                     std::to_string(footer.descriptor_offset) + ", not at a multiple of 8" + kAgain);
}

TEST_F(ModuleFileErrors, Padding) {
  Bytes bytes = ModuleSpec().build();
  bytes[read_footer(bytes).weights_offset - 1] = 1;
  EXPECT_EQ(load_outcome(bytes),
            "TSR-7008: 'm.so' is damaged: the padding before its weights section is not zero" + kAgain);
}

TEST_F(ModuleFileErrors, SectionDigests) {
  ModuleSpec spec;
  spec.images = Bytes(16, 7);
  const Bytes good = spec.build();
  const tsr_footer footer = read_footer(good);
  const std::pair<const char*, uint64_t> sections[] = {{"code", 100},
                                                       {"weights", footer.weights_offset},
                                                       {"images", footer.images_offset},
                                                       {"descriptor", footer.descriptor_offset},
                                                       {"metadata", footer.metadata_offset}};
  for (const auto& [name, at] : sections) {
    Bytes bad = good;
    bad[at] ^= 1;
    EXPECT_EQ(load_outcome(bad),
              std::string("TSR-7009: 'm.so' is damaged: its ") + name + " section does not match its digest" + kAgain);
    EXPECT_EQ(check_outcome(bad), load_outcome(bad));
  }
}

TEST_F(ModuleFileErrors, AbiVersion) {
  for (const uint32_t version : {0u, 5u, TSR_ABI_OLDEST_VERSION - 1, TSR_ABI_VERSION + 1}) {
    ModuleSpec spec;
    spec.edit_descriptor = [=](Bytes& bytes) { write_at(bytes, offsetof(tsr_descriptor, abi_version), version); };
    EXPECT_EQ(load_outcome(spec.build()), "TSR-7010: 'm.so' was compiled for runtime interface " +
                                              std::to_string(version) + "; this runtime (" + tessera_version() +
                                              ") has interface " + std::to_string(TSR_ABI_VERSION) +
                                              "; compile the model with the tessera of this runtime's version");
  }
  for (uint32_t version = TSR_ABI_OLDEST_VERSION; version <= TSR_ABI_VERSION; ++version) {
    ModuleSpec spec;
    spec.edit_descriptor = [=](Bytes& bytes) { write_at(bytes, offsetof(tsr_descriptor, abi_version), version); };
    EXPECT_EQ(load_outcome(spec.build()), "ok");
  }
}

class DescriptorErrors : public ModuleFolder {
 protected:
  // The reason given for a spec, or the whole outcome if it is none.
  std::string reason(const ModuleSpec& spec) {
    const std::string whole = load_outcome(spec.build());
    const std::string head = "TSR-7011: 'm.so' has an inconsistent descriptor: ", tail = "; compile the model again";
    if (whole.rfind(head, 0) != 0 || whole.size() < head.size() + tail.size()) return whole;
    EXPECT_EQ(whole.substr(whole.size() - tail.size()), tail);
    return whole.substr(head.size(), whole.size() - head.size() - tail.size());
  }
  template <typename T>
  std::string reason_with(size_t offset, T value) {
    ModuleSpec spec;
    spec.symbols = {{"batch", 1, 8}};
    spec.inputs[0].dims = {-1};
    spec.edit_descriptor = [=](Bytes& bytes) { write_at(bytes, offset, value); };
    return reason(spec);
  }
};

const std::string kHeadBytes = std::to_string(sizeof(tsr_descriptor));

TEST_F(DescriptorErrors, Head) {
  ModuleSpec spec;
  spec.edit_descriptor = [](Bytes& bytes) { bytes.resize(79); };
  EXPECT_EQ(reason(spec), "it has 79 bytes, at least " + kHeadBytes + " are needed");
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, size), 72u), "its head has 72 bytes instead of " + kHeadBytes);
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, scratch_bytes), uint64_t{100}),
            "its scratch of 100 bytes per thread is not a multiple of 64");
}

TEST_F(DescriptorErrors, Tables) {
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, num_slots), UINT32_MAX), "it has 4294967295 slots");
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, num_inputs), 0x10000u),
            "its table of 65536 inputs at offset " + kHeadBytes + " does not fit or is not aligned");
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, outputs), 0xfffffff8u),
            "its table of 1 outputs at offset 4294967288 does not fit or is not aligned");
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, symbols), 76u),
            "its table of 1 symbols at offset 76 does not fit or is not aligned");
  EXPECT_THAT(reason_with(offsetof(tsr_descriptor, num_kernels), 0xffffffffu),
              StartsWith("its table of 4294967295 kernels at offset "));
}

TEST_F(DescriptorErrors, Aliases) {
  ModuleSpec spec;
  const auto with = [&](std::vector<tsr_alias_descr> aliases) {
    spec.aliases = std::move(aliases);
    return reason(spec);
  };
  const auto outputs = static_cast<uint32_t>(spec.outputs.size()), inputs = static_cast<uint32_t>(spec.inputs.size());
  EXPECT_EQ(with({{0, 0}}), "ok");
  EXPECT_THAT(with({{outputs, 0}}), StartsWith("alias 0 is of output " + std::to_string(outputs) + " of "));
  EXPECT_THAT(with({{0, inputs}}), StartsWith("alias 0 is of output 0 of "));
  EXPECT_EQ(with({{0, 0}, {0, 0}}), "alias 1 is not behind the one before it");
  spec.aliases.clear();
  const auto with_state = [&](StateSpec state) {
    spec.states = {std::move(state)};
    const std::string result = reason(spec);
    spec.states.clear();
    return result;
  };
  EXPECT_EQ(with_state({{"s", TSR_F32, {-1}}}), "state 's' uses symbol 0 of 0");
  EXPECT_EQ(with_state({{"s", TSR_F32, {4}}, false, 1u << 20}),
            "the initial value of state 's' does not lie in the weights");
  EXPECT_EQ(with_state({{"s", TSR_F32, {INT64_MAX / 2}}}), "the size of state 's' overflows");
  spec.aliases.clear();
  EXPECT_THAT(reason_with(offsetof(tsr_descriptor, num_aliases), 0x10000000u),
              StartsWith("its table of 268435456 aliases"));
}

TEST_F(DescriptorErrors, Strings) {
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, target), 1u << 20),
            "the target triple at offset 1048576 is not a string inside it");
  EXPECT_THAT(reason_with(offsetof(tsr_descriptor, features), 1u << 20), StartsWith("the list of CPU features"));
  EXPECT_THAT(reason_with(offsetof(tsr_descriptor, producer), 1u << 20), StartsWith("the producer's name at "));
  ModuleSpec spec;
  for (const char* wrong : {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    spec.model_name = wrong;
    EXPECT_THAT(reason(spec), StartsWith("the model's name"));
    EXPECT_NE(reason(spec).find("is not UTF-8"), std::string::npos) << wrong;
  }
  spec.model_name = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
  EXPECT_EQ(reason(spec), "ok");
  spec.edit_descriptor = [](Bytes& bytes) { bytes.back() = 'x'; };  // the last string loses its end
  EXPECT_THAT(reason(spec), StartsWith("the name of kernel 0 at offset "));
  EXPECT_NE(reason(spec).find("is not a string inside it"), std::string::npos);
}

TEST_F(DescriptorErrors, Tensors) {
  ModuleSpec spec;
  spec.inputs[0].dtype = TSR_STRING;
  EXPECT_EQ(reason(spec), "input 'x' has dtype number 33, which this runtime cannot pass");
  spec = ModuleSpec();
  spec.outputs[0].dtype = 0;
  EXPECT_EQ(reason(spec), "output 'y' has dtype number 0, which this runtime cannot pass");
  spec = ModuleSpec();
  spec.inputs[0].dims = std::vector<int64_t>(17, 1);
  EXPECT_EQ(reason(spec), "input 'x' has rank 17, above 16");
  spec.inputs[0].dims = {-1};
  EXPECT_EQ(reason(spec), "input 'x' uses symbol 0 of 0");
  spec.inputs[0].dims = {INT64_MIN};
  EXPECT_EQ(reason(spec), "input 'x' uses symbol 9223372036854775807 of 0");
  spec.inputs[0].dims = {INT64_MAX, 2};
  EXPECT_EQ(reason(spec), "the size of input 'x' overflows");
  spec.inputs[0].dims = {INT64_MAX, 0, INT64_MAX};
  EXPECT_EQ(reason(spec), "the size of input 'x' overflows");
  spec.inputs[0].dims = {INT64_MAX / 8};  // f32: in bits it is too much
  EXPECT_EQ(reason(spec), "the size of input 'x' overflows");
  spec.inputs[0].dims = {INT64_MAX / 64};
  EXPECT_EQ(reason(spec), "ok");
}

TEST_F(DescriptorErrors, Symbols) {
  ModuleSpec spec;
  spec.symbols = {{"batch", 4, 3}};
  spec.inputs[0].dims = {-1};
  EXPECT_EQ(reason(spec), "symbol 'batch' has the range 4..3");
  spec.symbols = {{"batch", -1, 3}};
  EXPECT_EQ(reason(spec), "symbol 'batch' has the range -1..3");
  spec.symbols = {{"batch", 0, INT64_MAX}};
  EXPECT_EQ(reason(spec), "the size of input 'x' overflows");
  spec.symbols = {{"batch", 0, 3}, {"free", 0, 3}};
  spec.outputs[0].dims = {-2};
  EXPECT_EQ(reason(spec), "symbol 'free' is no dimension of any input");
  spec.inputs[0].dims = {-2, -1};
  EXPECT_EQ(reason(spec), "ok");
}

TEST_F(DescriptorErrors, Kernels) {
  ModuleSpec spec;
  spec.kernels = {{"a", -2, 0}};
  EXPECT_EQ(reason(spec), "kernel 0 has -2 flops and 0 bytes");
  spec.kernels = {{"a", -1, -1}, {"b", 0, INT64_MIN}};
  EXPECT_EQ(reason(spec), "kernel 1 has 0 flops and -9223372036854775808 bytes");
}

TEST_F(DescriptorErrors, Checks) {
  EXPECT_EQ(reason_with(offsetof(tsr_descriptor, num_checks), 0x10000000u).substr(0, 32),
            "its table of 268435456 checks at");
  ModuleSpec spec;
  spec.checks = {{"axes", "1", 2}, {"shape", "3", 0}};
  EXPECT_EQ(reason(spec), "check 1 has 0 values; legal are 1..4097");
  spec.checks = {{"axes", "1", 4098}};
  EXPECT_EQ(reason(spec), "check 0 has 4098 values; legal are 1..4097");
  spec.checks = {{"axes", "\xff", 2}};
  EXPECT_THAT(reason(spec), StartsWith("the text of check 0 at offset "));
  spec.checks = {{"axes", "1", 4097}};
  EXPECT_EQ(reason(spec), "ok");
}

TEST_F(ModuleFileErrors, CodePart) {
  const auto with_code = [](const std::function<void(Bytes&)>& edit) {
    ModuleSpec spec;
    spec.edit_code = edit;
    return spec.build();
  };
  const auto fault = [](const std::string& what) {
    return "TSR-7012: 'm.so' cannot be run: its code part " + what + "; compile the model again";
  };
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code.resize(63); })), fault("is too short"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code[1] = 'X'; })), fault("is not ELF"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code[4] = 1; })), fault("is not 64-bit ELF"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code[5] ^= 3; })), fault("has another byte order"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code[16] = 2; })), fault("is not a shared object"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { write_at(code, 32, ~uint64_t{0}); })),
            fault("has program headers that do not fit"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code.resize(200); })),
            fault("has program headers that do not fit"));
  EXPECT_EQ(load_outcome(with_code([](Bytes& code) { code.resize(code.size() / 4); })),
            fault("has a segment that does not fit"));
}

TEST_F(ModuleFileErrors, Machine) {
#if defined(__x86_64__)
  const uint8_t other = 183;
  const std::string this_name = "x86-64", other_name = "aarch64";
#else
  const uint8_t other = 62;
  const std::string this_name = "aarch64", other_name = "x86-64";
#endif
  ModuleSpec spec;
  spec.target = "other-unknown-linux-gnu";
  spec.edit_code = [=](Bytes& code) { code[18] = other; };
  const Bytes bytes = spec.build();
  EXPECT_EQ(load_outcome(bytes), "TSR-7013: 'm.so' was compiled for " + other_name +
                                     " (target "
                                     "other-unknown-linux-gnu) and this machine is " +
                                     this_name +
                                     "; compile the model "
                                     "with --target native here, or run it on " +
                                     other_name);
  EXPECT_EQ(check_outcome(bytes), "ok") << "the file itself is whole";
}

TEST_F(ModuleFileErrors, CpuFeatures) {
  ModuleSpec spec;
  spec.features = "made-up-a,made-up-b";
  EXPECT_EQ(load_outcome(spec.build()),
            "TSR-7014: 'm.so' needs CPU features this machine does not have: made-up-a, made-up-b (it was compiled "
            "with made-up-a,made-up-b); compile the model with --target native on this machine, or with --target "
            "x86-64-v3, x86-64-v2 or another target this machine has");
  EXPECT_EQ(check_outcome(spec.build()), "ok");
  tessera_module* module = nullptr;
  tessera_error error = {};
  EXPECT_EQ(tessera_module_load("m.so", nullptr, &module, &error), TESSERA_UNSUPPORTED);
  spec.features = "amx-made-up";
  EXPECT_THAT(load_outcome(spec.build()),
              StartsWith("TSR-7014: 'm.so' needs CPU features this machine does not have or "
                         "this process may not use: amx-made-up (it was compiled "));
#if defined(__x86_64__)
  spec.features = "sse2,cx16,made-up";
  EXPECT_THAT(load_outcome(spec.build()),
              StartsWith("TSR-7014: 'm.so' needs CPU features this machine does not have: made-up (it was compiled "));
#endif
}

TEST_F(ModuleFileErrors, Variants) {
  ModuleSpec spec;
  spec.features = "made-up";  // of the code that decisions were made for: the variants count
  spec.variants = {{"new", "made-up-b", "_v0"}, {"newer", "made-up-a", ""}};
  EXPECT_EQ(
      load_outcome(spec.build()),
      "TSR-7014: 'm.so' has code for new, newer, and this machine can run none of it: for newer it does not have: "
      "made-up-a; compile the model with --target native on this machine, or with another target this machine has "
      "among --variants");
  EXPECT_EQ(check_outcome(spec.build()), "ok");
  spec.variants.push_back({"old", "", ""});
  EXPECT_EQ(load_outcome(spec.build()), "ok") << "the first that runs";
  spec.variants.push_back({"older", "", "_v7"});
  EXPECT_EQ(load_outcome(spec.build()), "ok") << "and no later one";
  ASSERT_EQ(setenv("TESSERA_VARIANT", "older", 1), 0);
  EXPECT_EQ(load_outcome(spec.build()),
            "TSR-7015: the code of 'm.so' cannot be used: it does not export tessera_module_run_v7; compile the model "
            "again");
  ASSERT_EQ(setenv("TESSERA_VARIANT", "new", 1), 0);
  EXPECT_THAT(
      load_outcome(spec.build()),
      StartsWith("TSR-7014: 'm.so' has code for new, newer, old, older, and this machine can run none of it that "
                 "TESSERA_VARIANT lets it: for new it does not have: made-up-b"));
  ASSERT_EQ(setenv("TESSERA_VARIANT", "oldest", 1), 0);
  EXPECT_EQ(load_outcome(spec.build()),
            "TSR-7027: 'm.so' has no code for 'oldest', which TESSERA_VARIANT names; it has: new, newer, old, older");
  ASSERT_EQ(unsetenv("TESSERA_VARIANT"), 0);
  spec.variants = {{"long", "", std::string(TSR_MAX_SUFFIX + 1, 'v')}};
  EXPECT_EQ(load_outcome(spec.build()),
            "TSR-7011: 'm.so' has an inconsistent descriptor: the suffix of variant 0 has more than 32 bytes; compile "
            "the model again");
}

TEST_F(ModuleFileErrors, CodeThatCannotBeLoaded) {
  ModuleSpec spec;
  spec.source =
      "#include <stdint.h>\nint32_t missing(void);\n__attribute__((visibility(\"default"
      "\"))) int32_t tessera_module_run(const void* c) { return missing(); }";
  const std::string message = load_outcome(spec.build());
  EXPECT_THAT(message, StartsWith("TSR-7015: the code of 'm.so' cannot be loaded: /p"));
  EXPECT_NE(message.find("undefined symbol: missing; the file system must allow execution, and /proc must be mounted"),
            std::string::npos);
  spec.source = "__attribute__((visibility(\"default\"))) int something_else(void) { return 0; }";
  EXPECT_EQ(load_outcome(spec.build()),
            "TSR-7015: the code of 'm.so' cannot be used: it does not export "
            "tessera_module_run; compile the model again");
}

TEST_F(ModuleFileErrors, ValuesWithoutTheirLibrary) {  // this program is not linked with it
  const Bytes bytes = flow_spec().build();
  EXPECT_EQ(load_outcome(bytes),
            "TSR-7018: 'm.so' has strings, sequences, maps or tensors of sizes that a run decides, and "
            "libtessera_values, which they need, cannot be loaded: libtessera_values.so.0: cannot open shared object "
            "file: No such file or directory; install libtessera_values.so.0 beside libtessera_runtime.so, or link "
            "libtessera_values.a into the program (-Wl,-u,tessera_values_library -ltessera_values -ltessera_runtime)");
  EXPECT_EQ(check_outcome(bytes), "ok");
  tessera_module* module = nullptr;
  EXPECT_EQ(tessera_module_load("m.so", nullptr, &module, nullptr), TESSERA_UNSUPPORTED);
}

TEST_F(ModuleFileErrors, InMemory) {
  const Bytes bytes = ModuleSpec().build();
  tessera_module* module = nullptr;
  tessera_error error = {};
  EXPECT_THAT(outcome(tessera_module_load_memory(bytes.data(), bytes.size() - 1, nullptr, &module, &error), error),
              StartsWith("TSR-7003: 'module in memory' is not a module: it"));
  EXPECT_THAT(outcome(tessera_module_load_memory(bytes.data(), 0, nullptr, &module, &error), error),
              StartsWith("TSR-7003: 'module in memory' is not a module: it has 0 bytes, and"));
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const tessera_status status = tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(outcome(status, error),
            "TSR-7017: a module of " + std::to_string(bytes.size()) +
                " bytes in memory cannot "
                "be loaded: the kernel refuses an anonymous file (Too many open files); write the "
                "module to a file of its own and load that");
}

}  // namespace
}  // namespace tessera
