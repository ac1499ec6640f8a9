// The states of a session: values that live from one run to the next.
#pragma once

#include "runtime/core/session.h"

namespace tessera {

// Gets the session memory for its states and gives them their initial values. REQUIRES: the session is bound to its
// module, and has none yet.
tessera_status create_states(tessera_session* session, tessera_error* error);
// Initial values again.
void reset_states(tessera_session* session);
// States of `session` become those of `owner` that have their names, in its memory. On failure nothing has changed.
tessera_status share_states(tessera_session* session, const tessera_session* owner, tessera_error* error);
// Before a run: gets the places of states that are another session's, which its runs may have moved; checks that the
// states hold values, and that no tensor of the run lies in their memory.
tessera_status check_states(tessera_session& session, const tessera_tensor* inputs, const tessera_tensor* outputs,
                            tessera_error* error);
// After a run: what the states have become is what they are. Of a run that failed they stay what they were, or, where
// one of them was written in its place, hold nothing until reset_states.
void finish_states(tessera_session* session, bool succeeded);
// The memory of state `index` now; it moves with a run.
void* state_data(const tessera_session& session, uint32_t index);

}  // namespace tessera
