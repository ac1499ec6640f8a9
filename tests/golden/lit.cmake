# Every golden text through the command line, under lit and LLVM's FileCheck.
find_program(TESSERA_FILECHECK FileCheck HINTS /usr/lib/llvm-19/bin)
if(TARGET tessera)
  if(TESSERA_FILECHECK)
    get_filename_component(llvm_tools ${TESSERA_FILECHECK} DIRECTORY)
    add_test(NAME golden.lit COMMAND ${TESSERA_PYTHON} -c "from lit.main import main; main()" -sv -D tools=$<TARGET_FILE_DIR:tessera>
      -D llvm=${llvm_tools} -D out=${CMAKE_BINARY_DIR}/test-data/lit ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(golden.lit PROPERTIES LABELS golden ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  else()
    message(STATUS "golden.lit is left out: FileCheck (llvm-19-tools) is not installed; scripts/setup.sh installs it")
  endif()
endif()
