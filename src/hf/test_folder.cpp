#include "hf/test_folder.h"

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "hf/hf_folder.h"
#include "tensor/half.h"

namespace inferno::hf {

TestTensor counting_tensor(const std::string& name, std::vector<int64_t> shape, float first, const std::string& dtype) {
  TestTensor tensor{name, dtype, std::move(shape), {}};
  const int64_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < count; ++i) {
    const float value = first + 0.125F * static_cast<float>(i % 64);
    const bf16 half = to_bf16(value);
    const bool whole = dtype == "F32";
    tensor.bytes.append(whole ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&half),
                        whole ? sizeof(value) : sizeof(half));
  }
  return tensor;
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  bytes += data;
  return bytes;
}

std::string safetensors_bytes(const std::vector<TestTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_bytes(header.dump(), data);
}

FolderTest::FolderTest() : folder_(::testing::TempDir() + "inferno_hf_XXXXXX") {
  if (::mkdtemp(folder_.data()) == nullptr) std::abort();
}

FolderTest::~FolderTest() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void FolderTest::write(const std::string& name, std::string_view bytes) const {
  std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
}

Json FolderTest::tiny_config(const std::string& model_type) {
  return {{"model_type", model_type}, {"num_hidden_layers", 1},  {"max_position_embeddings", 32},
          {"hidden_size", 8},         {"intermediate_size", 16}, {"num_attention_heads", 2},
          {"num_key_value_heads", 1}, {"head_dim", 4},           {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},    {"vocab_size", 6},         {"tie_word_embeddings", true},
          {"torch_dtype", "float32"}};
}

std::vector<TestTensor> FolderTest::tiny_tensors(const std::string& dtype) {
  const std::string layer = "model.layers.0.";
  return {counting_tensor("model.embed_tokens.weight", {6, 8}, -2, dtype),
          counting_tensor(layer + "input_layernorm.weight", {8}, 0.5, dtype),
          counting_tensor(layer + "post_attention_layernorm.weight", {8}, 0.25, dtype),
          counting_tensor(layer + "self_attn.q_proj.weight", {8, 8}, -1, dtype),
          counting_tensor(layer + "self_attn.k_proj.weight", {4, 8}, 1, dtype),
          counting_tensor(layer + "self_attn.v_proj.weight", {4, 8}, 2, dtype),
          counting_tensor(layer + "self_attn.o_proj.weight", {8, 8}, -3, dtype),
          counting_tensor(layer + "mlp.gate_proj.weight", {16, 8}, -4, dtype),
          counting_tensor(layer + "mlp.up_proj.weight", {16, 8}, -5, dtype),
          counting_tensor(layer + "mlp.down_proj.weight", {8, 16}, -6, dtype),
          counting_tensor("model.norm.weight", {8}, 1, dtype)};
}

Json FolderTest::tiny_tokenizer() {
  const Json pattern = {
      {"Regex",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
  return {
      {"added_tokens",
       {{{"id", 4}, {"content", "<end>"}, {"special", true}}, {{"id", 3}, {"content", "<tool>"}, {"special", false}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"use_regex", false}}}}}},
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", Json::array({"a b"})}}}};
}

void FolderTest::write_model(const std::string& model_type, const std::string& dtype) const {
  write("config.json", tiny_config(model_type).dump());
  write("model.safetensors", safetensors_bytes(tiny_tensors(dtype)));
  write("tokenizer.json", tiny_tokenizer().dump());
}

std::string FolderTest::error() const {
  try {
    (void)HfFolder::open(folder_);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace inferno::hf
