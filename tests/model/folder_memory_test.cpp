// What hostile Hugging Face folders make inferno allocate.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "hf/hf_folder.h"
#include "support/allocations.h"
#include "support/sanitized.h"

namespace inferno::testing {
namespace {

constexpr int64_t kAllowance = int64_t{64} << 20;

class FolderMemory : public ::testing::Test {
 protected:
  FolderMemory() : folder_(::testing::TempDir() + "inferno_memory_XXXXXX") {
    if (::mkdtemp(folder_.data()) == nullptr) std::abort();
    write("config.json",
          R"({"model_type": "qwen3", "num_hidden_layers": 1, "max_position_embeddings": 32, "hidden_size": 8,
              "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 6, "tie_word_embeddings": true})");
    write_header(kEmbedding);
  }
  ~FolderMemory() override { std::filesystem::remove_all(folder_); }
  FolderMemory(const FolderMemory&) = delete;
  FolderMemory& operator=(const FolderMemory&) = delete;

  static constexpr std::string_view kEmbedding =
      R"({"model.embed_tokens.weight": {"dtype": "F32", "shape": [6, 8], "data_offsets": [0, 192]}})";

  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  void write_header(std::string_view header) const {
    const uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    write("model.safetensors", (bytes += header) += std::string(192, '\0'));
  }
  // Opens the folder; more than the files' size and 64 MiB must never be in use.
  void expect_bounded(const char* what) const {
    int64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files += static_cast<int64_t>(entry.file_size());
    const int64_t before = live_bytes();
    reset_peak_bytes();
    std::string message;
    try {
      const HfFolder file = HfFolder::open(folder_);
      if (file.has_vocabulary()) (void)file.vocabulary();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_LE(peak_bytes() - before, files + kAllowance) << what << ": files of " << files << " bytes; " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    RecordProperty(what, static_cast<int>((peak_bytes() - before) >> 20));
  }

  std::string folder_;
};

std::string repeated(std::string_view first, size_t count, const std::function<std::string(size_t)>& item,
                     std::string_view last) {
  std::string text(first);
  if (kSanitized) count /= 10;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    text += item(i);
  }
  return text += last;
}

TEST_F(FolderMemory, OfHeadersWithinTheFilesAnd64MiB) {
  write_header(repeated(
      "{", 260'000,
      [](size_t i) { return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})"; }, "}"));
  expect_bounded("tensors");
  write_header("{\"__metadata__\": {\"x\": \"" + std::string(50'000'000, 'x') + "\"}}");
  expect_bounded("a long text");
  write_header(std::string(50'000'000, ' '));
  expect_bounded("spaces");
  write_header("{\"__metadata__\": {\"x\": " + std::string(30'000'000, '1') + "}}");
  expect_bounded("a long number");
  write_header("{\"__metadata__\": {\"x\": \"" + std::string(8'000'000, 'x') + "\"}}");
  expect_bounded("a text as long as may be");
  write_header("{\"" + std::string(20'000'000, 'n') + R"(": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
  expect_bounded("a long name");
}

TEST_F(FolderMemory, OfIndexesWithinTheFilesAnd64MiB) {
  write("model.safetensors.index.json",
        repeated(
            "{\"weight_map\": {", 1'000'000, [](size_t i) { return "\"" + std::to_string(i) + R"(":"a.safetensors")"; },
            "}}"));
  expect_bounded("names");
}

TEST_F(FolderMemory, OfTokenizersWithinTheFilesAnd64MiB) {
  const std::string model = R"({"model": {"type": "BPE", "vocab": {)";
  const auto number = [](size_t i) { return std::to_string(i); };
  write("tokenizer.json", repeated(model, 1'000'000, [&](size_t i) { return "\"" + number(i) + "\":0"; }, "}}}"));
  expect_bounded("tokens of one id");
  write("tokenizer.json",
        repeated(model, 1'000'000, [&](size_t i) { return "\"" + number(i) + "\":" + number(i); }, "}}}"));
  expect_bounded("tokens");
  write("tokenizer.json", model + "\"a\": 4294967295}}}");
  expect_bounded("a large id");
  write("tokenizer.json",
        repeated(model + "\"a\": 0}, \"merges\": [", 1'000'000, [](size_t) { return "\"a a\""; }, "]}}"));
  expect_bounded("merges");
  write("tokenizer.json",
        repeated(model + "\"a\": 0}, \"merges\": [", 1'000'000, [](size_t) { return "[\"a\",\"a\"]"; }, "]}}"));
  expect_bounded("merges as pairs");
  write("tokenizer.json", repeated(
                              "{\"added_tokens\": [", 65'000,
                              [&](size_t i) { return "{\"id\":" + number(i) + ",\"content\":\"" + number(i) + "\"}"; },
                              "], " + model.substr(1) + "\"a\": 0}}}"));
  expect_bounded("added tokens");
  write("tokenizer.json", repeated("{\"normalizer\": [", 5'000'000, [](size_t) { return "0"; }, "]}"));
  expect_bounded("numbers");
}

TEST_F(FolderMemory, OfConfigsWithinTheFilesAnd64MiB) {
  for (const char* key : {"num_hidden_layers", "max_position_embeddings", "hidden_size", "intermediate_size",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"}) {
    for (const char* type : {"qwen3", "gemma4", "lfm2", "lfm2_moe", "granitemoehybrid", "nemotron_h", "deepseek_v3"}) {
      std::string text = std::string("{\"model_type\": \"") + type + "\", \"" + key + "\": 4294967295";
      for (const char* other :
           {"num_hidden_layers", "max_position_embeddings", "hidden_size", "intermediate_size", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size", "conv_L_cache", "moe_intermediate_size",
            "num_dense_layers", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"}) {
        if (std::string_view(other) != key) text += std::string(", \"") + other + "\": 4";
      }
      write("config.json", text + R"(, "rms_norm_eps": 1e-6, "use_double_wide_mlp": true, "full_attn_idxs": [0],
                                      "layer_types": ["full_attention"], "hybrid_override_pattern": "M*-E"})");
      expect_bounded(key);
    }
  }
  write("config.json", repeated("{\"model_type\": \"qwen3\", \"x\": [", 500'000, [](size_t) { return "{}"; }, "]}"));
  expect_bounded("a long list");
}

}  // namespace
}  // namespace inferno::testing
