// Language models in GGUF files, beside what compiler.h does with every model.
#pragma once

#include <string>

namespace tessera {

// The metadata of a language model as a JSON object, its tokenizer among them. Reads no weights. CompileError TSR-1001
// when there is no such file, TSR-1070 when it is no GGUF.
std::string language_model_metadata(const std::string& model_path);

// Where the cache of compiled modules (TESSERA_CACHE_DIR, TESSERA_CACHE_SIZE) keeps a model that was compiled as
// `options` say, which is text of the caller's; "" when there is no cache. The place is another one when the model's
// file, the compiler or the machine changes; nobody reads the file for that. A module that is there counts as used.
std::string cached_module_path(const std::string& model_path, const std::string& options);

// Makes room in that cache after a module was written to `module_path`, which stays if it fits at all.
void trim_module_cache(const std::string& module_path);

}  // namespace tessera
