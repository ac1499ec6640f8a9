// Random changes of a serialised protobuf message that keep it well-formed: the reader gets past the parser and meets
// models that are wrong in other ways. Works on the wire format, without a schema.
#pragma once

#include <random>
#include <string>

namespace tessera {

// `bytes` with one change: a number becomes an extreme or a near one, a text becomes another text of the message or
// loses its end, a field is removed, repeated or swapped with a neighbour. The lengths around it are kept right.
std::string mutate_message(const std::string& bytes, std::mt19937_64& random);

}  // namespace tessera
