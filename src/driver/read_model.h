// How a model is read: as one graph whose sizes may be symbols, at samples of its sizes, or as the steps of a flow.
#pragma once

#include <string>

#include "driver/formats.h"
#include "driver/options.h"
#include "driver/pass_runner.h"

namespace tessera::inline driver {

// Checks the options first. What import_model cannot say takes a flow: it refuses such models with UserError TSR-1046.
ImportedModel read_model(const std::string& path, const DriverOptions& options, PassRunner& runner);
ImportedModel read_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner);
ImportedModel read_model(const ModelReader& reader, const std::string& name, const DriverOptions& options,
                         PassRunner& runner);
Graph import_model(const std::string& path, const DriverOptions& options, PassRunner& runner);
Graph import_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner);

// What observers are told of a model that has no graph with symbols.
Remark not_symbolic(const NoGraph& why);

// The model, whose flow, if it is one or becomes one, says that this is why.
ImportedModel with_reason(ImportedModel model, const NoGraph& why);

}  // namespace tessera::inline driver
