// The public C++ API, and compiles that run side by side.
#include "driver/compile.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/engine/native_model.h"
#include "driver/engine/open_model.h"
#include "support/onnx_model.h"
#include "support/test_data.h"
#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// A convolution, a shift and a relu; `seed` changes the weights.
std::string conv_model(int seed) {
  OnnxModel model;
  std::vector<float> weights(8 * 3 * 3 * 3), shift(8);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>((i * 37 + static_cast<size_t>(seed)) % 17) - 8;
  for (size_t i = 0; i < shift.size(); ++i) shift[i] = static_cast<float>(seed);
  model.input("x", {1, 3, 12, 12}).floats("w", {8, 3, 3, 3}, weights).floats("b", {8}, shift).output("y");
  model.node("Conv", {"x", "w", "b"}, {"c"});
  model.node("Relu", {"c"}, {"y"});
  return model.bytes();
}

Tensor ramp(std::vector<int64_t> dims) {
  Tensor tensor(DType::kF32, std::move(dims));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, static_cast<double>(i % 23) / 8 - 1);
  return tensor;
}

std::vector<Tensor> run(Model& model) {
  model.bind({ramp(model.inputs().at(0).dims)});
  model.run();
  return model.results();
}

OpenOptions options_for(Engine engine, std::vector<std::string>* warnings) {
  OpenOptions options;
  options.engine = engine;
  options.cache = CacheUse::kNone;
  options.num_threads = 1;
  options.warn = [warnings](const std::string& text) { warnings->push_back(text); };
  return options;
}

TEST(Compile, FileAndMemoryHoldTheSameModule) {
  const TemporaryFolder folder;
  const std::string model = folder.write("conv.onnx", conv_model(1)), path = folder.path() / "conv.so";
  compile_file(model, path);
  const std::vector<std::byte> bytes = compile_to_memory(model);
  EXPECT_EQ(bytes.size(), std::filesystem::file_size(path));

  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_OK)
      << error.message;
  EXPECT_EQ(tessera_module_num_inputs(module), 1);
  EXPECT_EQ(tessera_module_num_outputs(module), 1);
  tessera_module_free(module);
}

TEST(Compile, ErrorsSayWhoseFaultItIs) {
  const TemporaryFolder folder;
  try {
    compile_file(folder.path() / "missing.onnx", folder.path() / "m.so");
    FAIL() << "no error";
  } catch (const CompileError& error) {
    EXPECT_FALSE(error.is_bug());
    EXPECT_EQ(error.details().id, "TSR-1001");
    EXPECT_THAT(error.what(), HasSubstr("missing.onnx"));
  }
  CompileOptions options;
  options.target = "pdp11";
  EXPECT_THROW(compile_to_memory(folder.write("conv.onnx", conv_model(1)), options), CompileError);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "m.so"));
}

TEST(Compile, ModelsInMemoryCompileToTheSameModule) {
  const TemporaryFolder folder;
  const std::string bytes = conv_model(4), path = folder.write("conv.onnx", bytes);
  const std::vector<std::byte> from_file = compile_to_memory(path);
  EXPECT_EQ(compile_to_memory(ModelBytes{bytes, "", "conv"}), from_file);
  compile_file(ModelBytes{bytes, "", "conv"}, folder.path() / "conv.so");
  EXPECT_EQ(from_file.size(), std::filesystem::file_size(folder.path() / "conv.so"));
  CompileOptions options;
  options.disabled_passes = {"no_such_pass"};
  try {
    compile_to_memory(ModelBytes{bytes, "", "conv"}, options);
    FAIL() << "no error";
  } catch (const CompileError& error) {
    EXPECT_EQ(error.details().id, "TSR-4020");
  }
}

