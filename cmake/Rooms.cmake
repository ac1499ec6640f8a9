# Rooms: one static library per folder of src/, whose link list is the table of docs/architecture.md.
# `scripts/check-layers` holds the #include lines against the same table.

add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-unused-parameter
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>)
# g++ 12 warns wrongly about overlapping copies in `const char* + std::string` (its bug 105651).
target_compile_options(tessera_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_include_directories(tessera_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
if(TESSERA_WERROR)
  target_compile_options(tessera_flags INTERFACE -Werror)
endif()
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# Files of a target that read large headers (CLI11, protobuf, nanobind) are compiled eight at a time in release builds:
# less than a third of the time. Names in their anonymous namespaces differ, therefore; the other presets compile each file
# by itself, so that none lives on another's includes.
option(TESSERA_BATCHES "Compile several files of the same target at once where headers are large" ON)
function(tessera_compile_in_batches target)
  if(TESSERA_BATCHES AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# tessera_room(NAME LINKS room-or-library...)
# Builds every .cpp directly in the folder and in the sub-folders that are not rooms of their own
# (SUBDIRS a b) as target tessera_NAME ('/' in NAME becomes '_').
function(tessera_room name)
  cmake_parse_arguments(ARG "" "" "LINKS;SUBDIRS" ${ARGN})
  string(REPLACE "/" "_" target tessera_${name})
  set(globs ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(sub ${ARG_SUBDIRS})
    list(APPEND globs ${CMAKE_CURRENT_SOURCE_DIR}/${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC tessera_flags ${ARG_LINKS})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE tessera_flags ${ARG_LINKS})
  endif()
endfunction()
