// Inputs of a module, made out of the bytes of a fuzzer's input: values of the declared types, and after that what a
// caller could do wrong with them.
#pragma once

#include <deque>
#include <vector>

#include "fuzz_target.h"
#include "tessera/tessera.h"
#include "types/run_value.h"

namespace tessera::fuzz {

// How the elements of a tensor are chosen.
enum class Filling {
  kTame,  // small numbers; of floats multiples of a quarter
  kZeros,
  kSpecial,  // floats: also NaN, infinities, -0; integers: also their ends
  kWild,     // floats: also the largest and the smallest; integers and bool: any bits
};

struct MadeInputs {
  std::vector<RunValue> values;
  Filling filling = Filling::kTame;
};

// Values for inputs that are declared so; small ones where the declaration leaves shapes open.
MadeInputs make_inputs(const std::vector<tessera_value_info>& declared, Bytes& bytes);

// Values as tessera_session_run_values takes them. What they point to lies here or in the values.
class ApiValues {
 public:
  const tessera_value* add(const RunValue& value);
  std::deque<tessera_value>& all() { return values_; }
  std::deque<std::vector<tessera_string>>& texts() { return texts_; }
  std::deque<std::vector<const tessera_value*>>& items() { return items_; }

 private:
  std::deque<tessera_value> values_;
  std::deque<std::vector<const tessera_value*>> items_;
  std::deque<std::vector<tessera_string>> texts_;
};

// Makes one of the values wrong in a way that the runtime can know: never less memory than dims and sizes say.
void break_a_value(ApiValues& values, Bytes& bytes);
// The same for tensors: number, dtype, rank, dims, address.
void break_a_tensor(std::vector<tessera_tensor>& tensors, Bytes& bytes);

}  // namespace tessera::fuzz
