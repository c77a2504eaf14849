// config.json and what goes with it become the metadata that a GGUF file of the model has.
#include <filesystem>

#include "hf/hf_folder.h"
#include "hf/test_folder.h"

namespace inferno::hf {
namespace {

class ConfigTest : public FolderTest {
 protected:
  HfFolder open_with(const Json& config) {
    write("config.json", config.dump());
    return HfFolder::open(folder_);
  }
};

TEST_F(ConfigTest, SizesBecomeTheKeysOfTheArchitecture) {
  write_model("qwen3");
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(file.get_string("general.architecture"), "qwen3");
  EXPECT_EQ(file.get_uint("qwen3.block_count"), 1U);
  EXPECT_EQ(file.get_uint("qwen3.attention.head_count_kv"), 1U);
  EXPECT_EQ(file.get_uint("qwen3.attention.key_length"), 4U);
  EXPECT_FLOAT_EQ(static_cast<float>(file.get_float("qwen3.attention.layer_norm_rms_epsilon")), 1e-6F);
  EXPECT_EQ(file.tensor_count(), 11U);
  EXPECT_EQ(file.files(), std::vector<std::string>{folder_ + "/model.safetensors"});
}

TEST_F(ConfigTest, OldAndNewFormsAndNestingSayTheSame) {
  write_model("llama");
  Json old = tiny_config("llama");
  old["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  Json fresh = old;
  fresh.erase("rope_theta");
  fresh.erase("rope_scaling");
  fresh.erase("torch_dtype");
  fresh["dtype"] = "float32";
  fresh["rope_parameters"] = {
      {"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  const HfFolder expected = open_with(old);
  const Json nested = {{"model_type", "other_vl"}, {"vision_config", {{"depth", 3}}}, {"text_config", fresh}};
  for (const Json& form : {fresh, nested}) {
    const HfFolder file = open_with(form);
    for (const MetadataEntry& entry : expected.metadata()) {
      ASSERT_NE(file.find(entry.key), nullptr) << entry.key;
      EXPECT_EQ(*file.find(entry.key), entry.value) << entry.key;
    }
  }
  EXPECT_EQ(expected.get_string("llama.rope.scaling.type"), "yarn");
}

TEST_F(ConfigTest, RopeOfLlama3BecomesATensorOfFactors) {
  write_model("llama");
  Json config = tiny_config("llama");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8}};
  const HfFolder file = open_with(config);
  std::vector<float> factors(2);
  file.read_tensor(file.get_tensor("rope_freqs.weight"), std::as_writable_bytes(std::span(factors)));
  EXPECT_EQ(factors[1], 8.0F);  // a wave of 628 positions is far longer than 8
  EXPECT_GT(factors[0], 1.0F);
  EXPECT_LT(factors[0], 8.0F);
}

TEST_F(ConfigTest, WrongSettingsAreErrorsThatNameFileAndKey) {
  write_model("qwen3");
  const auto expect = [&](const char* key, const Json& value, const std::string& needle) {
    Json config = tiny_config("qwen3");
    config[key] = value;
    write("config.json", config.dump());
    const std::string message = error();
    EXPECT_NE(message.find(needle), std::string::npos) << key << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  expect("hidden_size", -1, "hidden_size");
  expect("hidden_size", "wide", "hidden_size");
  expect("num_hidden_layers", 1.5, "num_hidden_layers");
  expect("num_hidden_layers", uint64_t{1} << 63, "num_hidden_layers");
  expect("num_attention_heads", nullptr, "num_attention_heads");
  expect("rms_norm_eps", Json::array(), "rms_norm_eps");
  expect("model_type", "perceiver", "perceiver");
  expect("model_type", 3, "model_type");
  expect("rope_scaling", "yarn", "rope_scaling");
  expect("rope_scaling", {{"type", "spiral"}}, "spiral");
  expect("rope_scaling", {{"type", "yarn"}, {"factor", 0}}, "factor");
  expect("text_config", 7, "text_config");
  expect("quantization_config", {{"quant_method", "gptq"}}, "gptq");
}

TEST_F(ConfigTest, EndTokensAndSamplingComeFromTheGenerationConfig) {
  write_model("qwen3");
  write("tokenizer_config.json", Json{{"eos_token", {{"content", "<end>"}}}, {"bos_token", "a"}}.dump());
  write("generation_config.json",
        Json{{"eos_token_id", {4, 1, 3}}, {"do_sample", true}, {"temperature", 0.75}, {"top_k", 20}}.dump());
  const HfFolder file = HfFolder::open(folder_);
  EXPECT_EQ(file.get_uint("tokenizer.ggml.eos_token_id"), 4U);
  EXPECT_EQ(file.get_uint("tokenizer.ggml.eot_token_id"), 1U);
  EXPECT_EQ(file.get_uint("tokenizer.ggml.eom_token_id"), 3U);
  EXPECT_EQ(file.get_uint("tokenizer.ggml.bos_token_id"), 0U);
  EXPECT_EQ(file.get_float("general.sampling.temp"), 0.75);
  EXPECT_EQ(file.get_int("general.sampling.top_k"), 20);
}

TEST_F(ConfigTest, PoolingIsThatOfSentenceTransformers) {
  write_model("qwen3");
  EXPECT_EQ(HfFolder::open(folder_).find("qwen3.pooling_type"), nullptr);
  std::filesystem::create_directory(folder_ + "/1_Pooling");
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": false, "pooling_mode_lasttoken": true})");
  EXPECT_EQ(HfFolder::open(folder_).get_uint("qwen3.pooling_type"), 3U);
}

TEST_F(ConfigTest, LayersThatNobodyHasAreRefused) {
  write_model("qwen3");
  Json config = tiny_config("qwen3");
  config["num_hidden_layers"] = 4294967295U;
  write("config.json", config.dump());
  EXPECT_NE(error().find("num_hidden_layers"), std::string::npos) << error();
}

TEST_F(ConfigTest, ChatTemplatesAreFoundInEveryPlace) {
  write_model("qwen3");
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().chat_template, "");
  write("chat_template.json", Json{{"chat_template", "three"}}.dump());
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().chat_template, "three");
  write("tokenizer_config.json", Json{{"chat_template", "one"}}.dump());
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().chat_template, "one");
  const Json named = {{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", "two"}}};
  write("tokenizer_config.json", Json{{"chat_template", named}}.dump());
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().chat_template, "two");
  write("chat_template.jinja", "four");
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().chat_template, "four");
}

}  // namespace
}  // namespace inferno::hf
