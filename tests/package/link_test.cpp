#include "package/link.h"

#include <elf.h>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.h"
#include "support/error.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::vector<std::byte>& object) {
#if defined(__SANITIZE_ADDRESS__)
  const __lsan::ScopedDisabler disabler;  // lld jumps out of the middle of its work when it cannot go on
#endif
  try {
    link_shared_object(object, {});
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Link, GivesASharedObjectWithoutDependencies) {
  const std::vector<std::byte> linked = link_shared_object(scale_kernel(), {.soname = "some_model.so"});
  ASSERT_GT(linked.size(), sizeof(Elf64_Ehdr));
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(linked.data());
  EXPECT_EQ(header->e_type, ET_DYN);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(linked.data() + header->e_shoff);
  std::vector<std::string> exported;
  std::string soname;
  for (int i = 0; i < header->e_shnum; ++i) {
    const char* strings = reinterpret_cast<const char*>(linked.data() + sections[sections[i].sh_link].sh_offset);
    if (sections[i].sh_type == SHT_DYNSYM) {
      const auto* symbols = reinterpret_cast<const Elf64_Sym*>(linked.data() + sections[i].sh_offset);
      for (size_t k = 1; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k)
        exported.push_back(strings + symbols[k].st_name);
    }
    if (sections[i].sh_type == SHT_DYNAMIC) {
      const auto* entries = reinterpret_cast<const Elf64_Dyn*>(linked.data() + sections[i].sh_offset);
      for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Dyn); ++k) {
        EXPECT_NE(entries[k].d_tag, DT_NEEDED);
        if (entries[k].d_tag == DT_SONAME) soname = strings + entries[k].d_un.d_val;
      }
    }
  }
  EXPECT_EQ(exported, std::vector<std::string>{"tessera_module_run"});
  EXPECT_EQ(soname, "some_model.so");
}

TEST(Link, SameObjectGivesSameBytes) {
  EXPECT_EQ(link_shared_object(scale_kernel(), {}), link_shared_object(scale_kernel(), {}));
}

TEST(Link, UndefinedSymbolIsReportedAndTheNextLinkWorks) {
  EXPECT_THAT(error_of(undefined_symbol()), HasSubstr("undefined symbol: somewhere_else"));
  EXPECT_FALSE(link_shared_object(scale_kernel(), {}).empty());
}

TEST(Link, GarbageIsReportedAndTheNextLinkWorks) {
  EXPECT_THAT(error_of(std::vector<std::byte>(100, std::byte{'x'})), HasSubstr("lld cannot link a module"));
  std::vector<std::byte> cut = scale_kernel();
  cut.resize(cut.size() / 2);
  EXPECT_THAT(error_of(cut), HasSubstr("lld cannot link a module"));
  EXPECT_FALSE(link_shared_object(scale_kernel(), {}).empty());
}

TEST(Link, SeveralThreadsMayLinkAtOnce) {
  const std::vector<std::byte> expected = link_shared_object(scale_kernel(), {});
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) equal[t] += link_shared_object(scale_kernel(), {}) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(8));
}

}  // namespace
}  // namespace tessera
