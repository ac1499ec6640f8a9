// What conv and conv_weights share: their attributes, and the gradient of the image.
#pragma once

#include "graph/adjoint.h"
#include "graph/op_def.h"

namespace tessera::inline ops {

std::vector<AttrDef> conv_attr_defs();
// The attributes of conv, of a node that has them among others.
Attrs conv_attrs(const Attrs& attrs);

// The gradient of the image `x` of a convolution with the weights `w` and the attributes of the node of `a`, from the
// gradient `dy` of its result: the convolution of dy, its elements `strides` apart, with the weights of each group
// turned around, whose windows move by the image's own gaps. UserError TSR-2072 where the padding would depend on a
// size that a run decides.
ValueId conv_image_gradient(Adjoint& a, ValueId x, ValueId w, ValueId dy);

// The gradient of its weights, whose windows have these extents. Of an image whose elements lie apart, as that of a
// transposed convolution, image and gradient change places: their zeros are not multiplied then.
ValueId conv_weights_gradient(Adjoint& a, ValueId x, ValueId dy, const std::vector<int64_t>& window);

}  // namespace tessera::inline ops
