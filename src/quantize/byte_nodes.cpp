#include "quantize/byte_nodes.h"

#include <memory>
#include <utility>
#include <vector>

#include "ops/composites/composites.h"

namespace tessera::inline quantize {

ValueId constant_node(GraphBuilder& builder, const OpTable& ops, Tensor value, const std::string& name) {
  return builder.add(ops.get("constant"), {}, {{"value", TensorPtr(std::make_shared<const Tensor>(std::move(value)))}},
                     name);
}

ValueId through_bytes(GraphBuilder& builder, const OpTable& ops, const QuantizedProduct& product,
                      const QuantizeOptions& options, ValueId x, const std::string& name) {
  if (options.scheme == Scheme::kDynamic)
    return add_composite(builder, ops, "dequantize", add_composite(builder, ops, "dynamic_quantize", {x}))[0];
  const ByteScale bytes = byte_scale(product.range, options.activations);
  Tensor zero(options.activations, {});
  zero.set_int(0, bytes.zero);
  const auto named = [&](const char* what) { return name.empty() ? "" : name + what; };
  const ValueId s = constant_node(builder, ops, Tensor::scalar_f32(bytes.scale), named(".scale"));
  const ValueId z = constant_node(builder, ops, std::move(zero), named(".zero"));
  const ValueId q = add_composite(builder, ops, "quantize", {x, s, z}, {{"to", options.activations}})[0];
  return add_composite(builder, ops, "dequantize", {q, s, z})[0];
}

}  // namespace tessera::inline quantize
