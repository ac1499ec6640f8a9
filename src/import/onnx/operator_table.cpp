#include "import/onnx/operator_table.h"

#include <map>
#include <string>
#include <utility>

#include "import/common/operator_rows.h"
#include "import/onnx/operators/handlers.h"

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
  for (auto& [domain, rows] : domains) rows = sorted_rows(std::move(rows), &OperatorImporter::op_type);
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
  return find_row<OperatorImporter>(importers_of(domain), &OperatorImporter::op_type, op_type);
}

}  // namespace tessera::inline onnx_import
