# LLVM as a library of ours: the target tessera_llvm, which the rooms that may see LLVM link.
#
# The option TESSERA_STATIC_LLVM takes the archives instead of the shared library, for machines that have no LLVM: the
# Python package (pyproject.toml). Only back ends of processors that modules are for come along; lld names all of them when
# it starts, and LLVM's LTO names Polly, so the entry points of what stays away are defined here, and do nothing.
option(TESSERA_STATIC_LLVM "Link LLVM's archives instead of its shared library" OFF)
find_package(LLVM 19.1 CONFIG REQUIRED)
find_package(LLD REQUIRED CONFIG PATHS ${LLVM_DIR}/../lld /usr/lib/llvm-19/lib/cmake/lld)
add_library(tessera_llvm INTERFACE)
add_library(tessera_lld INTERFACE)
if(NOT TESSERA_STATIC_LLVM)
  target_link_libraries(tessera_llvm INTERFACE LLVM)
  target_link_libraries(tessera_lld INTERFACE lldELF lldWasm lldCommon LLVM)
  return()
endif()

set(targets X86 AArch64 RISCV WebAssembly)
llvm_map_components_to_libnames(llvm_components core support passes asmparser irreader linker bitreader bitwriter lto mc object
  option targetparser debuginfodwarf demangle target ${targets})
set_target_properties(LLVMExtensions PROPERTIES INTERFACE_LINK_LIBRARIES "LLVMSupport;tessera_llvm_absent_parts")
set(text [=[
#include <llvm/Passes/PassPlugin.h>
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
extern "C" {
]=])
foreach(target ${LLVM_TARGETS_TO_BUILD})
  if(NOT target IN_LIST targets)
    foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser Disassembler)
      string(APPEND text "void LLVMInitialize${target}${part}() {}\n")
    endforeach()
  endif()
endforeach()
set(absent ${CMAKE_BINARY_DIR}/llvm_absent_parts.cpp)
file(CONFIGURE OUTPUT ${absent} CONTENT "${text}}\n" @ONLY)
add_library(tessera_llvm_absent_parts STATIC ${absent})
target_include_directories(tessera_llvm_absent_parts SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(tessera_llvm INTERFACE tessera_llvm_absent_parts ${llvm_components})
# Those of the package lld name LLVM's shared library, so its archives are described here, with the order of linking.
foreach(name Common ELF Wasm)
  add_library(tessera_lld_${name} STATIC IMPORTED GLOBAL)
  get_target_property(location lld${name} LOCATION)
  set_target_properties(tessera_lld_${name} PROPERTIES IMPORTED_LOCATION ${location})
endforeach()
target_link_libraries(tessera_lld_Common INTERFACE tessera_llvm zstd z)
target_link_libraries(tessera_lld_ELF INTERFACE tessera_lld_Common)
target_link_libraries(tessera_lld_Wasm INTERFACE tessera_lld_Common)
target_link_libraries(tessera_lld INTERFACE tessera_lld_ELF tessera_lld_Wasm)
