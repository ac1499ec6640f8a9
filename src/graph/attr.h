// Attributes of graph nodes: compile-time values with a name.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "arith/tensor_type.h"
#include "types/dtype.h"
#include "types/layout.h"
#include "types/tensor.h"

namespace tessera::inline graph {

// A list of sizes is a std::vector<int64_t> when all of them are constants, and a Shape otherwise: Attrs keeps to it,
// so what is written for lists of integers sees no others where sizes are static.
using Attr = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, DType, Layout,
                          TensorPtr, Shape>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, Attr>> values) {
    for (const auto& [name, value] : values) set(name, value);
  }

  void set(const std::string& name, Attr value) {
    if (const Shape* sizes = std::get_if<Shape>(&value))
      if (auto known = static_dims(*sizes)) value = std::move(*known);
    values_[name] = std::move(value);
  }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  const std::map<std::string, Attr>& all() const { return values_; }

  // The attribute's value; InternalError when it is missing or of another kind (the verifier has checked both).
  template <typename T>
  const T& get(const std::string& name) const;
  template <typename T>
  T get_or(const std::string& name, T fallback) const {
    const auto it = values_.find(name);
    if (it == values_.end()) return fallback;
    const T* value = std::get_if<T>(&it->second);
    return value ? *value : fallback;
  }
  int64_t get_int(const std::string& name) const { return get<int64_t>(name); }
  const std::vector<int64_t>& get_ints(const std::string& name) const { return get<std::vector<int64_t>>(name); }
  // Of an attribute of kind kSizes, whether constant or not.
  Shape get_sizes(const std::string& name) const;

 private:
  std::map<std::string, Attr> values_;
};

}  // namespace tessera::inline graph

#include "support/error.h"

template <typename T>
const T& tessera::Attrs::get(const std::string& name) const {
  const auto it = values_.find(name);
  check(it != values_.end(), "missing attribute " + name);
  const T* value = std::get_if<T>(&it->second);
  check(value != nullptr, "attribute " + name + " is of another kind");
  return *value;
}

inline tessera::Shape tessera::Attrs::get_sizes(const std::string& name) const {
  const auto it = values_.find(name);
  if (it != values_.end())
    if (const Shape* sizes = std::get_if<Shape>(&it->second)) return *sizes;
  return make_shape(get_ints(name));
}
