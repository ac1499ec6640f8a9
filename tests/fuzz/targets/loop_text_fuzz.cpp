// The text form of loop programs: parse, verify, print, and read that again; then the passes on what is legal.
#include "fuzz_target.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    for (const LoopProgram& kernel : parse_loop_programs(fuzz::text_of(data, size))) {
      if (!verify(kernel).empty()) continue;
      const std::string printed = print(kernel);
      fuzz::require(print(parse_loop_program(printed)) == printed, "print, parse, print gives another text");
    }
  });
  return 0;
}
