#include "import/caffe/read/network.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "support/error.h"

namespace tessera::inline caffe {
namespace {

constexpr int kMostNested = 32;  // messages inside each other; networks have five

[[noreturn]] void refuse_text(const std::string& place, const std::string& what) {
  throw UserError({.id = "TSR-1131",
                   .message = fmt::format("{}: the text is no network of Caffe: {}", place, what),
                   .node = {},
                   .legal = "a NetParameter in text form (deploy.prototxt)",
                   .hint = {}});
}

// The first message of protobuf's parser, with its place. Warnings are about fields that the schema leaves out.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("{}:{}: {}", line + 1, column + 1, message);
  }
  void AddWarning(int, int, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Fields that the schema leaves out are skipped by a function that calls itself for each message inside.
void require_shallow(std::string_view text, const std::string& place) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '{' || c == '<' || c == '[') {
      if (++depth > kMostNested) refuse_text(place, fmt::format("messages are more than {} deep", kMostNested));
    } else if (c == '}' || c == '>' || c == ']') {
      --depth;
    }
  }
}

bool meets(const proto::NetStateRule& rule, const proto::NetState& state) {
  const auto has = [&](const std::string& stage) {
    return std::find(state.stage().begin(), state.stage().end(), stage) != state.stage().end();
  };
  return (!rule.has_phase() || rule.phase() == state.phase()) &&
         (!rule.has_min_level() || state.level() >= rule.min_level()) &&
         (!rule.has_max_level() || state.level() <= rule.max_level()) &&
         std::all_of(rule.stage().begin(), rule.stage().end(), has) &&
         std::none_of(rule.not_stage().begin(), rule.not_stage().end(), has);
}

bool is_included(const proto::LayerParameter& layer, const proto::NetState& state) {
  const auto meets_it = [&](const proto::NetStateRule& rule) { return meets(rule, state); };
  if (layer.include_size() > 0) return std::any_of(layer.include().begin(), layer.include().end(), meets_it);
  return std::none_of(layer.exclude().begin(), layer.exclude().end(), meets_it);
}

const char* today_type(proto::V1LayerParameter::LayerType type) {
  using V1 = proto::V1LayerParameter;
  static constexpr std::pair<V1::LayerType, const char*> kTypes[] = {
      {V1::ABSVAL, "AbsVal"},
      {V1::ACCURACY, "Accuracy"},
      {V1::ARGMAX, "ArgMax"},
      {V1::BNLL, "BNLL"},
      {V1::CONCAT, "Concat"},
      {V1::CONTRASTIVE_LOSS, "ContrastiveLoss"},
      {V1::CONVOLUTION, "Convolution"},
      {V1::DATA, "Data"},
      {V1::DECONVOLUTION, "Deconvolution"},
      {V1::DROPOUT, "Dropout"},
      {V1::DUMMY_DATA, "DummyData"},
      {V1::EUCLIDEAN_LOSS, "EuclideanLoss"},
      {V1::ELTWISE, "Eltwise"},
      {V1::EXP, "Exp"},
      {V1::FLATTEN, "Flatten"},
      {V1::HDF5_DATA, "HDF5Data"},
      {V1::HDF5_OUTPUT, "HDF5Output"},
      {V1::HINGE_LOSS, "HingeLoss"},
      {V1::IM2COL, "Im2col"},
      {V1::IMAGE_DATA, "ImageData"},
      {V1::INFOGAIN_LOSS, "InfogainLoss"},
      {V1::INNER_PRODUCT, "InnerProduct"},
      {V1::LRN, "LRN"},
      {V1::MEMORY_DATA, "MemoryData"},
      {V1::MULTINOMIAL_LOGISTIC_LOSS, "MultinomialLogisticLoss"},
      {V1::MVN, "MVN"},
      {V1::POOLING, "Pooling"},
      {V1::POWER, "Power"},
      {V1::RELU, "ReLU"},
      {V1::SIGMOID, "Sigmoid"},
      {V1::SIGMOID_CROSS_ENTROPY_LOSS, "SigmoidCrossEntropyLoss"},
      {V1::SILENCE, "Silence"},
      {V1::SOFTMAX, "Softmax"},
      {V1::SOFTMAX_LOSS, "SoftmaxWithLoss"},
      {V1::SPLIT, "Split"},
      {V1::SLICE, "Slice"},
      {V1::TANH, "TanH"},
      {V1::WINDOW_DATA, "WindowData"},
      {V1::THRESHOLD, "Threshold"},
  };
  const auto* const row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& r) { return r.first == type; });
  return row == std::end(kTypes) ? "" : row->second;
}

