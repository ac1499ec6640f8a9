// Expectations on the one error that an import ends with.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "support/error.h"
#include "support/onnx_model.h"

namespace tessera {

// Runs `action`, which must throw a UserError with this id, whose printed text contains all of `parts`.
template <typename Action>
void expect_user_error(const std::string& id, const std::vector<std::string>& parts, const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, id) << error.what();
    EXPECT_FALSE(error.diagnostic().legal.empty()) << "does not say what is legal: " << error.what();
    EXPECT_FALSE(error.diagnostic().hint.empty()) << "does not say what to do: " << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "no error; wanted " << id;
}

inline void expect_import_error(const OnnxModel& model, const std::string& id, const std::vector<std::string>& parts,
                                const ImportOptions& options = {}) {
  expect_user_error(id, parts, [&] { model.import(options); });
}

}  // namespace tessera
