// Nothing that a command reads is written over by it, and nothing of somebody else's.
#pragma once

#include <string>
#include <vector>

#include "package/module_writer.h"
#include "program/program.h"

namespace tessera::inline driver {

// The model's file, and the files of its external data.
std::vector<std::string> files_of_model(const std::string& model);

// UserError TSR-4062 when `output` is one of `inputs`, by whatever name or link.
void refuse_to_overwrite(const std::string& output, const std::vector<std::string>& inputs);

// UserError TSR-4063 when `output` is a file with something in it that is no program, or C source, of Tessera's.
void refuse_foreign_program(const std::string& output);
void refuse_foreign_source(const std::string& output);

// What stands where a module is to be written.
class ReplacedModule {
 public:
  // UserError TSR-4063 when `output` is a file with something in it that is not a module of Tessera's, unless `force`.
  ReplacedModule(const std::string& output, bool force);

  // Whether it is the module of another model (by its name, and the names and dtypes of its inputs and outputs), or for
  // another kind of machine.
  bool is_foreign(const Program& program, const ModuleInfo& info) const;
  // "a module of 'mnist' for x86_64-unknown-linux-gnu, znver4" when it is of another model, other weights or another
  // target; else empty.
  std::string difference(const ModuleInfo& info) const;

 private:
  std::string metadata_;  // JSON; empty: there is no module
};

}  // namespace tessera::inline driver
