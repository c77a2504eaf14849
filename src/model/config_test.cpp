#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// A file of metadata alone: a small model whose embedding nobody reads.
class Settings final : public ModelFile {
 public:
  explicit Settings(const std::string& architecture) {
    const auto number = [&](const char* key, uint32_t value) { set(architecture + "." + key, MetadataValue(value)); };
    set("general.architecture", MetadataValue(architecture));
    number("block_count", 3);
    number("context_length", 64);
    number("embedding_length", 32);
    number("feed_forward_length", 48);
    number("attention.head_count", 4);
    number("attention.head_count_kv", 2);
    set(architecture + ".attention.layer_norm_rms_epsilon", MetadataValue(1e-6F));
    embedding_.name = kEmbeddingTensor;
    embedding_.dtype = DType::f32;
    embedding_.shape = Shape(100, 32);
  }
  void set(const std::string& key, MetadataValue value) { values_.insert_or_assign(key, std::move(value)); }

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return {}; }
  [[nodiscard]] size_t tensor_count() const override { return 1; }
  [[nodiscard]] const FileTensor& tensor(size_t /*index*/) const override { return embedding_; }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override {
    return name == embedding_.name ? &embedding_ : nullptr;
  }
  void read_tensor(const FileTensor& /*tensor*/, std::span<std::byte> /*out*/, uint64_t /*begin*/) const override {}

 private:
  std::string path_ = "settings";
  std::map<std::string, MetadataValue, std::less<>> values_;
  FileTensor embedding_;
};

MetadataValue ints(std::vector<int32_t> values) {
  return MetadataValue(MetadataArray{std::move(values)});
}

