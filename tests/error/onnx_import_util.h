// Expectations on the one error that an import ends with.
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <vector>

#include "import/common/refused_model.h"
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
  // The reason that callers decide on is the one that the message is about.
  std::optional<RefusedModel::Reason> reason, wanted;
  try {
    model.import(options);
  } catch (const RefusedModel& refused) {
    reason = refused.reason();
  } catch (const UserError&) {
  }
  if (id == "TSR-1020") wanted = RefusedModel::Reason::kOpenSizes;
  for (const char* unsupported : {"TSR-1006", "TSR-1024", "TSR-1031", "TSR-1040"})
    if (id == unsupported) wanted = RefusedModel::Reason::kUnsupported;
  EXPECT_TRUE(reason == wanted) << id;
}

}  // namespace tessera
