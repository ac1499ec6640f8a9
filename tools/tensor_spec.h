// Tensors as the command line names them: `--input`, `--output`, `--expected-output`.
//
//   [NAME=]@FILE                        .npy, .pb (an ONNX TensorProto), .png, .jpg, .jpeg, .bmp
//   @FILE.npz                           every array of it, each for the input of its name; arr_0, arr_1, ... by
//   position [NAME=]@FILE.npz:ARRAY              one of its arrays; NAME=@FILE.npz the one of that name
//   [NAME=]SHAPExDTYPE=VALUE            1x3x224x224xf32=0; one value for every element, or all of them: 3xi64=1,2,3
//   [NAME=]SHAPExDTYPE=random[:SEED]    the same numbers for the same seed on every machine
//   [NAME=]random[:SEED]                with the model's own shape and dtype
//   [NAME=]SHAPE=VALUE, NAME=VALUE      with what is left out as the model has it: x=1x3x4x4=0, sr=16000
//   [NAME=]SHAPE[xDTYPE]                the same as SHAPExDTYPE=random
// Without a NAME a spec stands for the model's inputs (outputs) in order, those named elsewhere left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "picture.h"
#include "types/tensor.h"

namespace tessera {

struct TensorSpec {
  std::string text;  // as given, for messages
  std::string name;  // empty: by position
  enum class Kind : uint8_t { kFile, kValues, kRandom } kind = Kind::kFile;
  std::string path;            // kFile
  std::string array;           // kFile, .npz: which
  std::optional<DType> dtype;  // kValues; kRandom when given
  bool has_dims = false;       // of kValues and kRandom; always with dtype
  std::vector<int64_t> dims;
  std::vector<std::string> values;  // kValues: one, or as many as elements
  uint64_t seed = 0;                // kRandom
};

// UserError TSR-4010 when `text` has none of the forms above. Only files when `files_only`.
TensorSpec parse_tensor_spec(const std::string& text, bool files_only = false);
// One for each, and of a whole .npz one for each of its arrays. UserError as the above, and TSR-6211 for the file.
std::vector<TensorSpec> parse_tensor_specs(const std::vector<std::string>& texts, bool files_only = false);

// For each of `infos` the index of the spec that stands for it, or -1. UserError TSR-4011 for a name that is none of
// theirs, one given twice, or too many specs without a name. `flag` is for messages ("--input").
std::vector<int> match_specs(const std::vector<TensorSpec>& specs, const std::vector<TensorInfo>& infos,
                             const std::string& flag);

// The tensor that `spec` describes, for the input `info`: its shape and dtype are used where the spec says none, and
// to fit pictures. UserError TSR-60xx, TSR-62xx for files that cannot be used.
Tensor make_tensor(const TensorSpec& spec, const TensorInfo& info, const PictureOptions& pictures);

// The shape of that tensor, as far as `spec` says it: none for random numbers of the model's own shape. A picture fills
// whatever height and width the input leaves open with its own.
std::optional<std::vector<int64_t>> shape_of(const TensorSpec& spec, const TensorInfo& info);

// Floats uniform in [0, 1) (in [-1, 1) would make log and sqrt of inputs meaningless more often), integers in [0, 10),
// bools. UserError TSR-4012 when a dimension is not known.
Tensor random_tensor(const TensorInfo& info, uint64_t seed);

// The same for inputs that are no tensors: a .pb file with the value. TSR-4013 for other specs.
RunValue make_value(const TensorSpec& spec, const TensorInfo& info, const PictureOptions& pictures);
// A tensor as above; TSR-4013 for anything else, and for strings: there is nothing sensible to draw.
RunValue random_value(const TensorInfo& info, uint64_t seed);
// A .npy, .npz or .pb file that holds a value of that type.
RunValue read_value_file(const TensorSpec& spec, const TensorInfo& info);
void write_value_file(const std::string& path, const RunValue& value, const std::string& name);

// The tensor of a .npy, .npz or .pb file.
Tensor read_tensor_file(const TensorSpec& spec);
void write_tensor_file(const std::string& path, const Tensor& tensor, const std::string& name);

}  // namespace tessera
