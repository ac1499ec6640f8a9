// What needs no instruction: tiles in plain memory, which run what is made for tiles anywhere, and nests that are left
// alone. The form: loop/intrinsic_text.h.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kPortableIntrinsics = {"portable", R"text(
intrinsic "portable.tile.dot.bf16" {
  doc "the same in plain memory"
  needs "portable-tiles"
  registers 8
  sums f32
  factors bf16, bf16
  shape [16, 2]
  code tile_dot
}

intrinsic "portable.tile.dot.u8i8" {
  doc "the same in plain memory"
  needs "portable-tiles"
  registers 8
  sums i32
  factors u8, i8
  shape [16, 4]
  code tile_dot
}

intrinsic "portable.tile.dot.u8u8" {
  doc "the same in plain memory"
  needs "portable-tiles"
  registers 8
  sums i32
  factors u8, u8
  shape [16, 4]
  code tile_dot
}

intrinsic "portable.tile.dot.i8i8" {
  doc "the same in plain memory"
  needs "portable-tiles"
  registers 8
  sums i32
  factors i8, i8
  shape [16, 4]
  code tile_dot
}

intrinsic "portable.tile.dot.i8u8" {
  doc "the same in plain memory"
  needs "portable-tiles"
  registers 8
  sums i32
  factors i8, u8
  shape [16, 4]
  code tile_dot
}

intrinsic "block" {
  doc "a nest that is left as it is"
  sums f32
  shape [1, 1]
  code block
}
)text"};

}  // namespace tessera::inline target
