#include "file_types/config.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace example {
namespace {

// Calls `use` with the file's content and gives every mistake in it the file's name.
template <typename Use>
auto with_json(const std::string& path, Use use) {
  errno = 0;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read '" + path + "': " + std::strerror(errno));
  try {
    return use(nlohmann::json::parse(file));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error("'" + path + "' is not as magika writes it: " + error.what());
  }
}

std::string text_or(const nlohmann::json& value, const std::string& otherwise) {
  return value.is_null() ? otherwise : value.get<std::string>();
}

}  // namespace

TypeConfig load_type_config(const std::string& path) {
  return with_json(path, [&](const nlohmann::json& json) {
    TypeConfig config;
    json.at("beg_size").get_to(config.begin_size);
    json.at("end_size").get_to(config.end_size);
    json.at("block_size").get_to(config.block_size);
    json.at("padding_token").get_to(config.padding_token);
    json.at("min_file_size_for_dl").get_to(config.min_file_size);
    json.at("target_labels_space").get_to(config.labels);
    json.at("medium_confidence_threshold").get_to(config.threshold);
    json.at("thresholds").get_to(config.thresholds);
    json.at("overwrite_map").get_to(config.overwrites);
    const bool sizes_fit = config.min_file_size >= 1 && config.min_file_size <= config.begin_size &&
                           config.begin_size < config.block_size && config.end_size >= 0 &&
                           config.end_size < config.block_size;
    if (!sizes_fit || json.at("mid_size") != 0 || json.at("use_inputs_at_offsets") != false || config.labels.empty()) {
      throw std::runtime_error("'" + path +
                               "' is for a magika model of another kind: only bytes from the beginning and "
                               "the end of a file are handled, both shorter than a block");
    }
    return config;
  });
}

ContentTypes load_content_types(const std::string& path) {
  return with_json(path, [](const nlohmann::json& json) {
    ContentTypes types;
    for (const auto& [label, type] : json.items()) {
      const bool is_text = type.at("is_text").get<bool>();
      types[label] = {text_or(type.at("description"), label), text_or(type.at("group"), "unknown"),
                      text_or(type.at("mime_type"), is_text ? "text/plain" : "application/octet-stream"), is_text};
    }
    return types;
  });
}

}  // namespace example
