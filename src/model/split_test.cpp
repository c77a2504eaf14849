#include "model/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace inferno {
namespace {

// Only names and types: nothing is read.
class NamedTensors final : public ModelFile {
 public:
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] const MetadataValue* find(std::string_view /*key*/) const override { return nullptr; }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return {}; }
  [[nodiscard]] size_t tensor_count() const override { return 0; }
  [[nodiscard]] const FileTensor& tensor(size_t /*index*/) const override { return tensors_.begin()->second; }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second;
  }
  void read_tensor(const FileTensor& /*t*/, std::span<std::byte> /*out*/, uint64_t /*begin*/) const override {}

  void set(const std::string& name, DType dtype) { tensors_[name].dtype = dtype; }

 private:
  std::string path_ = "test.gguf";
  std::map<std::string, FileTensor> tensors_;
};

struct Sizes {
  int32_t q_heads = 8, kv_heads = 4, head_dim = 64, ffn = 1280;
  DType type = DType::q4_k;
};

struct Case {
  explicit Case(const Sizes& sizes) {
    config.width = 512;
    config.vocabulary = 1000;
    config.layers.resize(1);
    LayerConfig& layer = config.layers[0];
    layer.q_heads = sizes.q_heads;
    layer.kv_heads = sizes.kv_heads;
    layer.head_dim = sizes.head_dim;
    layer.ffn = sizes.ffn;
    file.set("blk.0.attn_output.weight", sizes.type);
    file.set("blk.0.ffn_down.weight", sizes.type);
  }
  [[nodiscard]] std::vector<ModelShare> split(int ranks, const std::vector<int32_t>& sizes = {}) const {
    return split_model(file, config, ranks, sizes);
  }
  [[nodiscard]] std::string error(int ranks, const std::vector<int32_t>& sizes = {}) const {
    try {
      (void)split(ranks, sizes);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  ModelConfig config;
  NamedTensors file;
};

TEST(Split, OneRankHasEverything) {
  const Case c({});
  const std::vector<ModelShare> shares = c.split(1);
  ASSERT_EQ(shares.size(), 1U);
  EXPECT_TRUE(shares[0].is_whole());
  EXPECT_EQ(shares[0].vocabulary, (Part{0, 1000}));
  EXPECT_EQ(shares[0].layers[0].q_heads, (Part{0, 8}));
}

TEST(Split, SharesCoverEverythingOnceAtTheEdgesOfBlocks) {
  const Case c({});
  const std::vector<ModelShare> shares = c.split(2);
  EXPECT_EQ(shares[0].layers[0].kv_heads, (Part{0, 2}));
  EXPECT_EQ(shares[0].layers[0].q_heads, (Part{0, 4}));
  EXPECT_EQ(shares[1].layers[0].q_heads, (Part{4, 4}));
  // Five blocks of 256.
  EXPECT_EQ(shares[0].layers[0].ffn, (Part{0, 768}));
  EXPECT_EQ(shares[1].layers[0].ffn, (Part{768, 512}));
  EXPECT_EQ(shares[0].vocabulary.count + shares[1].vocabulary.count, 1000);
  EXPECT_EQ(shares[1].vocabulary.begin, shares[0].vocabulary.count);
  const ModelConfig second = config_of(c.config, shares[1]);
  EXPECT_EQ(second.layers[0].q_heads, 4);
  EXPECT_EQ(second.layers[0].kv_heads, 2);
  EXPECT_EQ(second.layers[0].ffn, 512);
  EXPECT_EQ(second.width, 512);
}

TEST(Split, UnequalMachinesGetUnequalParts) {
  const Case c({.q_heads = 32, .kv_heads = 8, .ffn = 4096, .type = DType::q8_0});
  const std::vector<ModelShare> shares = c.split(2, {3, 1});
  EXPECT_EQ(shares[0].layers[0].kv_heads, (Part{0, 6}));
  EXPECT_EQ(shares[1].layers[0].q_heads, (Part{24, 8}));
  EXPECT_EQ(shares[0].layers[0].ffn, (Part{0, 3072}));
}

TEST(Split, FewerKvHeadsThanRanksAreRepeated) {
  const Case c({.q_heads = 16, .kv_heads = 2, .head_dim = 128, .ffn = 2048, .type = DType::q4_k});
  const std::vector<ModelShare> shares = c.split(4);
  EXPECT_EQ(shares[1].layers[0].kv_heads, (Part{0, 1}));
  EXPECT_EQ(shares[1].layers[0].q_heads, (Part{4, 4}));
  EXPECT_EQ(shares[2].layers[0].kv_heads, (Part{1, 1}));
  EXPECT_EQ(shares[3].layers[0].q_heads, (Part{12, 4}));
}

TEST(Split, WhatCannotBeCutIsAnErrorThatNamesIt) {
  EXPECT_NE(Case({}).error(4).find("blk.0.attn_output.weight"), std::string::npos) << Case({}).error(4);
  EXPECT_NE(Case({.ffn = 256}).error(2).find("blk.0.ffn_down.weight"), std::string::npos);
  const Case odd({.q_heads = 24, .kv_heads = 2, .type = DType::f32});
  EXPECT_NE(odd.error(3).find("2 kv heads cannot be divided among 3 ranks"), std::string::npos) << odd.error(3);
  EXPECT_NE(odd.error(25).find("24 attention heads, fewer than the 25 ranks"), std::string::npos);
  EXPECT_NE(Case({}).error(2, {1, 2, 3}).find("3 sizes for 2 ranks"), std::string::npos);
  EXPECT_NE(Case({}).error(2, {1, 0}).find("1 or more"), std::string::npos);
  Case recurrent({});
  recurrent.config.layers[0].mixer = Mixer::short_conv;
  EXPECT_NE(recurrent.error(2).find("is recurrent"), std::string::npos);
  Case rows({});
  rows.config.layers[0].qk_norm = QkNorm::rows;
  EXPECT_NE(rows.error(2).find("normalizes whole rows"), std::string::npos);
}

// Layers whose matrices are all alike; the embedding has as many bytes as `embedding` of them.
std::vector<Part> stages_of(int32_t layers, int64_t embedding, int stages, const std::vector<int32_t>& sizes = {},
                            int ranks = 0) {
  Case c({.type = DType::f32});
  c.config.layers.resize(static_cast<size_t>(layers), c.config.layers[0]);
  // Only two tensors of a layer have bytes here.
  for (int32_t i = 0; i < layers; ++i) {
    c.file.set("blk." + std::to_string(i) + ".attn_output.weight", DType::f32);
    c.file.set("blk." + std::to_string(i) + ".ffn_down.weight", DType::f32);
  }
  c.file.set("token_embd.weight", DType::f32);
  const int64_t layer = int64_t{512} * (512 + 1280);
  c.config.vocabulary = static_cast<int32_t>(std::max<int64_t>(embedding * layer / 512, 64));
  std::vector<Part> parts;
  for (const ModelShare& share : split_model(c.file, c.config, ranks == 0 ? stages : ranks, sizes, stages)) {
    parts.push_back(share.own_layers);
  }
  return parts;
}

TEST(Split, StagesHaveLayersByBytesWithTheEndsOnTheFirst) {
  EXPECT_EQ(stages_of(8, 0, 2), (std::vector<Part>{{0, 4}, {4, 4}}));
  EXPECT_EQ(stages_of(8, 2, 2), (std::vector<Part>{{0, 3}, {3, 5}}));
  EXPECT_EQ(stages_of(8, 100, 2), (std::vector<Part>{{0, 1}, {1, 7}}));
  EXPECT_EQ(stages_of(8, 0, 2, {3, 1}), (std::vector<Part>{{0, 6}, {6, 2}}));
  EXPECT_EQ(stages_of(7, 0, 3).back().begin + stages_of(7, 0, 3).back().count, 7);
  // Ranks of a stage have the same layers; its size is theirs together.
  EXPECT_EQ(stages_of(8, 0, 2, {3, 3, 1, 1}, 4), (std::vector<Part>{{0, 6}, {0, 6}, {6, 2}, {6, 2}}));
}

TEST(Split, LayersThatShareACacheStayInOneStage) {
  Case c({.type = DType::f32});
  c.config.layers.resize(6, c.config.layers[0]);
  c.config.layers[3].kv_source = 1;
  c.config.layers[4].kv_source = 0;
  for (const ModelShare& share : split_model(c.file, c.config, 2, {}, 2)) {
    EXPECT_EQ(share.own_layers, share.stage == 0 ? (Part{0, 5}) : (Part{5, 1}));
  }
  c.config.layers[5].kv_source = 0;
  EXPECT_THROW((void)split_model(c.file, c.config, 2, {}, 2), Error);
  c.config.layers[5] = c.config.layers[0];
  c.config.layers[5].mixer = Mixer::delta_net;
  EXPECT_THROW((void)split_model(c.file, c.config, 2, {}, 2), Error);
}

}  // namespace
}  // namespace inferno
