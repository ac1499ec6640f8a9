#include "value.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "packed.h"

namespace nb = nanobind;

namespace tessera::python {

namespace {

// The type under which the buffer protocol and DLPack know the elements.
nb::dlpack::dtype carrier_of(tessera_dtype dtype) {
  switch (dtype) {
    case TESSERA_F64: return nb::dtype<double>();
    case TESSERA_F32: return nb::dtype<float>();
    case TESSERA_F16: return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case TESSERA_BF16: return nb::dtype<uint16_t>();
    case TESSERA_I64: return nb::dtype<int64_t>();
    case TESSERA_I32: return nb::dtype<int32_t>();
    case TESSERA_I16: return nb::dtype<int16_t>();
    case TESSERA_I8: return nb::dtype<int8_t>();
    case TESSERA_U64: return nb::dtype<uint64_t>();
    case TESSERA_U32: return nb::dtype<uint32_t>();
    case TESSERA_U16: return nb::dtype<uint16_t>();
    case TESSERA_BOOL: return nb::dtype<bool>();
    default: return nb::dtype<uint8_t>();
  }
}

size_t num_elements(const tessera_value& tensor) {
  size_t count = 1;
  for (int32_t d = 0; d < tensor.rank; ++d) count *= static_cast<size_t>(tensor.dims[d]);
  return count;
}

std::string position(size_t index) { return " at position " + std::to_string(index); }

// The object's own bytes, which live as long as it. str keeps its UTF-8 once it was asked for.
tessera_string text_of(nb::handle object, size_t index) {
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (data) return {data, static_cast<size_t>(size)};
    PyErr_Clear();
    throw nb::value_error(("a str that has no UTF-8 (a surrogate without its pair)" + position(index)).c_str());
  }
  if (PyBytes_Check(object.ptr()))
    return {PyBytes_AsString(object.ptr()), static_cast<size_t>(PyBytes_Size(object.ptr()))};
  const auto type = nb::cast<std::string>(object.type().attr("__name__"));
  throw nb::type_error(("an object of the type " + type + position(index)).c_str());
}

}  // namespace

ValuePtr Value::of_array(InputArray array, int dtype) {
  std::shared_ptr<Value> value(new Value);
  tessera_value& own = value->own_;
  own.kind = TESSERA_TENSOR;
  own.dtype = static_cast<tessera_dtype>(dtype);
  own.rank = static_cast<int32_t>(array.ndim());
  for (size_t axis = 0; axis < std::min<size_t>(array.ndim(), TESSERA_MAX_RANK); ++axis)
    own.dims[axis] = static_cast<int64_t>(array.shape(axis));
  own.data = array.data();
  if (is_packed(own.dtype)) {
    const int bits = tessera_dtype_bits(own.dtype);
    value->packed_ = std::make_unique<uint8_t[]>(packed_bytes(array.size(), bits) + 1);
    pack(static_cast<const uint8_t*>(own.data), array.size(), bits, value->packed_.get());
    own.data = value->packed_.get();
  }
  value->array_ = std::move(array);
  value->view_ = &own;
  return value;
}

ValuePtr Value::of_texts(nb::list texts, const std::vector<int64_t>& shape) {
  std::shared_ptr<Value> value(new Value);
  tessera_value& own = value->own_;
  own.kind = TESSERA_TENSOR;
  own.dtype = TESSERA_STRING;
  own.rank = static_cast<int32_t>(shape.size());
  std::copy_n(shape.begin(), std::min<size_t>(shape.size(), TESSERA_MAX_RANK), own.dims);
  value->texts_.reserve(texts.size());
  for (const nb::handle text : texts) value->texts_.push_back(text_of(text, value->texts_.size()));
  if (own.rank <= TESSERA_MAX_RANK && num_elements(own) != value->texts_.size())
    throw nb::value_error("one string for each element is needed");
  own.data = value->texts_.data();
  value->list_ = std::move(texts);
  value->view_ = &own;
  return value;
}

ValuePtr Value::of_items(int kind, std::vector<ValuePtr> items) {
  std::shared_ptr<Value> value(new Value);
  tessera_value& own = value->own_;
  own.kind = static_cast<tessera_value_kind>(kind);
  for (const ValuePtr& item : items) {
    if (!item) throw nb::type_error("an item is None");
    value->item_views_.push_back(item->view());
  }
  own.num_items = static_cast<int64_t>(items.size());
  own.items = value->item_views_.data();
  value->items_ = std::move(items);
  value->view_ = &own;
  return value;
}

ValuePtr Value::of_result(ResultPtr result) {
  std::shared_ptr<Value> value(new Value);
  value->view_ = result.get();
  value->result_ = std::move(result);
  return value;
}

std::vector<ValuePtr> Value::items() const {
  if (!result_) return items_;
  std::vector<ValuePtr> items;
  for (int64_t i = 0; i < view_->num_items; ++i) items.push_back(of_result(ResultPtr(result_, view_->items[i])));
  return items;
}

nb::list Value::texts() const {
  if (view_->kind != TESSERA_TENSOR || view_->dtype != TESSERA_STRING)
    throw nb::type_error("the value is no tensor of strings");
  nb::list texts;
  const auto* strings = static_cast<const tessera_string*>(view_->data);
  const size_t count = num_elements(*view_);
  for (size_t i = 0; i < count; ++i) texts.append(nb::str(strings[i].size > 0 ? strings[i].data : "", strings[i].size));
  return texts;
}

nb::ndarray<nb::numpy> Value::array() const {
  if (!result_ || view_->kind != TESSERA_TENSOR || view_->dtype == TESSERA_STRING)
    throw nb::type_error("the value is no result that is a tensor of numbers");
  const size_t rank = static_cast<size_t>(view_->rank);
  size_t shape[TESSERA_MAX_RANK + 1] = {};
  std::copy_n(view_->dims, rank, shape);
  if (!is_packed(view_->dtype)) {
    const nb::capsule owner(new ResultPtr(result_), [](void* kept) noexcept { delete static_cast<ResultPtr*>(kept); });
    return {const_cast<void*>(view_->data), rank, shape, owner, nullptr, carrier_of(view_->dtype)};
  }
  const size_t count = num_elements(*view_);
  auto elements = std::make_unique<uint8_t[]>(count + 1);
  unpack(static_cast<const uint8_t*>(view_->data), count, tessera_dtype_bits(view_->dtype),
         is_packed_signed(view_->dtype), elements.get());
  uint8_t* data = elements.get();
  const nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
  elements.release();
  return {data, rank, shape, owner, nullptr, nb::dtype<uint8_t>()};
}

}  // namespace tessera::python
