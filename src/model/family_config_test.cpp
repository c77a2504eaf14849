// Settings of the families whose layers differ most: Gemma 4, Mamba-2 and latent attention; nonsense in those of the
// others.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// Metadata of a small model, and the tensors that settings depend on.
class FamilyFile final : public ModelFile {
 public:
  explicit FamilyFile(std::string architecture) : architecture_(std::move(architecture)) {
    values_.insert_or_assign("general.architecture", MetadataValue(architecture_));
    set("block_count", 4);
    set("context_length", 64);
    set("embedding_length", 32);
    set("feed_forward_length", 48);
    set("attention.head_count", 4);
    set("attention.head_count_kv", 2);
    set("attention.layer_norm_rms_epsilon", MetadataValue(1e-6F));
    add_tensor(std::string(kEmbeddingTensor), Shape(100, 32));
  }
  void set(const std::string& key, MetadataValue value) {
    values_.insert_or_assign(architecture_ + "." + key, std::move(value));
  }
  void set(const std::string& key, uint32_t value) { set(key, MetadataValue(value)); }
  void add_tensor(const std::string& name, const Shape& shape, float value = 0) {
    FileTensor tensor;
    tensor.name = name;
    tensor.dtype = DType::f32;
    tensor.shape = shape;
    tensors_.insert_or_assign(name, tensor);
    contents_[name] = value;
  }

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return {}; }
  [[nodiscard]] size_t tensor_count() const override { return tensors_.size(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override {
    return std::next(tensors_.begin(), static_cast<ptrdiff_t>(index))->second;
  }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t /*begin*/) const override {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(&contents_.at(tensor.name), 1));
    std::copy_n(bytes.begin(), out.size(), out.begin());
  }

 private:
  std::string architecture_;
  std::string path_ = "file";
  std::map<std::string, MetadataValue, std::less<>> values_;
  std::map<std::string, FileTensor, std::less<>> tensors_;
  std::map<std::string, float> contents_;
};

