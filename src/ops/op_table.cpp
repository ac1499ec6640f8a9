#include "ops/op_table.h"

#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<const OpDef*> list_ops() {
  std::vector<const OpDef*> ops;
  for (const auto primitive : kPrimitives) ops.push_back(&primitive());
  for (const auto* family : {&unary_ops(), &binary_ops(), &compare_ops()})
    for (const OpDef& op : *family) ops.push_back(&op);
  return ops;
}

}  // namespace

const OpTable& standard_ops() {
  static const OpTable table(list_ops());
  return table;
}

}  // namespace tessera::inline ops
