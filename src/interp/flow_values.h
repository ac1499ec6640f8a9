// Steps of a flow that move elements and parts of values.
#pragma once

#include <string>
#include <vector>

#include "graph/flow.h"
#include "types/run_value.h"

namespace tessera::inline interp {

// The runtime's error for a step that cannot do what it should: TSR-7041.
[[noreturn]] void fail_step(const FlowStep& step, const std::string& what);
std::string text_of(const RunValue& value);

// A tensor of one integer.
int64_t number_of(const FlowStep& step, const RunValue& value, const char* what);

std::vector<int64_t> broadcast(const FlowStep& step, const std::vector<int64_t>& a, const std::vector<int64_t>& b);
// The element of `x` that stands at element `flat` of the shape that it is broadcast to.
int64_t broadcast_place(const Tensor& x, const std::vector<int64_t>& dims, int64_t flat);
// REQUIRES: no strings.
void copy_element(const Tensor& from, int64_t i, Tensor& to, int64_t k);
// The elements of x at these places, strings too.
Tensor take(const Tensor& x, const std::vector<int64_t>& places, std::vector<int64_t> dims);

// An axis counted from the front; a list of integers.
int64_t axis_of(const FlowStep& step, int64_t axis, int64_t rank);
std::vector<int64_t> ints_of(const FlowStep& step, const RunValue& value, const char* what);
// kRange and kPad.
Tensor range_of(const FlowStep& step, const Tensor& start, const Tensor& limit, const Tensor& delta);
Tensor padded(const FlowStep& step, const std::vector<const RunValue*>& operands);

// kInsert at the end of a list that the result replaces: what a loop collects is not copied at every step.
void append(const FlowStep& step, RunValue& list, const RunValue& item);

// The result of a step with one result that is neither control flow nor about texts; operands left out are null.
RunValue value_result(const FlowStep& step, const std::vector<const RunValue*>& operands);

}  // namespace tessera::inline interp