TEST(Compile, TheInterpreterRunsModelsWithoutAModule) {
  const std::string bytes = conv_model(3);
  Interpreter interpreter(ModelBytes{bytes, "", "conv"});
  ASSERT_EQ(interpreter.inputs().size(), 1);
  EXPECT_STREQ(interpreter.inputs()[0].name, "x");
  ASSERT_EQ(interpreter.outputs().size(), 1);
  const tessera_tensor_info out = interpreter.outputs()[0];
  const std::vector<int64_t> dims(out.dims, out.dims + out.rank);
  Tensor x = ramp({1, 3, 12, 12}), y(DType::kF32, dims);
  tessera_tensor input = {x.mutable_bytes(), TESSERA_F32, 4, {1, 3, 12, 12}}, output = {};
  output.data = y.mutable_bytes();
  output.dtype = out.dtype;
  output.rank = out.rank;
  std::copy(dims.begin(), dims.end(), output.dims);
  interpreter.run({input}, {output});

  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  const OpenedModel native = open_model(folder.write("conv.onnx", bytes), options_for(Engine::kNative, &warnings));
  EXPECT_TRUE(tensors_agree(y, run(*native.model).at(0), 1e-6));

  const auto id_of = [&](const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) {
    try {
      interpreter.run(inputs, outputs);
    } catch (const CompileError& error) {
      return error.details().id;
    }
    return std::string("no error");
  };
  EXPECT_EQ(id_of({}, {output}), "TSR-6301");
  EXPECT_EQ(id_of({input}, {}), "TSR-6304");
  output.dims[0] = 2;
  EXPECT_EQ(id_of({input}, {output}), "TSR-6305");
}

TEST(Compile, CompiledCodeAgreesWithTheInterpreterAtEveryLevel) {
  const TemporaryFolder folder;
  const std::string path = folder.write("conv.onnx", conv_model(3));
  std::vector<std::string> warnings;
  const OpenedModel interpreted = open_model(path, options_for(Engine::kInterp, &warnings));
  const std::vector<Tensor> want = run(*interpreted.model);
  for (int level = 0; level <= 3; ++level) {
    OpenOptions options = options_for(Engine::kNative, &warnings);
    options.driver.compile.opt_level = level;
    options.driver.runner.verify_each = true;
    const OpenedModel compiled = open_model(path, options);
    EXPECT_TRUE(tensors_agree(run(*compiled.model).at(0), want.at(0), 1e-6)) << "-O" << level;
    EXPECT_GT(compiled.compile_seconds, 0);
  }
  EXPECT_TRUE(warnings.empty());
}

TEST(Compile, SeveralAtOnceDoNotDisturbEachOther) {
  const TemporaryFolder folder;
  constexpr int kModels = 3, kThreads = 4, kRounds = 3;
  std::vector<std::string> paths;
  std::vector<std::vector<std::byte>> alone;
  for (int i = 0; i < kModels; ++i) {
    paths.push_back(folder.write("conv" + std::to_string(i) + ".onnx", conv_model(i)));
    alone.push_back(compile_to_memory(paths.back()));
  }
  EXPECT_NE(alone[0], alone[1]);
  std::vector<int> equal(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        const auto model = static_cast<size_t>((t + round) % kModels);
        equal[static_cast<size_t>(t)] += compile_to_memory(paths[model]) == alone[model];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, Each(kRounds));
}

TEST(Compile, ModelsInMemoryRunFromMemory) {
  const TemporaryFolder folder;
  DriverOptions options;
  const Compiled compiled = compile_model(folder.write("conv.onnx", conv_model(2)), options);
  const std::unique_ptr<Model> from_memory = load_module(module_in_memory(compiled), "in memory", 1);
  write_module(compiled, folder.path() / "conv.so");
  const std::unique_ptr<Model> from_file = load_module(folder.path() / "conv.so", 1);
  EXPECT_TRUE(tensors_agree(run(*from_memory).at(0), run(*from_file).at(0), 0));
  EXPECT_EQ(from_memory->num_threads(), 1);
}

TEST(Compile, DigestIsOfEverythingInTheModel) {
  const auto digest = [](const std::string& bytes) {
    OnnxModel model;
    model.proto.ParseFromString(bytes);
    return model_digest({model.import(), nullptr});
  };
  EXPECT_EQ(digest(conv_model(1)), digest(conv_model(1)));
  EXPECT_NE(digest(conv_model(1)), digest(conv_model(2)));
  OnnxModel renamed;
  renamed.proto.ParseFromString(conv_model(1));
  renamed.graph().mutable_node(0)->set_name("another");
  EXPECT_NE(digest(renamed.bytes()), digest(conv_model(1)));
}

}  // namespace
}  // namespace tessera
