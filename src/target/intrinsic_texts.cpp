#include "target/intrinsic_texts.h"

#include <array>

namespace tessera::inline target {

std::span<const IntrinsicText> intrinsic_texts() {
  static const std::array<IntrinsicText, 4> kTexts = {kX86Intrinsics, kAArch64Intrinsics, kCudaIntrinsics,
                                                      kPortableIntrinsics};
  return kTexts;
}

}  // namespace tessera::inline target
