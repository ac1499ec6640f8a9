// Language models in GGUF files, beside what compiler.h does with every model.
#pragma once

#include <string>

#include "tessera/compiler.h"

namespace tessera {

// The metadata of a language model as a JSON object, its tokenizer among them. Reads no weights. CompileError TSR-1001
// when there is no such file, TSR-1070 when it is no GGUF.
std::string language_model_metadata(const std::string& model_path);

// The file in the cache of compiled modules (TESSERA_CACHE_DIR, TESSERA_CACHE_SIZE) that holds the model compiled so;
// it is compiled if it is not there yet. "" where there is no cache, or it cannot take the module. Large files are not
// read to be known: another size or time of change makes another model. CompileError as compile_file has it.
std::string compile_to_cache(const std::string& model_path, const CompileOptions& options);

}  // namespace tessera