std::string error_of(const ModelFile& file) {
  try {
    (void)read_config(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Config, OneValueHoldsForEveryLayer) {
  const ModelConfig config = read_config(Settings("qwen3"));
  EXPECT_EQ(config.vocabulary, 100);
  ASSERT_EQ(config.layer_count(), 3);
  for (const LayerConfig& layer : config.layers) {
    EXPECT_EQ(layer.q_heads, 4);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.head_dim, 8);
    EXPECT_EQ(layer.ffn, 48);
    EXPECT_EQ(layer.qk_norm, QkNorm::heads);
    EXPECT_FALSE(layer.qkv_bias);
    EXPECT_EQ(config.ropes.at(static_cast<size_t>(layer.rope)).rotated_dims, 8);
  }
}

TEST(Config, AnArrayHoldsAValuePerLayer) {
  Settings file("llama");
  file.set("llama.attention.head_count", ints({4, 8, 2}));
  file.set("llama.feed_forward_length", ints({16, 32, 64}));
  file.set("llama.attention.head_count_kv", ints({2, 4, 1}));
  const ModelConfig config = read_config(file);
  EXPECT_EQ(config.layers[1].q_heads, 8);
  EXPECT_EQ(config.layers[2].q_heads, 2);
  EXPECT_EQ(config.layers[2].ffn, 64);
  EXPECT_EQ(config.layers[1].kv_heads, 4);
  EXPECT_EQ(config.layers[2].kv_width(), 8);
  EXPECT_EQ(config.layers[2].head_dim, 8);
  EXPECT_EQ(config.attention_width(), 64);
  EXPECT_EQ(config.ffn(), 64);
}

TEST(Config, AnArrayThatDoesNotFitTheLayersIsAnErrorNamingTheKey) {
  const auto with = [](const char* key, MetadataValue value) {
    Settings file("llama");
    file.set(key, std::move(value));
    return error_of(file);
  };
  EXPECT_EQ(with("llama.feed_forward_length", ints({16, 32})),
            "\"settings\": llama.feed_forward_length has 2 entries for 3 layers");
  EXPECT_EQ(with("llama.feed_forward_length", ints({16, 0, 32})),
            "\"settings\": llama.feed_forward_length is 0 and a layer has no experts");
  EXPECT_EQ(with("llama.feed_forward_length", ints({16, -1, 32})),
            "\"settings\": llama.feed_forward_length[1] is -1, must be 0 to 16777216");
  EXPECT_NE(with("llama.feed_forward_length", MetadataValue(MetadataArray{std::vector<bool>{true, true, true}}))
                .find("\"llama.feed_forward_length\" must be an array of whole numbers"),
            std::string::npos);
  EXPECT_EQ(with("llama.attention.head_count", ints({4, 4, 3})),
            "\"settings\": 3 query heads cannot share 2 key-value heads evenly");
  EXPECT_EQ(with("llama.attention.head_count_kv", ints({2, 0, 2})),
            "\"settings\": llama.attention.head_count_kv[1] is 0, must be 1 to 16777216");
  EXPECT_EQ(with("llama.attention.head_count_kv", ints({2, -1, 2})),
            "\"settings\": llama.attention.head_count_kv[1] is -1, must be 0 to 16777216");
}

TEST(Config, LayersThatPredictAheadAreNoPartOfTheModel) {
  Settings file("qwen3");
  file.set("qwen3.nextn_predict_layers", MetadataValue(uint32_t{1}));
  EXPECT_EQ(read_config(file).layer_count(), 2);
  file.set("qwen3.nextn_predict_layers", MetadataValue(uint32_t{3}));
  EXPECT_EQ(error_of(file), "\"settings\": qwen3.nextn_predict_layers is 3 of 3 layers");
}

std::vector<int32_t> windows(const ModelFile& file) {
  std::vector<int32_t> result;
  for (const LayerConfig& layer : read_config(file).layers) result.push_back(layer.window);
  return result;
}

TEST(Config, WindowsFollowThePatternOfTheFamilyOrOfTheFile) {
  Settings file("gemma2");
  file.set("gemma2.attention.sliding_window", MetadataValue(uint32_t{8}));
  EXPECT_EQ(windows(file), (std::vector<int32_t>{8, 0, 8}));
  file.set("gemma2.attention.sliding_window_pattern", MetadataValue(uint32_t{3}));
  EXPECT_EQ(windows(file), (std::vector<int32_t>{8, 8, 0}));
  file.set("gemma2.attention.sliding_window_pattern",
           MetadataValue(MetadataArray{std::vector<bool>{false, true, false}}));
  EXPECT_EQ(windows(file), (std::vector<int32_t>{0, 8, 0}));
}

TEST(Config, BadSettingsOfFamiliesAreErrorsNamingTheKey) {
  const auto with = [](const std::string& architecture, const char* suffix, MetadataValue value) {
    Settings file(architecture);
    file.set(architecture + ".attention.sliding_window", MetadataValue(uint32_t{8}));
    file.set(architecture + ".rope.scaling.original_context_length", MetadataValue(uint32_t{32}));
    file.set(architecture + "." + suffix, std::move(value));
    return error_of(file);
  };
  EXPECT_EQ(with("gemma3", "attention.sliding_window", MetadataValue(uint32_t{0})),
            "\"settings\": gemma3.attention.sliding_window is 0, must be 1 to 16777216");
  EXPECT_EQ(with("gemma3", "attention.sliding_window_pattern", MetadataValue(uint32_t{0})),
            "\"settings\": gemma3.attention.sliding_window_pattern is 0, must be 1 to 16777216");
  EXPECT_EQ(with("gemma3", "attention.sliding_window_pattern", MetadataValue(MetadataArray{std::vector<bool>{true}})),
            "\"settings\": gemma3.attention.sliding_window_pattern has 1 entries for 3 layers");
  EXPECT_NE(with("gemma3", "attention.sliding_window_pattern", ints({1, 2, 3})), "");
  EXPECT_EQ(with("gemma2", "final_logit_softcapping", MetadataValue(NAN)),
            "\"settings\": gemma2.final_logit_softcapping is nan, must be a positive number");
  EXPECT_EQ(with("granite", "residual_scale", MetadataValue(-1.0F)),
            "\"settings\": granite.residual_scale is -1, must be a positive number");
  EXPECT_EQ(with("mistral3", "attention.temperature_scale", MetadataValue(INFINITY)),
            "\"settings\": mistral3.attention.temperature_scale is inf, must be a positive number");
  EXPECT_EQ(with("phi3", "attention.sliding_window", MetadataValue(uint64_t{1} << 40)),
            "\"settings\": phi3.attention.sliding_window is 1099511627776, must be 1 to 16777216");
  EXPECT_EQ(with("olmo2", "rope.freq_base_swa", MetadataValue(0.0F)),
            "\"settings\": olmo2.rope.freq_base_swa is 0, must be a positive number");
  EXPECT_EQ(with("smollm3", "rope.scaling.type", MetadataValue(std::string("yarn"))),
            "\"settings\" lacks the key smollm3.rope.scaling.factor");
  EXPECT_NE(with("seed_oss", "rope.scaling.type", MetadataValue(std::string("new"))).find("is not supported"),
            std::string::npos);
}

TEST(Config, YarnKeepsHighFrequenciesAndDividesLowOnes) {
  RopeConfig rope;
  rope.rotated_dims = 64;
  const std::vector<float> plain = rope_table(rope, 3);
  rope.yarn_factor = 4;
  rope.original_context = 128;
  const std::vector<float> table = rope_table(rope, 3);
  const auto angle = [](const std::vector<float>& from, size_t pair) {
    return std::atan2(from[(32 + pair) * 2 + 1], from[(32 + pair) * 2]);
  };
  EXPECT_FLOAT_EQ(angle(table, 0), angle(plain, 0));
  EXPECT_FLOAT_EQ(angle(table, 31), angle(plain, 31) / 4);
}

TEST(Config, SingleValuesOutsideTheirBoundsAreErrorsNamingTheKey) {
  const auto with = [](const char* key, MetadataValue value) {
    Settings file("llama");
    file.set(key, std::move(value));
    return error_of(file);
  };
  EXPECT_EQ(with("llama.block_count", MetadataValue(uint32_t{4097})),
            "\"settings\": llama.block_count is 4097, must be 1 to 4096");
  EXPECT_EQ(with("llama.feed_forward_length", MetadataValue(uint32_t{0})),
            "\"settings\": llama.feed_forward_length is 0, must be 1 to 16777216");
  EXPECT_EQ(with("llama.expert_count", MetadataValue(uint32_t{8})),
            "\"settings\" lacks the key llama.expert_used_count");
  EXPECT_EQ(with("llama.expert_count", MetadataValue(uint32_t{0})), "");
}

Settings with_experts(const std::string& architecture) {
  Settings file(architecture);
  file.set(architecture + ".expert_count", MetadataValue(uint32_t{8}));
  file.set(architecture + ".expert_used_count", MetadataValue(uint32_t{3}));
  file.set(architecture + ".attention.sliding_window", MetadataValue(uint32_t{8}));
  return file;
}

TEST(Config, ExpertsHaveTheFamiliesRoutingUnlessTheFileSaysMore) {
  Settings file = with_experts("qwen3moe");
  file.set("qwen3moe.feed_forward_length", MetadataValue(uint32_t{0}));
  file.set("qwen3moe.expert_feed_forward_length", MetadataValue(uint32_t{16}));
  const ModelConfig qwen = read_config(file);
  for (const LayerConfig& layer : qwen.layers) {
    EXPECT_EQ(layer.experts.count, 8);
    EXPECT_EQ(layer.experts.ffn, 16);
    EXPECT_EQ(layer.experts.routing.used, 3);
    EXPECT_EQ(layer.experts.routing.score, RouterScore::softmax);
    EXPECT_TRUE(layer.experts.routing.normalize);
    EXPECT_EQ(layer.experts.shared_ffn, 0);
    EXPECT_EQ(layer.active_ffn(), 48);
  }
  EXPECT_EQ(read_config(with_experts("llama")).layers[0].experts.ffn, 48) << "Mixtral has no key of its own";

  file = with_experts("glm4moe");
  file.set("glm4moe.leading_dense_block_count", MetadataValue(uint32_t{1}));
  file.set("glm4moe.expert_feed_forward_length", MetadataValue(uint32_t{16}));
  file.set("glm4moe.expert_shared_count", MetadataValue(uint32_t{2}));
  file.set("glm4moe.expert_weights_scale", MetadataValue(1.5F));
  file.set("glm4moe.expert_weights_norm", MetadataValue(false));
  const ModelConfig glm = read_config(file);
  EXPECT_EQ(glm.layers[0].experts.count, 0);
  EXPECT_EQ(glm.layers[0].ffn, 48);
  EXPECT_EQ(glm.layers[1].experts.routing.score, RouterScore::sigmoid);
  EXPECT_EQ(glm.layers[1].experts.routing.scale, 1.5F);
  EXPECT_FALSE(glm.layers[1].experts.routing.normalize);
  EXPECT_EQ(glm.layers[1].experts.shared_ffn, 32);
  file.set("glm4moe.expert_gating_func", MetadataValue(uint32_t{3}));
  EXPECT_EQ(read_config(file).layers[1].experts.routing.score, RouterScore::softmax_chosen);
}

TEST(Config, BadSettingsOfExpertsAreErrorsNamingTheKey) {
  for (const char* architecture : {"qwen3moe", "llama", "glm4moe", "minimax-m2", "laguna", "gpt-oss"}) {
    const std::string prefix = std::string(architecture) + ".";
    const auto with = [&](const char* suffix, MetadataValue value) {
      Settings file = with_experts(architecture);
      file.set(prefix + suffix, std::move(value));
      return error_of(file);
    };
    const std::string intro = "\"settings\": " + prefix;
    EXPECT_EQ(with("expert_used_count", MetadataValue(uint32_t{8})), "");
    EXPECT_EQ(with("expert_used_count", MetadataValue(uint32_t{9})),
              intro + "expert_used_count is 9 of 8 experts, must be at most 8");
    EXPECT_EQ(with("expert_used_count", MetadataValue(uint32_t{0})),
              intro + "expert_used_count is 0, must be 1 to 16777216");
    EXPECT_NE(with("expert_used_count", MetadataValue(int32_t{-1})), "");
    EXPECT_EQ(with("expert_count", MetadataValue(uint64_t{1} << 63)),
              intro + "expert_count is 9223372036854775808, must be 1 to 4096");
    EXPECT_EQ(with("expert_feed_forward_length", MetadataValue(uint32_t{0})),
              intro + "expert_feed_forward_length is 0, must be 1 to 1048576");
    EXPECT_EQ(with("expert_feed_forward_length", MetadataValue(uint64_t{1} << 40)),
              intro + "expert_feed_forward_length is 1099511627776, must be 1 to 1048576");
    EXPECT_EQ(with("expert_shared_count", MetadataValue(uint64_t{1} << 62)),
              intro + "expert_shared_count is 4611686018427387904, too many of 48 rows");
    EXPECT_EQ(with("expert_shared_feed_forward_length", MetadataValue(uint64_t{1} << 62)),
              intro + "expert_shared_feed_forward_length is 4611686018427387904, must be 1 to 16777216");
    EXPECT_EQ(with("expert_gating_func", MetadataValue(uint32_t{5})),
              intro + "expert_gating_func is 5, must be 1 to 4");
    EXPECT_EQ(with("expert_weights_scale", MetadataValue(NAN)),
              intro + "expert_weights_scale is nan, must be a positive number");
    EXPECT_EQ(with("expert_group_count", MetadataValue(uint32_t{4})),
              "\"settings\" lacks the key " + prefix + "expert_group_used_count");
  }
  Settings dense = with_experts("glm4moe");
  dense.set("glm4moe.leading_dense_block_count", MetadataValue(uint64_t{1} << 63));
  EXPECT_EQ(read_config(dense).layers.back().experts.count, 0) << "all layers are dense";
  dense.set("glm4moe.feed_forward_length", MetadataValue(uint32_t{0}));
  dense.set("glm4moe.expert_feed_forward_length", MetadataValue(uint32_t{16}));
  EXPECT_EQ(error_of(dense), "\"settings\": glm4moe.feed_forward_length is 0 and a layer has no experts");
  EXPECT_EQ(error_of(Settings("qwen3moe")), "\"settings\" lacks the key qwen3moe.expert_count");
}

Settings with_convolutions(const std::string& architecture) {
  Settings file = with_experts(architecture);
  file.set(architecture + ".attention.head_count_kv", ints({0, 2, 0}));
  file.set(architecture + ".shortconv.l_cache", MetadataValue(uint32_t{3}));
  return file;
}

TEST(Config, LayersWithoutKeyValueHeadsAreConvolutions) {
  const ModelConfig config = read_config(with_convolutions("lfm2"));
  EXPECT_EQ(config.layers[0].mixer, Mixer::short_conv);
  EXPECT_EQ(config.layers[1].mixer, Mixer::attention);
  EXPECT_EQ(config.layers[0].recurrent.conv_floats(), 2 * 32);
  EXPECT_EQ(config.layers[0].recurrent.matrix_floats(), 0);
  EXPECT_EQ(config.layers[0].kv_width(), 0);
  EXPECT_EQ(&config.attention_layer(), &config.layers[1]);
  EXPECT_EQ(config.attention_width(), 32);
}

TEST(Config, BadSettingsOfConvolutionsAreErrorsNamingTheKey) {
  for (const char* architecture : {"lfm2", "lfm2moe"}) {
    const std::string prefix = std::string(architecture) + ".";
    const auto with = [&](const char* suffix, MetadataValue value) {
      Settings file = with_convolutions(architecture);
      file.set(prefix + suffix, std::move(value));
      return error_of(file);
    };
    const std::string intro = "\"settings\": " + prefix;
    EXPECT_EQ(with("shortconv.l_cache", MetadataValue(uint32_t{8})), "");
    EXPECT_EQ(with("shortconv.l_cache", MetadataValue(uint32_t{0})), intro + "shortconv.l_cache is 0, must be 1 to 8");
    EXPECT_EQ(with("shortconv.l_cache", MetadataValue(uint32_t{1})),
              intro + "shortconv.l_cache is 1, must be 2 or more");
    EXPECT_NE(with("shortconv.l_cache", MetadataValue(int32_t{-1})), "");
    EXPECT_NE(with("shortconv.l_cache", MetadataValue(NAN)), "");
    EXPECT_EQ(with("shortconv.l_cache", MetadataValue(uint64_t{1} << 63)),
              intro + "shortconv.l_cache is 9223372036854775808, must be 1 to 8");
    EXPECT_EQ(with("attention.head_count_kv", ints({0, 2})),
              intro + "attention.head_count_kv has 2 entries for 3 layers");
    EXPECT_EQ(with("attention.head_count_kv", ints({0, 0, 0})),
              "\"settings\" has no layer with attention, which inferno needs");
    EXPECT_EQ(with("attention.head_count_kv", MetadataValue(uint32_t{0})),
              intro + "attention.head_count_kv is 0, must be 1 to 16777216");
  }
  EXPECT_EQ(error_of(Settings("lfm2")), "\"settings\" lacks the key lfm2.shortconv.l_cache");
}

Settings with_delta_net(const std::string& architecture) {
  Settings file = with_experts(architecture);
  const auto number = [&](const char* key, uint32_t value) {
    file.set(architecture + "." + key, MetadataValue(value));
  };
  number("ssm.conv_kernel", 4);
  number("ssm.state_size", 16);
  number("ssm.group_count", 2);
  number("ssm.time_step_rank", 4);
  number("ssm.inner_size", 64);
  number("full_attention_interval", 3);
  return file;
}

TEST(Config, AllButEveryFourthLayerHaveTheDeltaRuleUnlessTheFileSaysMore) {
  Settings file = with_delta_net("qwen35");
  const auto mixers = [&] {
    std::vector<bool> recurrent;
    for (const LayerConfig& layer : read_config(file).layers) recurrent.push_back(layer.mixer == Mixer::delta_net);
    return recurrent;
  };
  EXPECT_EQ(mixers(), (std::vector<bool>{true, true, false}));
  file.set("qwen35.attention.recurrent_layers", MetadataValue(MetadataArray{std::vector<bool>{true, false, true}}));
  EXPECT_EQ(mixers(), (std::vector<bool>{true, false, true}));
  const ModelConfig config = read_config(file);
  const RecurrentConfig& r = config.layers[0].recurrent;
  EXPECT_EQ(r.conv_channels, 2 * 2 * 16 + 4 * 16);
  EXPECT_EQ(r.conv_floats(), 3 * 128);
  EXPECT_EQ(r.matrix_floats(), 4 * 16 * 16);
  EXPECT_FALSE(r.grouped);
  EXPECT_TRUE(config.layers[1].gate_in_q);
  EXPECT_EQ(config.gate_width(), 32);
  EXPECT_TRUE(read_config(with_delta_net("qwen3next")).layers[0].recurrent.grouped);
}

TEST(Config, BadSettingsOfTheDeltaRuleAreErrorsNamingTheKey) {
  for (const char* architecture : {"qwen35", "qwen35moe", "qwen3next"}) {
    const std::string prefix = std::string(architecture) + ".";
    const auto with = [&](const char* suffix, MetadataValue value) {
      Settings file = with_delta_net(architecture);
      file.set(prefix + suffix, std::move(value));
      return error_of(file);
    };
    const std::string intro = "\"settings\": " + prefix;
    for (const char* key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
                            "ssm.inner_size", "full_attention_interval"}) {
      for (const MetadataValue& value : {MetadataValue(uint32_t{0}), MetadataValue(int32_t{-1}),
                                         MetadataValue(uint64_t{1} << 63), MetadataValue(NAN)}) {
        EXPECT_NE(with(key, value).find(prefix + key), std::string::npos) << key;
      }
    }
    EXPECT_EQ(with("ssm.conv_kernel", MetadataValue(uint32_t{1})), intro + "ssm.conv_kernel is 1, must be 2 or more");
    EXPECT_EQ(with("ssm.conv_kernel", MetadataValue(uint32_t{9})), intro + "ssm.conv_kernel is 9, must be 1 to 8");
    EXPECT_EQ(with("ssm.state_size", MetadataValue(uint32_t{18})),
              intro + "ssm.state_size is 18, must be a multiple of 4");
    EXPECT_EQ(with("ssm.time_step_rank", MetadataValue(uint32_t{3})),
              "\"settings\": 3 value heads cannot share 2 key heads evenly (" + prefix + "ssm.time_step_rank, " +
                  prefix + "ssm.group_count)");
    EXPECT_EQ(with("ssm.inner_size", MetadataValue(uint32_t{63})),
              intro + "ssm.inner_size is 63, but 4 heads of 16 elements have 64");
    EXPECT_EQ(with("attention.value_length", MetadataValue(uint32_t{16})),
              intro + "attention.value_length must be the same as " + prefix +
                  "attention.key_length: gates follow queries head by head");
    EXPECT_EQ(with("attention.recurrent_layers", MetadataValue(MetadataArray{std::vector<bool>{true}})),
              intro + "attention.recurrent_layers has 1 entries for 3 layers");
    EXPECT_NE(with("attention.recurrent_layers", ints({1, 1, 0})), "");
    EXPECT_EQ(with("full_attention_interval", MetadataValue(uint32_t{9})),
              "\"settings\" has no layer with attention, which inferno needs");
  }
  EXPECT_EQ(error_of(Settings("qwen35")), "\"settings\" lacks the key qwen35.ssm.conv_kernel");
}

