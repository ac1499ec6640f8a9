// Moves calls of a program from the host to other devices, with the copies that this needs.
//
// A buffer that calls of one device alone use, and weights, move there. For each other one the device gets a buffer of
// its own: what a call reads is copied there before it, unless it is still there from before, and what it writes is
// copied back behind it. Calls one after the other become one start, with what it copies there in front of them; the
// host waits where something needs what the start reads or writes, at the end of a block of steps at the latest, so that
// host and device work at the same time where they can.
//
// What works in the host's memory (ProgramDevice::in_host_memory) has no buffers and no copies; each of its calls is a
// start of its own.
//
// Devices of a kind in `direct` read each other's memory: what one has computed, or still has, another one copies from
// there, and what the host does not read is not copied back to it.
//
// before:  call @a(%x, %m)                 after:  start 0 on dev { copy %x.dev = %x; call @a.dev(%x.dev, %m)
//          call @b(%m, %y)                                          call @b.dev(%m, %y.dev); copy %y = %y.dev }
//          call @c(%x, %z)                         call @c(%x, %z)
//                                                  wait 0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// `device_of`: 0, or 1 + a number in `devices`, for each call. REQUIRES: a verified program without devices, without a
// flow and not planned; kernels may be scheduled or not.
void assign_devices(Program& program, const std::vector<ProgramDevice>& devices,
                    const std::function<int32_t(const KernelCall& call)>& device_of,
                    const std::set<std::string>& direct = {});

}  // namespace tessera::inline program