std::string refusal(const ModelFile& file) {
  try {
    (void)read_config(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

MetadataValue sizes(std::vector<int32_t> values) {
  return MetadataValue(MetadataArray{std::move(values)});
}
MetadataValue flags(std::vector<bool> values) {
  return MetadataValue(MetadataArray{std::move(values)});
}

// No value that makes no sense is accepted, and each is named in one line.
template <typename Make>
void expect_no_nonsense(Make make, const std::vector<std::string>& keys, bool zero_is_none = false) {
  for (const std::string& key : keys) {
    std::vector<MetadataValue> values = {MetadataValue(int32_t{-1}), MetadataValue(uint64_t{1} << 63),
                                         MetadataValue(NAN), MetadataValue(std::string("4"))};
    if (!zero_is_none) values.emplace_back(uint32_t{0});
    for (const MetadataValue& value : values) {
      FamilyFile file = make();
      file.set(key, value);
      const std::string error = refusal(file);
      EXPECT_NE(error.find(key), std::string::npos) << key << ": " << error;
      EXPECT_EQ(error.find('\n'), std::string::npos);
    }
  }
}

FamilyFile gemma4() {
  FamilyFile file("gemma4");
  file.set("attention.key_length", 16);
  file.set("attention.value_length", 16);
  file.set("attention.key_length_swa", 8);
  file.set("attention.value_length_swa", 8);
  file.set("rope.dimension_count", 16);
  file.set("rope.dimension_count_swa", 8);
  file.set("attention.sliding_window", 8);
  file.set("attention.sliding_window_pattern", flags({true, false, true, false}));
  file.set("attention.head_count_kv", sizes({2, 1, 2, 1}));
  return file;
}

TEST(FamilyConfig, GemmasLayersWithAWindowHaveHeadsOfTheirOwn) {
  FamilyFile file = gemma4();
  file.add_tensor("blk.1.attn_k.weight", Shape(16, 32));
  file.add_tensor("blk.2.layer_output_scale.weight", Shape(1), 0.25F);
  const ModelConfig config = read_config(file);
  EXPECT_EQ(config.layers[0].head_dim, 8);
  EXPECT_EQ(config.layers[1].head_dim, 16);
  EXPECT_EQ(config.layers[0].window, 8);
  EXPECT_EQ(config.layers[1].window, 0);
  EXPECT_EQ(config.ropes.at(static_cast<size_t>(config.layers[0].rope)).rotated_dims, 8);
  EXPECT_EQ(config.ropes.at(static_cast<size_t>(config.layers[1].rope)).rotated_dims, 16);
  EXPECT_EQ(config.layers[0].attention_scale, 1);
  EXPECT_FALSE(config.layers[0].v_is_k);
  EXPECT_TRUE(config.layers[1].v_is_k) << "a key and no value";
  EXPECT_EQ(config.layers[1].output_scale, 1);
  EXPECT_EQ(config.layers[2].output_scale, 0.25F);
}

TEST(FamilyConfig, GemmasLastLayersReadTheCacheOfTheLastOfTheirKind) {
  FamilyFile file = gemma4();
  file.set("block_count", 6);
  file.set("attention.sliding_window_pattern", flags({true, false, true, true, false, true}));
  file.set("attention.head_count_kv", sizes({2, 1, 2, 2, 1, 2}));
  file.set("attention.shared_kv_layers", 3);
  const ModelConfig config = read_config(file);
  const std::vector<int32_t> sources = {kOwnCache, kOwnCache, kOwnCache, 2, 1, 2};
  for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(config.layers[i].kv_source, sources[i]) << i;
  file.set("attention.shared_kv_layers", 5);
  EXPECT_EQ(refusal(file),
            "\"file\": gemma4.attention.shared_kv_layers is 5, but no layer before these has the keys of layer 1");
  file.set("attention.shared_kv_layers", 6);
  EXPECT_EQ(refusal(file), "\"file\": gemma4.attention.shared_kv_layers is 6 of 6 layers");
  file.set("attention.shared_kv_layers", 3);
  file.set("attention.head_count_kv", sizes({2, 1, 2, 4, 1, 2}));
  EXPECT_NE(refusal(file).find("the keys of layer 3"), std::string::npos) << "as many heads are needed";
}

TEST(FamilyConfig, NonsenseInGemmasKeysIsRefused) {
  expect_no_nonsense(gemma4, {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa",
                              "rope.freq_base_swa", "attention.sliding_window", "final_logit_softcapping"});
  expect_no_nonsense(gemma4, {"attention.shared_kv_layers", "embedding_length_per_layer_input", "expert_count"}, true);
  FamilyFile file = gemma4();
  file.set("attention.sliding_window_pattern", flags({true}));
  EXPECT_EQ(refusal(file), "\"file\": gemma4.attention.sliding_window_pattern has 1 entries for 4 layers");
  file = gemma4();
  file.set("rope.dimension_count_swa", 10);
  EXPECT_EQ(refusal(file), "\"file\": gemma4.rope.dimension_count_swa is 10, must be even and at most the head's 8");
  file = gemma4();
  file.set("feed_forward_length", sizes({48, 0, 48, 48}));
  EXPECT_EQ(refusal(file), "\"file\": gemma4.feed_forward_length is 0 and a layer has no experts");
  file = gemma4();
  file.set("embedding_length_per_layer_input", 1 << 23);
  EXPECT_NE(refusal(file).find("embedding_length_per_layer_input is 8388608, must be 1 to 4194304"), std::string::npos);
  for (const float value : {NAN, INFINITY}) {
    file = gemma4();
    file.add_tensor("blk.1.layer_output_scale.weight", Shape(1), value);
    EXPECT_NE(refusal(file).find("blk.1.layer_output_scale.weight holds"), std::string::npos);
  }
  file = gemma4();
  file.add_tensor("blk.1.layer_output_scale.weight", Shape(2));
  EXPECT_EQ(refusal(file), "\"file\": blk.1.layer_output_scale.weight must be one value of type F32");
}

TEST(FamilyConfig, NonsenseInTheKeysOfDenseFamiliesIsRefused) {
  struct Family {
    const char* architecture;
    std::vector<std::string> keys;
    std::vector<std::string> keys_that_may_be_zero;
  };
  const std::vector<Family> families = {
      {"gemma3", {"attention.sliding_window", "rope.freq_base_swa", "final_logit_softcapping"}, {}},
      {"gemma2", {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"}, {}},
      {"granite", {"embedding_scale", "residual_scale", "logit_scale", "attention.scale"}, {}},
      {"mistral3", {"attention.temperature_scale"}, {}},
      {"olmo2", {"attention.sliding_window", "rope.freq_base_swa"}, {}},
      {"phi3", {}, {"attention.sliding_window"}},
      {"smollm3", {"rope.freq_base", "attention.key_length"}, {}},
      {"seed_oss", {"rope.dimension_count", "attention.value_length"}, {}},
  };
  for (const Family& family : families) {
    const auto make = [&] {
      FamilyFile file(family.architecture);
      file.set("attention.sliding_window", 8);
      file.set("rope.scaling.original_context_length", 32);
      return file;
    };
    expect_no_nonsense(make, family.keys);
    expect_no_nonsense(make, family.keys_that_may_be_zero, true);
  }
  const auto yarn = [] {
    FamilyFile file("mistral3");
    file.set("rope.scaling.type", MetadataValue(std::string("yarn")));
    file.set("rope.scaling.factor", MetadataValue(4.0F));
    file.set("rope.scaling.original_context_length", 32);
    return file;
  };
  expect_no_nonsense(yarn, {"rope.scaling.factor", "rope.scaling.original_context_length",
                            "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.attn_factor"});
}

void add_mamba(FamilyFile& file) {
  file.set("ssm.conv_kernel", 4);
  file.set("ssm.state_size", 16);
  file.set("ssm.group_count", 2);
  file.set("ssm.time_step_rank", 4);
  file.set("ssm.inner_size", 64);
  file.set("attention.head_count_kv", sizes({0, 2, 0, 0}));
}
FamilyFile granite() {
  FamilyFile file("granitehybrid");
  add_mamba(file);
  return file;
}
FamilyFile nemotron() {
  FamilyFile file("nemotron_h");
  add_mamba(file);
  file.set("feed_forward_length", sizes({0, 0, 48, 0}));
  return file;
}

TEST(FamilyConfig, LayersOfNemotronAreOneOfThreeKinds) {
  const ModelConfig config = read_config(nemotron());
  EXPECT_EQ(config.layers[0].mixer, Mixer::mamba2);
  EXPECT_EQ(config.layers[1].mixer, Mixer::attention);
  EXPECT_EQ(config.layers[2].mixer, Mixer::none);
  EXPECT_FALSE(config.layers[0].mlp || config.layers[1].mlp);
  EXPECT_TRUE(config.layers[2].mlp);
  EXPECT_EQ(config.layers[1].rope, kNoRope);
  const RecurrentConfig& r = config.layers[0].recurrent;
  EXPECT_EQ(r.conv_channels, 64 + 2 * 2 * 16);
  EXPECT_EQ(r.conv_floats(), 3 * 128);
  EXPECT_EQ(r.matrix_floats(), 64 * 16);
  FamilyFile both = nemotron();
  both.set("feed_forward_length", sizes({0, 48, 48, 0}));
  EXPECT_EQ(refusal(both),
            "\"file\": layer 1 has both attention and an MLP (nemotron_h.attention.head_count_kv, "
            "nemotron_h.feed_forward_length)");
  FamilyFile none = nemotron();
  none.set("attention.head_count_kv", sizes({0, 0, 0, 0}));
  EXPECT_EQ(refusal(none), "\"file\" has no layer with attention, which inferno needs");
}

TEST(FamilyConfig, GraniteRotatesUnlessTheFileSaysOtherwise) {
  FamilyFile file = granite();
  EXPECT_EQ(read_config(file).layers[1].rope, 0);
  file.set("rope.scaling.finetuned", MetadataValue(false));
  EXPECT_EQ(read_config(file).layers[1].rope, kNoRope);
  EXPECT_EQ(read_config(file).layers[0].ffn, 48);
}

TEST(FamilyConfig, NonsenseInTheKeysOfMamba2IsRefused) {
  const std::vector<std::string> keys = {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
                                         "ssm.inner_size"};
  expect_no_nonsense(granite, keys);
  expect_no_nonsense(nemotron, keys);
  FamilyFile file = granite();
  file.set("ssm.conv_kernel", 1);
  EXPECT_EQ(refusal(file), "\"file\": granitehybrid.ssm.conv_kernel is 1, must be 2 or more");
  file = granite();
  file.set("ssm.group_count", 3);
  EXPECT_EQ(refusal(file),
            "\"file\": 4 heads do not divide into 3 groups (granitehybrid.ssm.time_step_rank, "
            "granitehybrid.ssm.group_count)");
  for (const uint32_t inner : {62U, 72U, 65536U}) {
    file = granite();
    file.set("ssm.inner_size", inner);
    EXPECT_NE(refusal(file).find("must be 4 heads of 4, 8, 12 ... 1024 elements"), std::string::npos) << inner;
  }
  file = nemotron();
  file.set("feed_forward_length", sizes({0, 0, 48}));
  EXPECT_EQ(refusal(file), "\"file\": nemotron_h.feed_forward_length has 3 entries for 4 layers");
}

FamilyFile latent() {
  FamilyFile file("deepseek2");
  file.set("attention.head_count_kv", 1);
  file.set("attention.key_length", 24);
  file.set("attention.value_length", 16);
  file.set("attention.key_length_mla", 12);
  file.set("attention.value_length_mla", 6);
  file.set("attention.kv_lora_rank", 16);
  file.set("rope.dimension_count", 8);
  return file;
}

TEST(FamilyConfig, LatentAttentionHasOneRowForAllHeads) {
  FamilyFile file = latent();
  const ModelConfig config = read_config(file);
  const LayerConfig& layer = config.layers[0];
  EXPECT_EQ(layer.mixer, Mixer::latent_attention);
  EXPECT_EQ(layer.kv_heads, 1);
  EXPECT_EQ(layer.head_dim, 24);
  EXPECT_EQ(layer.value_dim(), 16);
  EXPECT_EQ(layer.latent.kept, 4);
  EXPECT_EQ(layer.latent.query_rank, 0);
  EXPECT_FLOAT_EQ(layer.attention_scale, 1 / std::sqrt(12.0F));
  file.set("rope.scaling.type", MetadataValue(std::string("yarn")));
  file.set("rope.scaling.factor", MetadataValue(40.0F));
  file.set("rope.scaling.original_context_length", 32);
  file.set("rope.scaling.yarn_log_multiplier", MetadataValue(0.1F));
  const auto growth = static_cast<float>(std::pow(0.1 * std::log(40.0) + 1, 2));
  EXPECT_NEAR(read_config(file).layers[0].attention_scale, growth / std::sqrt(12.0F), 1e-6F);
  EXPECT_EQ(read_config(file).ropes[0].magnitude, 1);
}

TEST(FamilyConfig, NonsenseInTheKeysOfLatentAttentionIsRefused) {
  expect_no_nonsense(latent, {"attention.kv_lora_rank", "attention.q_lora_rank", "attention.key_length_mla",
                              "attention.value_length_mla"});
  FamilyFile file = latent();
  file.set("attention.key_length_mla", 8);
  EXPECT_EQ(refusal(file),
            "\"file\": deepseek2.attention.key_length_mla is 8, must be more than the 8 elements that rotate");
  file = latent();
  file.set("attention.head_count_kv", 2);
  EXPECT_NE(refusal(file).find("2 key-value heads of 24 and 16 elements, must be 1 of 24 and 16"), std::string::npos);
  file = latent();
  file.set("attention.kv_lora_rank", 32);
  EXPECT_NE(refusal(file).find("must be 1 of 40 and 32 (deepseek2.attention.kv_lora_rank"), std::string::npos);
  file = latent();
  file.set("rope.scaling.type", MetadataValue(std::string("yarn")));
  file.set("rope.scaling.factor", MetadataValue(40.0F));
  file.set("rope.scaling.original_context_length", 32);
  for (const float multiplier : {NAN, INFINITY, -1e30F, -1.0F}) {
    file.set("rope.scaling.yarn_log_multiplier", MetadataValue(multiplier));
    EXPECT_NE(refusal(file).find("yarn_log_multiplier"), std::string::npos) << multiplier;
  }
}

TEST(FamilyConfig, GroupsOfExpertsMustFit) {
  const auto with = [](uint32_t groups, uint32_t used) {
    FamilyFile file = latent();
    file.set("expert_count", 8);
    file.set("expert_used_count", 3);
    file.set("expert_group_count", groups);
    file.set("expert_group_used_count", used);
    return file;
  };
  const ModelConfig config = read_config(with(4, 2));
  const Routing& routing = config.layers[0].experts.routing;
  EXPECT_EQ(routing.groups, 4);
  EXPECT_EQ(routing.groups_used, 2);
  EXPECT_EQ(refusal(with(1, 1)), "");
  EXPECT_EQ(refusal(with(3, 1)), "\"file\": deepseek2.expert_group_count is 3, which does not divide 8 experts");
  EXPECT_EQ(refusal(with(4, 1)), "\"file\": deepseek2.expert_used_count is 3, more experts than 1 groups of 2 have");
  EXPECT_EQ(refusal(with(4, 5)), "\"file\": deepseek2.expert_group_used_count is 5, must be 1 to 4");
  EXPECT_EQ(refusal(with(4, 0)), "\"file\": deepseek2.expert_group_used_count is 0, must be 1 to 4");
  EXPECT_EQ(refusal(with(128, 1)), "\"file\": deepseek2.expert_group_count is 128, must be 1 to 64");
}

}  // namespace
}  // namespace inferno
