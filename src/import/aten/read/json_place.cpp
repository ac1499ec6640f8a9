#include "import/aten/read/json_place.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "support/error.h"

namespace tessera::inline aten {
namespace {

const nlohmann::json kNull = nullptr;

}  // namespace

std::string JsonPlace::path() const {
  const std::string before = parent_ ? parent_->path() : "";
  if (index_ >= 0) return fmt::format("{}[{}]", before, index_);
  return before.empty() || *name_ == '\0' ? before + name_ : before + "." + name_;
}

void JsonPlace::fail(const std::string& legal) const {
  const std::string where = path();
  throw UserError({.id = "TSR-1114",
                   .message = fmt::format("{} is not as torch.export writes it: {} is {}", file_,
                                          where.empty() ? "the text" : where, json_.type_name()),
                   .node = {},
                   .legal = legal,
                   .hint = "save the program again by torch.export.save"});
}

JsonPlace JsonPlace::at(const char* name) const {
  if (!json_.is_object()) fail("an object");
  if (!json_.contains(name)) fail(fmt::format("a member '{}' in it", name));
  return {json_[name], file_, this, name, -1};
}

JsonPlace JsonPlace::get(const char* name) const {
  if (!json_.is_object()) fail("an object");
  return {json_.contains(name) ? json_[name] : kNull, file_, this, name, -1};
}

std::pair<std::string, JsonPlace> JsonPlace::choice() const {
  if (!json_.is_object() || json_.size() != 1) fail("an object with one member");
  const auto it = json_.begin();
  return {it.key(), JsonPlace(it.value(), file_, this, "", -1)};
}

int64_t JsonPlace::integer() const {
  if (!json_.is_number_integer()) fail("an integer");
  if (json_.is_number_unsigned() && json_.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    fail("an integer of 64 bits");
  return json_.get<int64_t>();
}

double JsonPlace::number() const {
  if (json_.is_string()) {
    const std::string& word = json_.get_ref<const std::string&>();
    if (word == "Infinity") return std::numeric_limits<double>::infinity();
    if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  if (!json_.is_number()) fail("a number");
  return json_.get<double>();
}

bool JsonPlace::boolean() const {
  if (!json_.is_boolean()) fail("true or false");
  return json_.get<bool>();
}

const std::string& JsonPlace::text() const {
  if (!json_.is_string()) fail("a text");
  return json_.get_ref<const std::string&>();
}

}  // namespace tessera::inline aten
