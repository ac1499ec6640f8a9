#include "import/tflite/operator_context.h"

#include <fmt/format.h>

namespace tessera::inline tflite_import {

OperatorContext::OperatorContext(TfliteImport& state, const tflite::Operator& node)
    : Emitter(state), state_(state), node_(node), code_(state.model.code(node)), name_(state.model.name_of(node)) {
  label_ = num_outputs() > 0 ? output(0).name : name_;
}

int32_t OperatorContext::version() const {
  return state_.model.root().operator_codes()->Get(node_.opcode_index())->version();
}

int OperatorContext::num_inputs() const { return node_.inputs() ? static_cast<int>(node_.inputs()->size()) : 0; }

bool OperatorContext::has(int i) const { return i < num_inputs() && index(i) >= 0; }

ValueId OperatorContext::in(int i) {
  if (!has(i)) malformed(fmt::format("input {} is left out", i), "an operand");
  return state_.lookup(index(i));
}

std::optional<int> OperatorContext::resource(int i) const {
  if (!has(i)) malformed(fmt::format("input {} is left out", i), "an operand");
  const auto found = state_.resources.find(index(i));
  return found == state_.resources.end() ? std::nullopt : std::optional(found->second);
}

SubgraphValue OperatorContext::entering(int i) {
  const auto handle = resource(i);
  return handle ? SubgraphValue{-1, *handle} : SubgraphValue{in(i), -1};
}

void OperatorContext::out_resource(int i, int resource) {
  output(i);
  state_.resources[node_.outputs()->Get(static_cast<uint32_t>(i))] = resource;
}

ComplexValue OperatorContext::complex(int i) const {
  const auto found = has(i) ? state_.complex.find(index(i)) : state_.complex.end();
  if (found == state_.complex.end()) malformed(fmt::format("input {} has no complex numbers", i), "complex numbers");
  return found->second;
}

void OperatorContext::out_complex(int i, ComplexValue value) {
  if (!output(i).is_complex)
    malformed(fmt::format("output '{}' has no complex numbers", output(i).name), "complex numbers");
  state_.complex[node_.outputs()->Get(static_cast<uint32_t>(i))] = value;
}

const TfliteTensor& OperatorContext::tensor(int i) const {
  if (!has(i)) malformed(fmt::format("input {} is left out", i), "an operand");
  return state_.tensors[static_cast<size_t>(index(i))];
}

void OperatorContext::require_inputs(int min, int max) {
  const int count = num_inputs();
  if (count < min || (max >= 0 && count > max))
    malformed(fmt::format("{} inputs", count), max < 0      ? fmt::format("{} or more", min)
                                               : min == max ? fmt::format("{}", min)
                                                            : fmt::format("{} to {}", min, max));
}

std::vector<int64_t> OperatorContext::const_ints(int i, const std::string& what) {
  const ValueId value = in(i);
  if (!is_int(dtype(value)))
    malformed(fmt::format("{} (input {}) is {}", what, i, type(value).to_string()), "integers");
  const auto known = constant(value);
  if (!known) unsupported(fmt::format("{} depends on the model's inputs", what));
  std::vector<int64_t> result;
  for (int64_t e = 0; e < known->num_elements(); ++e) result.push_back(known->get_int(e));
  return result;
}

int64_t OperatorContext::const_int(int i, const std::string& what) {
  const std::vector<int64_t> values = const_ints(i, what);
  if (values.size() != 1) malformed(fmt::format("{} has {} elements", what, values.size()), "one");
  return values[0];
}

const TfliteTensor& OperatorContext::output(int i) const {
  if (i >= num_outputs()) malformed(fmt::format("{} outputs", num_outputs()), fmt::format("{} or more", i + 1));
  return state_.tensors[static_cast<size_t>(node_.outputs()->Get(static_cast<uint32_t>(i)))];
}

void OperatorContext::out(int i, ValueId value) {
  const TfliteTensor& declared = output(i);
  if (declared.dtype != dtype(value))
    malformed(fmt::format("output '{}' is declared as {} and would be {}", declared.name, dtype_name(declared.dtype),
                          dtype_name(dtype(value))),
              "one type");
  results_.emplace_back(node_.outputs()->Get(static_cast<uint32_t>(i)), value);
}

bool OperatorContext::is_quantized(const TfliteTensor& tensor) const {
  return tensor.dtype == DType::kU8 || tensor.dtype == DType::kI8 ||
         (tensor.dtype == DType::kI16 && !tensor.quantization.empty());
}

float OperatorContext::scale(const TfliteTensor& tensor) const {
  const std::vector<float>& scales = tensor.quantization.scales;
  if (scales.size() != 1 || !(scales[0] > 0))
    malformed(fmt::format("tensor '{}' has {} scales{}", tensor.name, scales.size(),
                          scales.size() == 1 ? ", which is 0" : ""),
              "one, above 0");
  return scales[0];
}

int64_t OperatorContext::zero_point(const TfliteTensor& tensor) const {
  const std::vector<int64_t>& zeros = tensor.quantization.zero_points;
  if (zeros.size() != 1) malformed(fmt::format("tensor '{}' has {} zero points", tensor.name, zeros.size()), "one");
  const int bits = is_int(tensor.dtype) ? dtype_bits(tensor.dtype) : 64;
  const int64_t low = bits > 16 || !is_signed_int(tensor.dtype) ? 0 : -(int64_t{1} << (bits - 1));
  const int64_t high = bits > 16 ? -1 : low + (int64_t{1} << bits) - 1;
  if (zeros[0] < low || zeros[0] > high)
    malformed(
        fmt::format("tensor '{}' of type {} has the zero point {}", tensor.name, dtype_name(tensor.dtype), zeros[0]),
        "a number of its type, of 16 bits or less");
  return zeros[0];
}

Diagnostic OperatorContext::malformed_diagnostic(const std::string& found, const std::string& legal,
                                                 const std::string& hint) const {
  return {"TSR-1105", fmt::format("{}: {}", name_, found), label_, legal,
          hint.empty() ? "convert the model again; its own runtime refuses it as well" : hint};
}

}  // namespace tessera::inline tflite_import
