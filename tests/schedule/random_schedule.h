// Random schedules: primitives with random arguments, those that are refused left out.
#pragma once

#include <map>
#include <random>
#include <string>

#include "schedule/primitives/schedule.h"

namespace tessera {

// How often each primitive was tried and taken.
using PrimitiveCounts = std::map<std::string, std::pair<int, int>>;

// Applies `tries` random primitives to the schedule; returns how many were taken. A refusal is a UserError; everything
// else gets out.
int apply_random(Schedule& schedule, int tries, std::mt19937_64& random, PrimitiveCounts* counts = nullptr);

}  // namespace tessera
