#include "package/value_json.h"

#include <nlohmann/json.hpp>

namespace tessera::inline package {

namespace {

nlohmann::json layout_to_json(const Layout& layout) {
  nlohmann::json dims = nlohmann::json::array();
  for (const LayoutDim& dim : layout.dims) dims.push_back({dim.axis, static_cast<int>(dim.part), dim.block});
  return dims;
}

// A type whose physical size fits an int64; throws what nlohmann throws for another structure.
std::optional<TensorType> type_from_json(const nlohmann::json& json, int64_t& bytes) {
  const auto dtype = parse_dtype(json.at("dtype").get<std::string>());
  if (!dtype || *dtype == DType::kString) return std::nullopt;
  const auto dims = json.at("dims").get<std::vector<int64_t>>();
  TensorType type{*dtype, make_shape(dims), {}};
  for (const nlohmann::json& entry : json.at("layout")) {
    const LayoutDim dim{entry.at(0).get<int>(), static_cast<LayoutDim::Part>(entry.at(1).get<int>()),
                        entry.at(2).get<int64_t>()};
    const int part = entry.at(1).get<int>();
    if (dim.axis < 0 || dim.axis >= std::ssize(dims) || part < 0 || part > 2 || dim.block < 1) return std::nullopt;
    type.layout.dims.push_back(dim);
  }
  int64_t count = 1;
  for (const int64_t dim : dims)
    if (dim < 0) return std::nullopt;
  const auto physical = static_dims(physical_shape(type.shape, type.layout));
  if (!physical) return std::nullopt;
  for (const int64_t dim : *physical)
    if (__builtin_mul_overflow(count, dim, &count) || count > (int64_t{1} << 56)) return std::nullopt;
  bytes = dtype_bytes(*dtype, count);
  return type;
}

}  // namespace

nlohmann::json values_to_json(const std::vector<ValuePlace>& places) {
  nlohmann::json list = nlohmann::json::array();
  for (const ValuePlace& place : places) {
    list.push_back({{"name", place.name},
                    {"dtype", dtype_name(place.type.dtype)},
                    {"dims", place.type.dims()},
                    {"layout", layout_to_json(place.type.layout)},
                    {"output", place.index},
                    {"offset", place.offset},
                    {"call", place.call}});
  }
  return list;
}

std::vector<ValuePlace> values_from_metadata(std::string_view metadata, int64_t arena_bytes,
                                             const std::vector<int64_t>& output_bytes) {
  std::vector<ValuePlace> places;
  try {
    const nlohmann::json json = nlohmann::json::parse(metadata);
    if (!json.contains("values")) return {};
    for (const nlohmann::json& entry : json.at("values")) {
      ValuePlace place;
      place.name = entry.at("name").get<std::string>();
      int64_t bytes = 0;
      auto type = type_from_json(entry, bytes);
      if (!type) return {};
      place.type = std::move(*type);
      place.index = entry.at("output").get<int32_t>();
      place.kind = place.index < 0 ? BufferKind::kArena : BufferKind::kOutput;
      place.offset = entry.at("offset").get<int64_t>();
      place.call = entry.at("call").get<int32_t>();
      if (place.index >= std::ssize(output_bytes)) continue;  // a check that belongs to no caller
      const int64_t room = place.index < 0 ? arena_bytes : output_bytes[static_cast<size_t>(place.index)];
      if (place.offset < 0 || place.offset > room || bytes > room - place.offset || place.call < 0) return {};
      places.push_back(std::move(place));
    }
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return places;
}

}  // namespace tessera::inline package
