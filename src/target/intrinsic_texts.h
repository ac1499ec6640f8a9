// The intrinsics of each architecture, as text (loop/intrinsic_text.h says what the text means).
#pragma once

#include <span>
#include <string_view>

namespace tessera::inline target {

struct IntrinsicText {
  std::string_view file;  // that messages name
  std::string_view text;
};

extern const IntrinsicText kX86Intrinsics, kAArch64Intrinsics, kCudaIntrinsics, kPortableIntrinsics;

// Of all architectures. Of several intrinsics that do the same, one that stands before another is preferred to it.
std::span<const IntrinsicText> intrinsic_texts();

}  // namespace tessera::inline target
