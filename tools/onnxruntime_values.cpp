#include "onnxruntime_values.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "driver/formats.h"
#include "driver/model_file.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"
#include "peer_process.h"
#include "support/error.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBatch = 64;

// A folder that goes away with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tessera-values-XXXXXX").string();
    if (!mkdtemp(pattern.data())) {
      throw UserError({.id = "TSR-6103",
                       .message = fmt::format("folder '{}' cannot be made: {}", pattern, std::strerror(errno)),
                       .node = {},
                       .legal = "a folder that exists or can be made",
                       .hint = "name another folder for temporary files in TMPDIR"});
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (fs::path(path_) / name).string(); }

 private:
  std::string path_;
};

class OnnxRuntimeValues : public ValueSource {
 public:
  OnnxRuntimeValues(EditableModel model, const DiffSubject& subject, int threads, int64_t batch_bytes)
      : model_(std::move(model)), subject_(subject), threads_(threads), batch_bytes_(batch_bytes) {
    for (const TensorInfo& info : subject.inputs) types_[info.name] = {info.dtype, info.dims};
    const std::set<std::string> given = model_.values_given();
    for (const TensorInfo& info : subject.values) {  // in an order of the graph
      if (!given.count(info.name)) continue;
      types_[info.name] = {info.dtype, info.dims};
      names_.push_back(info.name);
    }
  }

  std::vector<std::string> names() const override { return names_; }

  void run(const std::set<std::string>& wanted, const See& see) override {
    std::vector<std::string> batch;
    int64_t bytes = 0;
    for (const std::string& name : names_) {
      if (!wanted.count(name)) continue;
      const EditType& type = types_.at(name);
      int64_t count = 1;
      for (const int64_t dim : type.dims) count *= std::max<int64_t>(dim, 1);  // less where data decide it
      if (!batch.empty() && (bytes + dtype_bytes(type.dtype, count) > batch_bytes_ || batch.size() >= kMaxBatch)) {
        if (!run_batch(batch, see)) return;
        batch.clear();
        bytes = 0;
      }
      batch.push_back(name);
      bytes += dtype_bytes(type.dtype, count);
    }
    if (!batch.empty()) run_batch(batch, see);
  }

 private:
  bool run_batch(const std::vector<std::string>& names, const See& see) {
    const EditableModel part = model_.with_outputs(names, types_);
    const std::vector<std::string> input_names = part.input_names();
    std::vector<Tensor> inputs;
    for (const std::string& name : input_names) {
      const std::vector<std::string>& known = subject_.parts.inputs();
      const auto at = std::find(known.begin(), known.end(), name);
      check(at != known.end(), "the graph lacks an input of the model: " + name);
      inputs.push_back(subject_.part_tensors[static_cast<size_t>(at - known.begin())]);
    }
    const TemporaryFolder folder;
    AtomicFile file(folder.file("model.onnx"), "model");
    file.write(part.bytes());
    file.commit();
    std::vector<DType> types;
    for (const std::string& name : names) types.push_back(types_.at(name).dtype);
    const PeerProcess peer(find_peer_kind("onnxruntime"), folder.file("model.onnx"), input_names, inputs, types,
                           {.threads = threads_, .limit_seconds = 0});
    check(peer.outputs().size() == names.size(), "ONNX Runtime gives another number of outputs");
    for (size_t i = 0; i < names.size(); ++i)
      if (!see(names[i], peer.outputs()[i])) return false;
    return true;
  }

  EditableModel model_;
  const DiffSubject& subject_;
  std::vector<std::string> names_;
  EditableModel::Types types_;
  int threads_;
  int64_t batch_bytes_;
};

}  // namespace

std::unique_ptr<ValueSource> onnxruntime_values(const std::string& model, const DiffSubject& subject, int threads,
                                                int64_t batch_bytes) {
  EditableModel onnx = is_graph_without_onnx(model) ? EditableModel::of_bytes(export_onnx_bytes(subject.parts.graph()))
                                                    : editable_model_of_file(model);
  return std::make_unique<OnnxRuntimeValues>(std::move(onnx), subject, threads, batch_bytes);
}

}  // namespace tessera
