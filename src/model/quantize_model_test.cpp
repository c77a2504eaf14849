#include "model/quantize_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/model_info.h"
#include "model/weight_types.h"

namespace inferno {
namespace {

// The type each tensor has after quantizing a file of such tensors to the mix Q4_K_M.
std::vector<std::string> types_after(const std::vector<std::string>& names) {
  const std::string folder =
      testing::TempDir() + "inferno_quantize_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/in.gguf";
  GgufWriter writer(path);
  for (const std::string& name : names) writer.add_tensor(name, DType::f32, Shape(2, 256));
  for (size_t i = 0; i < names.size(); ++i) writer.write_data(std::vector<std::byte>(2 * 256 * sizeof(float)));
  writer.finish();
  quantize_model(GgufFile::open(path), folder + "/out.gguf", "Q4_K_M", 1);
  const GgufFile out = GgufFile::open(folder + "/out.gguf");
  std::vector<std::string> types;
  for (const std::string& name : names) types.emplace_back(out.get_tensor(name).type_name);
  std::filesystem::remove_all(folder);
  return types;
}

TEST(Quantize, AMixGivesItsBetterTypeToTheLastEighthAndTheHead) {
  EXPECT_EQ(types_after({"token_embd.weight", "blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.1.attn_q.weight"}),
            (std::vector<std::string>{"Q6_K", "Q4_K", "Q6_K", "Q4_K"}));
}

TEST(Quantize, ALayerThatNoModelHasDoesNotCount) {
  EXPECT_EQ(types_after({"blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.9223372036854775807.attn_v.weight",
                         "blk.2147483647.attn_v.weight"}),
            (std::vector<std::string>{"Q4_K", "Q6_K", "Q4_K", "Q4_K"}));
}

TEST(Quantize, RowsThatABlockDoesNotDivideTakeTheNextBestFormat) {
  const auto chosen = [](std::string_view type, int64_t cols) {
    return choose_weight_type(type, "blk.0.attn_q.weight", Shape(2, cols), false, 1).dtype;
  };
  EXPECT_EQ(chosen("Q4_K", 512), DType::q4_k);
  EXPECT_EQ(chosen("Q4_K", 96), DType::q5_0);
  EXPECT_EQ(chosen("Q6_K", 96), DType::q8_0);
  EXPECT_EQ(chosen("IQ4_XS", 96), DType::iq4_nl);
  EXPECT_EQ(chosen("IQ4_XS", 100), DType::f16);
  EXPECT_EQ(chosen("MXFP4", 100), DType::f16);
}

TEST(Quantize, ReportsProgressToTheEndAndWhatItWrote) {
  const std::string path = testing::TempDir() + "inferno_quantize_report.gguf";
  const GgufFile input = GgufFile::open(INFERNO_SOURCE_DIR "/tests/fixtures/llama.gguf");
  std::vector<uint64_t> done;
  uint64_t total = 0;
  testing::internal::CaptureStderr();
  const QuantizeReport report = quantize_model(input, path, "q4_k_m", 1, [&](uint64_t now, uint64_t all) {
    done.push_back(now);
    total = all;
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_GT(done.size(), 2U);
  EXPECT_EQ(done.front(), 0U);
  EXPECT_EQ(done.back(), total);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  const GgufFile output = GgufFile::open(path);
  const ModelInfo written = inspect_model(output);
  EXPECT_EQ(report.bytes_in, input.file_bytes());
  EXPECT_EQ(report.bytes_out, output.file_bytes());
  EXPECT_FALSE(report.fallbacks.empty());
  ASSERT_EQ(report.types.size(), written.types.size());
  for (size_t i = 0; i < report.types.size(); ++i) {
    EXPECT_EQ(report.types[i].type, written.types[i].type);
    EXPECT_EQ(report.types[i].tensors, written.types[i].tensors);
    EXPECT_EQ(report.types[i].bytes, written.types[i].bytes);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace inferno
