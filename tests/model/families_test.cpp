// Tiny models of the families, made by llama.cpp's converter, against transformers in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "family_models.h"
#include "model_runs.h"

namespace inferno::testing {
namespace {

class Families : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Folders, Families, ::testing::ValuesIn(families_here()),
                         [](const auto& info) { return info.param; });

TEST_P(Families, LogitsAreTransformersAndTheSameBitsInAnyChunks) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    for (const char* backend : {"scalar", "simd", "parallel"}) {
      auto engine = make_engine(folder + "/model.gguf", backend, DType::f32, true);
      const std::vector<float> whole = all_logits(*engine, kFamilyIds);
      ASSERT_EQ(whole.size(), expected.size());
      EXPECT_LE(max_difference(whole, expected) / deviation(expected), 1e-4) << backend;
      EXPECT_EQ(all_logits(*engine, kFamilyIds, 1), whole) << backend << ", one by one";
      EXPECT_EQ(all_logits(*engine, kFamilyIds, 7), whole) << backend << ", in sevens";
    }
  }
}

// The default bodies are the ops' definitions.
TEST_P(Families, DefaultBodiesGiveTransformersLogits) {
  const std::string name = "families/" + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    EngineOptions options;
    options.backend = "scalar";
    options.backend_options.fused = false;
    options.kv_dtype = DType::f32;
    options.all_logits = true;
    Engine engine(open_model(folder + "/model.gguf"), options);
    EXPECT_LE(max_difference(all_logits(engine, kFamilyIds), expected) / deviation(expected), 1e-4);
  }
}

// Those of the folders that are whole Hugging Face folders.
constexpr const char* kHfFolders[] = {"gemma3", "gemma4", "gptoss",   "mistrald", "mixtrald",
                                      "phi3",   "qwen35", "qwen3moe", "qwen3next"};

class HfFolders : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Folders, HfFolders, ::testing::ValuesIn(kHfFolders),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HfFolders, LogitsAreTransformers) {
  const std::string name = std::string("families/") + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  for (const std::string& folder : find_data(name)) {
    const std::vector<float> expected = read_floats(folder + "/logits.f32");
    for (const char* backend : {"scalar", "parallel"}) {
      const std::vector<float> found = all_logits(*make_engine(folder, backend, DType::f32, true), kFamilyIds);
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_LE(max_difference(found, expected) / deviation(expected), 1e-4) << backend;
    }
  }
}

// Values that another library's exp gave may differ in their last bit.
void expect_same_tensor(const ModelFile& a, const ModelFile& b, const FileTensor& tensor) {
  const FileTensor* other = b.find_tensor(tensor.name);
  ASSERT_NE(other, nullptr) << tensor.name;
  EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
  ASSERT_EQ(other->dtype, tensor.dtype) << tensor.name;
  std::vector<std::byte> expected(tensor.bytes);
  std::vector<std::byte> found(other->bytes);
  a.read_tensor(tensor, expected);
  b.read_tensor(*other, found);
  if (!tensor.name.ends_with("ssm_a")) {
    EXPECT_EQ(found, expected) << tensor.name;
    return;
  }
  for (size_t i = 0; i < expected.size() / sizeof(float); ++i) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, expected.data() + i * sizeof(float), sizeof(float));
    std::memcpy(&y, found.data() + i * sizeof(float), sizeof(float));
    EXPECT_FLOAT_EQ(x, y) << tensor.name;
  }
}

TEST_P(HfFolders, ConvertedFileIsThatOfTheConverter) {
  const std::string name = std::string("families/") + GetParam();
  INFERNO_REQUIRE_TEST_DATA(name);
  // Made of the folder's name; and the converter was told the pre-tokenizer.
  constexpr std::string_view kOwn[] = {"general.name", "general.size_label", "tokenizer.ggml.pre"};
  for (const std::string& folder : find_data(name)) {
    const std::string path = ::testing::TempDir() + "inferno_converted_" + std::to_string(::getpid()) + ".gguf";
    quantize_model(open_model(folder), path, "F32", {.threads = 1});
    const GgufFile expected = GgufFile::open(folder + "/model.gguf");
    const GgufFile found = GgufFile::open(path);
    EXPECT_EQ(found.tensor_count(), expected.tensor_count());
    for (const GgufTensor& tensor : expected.tensors()) expect_same_tensor(expected, found, tensor);
    for (const MetadataEntry& entry : expected.metadata()) {
      if (std::ranges::find(kOwn, entry.key) != std::end(kOwn)) continue;
      ASSERT_NE(found.find(entry.key), nullptr) << entry.key;
      EXPECT_EQ(*found.find(entry.key), entry.value) << entry.key;
    }
    ::unlink(path.c_str());
  }
}

