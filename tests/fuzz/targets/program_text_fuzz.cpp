// The text form of programs: parse, verify, print, and read that again.
#include "fuzz_target.h"
#include "program/parser.h"
#include "program/printer.h"
#include "program/verify.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const Program program = parse_program(fuzz::text_of(data, size));
    if (!verify(program).empty()) return;
    const std::string printed = print(program);
    fuzz::require(print(parse_program(printed)) == printed, "print, parse, print gives another text");
  });
  return 0;
}
