// Language models in GGUF files, beside what compiler.h does with every model.
#pragma once

#include <string>

namespace tessera {

// The metadata of a language model as a JSON object, its tokenizer among them. Reads no weights. CompileError TSR-1001
// when there is no such file, TSR-1070 when it is no GGUF.
std::string language_model_metadata(const std::string& model_path);

}  // namespace tessera
