// Whether a file of trees may be given to XGBoost, which takes it on trust that its files are its own: nesting, the
// shape of each tree, every index. Takes any bytes.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::inline tune {

// A JSON model of XGBoost with one score, plain trees and `features` features.
bool is_tree_model(const std::string& text, size_t features);

}  // namespace tessera::inline tune