// A layer of an old file as one of today's. Takes its contents.
void upgrade(proto::V1LayerParameter& old, proto::LayerParameter& layer) {
  layer.set_name(old.name());
  layer.set_type(today_type(old.type()));
  layer.mutable_bottom()->Swap(old.mutable_bottom());
  layer.mutable_top()->Swap(old.mutable_top());
  layer.mutable_blobs()->Swap(old.mutable_blobs());
  layer.mutable_include()->Swap(old.mutable_include());
  layer.mutable_exclude()->Swap(old.mutable_exclude());
  if (old.has_argmax_param()) layer.mutable_argmax_param()->Swap(old.mutable_argmax_param());
  if (old.has_concat_param()) layer.mutable_concat_param()->Swap(old.mutable_concat_param());
  if (old.has_convolution_param()) layer.mutable_convolution_param()->Swap(old.mutable_convolution_param());
  if (old.has_eltwise_param()) layer.mutable_eltwise_param()->Swap(old.mutable_eltwise_param());
  if (old.has_exp_param()) layer.mutable_exp_param()->Swap(old.mutable_exp_param());
  if (old.has_inner_product_param()) layer.mutable_inner_product_param()->Swap(old.mutable_inner_product_param());
  if (old.has_lrn_param()) layer.mutable_lrn_param()->Swap(old.mutable_lrn_param());
  if (old.has_mvn_param()) layer.mutable_mvn_param()->Swap(old.mutable_mvn_param());
  if (old.has_pooling_param()) layer.mutable_pooling_param()->Swap(old.mutable_pooling_param());
  if (old.has_power_param()) layer.mutable_power_param()->Swap(old.mutable_power_param());
  if (old.has_relu_param()) layer.mutable_relu_param()->Swap(old.mutable_relu_param());
  if (old.has_slice_param()) layer.mutable_slice_param()->Swap(old.mutable_slice_param());
  if (old.has_softmax_param()) layer.mutable_softmax_param()->Swap(old.mutable_softmax_param());
  if (old.has_threshold_param()) layer.mutable_threshold_param()->Swap(old.mutable_threshold_param());
}

void upgrade(proto::NetParameter& net) {
  for (proto::V1LayerParameter& old : *net.mutable_layers()) upgrade(old, *net.add_layer());
  net.clear_layers();
}

void leave_out_other_phases(proto::NetParameter& net) {
  google::protobuf::RepeatedPtrField<proto::LayerParameter> kept;
  for (proto::LayerParameter& layer : *net.mutable_layer())
    if (is_included(layer, net.state())) kept.Add()->Swap(&layer);
  net.mutable_layer()->Swap(&kept);
}

std::shared_ptr<const proto::NetParameter> read_weights(std::string_view bytes, const std::string& place) {
  if (bytes.empty()) return nullptr;
  const auto refuse = [&](const char* what) {
    throw UserError({.id = "TSR-1132",
                     .message = fmt::format("{}: {}", place, what),
                     .node = {},
                     .legal = "a NetParameter in binary form (.caffemodel) of less than 2 GB",
                     .hint = "get the file again"});
  };
  if (bytes.size() > INT_MAX) refuse("the weights take more than 2 GB");
  const auto weights = std::make_shared<proto::NetParameter>();
  if (!weights->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    refuse("the file has no weights of Caffe, or is damaged");
  upgrade(*weights);
  return weights;
}

}  // namespace

const google::protobuf::RepeatedPtrField<proto::BlobProto>& CaffeNetwork::blobs_of(
    const proto::LayerParameter& layer) const {
  if (layer.blobs_size() > 0) return layer.blobs();
  const auto found = weights_of.find(layer.name());
  return found == weights_of.end() ? layer.blobs() : found->second->blobs();
}

bool looks_like_prototxt(std::string_view beginning) {
  // Blanks and comments, a word that a network may begin with, and what stands behind it.
  size_t at = 0;
  while (at < beginning.size()) {
    if (std::string_view(" \t\r\n").find(beginning[at]) != std::string_view::npos) ++at;
    else if (beginning[at] == '#') at = std::min(beginning.find('\n', at), beginning.size());
    else break;
  }
  const std::string_view rest = beginning.substr(at);
  for (const std::string_view word :
       {"name", "input", "input_dim", "input_shape", "layer", "layers", "state", "force_backward", "debug_info"}) {
    if (!rest.starts_with(word)) continue;
    const size_t behind = rest.find_first_not_of(" \t", word.size());
    if (behind != std::string_view::npos && (rest[behind] == ':' || rest[behind] == '{')) return true;
  }
  return false;
}

std::shared_ptr<const CaffeNetwork> read_caffe_network(std::string_view text, const std::string& place,
                                                       std::string_view weights, const std::string& weights_place) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  if (text.size() > kMostBytes) refuse_text(place, "it is longer than 64 MB");
  require_shallow(text, place);
  const auto network = std::make_shared<CaffeNetwork>();
  google::protobuf::TextFormat::Parser parser;
  FirstError errors;
  parser.RecordErrorsTo(&errors);
  parser.AllowUnknownField(true);
  parser.AllowFieldNumber(false);
  if (!parser.ParseFromString(std::string(text), &network->net)) refuse_text(place, errors.text());
  if (network->net.layer_size() == 0 && network->net.layers_size() == 0) refuse_text(place, "it has no layers");
  upgrade(network->net);
  leave_out_other_phases(network->net);
  network->weights = read_weights(weights, weights_place);
  if (network->weights)
    for (const proto::LayerParameter& layer : network->weights->layer())
      if (layer.blobs_size() > 0) network->weights_of.emplace(layer.name(), &layer);
  return network;
}

}  // namespace tessera::inline caffe
