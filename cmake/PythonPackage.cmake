# Whether the Python package (python/) is built: the option TESSERA_PYTHON_PACKAGE, on where nanobind is installed in the
# Python of TESSERA_PYTHON. scikit-build-core, which runs this project for `pip install .`, says itself where
# Python and nanobind are. A sanitizer would have to be part of the Python program, so there is no package then.
if(NOT SKBUILD)
  if(NOT Python_EXECUTABLE AND EXISTS ${TESSERA_PYTHON})
    set(Python_EXECUTABLE ${TESSERA_PYTHON})
  endif()
  if(NOT nanobind_ROOT AND Python_EXECUTABLE AND NOT TESSERA_SANITIZE)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
set(package_default OFF)
if(nanobind_ROOT)
  set(package_default ON)
endif()
option(TESSERA_PYTHON_PACKAGE "Build the Python package in python/" ${package_default})
