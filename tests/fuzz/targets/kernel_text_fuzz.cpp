// The canonical text of a kernel, which records hold and workers take from the network: what is taken comes back as it
// was.
#include "fuzz_target.h"
#include "te/canonical.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const std::string_view text = fuzz::text_of(data, size);
    fuzz::require(canonical_text(parse_canonical_text(text)) == text, "parse, print gives another text");
  });
  return 0;
}
