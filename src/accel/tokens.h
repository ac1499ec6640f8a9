// Which instruction waits for which. Queues run beside each other, each in order; a token from one queue to another is
// all that keeps an order between them.
#pragma once

#include <string>

#include "accel/stream.h"

namespace tessera::inline accel {

// Moves instructions of other queues to just before the first that needs them, as far as dependences allow: a queue
// then loads what is needed first, whatever the order of the program's statements.
void order_by_need(const Accelerator& unit, InstructionStream& stream);

// Sets waits and signals. For each pair of queues an instruction waits where it needs a later one of the other queue
// than any before it did: as few tokens as can be, handed over in order.
void place_tokens(const Accelerator& unit, InstructionStream& stream);

// What is wrong with a stream, found without knowing how its tokens were placed: places outside of a memory or segment,
// tokens that are missing where two instructions touch the same place, that are never given (the stream then never
// ends, as where the one who gives them stands behind a full queue), or left over. Empty: every run, however the queues
// race, gives what the order of the list gives.
std::vector<std::string> check_stream(const Accelerator& unit, const InstructionStream& stream);

}  // namespace tessera::inline accel