// Folders as transformers saves them, of families that differ in names and in what is done to tensors.
constexpr const char* kFolderFixtures[] = {
    "deepseek_v3", "gemma4_e", "gemma4_moe", "glm4_moe",   "glm4_moe_lite",  "granite_attention", "granite_hybrid",
    "granite_moe", "lfm2",     "lfm2_moe",   "nemotron_h", "nemotron_h_moe", "qwen3_5_moe"};

class FolderFixtures : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Folders, FolderFixtures, ::testing::ValuesIn(kFolderFixtures),
                         [](const auto& info) { return std::string(info.param); });

// The ids of every logits.f32 there.
std::vector<int32_t> fixture_ids() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 60; ++i) ids.push_back((i * i * 31 + i * 17 + 5) % 96);
  return ids;
}

TEST_P(FolderFixtures, LogitsAreTransformersAndThoseOfTheConvertedFile) {
  const std::string folder = fixture(std::string("folders/") + GetParam());
  const std::vector<float> expected = read_floats(folder + "/logits.f32");
  const std::string path = ::testing::TempDir() + "inferno_fixture_" + std::to_string(::getpid()) + ".gguf";
  quantize_model(open_model(folder), path, "F32", {.threads = 1});
  for (const char* backend : {"scalar", "parallel"}) {
    const std::vector<float> found = all_logits(*make_engine(folder, backend, DType::f32, true), fixture_ids());
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_LE(max_difference(found, expected) / deviation(expected), 1e-4) << backend;
    EXPECT_EQ(all_logits(*make_engine(path, backend, DType::f32, true), fixture_ids()), found) << backend;
  }
  ::unlink(path.c_str());
}

// The names of a dense model of layers, as Hugging Face folders have them.
std::string hf_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {{"token_embd.", "model.embed_tokens."},
                                                                      {"output_norm.", "model.norm."},
                                                                      {"output.", "lm_head."},
                                                                      {"blk.", "model.layers."},
                                                                      {"attn_norm.", "input_layernorm."},
                                                                      {"ffn_norm.", "post_attention_layernorm."},
                                                                      {"attn_q_norm.", "self_attn.q_norm."},
                                                                      {"attn_k_norm.", "self_attn.k_norm."},
                                                                      {"attn_q.", "self_attn.q_proj."},
                                                                      {"attn_k.", "self_attn.k_proj."},
                                                                      {"attn_v.", "self_attn.v_proj."},
                                                                      {"attn_output.", "self_attn.o_proj."},
                                                                      {"ffn_gate.", "mlp.gate_proj."},
                                                                      {"ffn_up.", "mlp.up_proj."},
                                                                      {"ffn_down.", "mlp.down_proj."}};
  for (const auto& [from, to] : kParts) {
    const size_t at = name.find(from);
    if (at == 0 || (at != std::string::npos && name[at - 1] == '.')) name.replace(at, from.size(), to);
  }
  return name;
}

// A fixture written as a folder gives the bits of the fixture.
TEST(HfFolder, OfAFixtureGivesItsLogitsBitForBit) {
  const GgufFile file = GgufFile::open(fixture("qwen3-tied.gguf"));
  const std::string folder = ::testing::TempDir() + "inferno_folder_" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const GgufTensor& tensor : file.tensors()) {
    ASSERT_EQ(tensor.dtype, DType::f32);
    const size_t begin = data.size();
    data.resize(begin + tensor.bytes);
    file.read_tensor(tensor, std::as_writable_bytes(std::span(data)).subspan(begin));
    header[hf_name(tensor.name)] = {
        {"dtype", "F32"},
        {"shape", std::vector<int64_t>(tensor.shape.dims.begin(), tensor.shape.dims.begin() + tensor.shape.rank)},
        {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream out(folder + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out << text << data;
  out.close();
  const nlohmann::json config = {{"model_type", "qwen3"},
                                 {"num_hidden_layers", file.get_uint("qwen3.block_count")},
                                 {"max_position_embeddings", file.get_uint("qwen3.context_length")},
                                 {"hidden_size", file.get_uint("qwen3.embedding_length")},
                                 {"intermediate_size", file.get_uint("qwen3.feed_forward_length")},
                                 {"num_attention_heads", file.get_uint("qwen3.attention.head_count")},
                                 {"num_key_value_heads", file.get_uint("qwen3.attention.head_count_kv")},
                                 {"head_dim", file.get_uint("qwen3.attention.key_length")},
                                 {"rms_norm_eps", file.get_float("qwen3.attention.layer_norm_rms_epsilon")},
                                 {"rope_theta", file.get_float("qwen3.rope.freq_base")}};
  std::ofstream(folder + "/config.json") << config;
  const std::vector<int32_t> tokens = tokens_of(1, 20, 64);
  const auto logits = [&](const std::string& path) {
    return all_logits(*make_engine(path, "parallel", DType::f32, true), tokens);
  };
  EXPECT_EQ(logits(folder), logits(fixture("qwen3-tied.gguf")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace inferno::testing