TEST(Config, NumbersThatVanishOrOverflowInFloatAreErrorsNamingTheKey) {
  const auto epsilon = [](double value) {
    Settings file("llama");
    file.set("llama.attention.layer_norm_rms_epsilon", MetadataValue(value));
    return error_of(file);
  };
  EXPECT_EQ(epsilon(1e-6), "");
  for (const double value : {1e-300, 1e-45, 1e39, 1e300}) {
    EXPECT_NE(epsilon(value).find("llama.attention.layer_norm_rms_epsilon"), std::string::npos) << value;
  }
}

TEST(Config, RopeSettingsWhoseAnglesAreNotFiniteAreErrors) {
  const auto scaled = [](double factor, double base) {
    Settings file("llama");
    file.set("llama.rope.scaling.type", MetadataValue(std::string("linear")));
    file.set("llama.rope.scaling.factor", MetadataValue(factor));
    file.set("llama.rope.freq_base", MetadataValue(base));
    return error_of(file);
  };
  EXPECT_EQ(scaled(4, 1e4), "");
  EXPECT_EQ(scaled(1e300, 1e6), "");  // nothing rotates; strange, and finite
  EXPECT_NE(scaled(1e-320, 1e4).find("not finite"), std::string::npos);
  EXPECT_NE(scaled(1e-305, 1e4).find("not finite"), std::string::npos);
}

TEST(Config, HeadsWhoseProductsOverflowAreErrors) {
  const auto with = [](uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim) {
    Settings file("llama");
    file.set("llama.attention.head_count", MetadataValue(q_heads));
    file.set("llama.attention.head_count_kv", MetadataValue(kv_heads));
    file.set("llama.attention.key_length", MetadataValue(head_dim));
    return error_of(file);
  };
  EXPECT_EQ(with(128, 1, 64), "");
  EXPECT_EQ(with(1 << 24, 1 << 24, 1 << 24),
            "\"settings\": 16777216 heads of 16777216 elements are more than the 16777216 a layer may have");
  EXPECT_EQ(with(129, 1, 64), "\"settings\": 129 query heads share 1 key-value heads, more than 128 each");
}

}  // namespace
}  // namespace inferno
