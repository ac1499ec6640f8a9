#include "tune/cost_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include <fmt/format.h>
#include <xgboost/c_api.h>

#include "support/error.h"
#include "tune/cost_model_file.h"
#include "tune/features.h"
#include "tune/pretrained.h"

namespace tessera::inline tune {

namespace {

constexpr char kVersionAttribute[] = "tessera_features";

void succeed(int code, const char* what) {
  if (code != 0) throw InternalError(fmt::format("{}: {}", what, XGBGetLastError()));
}

// Rows of features as XGBoost wants them.
class Matrix {
 public:
  explicit Matrix(const std::vector<const std::vector<float>*>& rows) {
    std::vector<float> flat;
    for (const auto* row : rows) flat.insert(flat.end(), row->begin(), row->end());
    succeed(XGDMatrixCreateFromMat(flat.data(), rows.size(), num_program_features(), -1e30f, &handle_), "a matrix");
  }
  ~Matrix() { XGDMatrixFree(handle_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  DMatrixHandle get() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

}  // namespace

struct CostModel::Trees {
  BoosterHandle booster = nullptr;

  ~Trees() { reset(nullptr); }
  void reset(BoosterHandle other) {
    if (booster) XGBoosterFree(booster);
    booster = other;
  }
};

CostModel::CostModel() : trees_(std::make_unique<Trees>()) {}
CostModel::~CostModel() = default;

bool CostModel::ready() const { return trees_->booster != nullptr; }

void CostModel::add(const std::string& group, const LoopProgram& program, double gain) {
  group_of_.push_back(groups_.try_emplace(group, groups_.size()).first->second);
  features_.push_back(program_features(program));
  gains_.push_back(static_cast<float>(gain));
}

void CostModel::fit(int rounds) {
  if (features_.empty()) return;
  // Rows of a group stand together.
  std::vector<size_t> order(features_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return group_of_[a] < group_of_[b]; });
  std::vector<const std::vector<float>*> rows;
  std::vector<float> labels;
  std::vector<unsigned> sizes(groups_.size(), 0);
  for (const size_t i : order) {
    rows.push_back(&features_[i]);
    labels.push_back(gains_[i]);
    ++sizes[group_of_[i]];
  }
  const Matrix data(rows);
  succeed(XGDMatrixSetFloatInfo(data.get(), "label", labels.data(), labels.size()), "labels");
  succeed(XGDMatrixSetUIntInfo(data.get(), "group", sizes.data(), sizes.size()), "groups");
  const DMatrixHandle seen[] = {data.get()};
  BoosterHandle booster = nullptr;
  succeed(XGBoosterCreate(seen, 1, &booster), "a model");
  trees_->reset(booster);
  int first = 0;
  if (has_base()) {
    succeed(XGBoosterLoadModelFromBuffer(booster, base_.data(), base_.size()), "a loaded model");
    succeed(XGBoosterBoostedRounds(booster, &first), "rounds of a loaded model");
  }
  const std::pair<const char*, const char*> parameters[] = {
      {"objective", "rank:pairwise"}, {"num_pairsample", "16"}, {"max_depth", "5"}, {"eta", "0.1"},
      {"min_child_weight", "1"},      {"lambda", "1"},          {"nthread", "1"},   {"verbosity", "0"},
      {"tree_method", "exact"},       {"subsample", "1"},       {"seed", "1"}};
  for (const auto& [name, value] : parameters) succeed(XGBoosterSetParam(booster, name, value), name);
  for (int round = first; round < first + rounds; ++round)
    succeed(XGBoosterUpdateOneIter(booster, round, data.get()), "training");
  succeed(XGBoosterSetAttr(booster, kVersionAttribute, kFeatureVersion), "a version");
}

std::vector<double> CostModel::predict(const std::vector<const LoopProgram*>& programs) const {
  check(ready(), "a model without trees predicts nothing");
  std::vector<std::vector<float>> features;
  for (const LoopProgram* program : programs) features.push_back(program_features(*program));
  std::vector<const std::vector<float>*> rows;
  for (const auto& row : features) rows.push_back(&row);
  const Matrix data(rows);
  bst_ulong count = 0;
  const float* scores = nullptr;
  succeed(XGBoosterPredict(trees_->booster, data.get(), 0, 0, 0, &count, &scores), "a prediction");
  check(count == programs.size(), "a prediction has one score for each program");
  return {scores, scores + count};
}

void CostModel::save(const std::string& path) const {
  check(ready(), "a model without trees cannot be saved");
  if (XGBoosterSaveModel(trees_->booster, path.c_str()) != 0)
    throw UserError({.id = "TSR-6405",
                     .message = fmt::format("the cost model '{}' cannot be written", path),
                     .node = {},
                     .legal = "a file name that ends in .json, in a folder that can be written to",
                     .hint = {}});
}

bool CostModel::load_base(std::string bytes) {
  BoosterHandle booster = nullptr;
  succeed(XGBoosterCreate(nullptr, 0, &booster), "a model");
  bst_ulong features = 0;
  const char* version = nullptr;
  int has_version = 0;
  const bool good = XGBoosterLoadModelFromBuffer(booster, bytes.data(), bytes.size()) == 0 &&
                    XGBoosterGetNumFeature(booster, &features) == 0 && features == num_program_features() &&
                    XGBoosterGetAttr(booster, kVersionAttribute, &version, &has_version) == 0 && has_version != 0 &&
                    version == std::string(kFeatureVersion);
  if (!good) {
    XGBoosterFree(booster);
    return false;
  }
  succeed(XGBoosterSetParam(booster, "nthread", "1"), "nthread");
  trees_->reset(booster);
  base_ = std::move(bytes);
  return true;
}

void CostModel::load(const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file.is_open())
    throw UserError({.id = "TSR-6405",
                     .message = std::filesystem::exists(path, error)
                                    ? fmt::format("the cost model '{}' cannot be read", path)
                                    : fmt::format("there is no cost model '{}'", path),
                     .node = {},
                     .legal = "pretrained, none, or a file that 'tessera tune --save-model' or 'tessera db train' has "
                              "written",
                     .hint = "check the path and its permissions"});
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() > kMostBytes || !is_tree_model(bytes, num_program_features()) || !load_base(std::move(bytes)))
    throw UserError(
        {.id = "TSR-6405",
         .message = fmt::format("'{}' is no cost model of this version", path),
         .node = {},
         .legal = fmt::format("a model of {} features that 'tessera tune --save-model' or 'tessera db train' "
                              "has written",
                              num_program_features()),
         .hint = "leave --cost-model out, and train a new one"});
}

void CostModel::load_pretrained() {
  const auto [data, size] = pretrained_cost_model();
  check(load_base(std::string(reinterpret_cast<const char*>(data), size)),
        "the cost model of this build is of other features: bench/cost_model.py train makes a new one");
}

}  // namespace tessera::inline tune
