// What models with strings, sequences, optionals and maps take and give, as Python's objects and as the C API has it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"

namespace tessera::python {

using InputArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

class Value;
using ValuePtr = std::shared_ptr<const Value>;

// Immutable. Made and freed with Python's lock held; `view` may be read without it.
class Value {
 public:
  // The array's own memory, which must not change while the value is in use; packed copies for elements of 4 and 2
  // bits.
  static ValuePtr of_array(InputArray array, int dtype);
  // A tensor of strings: each element of the list is str, or bytes in UTF-8. Keeps the list, which must not change.
  // Throws nanobind::type_error for other objects and nanobind::value_error for str that has no UTF-8, with the
  // position.
  static ValuePtr of_texts(nanobind::list texts, const std::vector<int64_t>& shape);
  // TESSERA_SEQUENCE: any number of items; _OPTIONAL: none or one; _MAP: keys and values.
  static ValuePtr of_items(int kind, std::vector<ValuePtr> items);
  static ValuePtr of_result(ResultPtr result);

  const tessera_value* view() const { return view_; }
  int kind() const { return view_->kind; }
  int dtype() const { return view_->dtype; }
  std::vector<int64_t> shape() const {
    return {view_->dims, view_->dims + std::min<int32_t>(view_->rank, TESSERA_MAX_RANK)};
  }
  std::vector<ValuePtr> items() const;
  // Of a tensor of strings: its elements in row-major order.
  nanobind::list texts() const;
  // Of a tensor of numbers: unsigned integers where arrays have no name for the dtype (see _dtypes.py). The array keeps
  // the value's memory, and may be written: a result belongs to whom it was given.
  nanobind::ndarray<nanobind::numpy> array() const;

 private:
  Value() = default;

  const tessera_value* view_ = nullptr;
  // Of a value made here: what the view points to.
  tessera_value own_ = {};
  std::vector<const tessera_value*> item_views_;
  std::vector<ValuePtr> items_;
  std::vector<tessera_string> texts_;
  std::unique_ptr<uint8_t[]> packed_;
  InputArray array_;
  nanobind::object list_;
  // Of a result, or a part of one: what owns the memory.
  ResultPtr result_;
};

}  // namespace tessera::python
