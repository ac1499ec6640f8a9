// A part of a JSON text together with where it is, so that whatever does not fit is reported by its place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::inline aten {

// Cheap to copy; the text, the file's name and the parts around it must outlive it. Everything that does not fit is a
// UserError TSR-1114.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  // Members of an object. `at` needs it; `get` answers one that is null where it is left out.
  JsonPlace at(const char* name) const;
  JsonPlace get(const char* name) const;
  bool has(const char* name) const { return json_.is_object() && json_.contains(name) && !json_[name].is_null(); }
  // Calls visit(name, part) for each member of an object.
  template <typename Visit>
  void members(const Visit& visit) const {
    if (is_null()) return;
    if (!json_.is_object()) fail("an object");
    for (const auto& [name, part] : json_.items()) visit(name, JsonPlace(part, file_, this, name.c_str(), -1));
  }
  // Calls visit(part) for each element of a list.
  template <typename Visit>
  void elements(const Visit& visit) const {
    if (is_null()) return;
    if (!json_.is_array()) fail("a list");
    for (size_t i = 0; i < json_.size(); ++i) visit(JsonPlace(json_[i], file_, this, "", static_cast<int64_t>(i)));
  }
  // The one member of an object that is a union: its name and contents.
  std::pair<std::string, JsonPlace> choice() const;

  bool is_null() const { return json_.is_null(); }
  int64_t integer() const;
  double number() const;  // also a text: "Infinity", "-Infinity", "NaN"
  bool boolean() const;
  const std::string& text() const;

  [[noreturn]] void fail(const std::string& legal) const;

 private:
  JsonPlace(const nlohmann::json& json, const std::string& file, const JsonPlace* parent, const char* name,
            int64_t index)
      : json_(json), file_(file), parent_(parent), name_(name), index_(index) {}
  std::string path() const;

  const nlohmann::json& json_;
  const std::string& file_;
  const JsonPlace* parent_ = nullptr;
  const char* name_ = "";
  int64_t index_ = -1;
};

}  // namespace tessera::inline aten
