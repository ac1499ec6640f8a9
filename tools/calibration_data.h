// Samples of a model's inputs for calibration, read one at a time where they are files of their own.
//
//   a folder            its .npy, .npz, .pb, .png, .jpg, .jpeg and .bmp files in the order of their names, a sample
//   each;
//                       of an .npz file the arrays are the inputs of their names
//   FILE.npz            arrays with the names of the inputs (for one input, one array of any name): samples along
//                       dimension 0
//   FILE.npy            the same for a model with one input
//   any other file      one sample
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "driver/engine/input_sizes.h"
#include "driver/engine/model.h"
#include "import/onnx/read/declarations.h"
#include "picture.h"
#include "types/tensor.h"

namespace tessera {

class CalibrationData {
 public:
  // At most `most` samples, evenly taken of those that are there. UserError TSR-6240 where there is nothing to read or
  // arrays are no samples, and those of the files.
  CalibrationData(std::string path, PictureOptions pictures, size_t most);

  size_t count() const { return places_.size(); }
  size_t total() const { return total_; }                        // with those that are not taken
  size_t place(size_t number) const { return places_[number]; }  // among all
  // The shapes of the first sample, for inputs whose sizes a model leaves open.
  GivenShapes shapes(const std::vector<DeclaredTensor>& inputs) const;
  // The inputs with sizes of that sample where they leave some open (less than 0).
  std::vector<TensorInfo> with_sizes_of(size_t number, std::vector<TensorInfo> inputs) const;
  // One tensor for each input. UserError TSR-6240 where a sample does not fit.
  std::vector<Tensor> sample(size_t number, const std::vector<TensorInfo>& inputs) const;

 private:
  std::string array_text(const std::string& name) const;  // for messages
  std::string array_for(const std::string& input, size_t num_inputs) const;
  std::vector<Tensor> from_file(const std::string& file, const std::vector<TensorInfo>& inputs) const;

  std::string path_;
  PictureOptions pictures_;
  std::vector<std::string> files_;        // of a folder, or the one file that is a sample
  std::map<std::string, Tensor> arrays_;  // of one file with all samples
  size_t total_ = 0;
  std::vector<size_t> places_;  // of the samples that are taken: files, or rows of the arrays
};

}  // namespace tessera
