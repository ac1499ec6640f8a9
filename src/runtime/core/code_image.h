// The code part of a module: the last step of loading, after everything was checked as data.
#pragma once

#include <stdint.h>

#include "abi/module_abi.h"
#include "runtime/core/module_file.h"

namespace tessera {

// A loaded shared object. Invariant: `run` is valid while `handle` is open.
struct CodeImage {
  void* handle = nullptr;
  tsr_run_fn run = nullptr;
  tsr_prepare_fn prepare = nullptr;  // of modules with sizes that are computed from symbols

  // Checks the ELF header, the machine and the CPU's features against this host, then loads the code; of several
  // variants the best one that this machine can run, or the one that TESSERA_VARIANT names. `file` stays
  // open longer than this image (its descriptor number is part of the name under which the code is loaded).
  tessera_status load(const ModuleFile& file, tessera_error* error);
  void unload();

 private:
  void* exported(const char* name, const char* suffix) const;
};

}  // namespace tessera
