# `cmake --install build --prefix DIR` puts what a user needs: the compiler, the run time both ways, its C API, and files
# by which CMake finds them (find_package(tessera), target tessera::runtime).
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "Folder of libraries below the prefix")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(target tessera tessera_runner tessera_runtime tessera_runtime_shared)
  if(TARGET ${target})
    install(TARGETS ${target}
      RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
if(TARGET tessera_runner_aarch64)
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tessera-runner-aarch64 DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Written by hand rather than exported, because the static library's own build flags must not reach its users.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cmake/tessera-config.cmake @ONLY CONTENT [=[
# Targets: tessera::runtime (static), tessera::runtime_shared. Needs nothing but libc, libm and threads.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
get_filename_component(_tessera_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_tessera_kind "runtime;STATIC;a" "runtime_shared;SHARED;so")
  list(GET _tessera_kind 0 _tessera_name)
  list(GET _tessera_kind 1 _tessera_type)
  list(GET _tessera_kind 2 _tessera_suffix)
  if(NOT TARGET tessera::${_tessera_name})
    add_library(tessera::${_tessera_name} ${_tessera_type} IMPORTED)
    set_target_properties(tessera::${_tessera_name} PROPERTIES
      IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/../../libtessera_runtime.${_tessera_suffix}"
      INTERFACE_INCLUDE_DIRECTORIES "${_tessera_prefix}/include"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
  endif()
endforeach()
]=])
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/tessera-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/tessera-config.cmake ${CMAKE_BINARY_DIR}/cmake/tessera-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
