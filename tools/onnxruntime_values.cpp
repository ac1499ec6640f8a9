#include "onnxruntime_values.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>

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
  OnnxRuntimeValues(const ModelParts& parts, const std::vector<TensorInfo>& infos, const std::vector<Tensor>& inputs,
                    const std::vector<TensorInfo>& values, int threads, int64_t batch_bytes)
      : parts_(parts), inputs_(inputs), threads_(threads), batch_bytes_(batch_bytes) {
    for (const TensorInfo& info : infos) {
      input_names_.push_back(info.name);
      types_[info.name] = {info.dtype, info.dims};
    }
    for (const TensorInfo& info : values) types_[info.name] = {info.dtype, info.dims};
    for (const PartNode& node : parts.nodes())  // in an order of the graph
      for (const std::string& name : node.gives)
        if (types_.count(name)) names_.push_back(name);
  }

  std::vector<std::string> names() const override { return names_; }

  void run(const std::set<std::string>& wanted, const See& see) override {
    std::vector<std::string> batch;
    int64_t bytes = 0;
    for (const std::string& name : names_) {
      if (!wanted.count(name)) continue;
      const PartType& type = types_.at(name);
      int64_t count = 1;
      for (const int64_t dim : type.dims) count *= dim;
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
    // What the outputs do not need is left out.
    std::set<int> nodes;
    std::vector<int> pending;
    for (const std::string& name : names) pending.push_back(parts_.producer(name));
    while (!pending.empty()) {
      const int node = pending.back();
      pending.pop_back();
      if (node < 0 || !nodes.insert(node).second) continue;
      for (const std::string& name : parts_.nodes()[static_cast<size_t>(node)].reads)
        pending.push_back(parts_.producer(name));
    }
    ModelParts::Part part = parts_.part(nodes);
    part.outputs = names;
    std::vector<Tensor> inputs;
    for (const std::string& name : part.inputs) {
      const auto at = std::find(input_names_.begin(), input_names_.end(), name);
      check(at != input_names_.end(), "a part of the model reads what it does not compute: " + name);
      inputs.push_back(inputs_[static_cast<size_t>(at - input_names_.begin())]);
    }
    const auto model = parts_.write(part, types_);
    check(model.has_value(), "an input of the model without a type");
    const TemporaryFolder folder;
    AtomicFile file(folder.file("model.onnx"), "model");
    file.write(*model);
    file.commit();
    std::vector<DType> types;
    for (const std::string& name : names) types.push_back(types_.at(name).dtype);
    const PeerProcess peer(find_peer_kind("onnxruntime"), folder.file("model.onnx"), part.inputs, inputs, types,
                           {.threads = threads_, .limit_seconds = 0});
    check(peer.outputs().size() == names.size(), "ONNX Runtime gives another number of outputs");
    for (size_t i = 0; i < names.size(); ++i)
      if (!see(names[i], peer.outputs()[i])) return false;
    return true;
  }

  const ModelParts& parts_;
  std::vector<Tensor> inputs_;
  std::vector<std::string> input_names_, names_;
  std::map<std::string, PartType> types_;
  int threads_;
  int64_t batch_bytes_;
};

}  // namespace

std::unique_ptr<ValueSource> onnxruntime_values(const ModelParts& parts, const std::vector<TensorInfo>& infos,
                                                const std::vector<Tensor>& inputs,
                                                const std::vector<TensorInfo>& values, int threads,
                                                int64_t batch_bytes) {
  return std::make_unique<OnnxRuntimeValues>(parts, infos, inputs, values, threads, batch_bytes);
}

}  // namespace tessera
