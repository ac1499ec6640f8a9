// Where the threads of a block wait: for one another, and for copies that run beside them.
//
// All threads wait before a nest of thread loops that touches memory which an earlier nest has touched since the last
// barrier, when one of the two writes. Of a nest with asynchronous copies (IntrinsicCode::kAsyncCopy) the stores arrive
// when they like: the nest's copies are a group, and before a nest that touches what a group reads or writes, each
// thread waits until that group of its own has ended, and then all threads for one another. Later groups may still be
// under way.
//
// A buffer whose first index is `x mod S` counts as S slots, for an x that grows steadily with the loop around it: the
// loop's iterations are followed one by one until places repeat, so that a copy to one slot needs no wait for what
// reads another one.
#pragma once

#include <set>

#include "device/thread_form.h"

namespace tessera::inline device {

// Sets the launch's barriers, waits and copies. `nests`: the statements of its body whose threads run them on their
// own.
void place_barriers(Launch& launch, const std::set<const StmtNode*>& nests);

}  // namespace tessera::inline device
