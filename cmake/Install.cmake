# `cmake --install build --prefix DIR` puts what a user needs: the compiler, the run time (tessera_runtime and
# tessera_values, both ways), its C API, and files by which CMake and pkg-config find them (find_package(tessera), targets
# tessera::runtime and tessera::values; packages tessera and tessera-values). With `--component runtime` all but the
# compiler.
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "Folder of libraries below the prefix")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(TARGETS tessera_runtime tessera_runtime_shared tessera_values tessera_values_shared tessera_null_shared
  tessera_accel_device_shared tessera_loopback_shared tessera_opencl_shared tessera_cuda_shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
if(TARGET tessera_mpi_shared)  # which finds MPI where the system looks for libraries
  install(TARGETS tessera_mpi_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()
foreach(target tessera tessera_runner tessera_generate_program)
  if(TARGET ${target})
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
if(TARGET tessera_runner_aarch64)
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tessera-runner-aarch64 DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Written by hand rather than exported, because the static libraries' own build flags must not reach their users.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cmake/tessera-config.cmake @ONLY CONTENT [=[
# Targets: tessera::runtime (static); tessera::values (static, brings tessera::runtime), for modules with values;
# tessera::runtime_shared, which loads libtessera_values.so from its own folder when a module needs it. They need nothing
# but libc, libm and threads.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
get_filename_component(_tessera_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_tessera_kind "runtime;STATIC;runtime.a" "values;STATIC;values.a" "runtime_shared;SHARED;runtime.so")
  list(GET _tessera_kind 0 _tessera_name)
  list(GET _tessera_kind 1 _tessera_type)
  list(GET _tessera_kind 2 _tessera_file)
  if(NOT TARGET tessera::${_tessera_name})
    add_library(tessera::${_tessera_name} ${_tessera_type} IMPORTED)
    set_target_properties(tessera::${_tessera_name} PROPERTIES
      IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/../../libtessera_${_tessera_file}"
      INTERFACE_INCLUDE_DIRECTORIES "${_tessera_prefix}/include"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
    if(_tessera_name STREQUAL "values")
      # The runtime's reference is weak, which takes nothing out of an archive: the option does.
      set_target_properties(tessera::values PROPERTIES
        INTERFACE_LINK_LIBRARIES tessera::runtime INTERFACE_LINK_OPTIONS "LINKER:-u,tessera_values_library")
    endif()
  endif()
endforeach()
]=])
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/tessera-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/tessera-config.cmake ${CMAKE_BINARY_DIR}/cmake/tessera-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tessera COMPONENT runtime)

# The linker takes the shared libraries where both kinds are there, unless it is told otherwise (-Wl,-Bstatic).
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cmake/tessera.pc @ONLY CONTENT [=[
prefix=${pcfiledir}/../..
Name: tessera
Description: Runs modules compiled by tessera
Version: @PROJECT_VERSION@
Cflags: -I${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L${prefix}/@CMAKE_INSTALL_LIBDIR@ -ltessera_runtime
Libs.private: -pthread -ldl -lm
]=])
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cmake/tessera-values.pc @ONLY CONTENT [=[
prefix=${pcfiledir}/../..
Name: tessera-values
Description: What modules with strings, sequences, maps or sizes that a run decides need beside tessera
Version: @PROJECT_VERSION@
Requires: tessera = @PROJECT_VERSION@
Libs: -L${prefix}/@CMAKE_INSTALL_LIBDIR@ -Wl,-u,tessera_values_library -ltessera_values
]=])
install(FILES ${CMAKE_BINARY_DIR}/cmake/tessera.pc ${CMAKE_BINARY_DIR}/cmake/tessera-values.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
