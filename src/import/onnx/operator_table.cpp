#include "import/onnx/operator_table.h"

#include <algorithm>
#include <map>
#include <string>

#include "import/onnx/operators/handlers.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

using Rows = std::vector<OperatorImporter>;

std::map<std::string_view, Rows> all_families() {
  std::map<std::string_view, Rows> domains;
  for (const OperatorFamily& family : {activations_operators(),
                                       attention_operators(),
                                       contractions_operators(),
                                       contrib_attention_operators(),
                                       contrib_quantization_operators(),
                                       control_flow_operators(),
                                       elementwise_operators(),
                                       fourier_operators(),
                                       generators_operators(),
                                       image_patches_operators(),
                                       indexing_operators(),
                                       linear_algebra_operators(),
                                       linear_attention_operators(),
                                       losses_operators(),
                                       ml_features_operators(),
                                       ml_linear_operators(),
                                       ml_trees_operators(),
                                       ngrams_operators(),
                                       normalization_operators(),
                                       ordering_operators(),
                                       pooling_operators(),
                                       quantization_operators(),
                                       random_operators(),
                                       recurrent_operators(),
                                       reductions_operators(),
                                       resizing_operators(),
                                       sampling_operators(),
                                       scattering_operators(),
                                       selection_operators(),
                                       sequences_operators(),
                                       shapes_operators(),
                                       slicing_operators(),
                                       strings_operators(),
                                       training_operators()})
    for (const OperatorRows& of_domain : family) {
      Rows& rows = domains[of_domain.domain];
      rows.insert(rows.end(), of_domain.rows.begin(), of_domain.rows.end());
    }
  for (auto& [domain, rows] : domains) {
    std::sort(rows.begin(), rows.end(),
              [](const OperatorImporter& a, const OperatorImporter& b) { return a.op_type < b.op_type; });
    for (size_t i = 1; i < rows.size(); ++i)
      check(rows[i - 1].op_type != rows[i].op_type, "two rows for " + std::string(rows[i].op_type));
  }
  return domains;
}

// Sorted by name; none for a domain that nobody knows.
std::span<const OperatorImporter> importers_of(std::string_view domain) {
  static const std::map<std::string_view, Rows> domains = all_families();
  const auto it = domains.find(domain);
  return it == domains.end() ? std::span<const OperatorImporter>() : it->second;
}

}  // namespace

std::span<const OperatorImporter> operator_importers() { return importers_of(""); }

std::span<const OperatorImporter> contrib_importers() { return importers_of(kContribDomain); }

const OperatorImporter* find_importer(std::string_view domain, std::string_view op_type) {
  const std::span<const OperatorImporter> rows = importers_of(domain);
  const auto it = std::lower_bound(rows.begin(), rows.end(), op_type,
                                   [](const OperatorImporter& row, std::string_view key) { return row.op_type < key; });
  return it != rows.end() && it->op_type == op_type ? &*it : nullptr;
}

}  // namespace tessera::inline onnx_import
