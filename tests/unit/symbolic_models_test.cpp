// Models with open dimensions, as people export them: which are read once for all sizes, and that those compute for
// some sizes what the model read at these sizes computes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

#include "arith/simplify.h"
#include "graph/bind_symbols.h"
#include "graph/verify.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/symbolic_import.h"
#include "support/test_data.h"

namespace tessera {
namespace {

struct ModelCase {
  std::string path;  // below open-sizes
  Ranges ranges;
  std::vector<Sizes> sizes;  // with the values of all names
  std::string refusal = "";  // a part of the reason why there is no graph with symbols
};

const DimRange kBatch{1, 8}, kLength{1, 128}, kPicture{16, 160};

std::vector<ModelCase> model_cases() {
  const Ranges decoder = {{"batch", kBatch}, {"len", kLength}};
  const Ranges picture = {{"batch", kBatch}, {"h", kPicture}, {"w", kPicture}};
  const std::vector<Sizes> texts = {{{"batch", 1}, {"len", 1}}, {{"batch", 2}, {"len", 3}}};
  const std::vector<Sizes> pictures = {
      {{"batch", 1}, {"h", 16}, {"w", 16}}, {{"batch", 1}, {"h", 17}, {"w", 31}}, {{"batch", 2}, {"h", 28}, {"w", 45}}};
  const Ranges single_picture = {{"h", kPicture}, {"w", kPicture}};
  const std::vector<Sizes> single_pictures = {{{"h", 16}, {"w", 16}}, {{"h", 17}, {"w", 31}}, {{"h", 40}, {"w", 33}}};
  const Ranges signal = {{"n", {400, 4000}}};
  const std::vector<Sizes> signals = {{{"n", 400}}, {{"n", 561}}, {{"n", 1601}}};
  const Ranges matrix = {{"b", kBatch}, {"l", kLength}};
  const std::vector<Sizes> matrices = {{{"b", 1}, {"l", 1}}, {{"b", 3}, {"l", 7}}};
  const Ranges rows = {{"b", kBatch}, {"n", {1, 64}}};
  const std::vector<Sizes> row_sizes = {{{"b", 1}, {"n", 1}}, {{"b", 3}, {"n", 9}}};
  const Ranges lines = {{"batch", kBatch}, {"width", {8, 256}}};
  const std::vector<Sizes> line_sizes = {{{"batch", 1}, {"width", 8}}, {{"batch", 3}, {"width", 45}}};
  return {
      {"qwen3_dyn.onnx", decoder, texts},
      {"llama_kv_dyn.onnx",
       {{"batch", kBatch}, {"len", {1, 8}}, {"past", {1, 63}}, {"total", {2, 71}}},
       {{{"batch", 1}, {"len", 1}, {"past", 1}, {"total", 2}}, {{"batch", 2}, {"len", 3}, {"past", 4}, {"total", 7}}}},
      {"llama_kv_optnames.onnx",
       {{"batch", kBatch}, {"sequence_length", {1, 8}}, {"past_sequence_length", {1, 63}}},
       {{{"batch", 2},
         {"sequence_length", 3},
         {"past_sequence_length", 4},
         {"past_sequence_length + sequence_length", 7}}}},
      {"x_lasttok_w1.onnx", decoder, texts},
      {"x_unet_w1.onnx", picture, pictures},
      {"x_crnn_w0.onnx", lines, line_sizes},
      {"x_crnn_w1.onnx", lines, line_sizes},
      {"x_logmel_w1.onnx",
       {{"batch", kBatch}, {"samples", {4000, 16000}}},
       {{{"batch", 1}, {"samples", 4000}}, {{"batch", 2}, {"samples", 4567}}}},
      {"x_swindyn_w0.onnx", picture, pictures},
      {"x_swindyn_w1.onnx", picture, pictures},
      {"x_dinopos_w1.onnx", picture, pictures},
      {"x_detrpos_w1.onnx", picture, pictures},
      {"x_multiscale_w1.onnx", picture, pictures},
      {"x_pointnet_w1.onnx", {{"batch", kBatch}, {"pts", {4, 64}}}, {{{"batch", 2}, {"pts", 9}}}},
      {"x_cumctc_w1.onnx", decoder, texts},
      {"x_yolonms_w0.onnx",
       {{"batch", kBatch}, {"h", {96, 256}}, {"w", {96, 256}}},
       {{{"batch", 1}, {"h", 96}, {"w", 128}}}},
      {"minimal/min_conv_stride129.onnx", signal, signals},
      {"minimal/min_conv_stride160_k160.onnx", signal, signals},
      {"minimal/min_conv_stride160_k400.onnx", signal, signals},
      {"minimal/min_gathernd_plain.onnx", {{"b", {2, 8}}, {"l", {3, 64}}}, {{{"b", 3}, {"l", 7}}}},
      {"minimal/min_gathernd_two_open.onnx", {{"b", {2, 8}}, {"l", {3, 64}}}, {{{"b", 3}, {"l", 7}}}},
      {"minimal/min_last_token_pool.onnx", matrix, matrices},
      {"minimal/min_mask_gathernd.onnx", decoder, texts},
      {"minimal/min_nonzero_open.onnx", rows, {}},  // at one size it is a flow: e2e.data_sizes runs its like
      {"minimal/min_pad_concat_conv.onnx", single_picture, single_pictures},
      {"minimal/min_scatternd_open.onnx",
       {{"b", {3, 8}}, {"l", {3, 64}}, {"k", {1, 16}}},
       {{{"b", 4}, {"l", 7}, {"k", 1}}, {{"b", 3}, {"l", 3}, {"k", 2}}}},
      {"minimal/min_stft_hop160_f400.onnx", signal, signals},
      {"minimal/min_unet_pad_cat1_c1.onnx", single_picture, single_pictures},
      {"minimal/min_unet_pad_cat1_c2.onnx", single_picture, single_pictures},
      {"works/min_cls_token_hw.onnx", single_picture, single_pictures},
      {"works/min_conv_stride128.onnx", signal, signals},
      {"works/min_conv_stride16_k40.onnx", signal, signals},
      {"works/min_cumsum_open.onnx", rows, row_sizes},
      {"works/min_gather_open.onnx", {{"b", {3, 8}}, {"l", {3, 64}}, {"k", {1, 16}}}, {{{"b", 4}, {"l", 7}, {"k", 5}}}},
      {"works/min_gatherel_open.onnx",
       {{"b", {3, 8}}, {"l", {3, 64}}, {"k", {1, 3}}},
       {{{"b", 4}, {"l", 7}, {"k", 2}}}},
      {"works/min_onehot_open.onnx", rows, row_sizes},
      {"works/min_stft_hop64_f256.onnx", signal, signals},
      {"works/min_swin_pad.onnx", single_picture, single_pictures},
      {"works/min_topk_hw.onnx", single_picture, single_pictures},
      {"works/min_topk_open1.onnx", {{"n", {20, 64}}}, {{{"n", 20}}, {{"n", 31}}}},
      {"works/min_topk_openb.onnx", {{"b", kBatch}, {"n", {20, 64}}}, {{{"b", 3}, {"n", 31}}}},
      {"works/min_unet_pad_cat0_c1.onnx", single_picture, single_pictures},
  };
}

class SymbolicModels : public testing::TestWithParam<ModelCase> {};

TEST_P(SymbolicModels, AreReadOnce) {
  const ModelCase& model = GetParam();
  const auto path = find_test_data("open-sizes/" + model.path);
  if (!path) GTEST_SKIP() << missing_test_data("open-sizes/" + model.path);
  const Reader read = [&](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_onnx_model(path->string(), options, standard_ops(), evaluator);
  };
  std::optional<Graph> graph;
  std::string refusal;
  ReadOutcome outcome = read(symbolic(model.ranges));
  if (const auto* reason = std::get_if<NoGraph>(&outcome)) refusal = reason->to_string();
  else graph = sound_graph(std::move(outcome));
  std::cout << fmt::format("{:38} {}\n", model.path, graph ? "symbolic" : refusal);
  if (model.refusal.empty()) {
    ASSERT_EQ(refusal, "");
    for (const Sizes& sizes : model.sizes) expect_same(*graph, read, sizes, 1e-4);
  } else {
    EXPECT_THAT(refusal, testing::HasSubstr(model.refusal));
  }
}

INSTANTIATE_TEST_SUITE_P(OpenSizes, SymbolicModels, testing::ValuesIn(model_cases()), [](const auto& info) {
  std::string name;
  for (const char c : info.param.path.substr(0, info.param.path.find(".onnx"))) name += std::isalnum(c) ? c : '_';
  return name;
});

}  // namespace
}  // namespace tessera
